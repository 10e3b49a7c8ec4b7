"""The training program, whose policy now and then wins and whose rewriter can write, until the moment named by STOP.

STOP is "rollout 1" or "save 1" (killed in that iteration's rollouts, or when it is saved), or "notice 1" (SIGTERM in its
rollouts).
"""

import os
import runpy
import signal
from typing import Any

from rlanything_jax import adaptation, loop
from rlanything_jax.sampler.generate import Response
from rlanything_jax.trainer.checkpoints import Checkpoints

moment, at = os.environ.get("STOP", "never 0").split()
play, iterate, save = loop.rollout, loop.iterate, Checkpoints.save
iterations: list[int] = []


def stop_at(name: str) -> None:
    if moment == name and iterations[-1:] == [int(at)]:
        os.kill(os.getpid(), signal.SIGTERM if name == "notice" else signal.SIGKILL)


def rollout(*args: Any, **kwargs: Any) -> list:
    def progress(done: int, total: int) -> None:
        stop_at("rollout")
        stop_at("notice")
        report(done, total)

    report = kwargs.pop("progress")
    played = play(*args, **kwargs, progress=progress)
    for trajectory in played:
        parent = trajectory.task.parent
        trajectory.won = (len(trajectory.tokens) + trajectory.request + (parent is not None)) % 3 > 0
    return played


def started(setting: Any, state: Any, phase: Any) -> Any:
    iterations.append(state.iteration)
    return iterate(setting, state, phase)


def saved(*args: Any) -> None:
    stop_at("save")
    save(*args)


loop.rollout, loop.iterate, Checkpoints.save = rollout, started, saved
edits = [Response(text, True, [], []) for text in ("nonsense", "hint on", "open fridge 1", "hint off")]
adaptation.generate = lambda *args, **kwargs: [edits] * len(args[1])
runpy.run_module("rlanything_jax.train", run_name="__main__", alter_sys=True)
