"""The launcher of slices, by the commands that it would run and against a gcloud that is a script."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "launch" / "tpu_pod.sh"
NEEDED = ["--name=qwen", "--type=v5p-128", "--zone=us-east5-a", "--bucket=gs://my-runs"]

# Plays a slice that is asked for, comes, is taken away during the first run, comes again and finishes the second.
GCLOUD = """#!/usr/bin/env bash
echo "$*" >>"$LOG"
state=$(cat "$STATE" 2>/dev/null || echo ABSENT)
case "$*" in
  *queued-resources\\ describe*) if [[ $state == ABSENT ]]; then exit 1; else echo "$state"; fi ;;
  *queued-resources\\ create*) echo ACTIVE >"$STATE" ;;
  *queued-resources\\ delete*) echo ABSENT >"$STATE" ;;
  *--worker=0*)
    if [[ ! -e $STATE.second ]]; then
      touch "$STATE.second"
      echo "$FIRST_STATE" >"$STATE"
      exit "$FIRST_STATUS"
    fi
    ;;
esac
"""


def launch(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, env=os.environ | (env or {}), timeout=240
    )


@pytest.fixture
def cloud(tmp_path: Path) -> dict[str, str]:
    """The environment in which the false gcloud is found, and its log."""
    fake = tmp_path / "bin" / "gcloud"
    fake.parent.mkdir()
    fake.write_text(GCLOUD)
    fake.chmod(0o755)
    return {
        "PATH": f"{fake.parent}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "STATE": str(tmp_path / "state"),
        "TPU_POD_POLL_S": "0",
        "FIRST_STATE": "SUSPENDED",
        "FIRST_STATUS": "255",
    }


def commands(cloud: dict[str, str]) -> list[str]:
    """The verbs of what was asked of gcloud, but for the questions about the state."""
    verbs = []
    for line in Path(cloud["LOG"]).read_text().splitlines():
        for verb in ("create", "delete", "scp", "--worker=0", "storage rsync"):
            if f" {verb} " in f" {line} ":
                verbs.append(verb.split()[0])
                break
    return verbs


def test_a_dry_run_prints_every_command_and_runs_none(cloud: dict[str, str], tmp_path: Path) -> None:
    done = launch(
        *NEEDED,
        "--spot",
        f"--results={tmp_path / 'results'}",
        "--dry-run",
        "--",
        "--config=configs/demo.py",
        "--config.world.kinds=({},)",
        env=cloud,
    )
    assert done.returncode == 0, done.stderr
    assert not Path(cloud["LOG"]).exists() and not (tmp_path / "results").exists()
    lines = done.stdout.splitlines()
    create = "gcloud compute tpus queued-resources create qwen --zone=us-east5-a --node-id=qwen --accelerator-type=v5p-128"
    assert lines[0].strip() == f"{create} --runtime-version=v2-alpha-tpuv5 --spot --quiet"
    for part in (
        "git\\ ls-files",
        "tpu-vm scp",
        "launch/setup.sh tpu",
        "gcsfuse --implicit-dirs my-runs",
        "rlanything_jax.train",
        "--workdir=../bucket/qwen",
        "--worker=0",
        "gcloud storage rsync gs://my-runs/qwen",
        "queued-resources delete qwen",
    ):
        assert part in done.stdout, part


def test_the_flags_of_the_training_reach_it_as_they_are(tmp_path: Path) -> None:
    """The command for the hosts is run here, with a Python that writes down its arguments."""
    flags = ["--config=configs/demo.py", "--config.world.kinds=({},)", "--config.world.data=it's here"]
    printed = launch(*NEEDED, "--dry-run", "--", *flags).stdout
    start = next(line for line in printed.splitlines() if "setsid" in line)
    words = subprocess.run(["bash", "-c", f'printf "%s\\0" {start}'], capture_output=True, text=True).stdout
    remote = next(word for word in words.split("\0") if word.startswith("--command=")).removeprefix(
        "--command="
    )
    python = tmp_path / "rlanything" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@"\nexit 75\n')
    python.chmod(0o755)
    watch = "while [[ ! -e train.status ]]; do sleep 0.05; done"
    subprocess.run(["bash", "-c", f"({remote})\n{watch}"], cwd=tmp_path, check=True, timeout=240)
    log = (tmp_path / "train.log").read_text().splitlines()
    assert log == ["-m", "rlanything_jax.train", "--workdir=../bucket/qwen", *flags]
    assert (tmp_path / "train.status").read_text().strip() == "75"


def test_a_slice_that_is_taken_away_is_made_again_and_the_run_goes_on(cloud: dict[str, str]) -> None:
    done = launch(*NEEDED, "--spot", "--", "--config=configs/demo.py", env=cloud)
    assert done.returncode == 0, done.stderr
    once = ["create", "scp", "--worker=0"]
    assert commands(cloud) == [*once, "delete", *once, "delete"]
    assert "goes on from the last checkpoint" in done.stderr


def test_an_interrupted_run_goes_on_on_the_same_slice(cloud: dict[str, str]) -> None:
    cloud |= {"FIRST_STATE": "ACTIVE", "FIRST_STATUS": "75"}
    done = launch(*NEEDED, "--keep", "--", "--config=configs/demo.py", env=cloud)
    assert done.returncode == 0, done.stderr
    assert commands(cloud) == ["create", "scp", "--worker=0", "scp", "--worker=0"]


def test_a_slice_that_is_there_is_used(cloud: dict[str, str]) -> None:
    Path(cloud["STATE"]).write_text("ACTIVE\n")
    Path(cloud["STATE"] + ".second").touch()
    assert launch(*NEEDED, "--keep", "--", "--config=configs/demo.py", env=cloud).returncode == 0
    assert commands(cloud) == ["scp", "--worker=0"]


def test_a_run_that_fails_stops_the_launcher_and_leaves_the_slice(cloud: dict[str, str]) -> None:
    cloud |= {"FIRST_STATE": "ACTIVE", "FIRST_STATUS": "1"}
    done = launch(*NEEDED, "--", "--config=configs/demo.py", env=cloud)
    assert done.returncode == 2 and "failed with status 1" in done.stderr
    assert commands(cloud) == ["create", "scp", "--worker=0"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--name="),
        (["--name=Qwen"], "small letters"),
        (["--name=qwen"], "--type is missing"),
        ([*NEEDED, "--types=x"], "unknown option --types=x"),
        ([*NEEDED[:1], "--type=v9-8", *NEEDED[2:]], "give --runtime"),
        ([*NEEDED, "--", "--workdir=here"], "gs://"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], reason: str) -> None:
    done = launch(*arguments)
    assert done.returncode == 2 and reason in done.stderr


def test_help_says_every_option() -> None:
    text = launch("--help").stdout
    for option in "name type zone bucket project runtime spot keep results dry-run".split():
        assert f"--{option}" in text


def test_shellcheck_finds_nothing() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if (shellcheck := shutil.which("shellcheck", path=path)) is None:
        pytest.skip("no shellcheck: pip install -e '.[dev]'")
    scripts = sorted(map(str, (ROOT / "launch").glob("*.sh")))
    done = subprocess.run([shellcheck, "--external-sources", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
