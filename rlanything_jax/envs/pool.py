"""Plays many episodes at once in worker processes, and survives environments that hang, crash or raise.

Slots are pinned to workers (slot % workers), so an episode stays where its state is. Workers are started as
fresh interpreters, never forked: the parent holds JAX, whose threads do not survive a fork, and a worker
imports neither JAX nor the parent's main module. The parent never waits without a deadline.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rlanything_jax.envs.base import Environment, Observation, World
from rlanything_jax.tasks.task import Task

STARTUP_TIMEOUT_S = 120.0  # starting an interpreter and building the world, on a busy machine
CLOSE_TIMEOUT_S = 3.0  # for all workers together to close their environments


class EnvironmentPool:
    """Synchronous, batched environments; a context manager.

    An episode lost to a fault ends with `done=True`, `won=False` and `info={'error': ...}`: its outcome says
    nothing about the policy, so it must not be trained on. An environment that raises loses its own episode.
    One that does not answer in time, or takes its process down, loses all running episodes of its worker,
    which is replaced.

    Args:
      make_world: builds the world, once in every worker; picklable, and not defined in the main script.
      workers: number of processes; 0 plays all episodes in this process, with the same trajectories but no
        protection from hangs and crashes.
      step_timeout_s: seconds that one step of one environment may take.
      reset_timeout_s: seconds that building and resetting one environment may take.

    Raises:
      RuntimeError: a worker could not be started, for instance because `make_world` raised.
    """

    def __init__(
        self, make_world: Callable[[], World], *, workers: int, step_timeout_s: float, reset_timeout_s: float
    ) -> None:
        if workers < 0:
            raise ValueError(f"workers={workers}: give 0 for this process or a positive number of processes")
        self._make_world = make_world
        self._timeout_s = {"step": step_timeout_s, "reset": reset_timeout_s}
        self._running: dict[int, str | None] = {}  # slot -> None, or why its episode was lost
        self.restarts = 0
        self.seconds = 0.0  # spent in reset and step, by this process's clock
        self._episodes = None if workers else _Episodes(make_world())
        self._workers: list[_Worker] = []
        try:
            for index in range(workers):
                self._workers.append(_Worker(index, make_world))
            for worker in self._workers:
                worker.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EnvironmentPool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all environments and ends all workers, by force where they do not end by themselves."""
        if self._episodes is not None:
            self._episodes.close()
        for worker in self._workers:
            worker.ask_to_stop()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for worker in self._workers:
            worker.stop(deadline)
        self._workers = []
        self._running = {}

    def reset(self, requests: Sequence[tuple[int, Task]]) -> list[Observation]:
        """Starts an episode of each task in its slot, ending what ran there. Observations in the order
        given."""
        return self._timed("reset", requests)

    def step(self, requests: Sequence[tuple[int, str]]) -> list[Observation]:
        """Takes one action in each slot. Observations in the order given.

        Raises ValueError where a slot has no running episode (never reset, or its last observation was done).
        """
        for slot, _ in requests:
            if slot not in self._running:
                raise ValueError(f"slot {slot} has no running episode: reset it before stepping it")
        return self._timed("step", requests)

    def _timed(self, kind: str, requests: Sequence[tuple[int, Any]]) -> list[Observation]:
        start = time.monotonic()
        try:
            return self._play(kind, requests)
        finally:
            self.seconds += time.monotonic() - start

    def _play(self, kind: str, requests: Sequence[tuple[int, Any]]) -> list[Observation]:
        slots = [slot for slot, _ in requests]
        if len(set(slots)) < len(slots):
            raise ValueError(f"a slot is given twice in one call: {slots}")
        if self._episodes is None and not self._workers:
            raise ValueError("the pool is closed")
        observations: dict[int, Observation] = {}
        if self._episodes is not None:
            for slot, payload in requests:
                observations[slot] = self._record(slot, self._episodes.play(kind, slot, payload))
        else:
            shares: dict[_Worker, list[tuple[int, Any]]] = collections.defaultdict(list)
            for slot, payload in requests:
                if kind == "step" and (reason := self._running[slot]) is not None:
                    observations[slot] = self._record(slot, _fault(reason))
                else:
                    shares[self._workers[slot % len(self._workers)]].append((slot, payload))
            try:
                observations |= self._play_in_workers(kind, shares)
            except BaseException:
                self.close()  # answers may still be on their way: another call would take them for its own
                raise
        return [observations[slot] for slot in slots]

    def _record(self, slot: int, observation: Observation) -> Observation:
        if observation.done:
            self._running.pop(slot, None)
        else:
            self._running[slot] = None
        return observation

    def _play_in_workers(
        self, kind: str, shares: Mapping[_Worker, list[tuple[int, Any]]]
    ) -> dict[int, Observation]:
        # A worker answers its slots in the order sent. Its deadline is that of the slot it is at: one slow
        # batch of quick steps is fine, one slow step is not.
        timeout_s = self._timeout_s[kind]
        observations: dict[int, Observation] = {}
        unanswered: dict[_Worker, collections.deque[int]] = {}
        deadlines: dict[_Worker, float] = {}
        for worker, share in shares.items():
            worker.wait_until_ready()
            unanswered[worker] = collections.deque(slot for slot, _ in share)
            try:
                worker.connection.send((kind, share))
            except OSError:
                observations |= self._replace(worker, kind, unanswered.pop(worker), worker.kill())
            deadlines[worker] = time.monotonic() + timeout_s

        while unanswered:
            patience = min(deadlines[worker] for worker in unanswered) - time.monotonic()
            answered = multiprocessing.connection.wait(
                [worker.connection for worker in unanswered], timeout=max(patience, 0.0)
            )
            for worker in list(unanswered):
                if worker.connection in answered:
                    try:
                        observation = worker.connection.recv()
                    except (EOFError, OSError):
                        observations |= self._replace(worker, kind, unanswered.pop(worker), worker.kill())
                        continue
                    slot = unanswered[worker].popleft()
                    observations[slot] = self._record(slot, observation)
                    deadlines[worker] = time.monotonic() + timeout_s
                    if not unanswered[worker]:
                        del unanswered[worker]
                elif time.monotonic() >= deadlines[worker]:
                    worker.kill()
                    reason = f"no answer within {timeout_s:g} s"
                    observations |= self._replace(worker, kind, unanswered.pop(worker), reason)
        return observations

    def _replace(
        self, worker: _Worker, kind: str, unanswered: Collection[int], reason: str
    ) -> dict[int, Observation]:
        """Starts a new process for a killed worker. Returns the faults of the slots it had not answered, of
        which the first was at fault, and marks its other running episodes as lost."""
        culprit, *others = unanswered
        lost = f"lost with its worker in the {kind} of slot {culprit}: {reason}"
        for slot in self._running:
            if slot % len(self._workers) == worker.index:
                self._running[slot] = lost
        faults = {culprit: _fault(f"{kind} of slot {culprit}: {reason}")}
        faults |= {slot: _fault(lost) for slot in others}
        for slot, fault in faults.items():
            self._record(slot, fault)
        self._workers[worker.index] = _Worker(worker.index, self._make_world)
        self.restarts += 1
        return faults


