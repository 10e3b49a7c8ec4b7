"""Runs a sweep: one training for each set of overrides that the config's `get_sweep` yields.

    python launch/sweep.py --config=configs/demo.py --workdir=runs/sweep [--parallel=2]
    python launch/sweep.py --config=... --workdir=... --slice="--type=v5litepod-16 --zone=ZONE --bucket=BUCKET --spot"

A config file with a sweep has, beside `get_config()`,

    def get_sweep(config):
        for seed in range(3):
            for lam in (0.5, 1.0):
                yield {"seed": seed, "feedback.lam": lam}

Each run has its own folder in --workdir, named by its overrides. `sweep.csv` there has a row a run with its headline numbers
before and after, `sweep.svg` the curves. The same command goes on with what is missing: a run is finished when its
metrics.jsonl has `config.iterations` rows. With --slice, runs go to slices of Cloud TPU by launch/tpu_pod.sh, with these
options of it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import functools
import hashlib
import importlib.util
import operator
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from rlanything_jax.parallel.preemption import EXIT_STATUS
from rlanything_jax.report.picture import STYLE
from rlanything_jax.report.read import read_run, series
from rlanything_jax.report.summary import HEADLINES, before_after

ROOT = Path(__file__).resolve().parent.parent
CURVE = "eval/success"


class Run:
    """One set of overrides and the folder of its results."""

    def __init__(self, base: ConfigDict, overrides: Mapping[str, Any], workdir: Path) -> None:
        config = base.copy_and_resolve_references().lock()
        for key, value in overrides.items():
            section, _, name = key.rpartition(".")
            place = functools.reduce(operator.getitem, section.split("."), config) if section else config
            place[name] = value  # an unknown key or another type is an error
        self.overrides = dict(overrides)
        self.iterations: int = config.iterations
        parts = (f"{key}={_written(value)}" for key, value in overrides.items())
        self.name = re.sub(r"[^\w.=,+-]+", "_", ",".join(parts)) or "base"
        self.folder = workdir / self.name

    def metrics(self) -> list[dict[str, Any]]:
        try:
            return read_run(self.folder).metrics
        except (FileNotFoundError, ValueError):  # not begun, or no iteration is over
            return []

    def finished(self) -> bool:
        return len(self.metrics()) >= self.iterations

    def flags(self) -> list[str]:
        return [f"--config.{key}={_written(value)}" for key, value in self.overrides.items()]


def _written(value: Any) -> str:
    """As the command line reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(path: Path) -> ModuleType:
    """The config file as a module. Raises ValueError where it has no sweep."""
    spec = importlib.util.spec_from_file_location(f"sweep_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"--config={path} is not a Python file")
    sys.path.insert(0, str(ROOT))  # config files import one another from there
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_sweep"):
        raise ValueError(f"{path} has no get_sweep(config) that yields overrides; launch/sweep.py shows one")
    return module


def runs(path: Path, workdir: Path) -> list[Run]:
    """The runs of a config file. Raises ValueError for a sweep that yields nothing, a run twice, or an unknown key."""
    module = load(path)
    config = module.get_config()
    try:
        found = [Run(config, overrides, workdir) for overrides in module.get_sweep(config)]
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: get_sweep yields what the config does not have: {error}") from None
    names = [run.name for run in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path}: get_sweep yields {twice[0]} twice")
    if not found:
        raise ValueError(f"{path}: get_sweep yields nothing")
    return found


def command(run: Run, config: Path, slice_options: Sequence[str] | None) -> list[str]:
    """What runs it, here or on a slice."""
    if slice_options is None:
        here = [f"--config={config.resolve()}", f"--workdir={run.folder.resolve()}", *run.flags()]
        return [sys.executable, "-m", "rlanything_jax.train", *here]
    name = (
        "sweep-" + hashlib.sha256(run.name.encode()).hexdigest()[:12]
    )  # a slice's name has letters and digits only
    pod = [
        str(ROOT / "launch" / "tpu_pod.sh"),
        f"--name={name}",
        *slice_options,
        f"--results={run.folder.resolve()}",
    ]
    there = config.resolve().relative_to(ROOT) if config.resolve().is_relative_to(ROOT) else config
    return [*pod, "--", f"--config={there}", *run.flags()]


class Processes:
    """The trainings that are going on; a signal ends them, and what is not begun stays so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going: set[subprocess.Popen] = set()
        self.stopped = False

    def run(self, words: Sequence[str], log: Path) -> int:
        """Its exit status; a run that was interrupted and saved goes on."""
        while True:
            with self._lock:
                if self.stopped:
                    return EXIT_STATUS
                with log.open("a") as out:
                    process = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
                self._going.add(process)
            status = process.wait()
            with self._lock:
                self._going.discard(process)
            if status != EXIT_STATUS:
                return status

    def stop(self, *_: Any) -> None:
        self.stopped = True
        for process in list(self._going):
            process.terminate()


def table(found: Sequence[Run]) -> tuple[list[str], list[dict[str, Any]]]:
    """(columns, rows): overrides, iterations done, and each headline before and after."""
    keys = list(dict.fromkeys(key for run in found for key in run.overrides))
    rows = []
    for run in found:
        metrics = run.metrics()
        row: dict[str, Any] = {"run": run.name, **run.overrides, "iterations_done": len(metrics)}
        for headline in HEADLINES:
            if measured := before_after(metrics, headline.key):
                row[f"{headline.key} before"], row[f"{headline.key} after"] = measured[:2]
        rows.append(row)
    measured_keys = [f"{h.key} {when}" for h in HEADLINES for when in ("before", "after")]
    there = [key for key in measured_keys if any(key in row for row in rows)]
    return ["run", *keys, "iterations_done", *there], rows


def write_results(found: Sequence[Run], workdir: Path) -> None:
    """`sweep.csv` and `sweep.svg`, of all runs as far as they are."""
    columns, rows = table(found)
    with (workdir / "sweep.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.6), dpi=200, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for run in found:
            iterations, values = series(run.metrics(), CURVE)
            axes.plot(iterations, values, marker="o", markersize=3, label=run.name)
        axes.set_title("Success on held-out tasks")
        axes.set_xlabel("iteration")
        axes.legend(fontsize=6)
        figure.savefig(workdir / "sweep.svg")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="launch/sweep.py", description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--config", type=Path, required=True, help="a config file with get_sweep(config)")
    add("--workdir", type=Path, required=True, help="where the runs' folders, sweep.csv and sweep.svg go")
    add("--parallel", type=int, default=1, help="trainings at once")
    add("--slice", type=shlex.split, help="options of launch/tpu_pod.sh: run on slices of Cloud TPU")
    add("--dry-run", action="store_true", help="print the commands of the missing runs")
    options = parser.parse_args(arguments)
    try:
        found = runs(options.config, options.workdir)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    missing = [run for run in found if not run.finished()]
    commands = {run.name: command(run, options.config, options.slice) for run in missing}
    if options.dry_run:
        for words in commands.values():
            print(shlex.join(words))
        return 0
    print(f"sweep: {len(found)} runs, {len(found) - len(missing)} of them finished", flush=True)
    processes = Processes()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, processes.stop)

    def train(run: Run) -> int:
        run.folder.mkdir(parents=True, exist_ok=True)
        status = processes.run(commands[run.name], options.workdir / f"{run.name}.log")
        print(
            f"sweep: {run.name} {'finished' if run.finished() else f'ended with status {status}'}", flush=True
        )
        return 0 if run.finished() else status or 1

    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        statuses = list(pool.map(train, missing))
        write_results(found, options.workdir)
    if processes.stopped:
        return EXIT_STATUS
    for run, status in zip(missing, statuses, strict=True):
        if status:
            print(f"sweep: {run.name} failed, see {options.workdir / run.name}.log", file=sys.stderr)
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
