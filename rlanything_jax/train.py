"""Trains policy, judge and tasks together: `python -m rlanything_jax.train --config=configs/demo.py --workdir=DIR`.

A working directory with a checkpoint is continued; one that belongs to another config is refused unless --overwrite is given.
On several hosts the same command runs on each, with one working directory that all of them see. After a SIGTERM the run is
saved, and the exit status is 75; the same command continues it, also on another number of devices.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict, config_flags

from rlanything_jax import theory
from rlanything_jax.check import check
from rlanything_jax.evaluation import evaluate
from rlanything_jax.loop import Batch, Setting, State, iterate
from rlanything_jax.parallel import hosts
from rlanything_jax.parallel.preemption import EXIT_STATUS, Notice, Preempted, watch_for_sigterm
from rlanything_jax.report import Display, read_run, write_report
from rlanything_jax.report.record import Recorder, write_json
from rlanything_jax.report.rows import trajectory_row
from rlanything_jax.report.tensorboard import open_writer, write_metrics
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.setting import open_run, restore
from rlanything_jax.trainer.checkpoints import Checkpoints

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The config file; override with --config.key=value."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Where the run's files go.")
_DEBUG = flags.DEFINE_bool("debug", False, "Show where an error comes from.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Delete what another run left in --workdir.")
_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "Address:port of the first host; found out from Slurm and on a Cloud TPU."
)
_PROCESSES = flags.DEFINE_integer("processes", None, "How many hosts there are, with --coordinator.")
_PROCESS = flags.DEFINE_integer("process", None, "Which of them this is, with --coordinator.")
# What a run may be continued with: a longer run, other devices, another place or way to look at it.
_MAY_CHANGE = {"iterations", "record_rollouts", "tensorboard", "checkpoint_every"}


def train(
    config: ConfigDict, workdir: str, *, overwrite: bool = False, notice: Notice | None = None
) -> dict[str, Any]:
    """Runs or continues a training run; returns the last row of its metrics.

    Raises ValueError, before anything is trained, for a config that cannot work and for a directory of another config;
    Preempted when `notice` was given and what there is to save is saved.
    """
    notice = notice or Notice()
    check(config)
    hosts.on_first(lambda: claim(workdir, config, overwrite=overwrite))
    checkpoints = Checkpoints(workdir)
    last: dict[str, Any] = {}
    with (
        _tensorboard(config, workdir) as write_events,
        Display(config.iterations, enabled=hosts.first()) as display,
        open_run(config, _until(notice, display)) as (setting, state),
    ):
        if checkpoints.latest() is not None:
            restore(checkpoints, setting, state)
        display.resume(state.iteration)
        recorder = Recorder(workdir, state.iteration, state.tasks.events()) if hosts.first() else None
        try:
            while state.iteration < config.iterations:
                last = _advance(setting, state, recorder, checkpoints, display, notice)
                write_events(last)
                if state.iteration < config.iterations and hosts.any_host(notice.given):
                    raise Preempted
        except Preempted:
            _save(checkpoints, state)
            checkpoints.close()
            raise
        if hosts.first():
            rows = read_run(workdir).metrics
            display.summary_table(rows[0], rows[-1])
            last = rows[-1]
    checkpoints.close()
    if hosts.first():
        print(f"report: {write_report(workdir)}")
    return last


def claim(workdir: str, config: ConfigDict, *, overwrite: bool) -> None:
    """Makes `workdir` this config's; ValueError where another config's run is there and may not be deleted."""
    path, metrics = Path(workdir) / "config.json", Path(workdir) / "metrics.jsonl"
    text = json.loads(config.to_json_best_effort())
    if (
        path.exists() and metrics.exists() and metrics.stat().st_size
    ):  # a run that failed at once claims nothing
        found, wanted = (flatten_dict(values, sep=".") for values in (json.loads(path.read_text()), text))
        keys = (found.keys() | wanted.keys()) - _MAY_CHANGE
        keys = {key for key in keys if key.split(".")[0] not in ("mesh", "rollout_mesh")}
        different = sorted(key for key in keys if found.get(key) != wanted.get(key))
        if different:
            if not overwrite:
                raise ValueError(
                    f"{workdir} holds a run of another config (different: {', '.join(different)}): "
                    "use another --workdir, or --overwrite to delete it"
                )
            shutil.rmtree(workdir)
    os.makedirs(workdir, exist_ok=True)
    write_json(path, text)


def _advance(
    setting: Setting,
    state: State,
    recorder: Recorder | None,
    checkpoints: Checkpoints,
    display: Display,
    notice: Notice,
) -> dict[str, Any]:
    """One iteration with all that is written about it; the checkpoint comes last, and decides what counts.

    Returns the iteration's metrics. Raises Preempted as long as nothing has changed.
    """
    config, iteration = setting.config, state.iteration
    events = len(state.tasks.events())
    metrics: dict[str, Any] = {"iteration": iteration}
    evaluated: list[Trajectory] = []
    phase = _until(notice, display)
    if iteration % config.eval.every == 0:
        measured, evaluated = evaluate(setting, state, phase)
        metrics |= measured
    learned, batch = iterate(setting, state, phase)
    metrics |= learned
    if state.iteration == config.iterations:
        measured, evaluated = evaluate(setting, state, display.phase)
        metrics |= measured
    timeless = {name: value for name, value in metrics.items() if not name.startswith("time/")}
    hosts.check_agreement("what an iteration gave", lambda: (timeless, state.tasks.to_json()))
    for warning in theory.warnings_for(metrics) if config.votes_per_step else ():
        display.warn(warning)
    if recorder:
        recorder.trajectories(iteration, _rows(config, iteration, batch, evaluated))
        recorder.tasks(state.tasks.events_since(events))
        recorder.metrics(metrics)
    if state.iteration % config.checkpoint_every == 0 or state.iteration == config.iterations:
        display.phase("save", 0, 0)
        _save(checkpoints, state)
    display.iteration(metrics)
    return metrics


def _until(notice: Notice, display: Display) -> Callable[[str, int, int], None]:
    """The display's phases; raises Preempted in those that come before the first update of an iteration."""

    def phase(name: str, done: int, total: int) -> None:
        display.phase(name, done, total)
        if name == "train":  # all hosts are here together
            stop = hosts.any_host(notice.given)
        else:
            stop = name != "adapt" and notice.given and hosts.alone()
        if stop:
            raise Preempted

    return phase