def _fault(error: str) -> Observation:
    return Observation(text="", admissible=(), score=0.0, won=False, done=True, info={"error": error})


class _Episodes:
    """The environments of one process, by slot. Exceptions become faults of the one episode."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._environments: dict[int, Environment] = {}

    def play(self, kind: str, slot: int, payload: Any) -> Observation:
        try:
            if kind == "step":
                return self._environments[slot].step(payload)
            if (old := self._environments.pop(slot, None)) is not None:
                old.close()
            self._environments[slot] = self._world.environment(payload)
            return self._environments[slot].reset()
        except Exception:
            return self.drop(slot, traceback.format_exc())

    def drop(self, slot: int, error: str) -> Observation:
        if (environment := self._environments.pop(slot, None)) is not None:
            with contextlib.suppress(Exception):  # it is broken already: the first error is the one to report
                environment.close()
        return _fault(error)

    def close(self) -> None:
        while self._environments:
            _, environment = self._environments.popitem()
            environment.close()


class _Worker:
    """The parent's side of one worker process: leader of its own session, so that Ctrl-C reaches the parent
    only and whatever its environments started can be killed with it."""

    def __init__(self, index: int, make_world: Callable[[], World]) -> None:
        self.index = index
        self.connection, theirs = multiprocessing.Pipe()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from rlanything_jax.envs.pool import _work; _work({theirs.fileno()})"
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._ready = False
        try:
            self.connection.send(make_world)
        except OSError:
            pass  # it died already: wait_until_ready says so
        except BaseException:  # cannot be pickled
            self.kill()
            raise

    def wait_until_ready(self) -> None:
        """Returns once the world is built; raises RuntimeError where that fails."""
        if self._ready:
            return
        error: str | None
        try:
            if self.connection.poll(STARTUP_TIMEOUT_S):
                error = self.connection.recv()
            else:
                error = f"not ready within {STARTUP_TIMEOUT_S:g} s"
        except (EOFError, OSError):
            error = self.kill()
        if error is not None:
            self.kill()
            raise RuntimeError(f"environment worker {self.index} could not start: {error}")
        self._ready = True

    def kill(self) -> str:
        """Kills the worker and all that its environments started. Returns how it ended."""
        self.connection.close()
        if self._process.returncode is None:  # not reaped, so the process group is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return f"the worker process died (exit status {self._process.returncode})"

    def ask_to_stop(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(None)

    def stop(self, deadline: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(deadline - time.monotonic(), 0.0))
        self.kill()


def _work(descriptor: int) -> None:
    """The worker's side: takes `make_world`, then answers ('reset' or 'step', [(slot, payload), ...]) with
    one Observation for each slot, until None.

    Environments run in the main thread, where they may use signals. A second thread reads the pipe, so that
    the worker notices at once that the parent is gone, even in the middle of a step, and dies with all it
    started.
    """
    os.set_inheritable(descriptor, False)
    connection: multiprocessing.connection.Connection = multiprocessing.connection.Connection(descriptor)
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                messages.put(connection.recv_bytes())
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    try:
        try:
            episodes = _Episodes(pickle.loads(messages.get())())
        except Exception:
            connection.send(traceback.format_exc())
            return
        connection.send(None)
        while (request := pickle.loads(messages.get())) is not None:
            kind, share = request
            for slot, payload in share:
                observation = episodes.play(kind, slot, payload)
                try:
                    connection.send(observation)
                except (pickle.PicklingError, AttributeError, TypeError):  # what pickle may raise
                    connection.send(episodes.drop(slot, traceback.format_exc()))
        episodes.close()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os.killpg(0, signal.SIGKILL)
