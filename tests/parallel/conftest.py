"""Eight devices are simulated in processes of their own: the number cannot change once JAX has started."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def on_eight_devices(compiled: dict[str, str]) -> Callable[..., str]:
    """Runs a script of this folder with arguments on eight devices; returns what it printed, warnings are errors."""

    def run(script: str, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(Path(__file__).parent / script), *args],
            cwd=ROOT,
            env=os.environ
            | compiled
            | {
                "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
                "JAX_PLATFORMS": "cpu",
                "PYTHONPATH": str(ROOT),
                "TF_CPP_MIN_LOG_LEVEL": "2",
            },
            capture_output=True,
            text=True,
            timeout=290,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run