def _save(checkpoints: Checkpoints, state: State) -> None:
    """Saves the state, on all hosts together, unless it is there."""
    if checkpoints.latest() != state.iteration:
        checkpoints.save(
            state.iteration,
            {"policy": state.policy, "judge": state.judge},
            {"tasks": state.tasks.to_json()},
        )


@contextlib.contextmanager
def _tensorboard(config: ConfigDict, workdir: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """What writes metrics as TensorBoard events, where the config asks for them."""
    if not (config.tensorboard and hosts.first()):
        yield lambda metrics: None
        return
    with open_writer(Path(workdir) / "tensorboard") as writer:
        yield functools.partial(write_metrics, writer)


def _rows(
    config: ConfigDict, iteration: int, batch: Batch, evaluated: list[Trajectory]
) -> list[dict[str, Any]]:
    """What of an iteration's episodes is written down: a few of each task, and a few of the evaluation."""
    n, waiting = config.rollouts_per_task, len(batch.tasks) - config.tasks_per_iteration
    rows = []
    for i, (trajectory, votes) in enumerate(zip(batch.trajectories, batch.votes, strict=True)):
        here = divmod(i, n)
        if here[1] < config.record_rollouts:
            kind = "verify" if here[0] >= len(batch.tasks) - waiting else "train"
            reward, advantage = batch.reward[here], batch.policy_advantage[here]
            rows.append(trajectory_row(iteration, kind, trajectory, votes, reward, advantage))
    shown = evaluated[: config.tasks_per_iteration * config.record_rollouts]
    return rows + [trajectory_row(iteration, "eval", trajectory) for trajectory in shown]


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}: options are given as --config.key=value")
    logging.set_verbosity(logging.WARNING)  # Orbax tells of every step of a save
    try:
        hosts.initialize(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
        with watch_for_sigterm() as notice:
            train(_CONFIG.value, _WORKDIR.value or "", overwrite=_OVERWRITE.value, notice=notice)
    except Preempted:
        print("stopped by SIGTERM: the same command continues the run", file=sys.stderr)
        sys.exit(EXIT_STATUS)
    except (ValueError, FileNotFoundError, ImportError) as error:
        if _DEBUG.value:
            raise
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main)
