"""Whole runs on several hosts and other devices are the run of one host: killed, told to stop, and continued."""

import json
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlanything_jax.parallel.preemption import EXIT_STATUS

pytestmark = pytest.mark.timeout(1200)  # nine programs in all; a minute or two where nothing else runs
SCRIPT = (Path(__file__).parent / "scripted_run.py").read_text()
Start = Callable[..., subprocess.Popen]


def devices(count: int) -> str:
    return f"--xla_force_host_platform_device_count={count} --xla_backend_optimization_level=0"


def metrics(workdir: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]


def responses(workdir: Path) -> list[list[str]]:
    episodes = [
        json.loads(line)
        for path in sorted((workdir / "trajectories").iterdir())
        for line in path.read_text().splitlines()
    ]
    return [[step["response"] for step in episode["steps"]] for episode in episodes]


def assert_same_run(a: Path, b: Path) -> None:
    assert responses(a) == responses(b)
    for row, other in zip(metrics(a), metrics(b), strict=True):
        assert row == pytest.approx(other, rel=1e-5, abs=1e-6)
    events = [(folder / "tasks.jsonl").read_text() for folder in (a, b)]
    assert events[0] == events[1] and '"proposed"' in events[0]


def finish(process: subprocess.Popen, status: int = 0) -> None:
    _, err = process.communicate(timeout=600)
    assert process.returncode == status, err[-3000:]


@pytest.fixture(scope="module")
def one_host(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three iterations on eight devices of one process."""
    workdir = tmp_path_factory.mktemp("one_host")
    flags = ("--config.iterations=3", "--config.mesh.fsdp=2")
    finish(start(f"--workdir={workdir}", *flags, script=SCRIPT, XLA_FLAGS=devices(8)))
    assert any("policy/loss" in row and "judge/loss" in row for row in metrics(workdir))
    return workdir


def test_devices_that_only_sample_change_nothing(one_host: Path, start: Start, tmp_path: Path) -> None:
    """Of eight devices four train and four sample; weights go from one mesh to the other in memory."""
    flags = ("--config.iterations=3", "--config.mesh.fsdp=2", "--config.rollout_mesh.devices=4")
    finish(start(f"--workdir={tmp_path}", *flags, script=SCRIPT, XLA_FLAGS=devices(8)))
    assert_same_run(tmp_path, one_host)


def start_two(start: Start, workdir: Path, stop: str = "never 0") -> list[subprocess.Popen]:
    """Two processes of four devices; the second one stops."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = ["--config.iterations=3", "--config.mesh.fsdp=2", f"--workdir={workdir}"]
    flags += [f"--coordinator={address}", "--processes=2"]
    return [
        start(
            *flags,
            f"--process={i}",
            script=SCRIPT,
            XLA_FLAGS=devices(4),
            JAX_PLATFORMS="cpu",
            STOP=stop if i else "never 0",
        )
        for i in range(2)
    ]


def test_two_hosts_killed_at_several_moments_are_one_host(
    one_host: Path, start: Start, tmp_path: Path
) -> None:
    for stop, saved in (("rollout 1", ["1"]), ("save 2", ["1", "2"])):
        first, second = start_two(start, tmp_path, stop)
        finish(second, -signal.SIGKILL)
        first.kill()  # what a launcher does when a host is lost
        first.communicate()
        whole = [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit()]
        assert sorted(whole) == saved
    for process in start_two(start, tmp_path):
        finish(process)
    assert_same_run(tmp_path, one_host)


def test_a_preempted_run_saves_and_goes_on_with_other_devices(
    one_host: Path, start: Start, tmp_path: Path
) -> None:
    """Told to stop in the rollouts of iteration 1, on two devices and before a checkpoint is due; continued on one."""
    flags = (f"--workdir={tmp_path}", "--config.iterations=3", "--config.checkpoint_every=3")
    notified = start(*flags, "--config.mesh.fsdp=2", script=SCRIPT, XLA_FLAGS=devices(2), STOP="notice 1")
    finish(notified, EXIT_STATUS)
    assert len(metrics(tmp_path)) == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1"]
    finish(start(*flags, script=SCRIPT, XLA_FLAGS=devices(1)))
    assert_same_run(tmp_path, one_host)
