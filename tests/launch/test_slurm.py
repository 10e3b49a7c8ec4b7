"""The Slurm job, with an srun and an scontrol that are scripts."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "launch" / "slurm.sh"


@pytest.mark.parametrize(("status", "queued"), [(0, False), (75, True), (143, True), (1, False)])
def test_a_job_that_was_interrupted_queues_again(tmp_path: Path, status: int, queued: bool) -> None:
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "setup.sh").write_text("set -euo pipefail\n")
    for name, body in (
        ("srun", f'echo "$*" >"{tmp_path}/ran"; exit {status}'),
        ("scontrol", f'echo "$*" >"{tmp_path}/queued"'),
    ):
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(SCRIPT), "--config=configs/demo.py", "--workdir=shared dir"],
        env=os.environ
        | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "SLURM_JOB_ID": "17",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == (0 if queued else status), done.stderr
    ran = (tmp_path / "ran").read_text().strip()
    assert ran.endswith("python -m rlanything_jax.train --config=configs/demo.py --workdir=shared dir")
    assert (tmp_path / "queued").exists() == queued
    if queued:
        assert (tmp_path / "queued").read_text().split() == ["requeue", "17"]


def test_outside_of_slurm_the_error_says_how_to_submit_it() -> None:
    env = {key: value for key, value in os.environ.items() if key != "SLURM_SUBMIT_DIR"}
    done = subprocess.run(["bash", str(SCRIPT)], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0 and "sbatch" in done.stderr
