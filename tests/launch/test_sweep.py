"""Sweeps: what runs, what is left to run after a kill, and what comes out."""

import csv
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from ml_collections import ConfigDict

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """
from tests.tiny_config import get_config as get_tiny_config

def get_config():
    config = get_tiny_config()
    config.iterations = 2
    config.adapt_tasks = False
    config.eval.judged = 0
    config.pretrain.cache = {cache!r}
    return config

def get_sweep(config):
    for lam in {lams}:
        yield {{"feedback.lam": lam}}
"""


@pytest.fixture(scope="module")
def sweep() -> ModuleType:
    spec = importlib.util.spec_from_file_location("launch_sweep", ROOT / "launch" / "sweep.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder: Path, lams: str = "(0.5, 1.0)", cache: str = "") -> Path:
    path = folder / "sweep_config.py"
    path.write_text(SWEEP.format(lams=lams, cache=cache))
    return path


def finish(folder: Path, iterations: int, success: float) -> None:
    """A run that is over, as far as a sweep can see."""
    folder.mkdir(parents=True)
    rows = [{"iteration": i, "eval/success": success * i} for i in range(iterations)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_killed_sweep_goes_on_with_what_is_missing(
    make_tiny: Callable[[], ConfigDict], compiled: dict[str, str], tmp_path: Path
) -> None:
    """Two runs of two iterations, one after the other; the sweep is killed when the first is over."""
    config = write(tmp_path, cache=make_tiny().pretrain.cache)
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "launch" / "sweep.py"), f"--config={config}", f"--workdir={out}"]
    env = os.environ | compiled | {"JAX_PLATFORMS": "cpu"}
    first, second = (out / f"feedback.lam={lam}" / "metrics.jsonl" for lam in (0.5, 1.0))

    def rows(path: Path) -> int:
        return len(path.read_text().splitlines()) if path.exists() else 0

    killed = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    while rows(first) < 2 or not (out / "feedback.lam=1.0.log").exists():
        assert killed.poll() is None, (out / "feedback.lam=0.5.log").read_text()[-3000:]
        time.sleep(0.1)
    killed.send_signal(signal.SIGTERM)
    assert killed.communicate(timeout=120) is not None and killed.returncode == 75
    assert rows(second) < 2
    before = first.stat().st_mtime_ns

    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "2 runs, 1 of them finished" in again.stdout
    assert first.stat().st_mtime_ns == before  # not run again
    with (out / "sweep.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(row["feedback.lam"], row["iterations_done"]) for row in table] == [("0.5", "2"), ("1.0", "2")]
    assert all(0 <= float(row[f"eval/success {when}"]) <= 1 for row in table for when in ("before", "after"))
    assert (out / "sweep.svg").read_text().startswith("<?xml")


def test_the_table_has_a_row_a_run_with_what_was_measured(sweep: ModuleType, tmp_path: Path) -> None:
    found = sweep.runs(write(tmp_path), tmp_path)
    finish(found[0].folder, 2, 0.5)
    columns, rows = sweep.table(found)
    assert columns == ["run", "feedback.lam", "iterations_done", "eval/success before", "eval/success after"]
    assert rows[0] == dict(zip(columns, ["feedback.lam=0.5", 0.5, 2, 0.0, 0.5], strict=True))
    assert rows[1] == {"run": "feedback.lam=1.0", "feedback.lam": 1.0, "iterations_done": 0}


def test_a_run_is_finished_when_it_has_all_rows(sweep: ModuleType, tmp_path: Path) -> None:
    one, two = sweep.runs(write(tmp_path), tmp_path)
    finish(one.folder, 2, 1.0)
    finish(two.folder, 1, 1.0)
    assert one.finished() and not two.finished()


def test_a_dry_run_prints_what_is_missing(
    sweep: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write(tmp_path)
    finish(tmp_path / "out" / "feedback.lam=0.5", 2, 1.0)
    arguments = [f"--config={config}", f"--workdir={tmp_path / 'out'}", "--dry-run"]
    assert sweep.main(arguments) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert shlex.split(line)[1:3] == ["-m", "rlanything_jax.train"]
    assert shlex.split(line)[-1] == "--config.feedback.lam=1.0"
    assert sweep.main([*arguments, "--slice=--type=v5litepod-16 --zone=z --bucket=b --spot"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[0].endswith("launch/tpu_pod.sh")
    assert words[2:6] == ["--type=v5litepod-16", "--zone=z", "--bucket=b", "--spot"]
    assert words[words.index("--") :] == ["--", f"--config={config}", "--config.feedback.lam=1.0"]


@pytest.mark.parametrize(
    ("lams", "reason"),
    [("()", "yields nothing"), ("(1.0, 1.0)", "twice"), ("('much',)", "does not have")],
)
def test_a_sweep_that_cannot_run_is_refused(
    sweep: ModuleType, tmp_path: Path, lams: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        sweep.runs(write(tmp_path, lams), tmp_path)


def test_a_config_without_a_sweep_is_refused(sweep: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no get_sweep"):
        sweep.runs(ROOT / "configs" / "demo.py", tmp_path)
    with pytest.raises(ValueError, match="not a Python file"):
        sweep.runs(tmp_path / "none.py", tmp_path)


def test_an_unknown_key_is_refused(sweep: ModuleType, tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("feedback.lam", "feedback.lambda"))
    with pytest.raises(ValueError, match="lambda"):
        sweep.runs(path, tmp_path)
