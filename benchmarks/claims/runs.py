"""Which runs are missing, in which order, and what of a finished one is kept."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import queue
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.claims import arms
from benchmarks.claims.rows import ROOT, find_row, make_row, row_path, write_row
from launch.sweep import Processes, Run, command

JUDGED, JUDGED_SMALL = 24, 4  # held-out tasks on which the judges of a run are compared
ARMS_FILE = ROOT / "benchmarks" / "claims" / "arms.py"


@dataclasses.dataclass(frozen=True)
class Job:
    """One process to run; `keep` makes its row, and may run another one for that."""

    name: str
    words: list[str]
    log: Path
    keep: Callable[[Processes, list[str]], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is asked for."""

    tables: Sequence[str]
    seeds: int
    small: bool
    iterations: int | None
    results: Path
    workdir: Path

    def arms(self, table: str) -> list[str]:
        return arms.arms_of(table, small=self.small)

    def config(self, arm: str) -> arms.ConfigDict:
        config = arms.get_config(arm)
        if self.iterations:
            config.iterations = self.iterations
        return config

    def marks(self) -> dict[str, str]:
        """The config hash of every arm of every table."""
        names = dict.fromkeys(name for table in arms.TABLES for name in self.arms(table))
        found = {name: arms.config_hash(self.config(name)) for name in names}
        return found | {"agreement": f"{arms.config_hash(self._measured())}-signals"}

    def missing(self, parallel: int) -> list[Job]:
        """The runs without a row, each config and seed once.

        A block of as many seeds as run at once goes through all arms before the next: seeds that run together train their
        warm starts together, once, and a call that is stopped leaves whole seeds behind.
        """
        marks = self.marks()
        names = list(dict.fromkeys(name for table in self.tables for name in self.arms(table)))
        once: dict[str, str] = {}
        for name in names:
            once.setdefault(marks[name], name)
        jobs = []
        for first in range(0, self.seeds, parallel):
            block = range(first, min(first + parallel, self.seeds))
            jobs += [
                self._training(name, marks[name], seed)
                for name in once.values()
                for seed in block
                if not find_row(self.results, marks[name], seed)
            ]
            if "judge" in self.tables:
                jobs += [
                    self._agreement(marks["agreement"], seed)
                    for seed in block
                    if not find_row(self.results, marks["agreement"], seed)
                ]
        return jobs

    def _training(self, arm: str, mark: str, seed: int) -> Job:
        overrides = {"seed": seed}
        if self.iterations:
            overrides["iterations"] = self.iterations
        label = f"{arm.replace('/', '.')}.{mark}"
        config = self.config(arm)
        run = Run(config, overrides, self.workdir / label)
        log = self.workdir / label / f"{run.name}.log"

        def keep(processes: Processes, pinned: list[str]) -> None:
            if not run.finished():
                raise RuntimeError(f"{run.folder} holds {len(run.metrics())} of {run.iterations} iterations")
            judged = []
            if config.votes_per_step:
                path = run.folder / "judged.json"
                tasks = JUDGED_SMALL if self.small else JUDGED
                words = ["-m", "benchmarks.process_accuracy", str(run.folder.resolve())]
                words += [f"--tasks={tasks}", f"--json={path.resolve()}"]
                if status := processes.run([*pinned, sys.executable, *words], log):
                    raise RuntimeError(f"benchmarks.process_accuracy ended with status {status}")
                judged = json.loads(path.read_text())
            row = make_row(run.folder, arm=arm, mark=mark, seed=seed, judged=judged)
            write_row(row_path(self.results, arm, mark, seed), row)

        return Job(f"{arm}, seed {seed}", command(run, Path(f"{ARMS_FILE}:{arm}"), None), log, keep)

    def _agreement(self, mark: str, seed: int) -> Job:
        path = row_path(self.results, "small.agreement" if self.small else "agreement", mark, seed)
        words = [
            sys.executable,
            "-m",
            "benchmarks.claims.agreement",
            f"--seed={seed}",
            f"--json={path.resolve()}",
        ]
        log = self.workdir / f"{path.stem}.log"

        def keep(processes: Processes, pinned: list[str]) -> None:
            if not path.exists():
                raise RuntimeError(f"{path} was not written")

        return Job(f"agreement, seed {seed}", words + ["--small"] * self.small, log, keep)

    def _measured(self) -> arms.ConfigDict:
        from benchmarks.claims.agreement import ARM  # jax, which a plan does not need

        return arms.get_config(f"{arms.SMALL_PREFIX}{ARM}" if self.small else ARM)


def run_all(jobs: Sequence[Job], processes: Processes, parallel: int) -> list[Job]:
    """Runs the jobs, `parallel` at once, and keeps their rows; returns those that failed."""
    cores: queue.Queue[list[str]] = queue.Queue()
    for words in _pins(parallel):
        cores.put(words)
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # of processes that live for minutes on one core

    def run(job: Job) -> bool:
        if processes.stopped:
            return True
        pinned = cores.get()
        try:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            status = processes.run([*pinned, *job.words], job.log)
            if status == 0:
                job.keep(processes, pinned)
            print(
                f"claims: {job.name} {'finished' if status == 0 else f'ended with status {status}'}",
                flush=True,
            )
            return status == 0 or processes.stopped
        except RuntimeError as error:
            print(f"claims: {job.name}: {error}", flush=True)
            return processes.stopped
        finally:
            cores.put(pinned)

    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        fine = list(pool.map(run, jobs))
    return [job for job, ok in zip(jobs, fine, strict=True) if not ok]


def _pins(parallel: int) -> list[list[str]]:
    """What goes before a command so that it keeps to one core, where there are as many runs as cores."""
    taskset = shutil.which("taskset")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not taskset or parallel < len(cores):
        return [[]] * parallel
    return [[taskset, "-c", str(cores[i % len(cores)])] for i in range(parallel)]
