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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlanything_jax.envs.base import Environment, Observation, World
from rlanything_jax.tasks.task import Task

STARTUP_TIMEOUT_S = 120.0  # starting an interpreter and building the world, on a busy machine
CLOSE_TIMEOUT_S = 3.0  # for all workers together to close their environments


class EnvironmentPool:
    """Batched environments, synchronous or with answers collected later; a context manager.

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
        self._answers: dict[int, Observation] = {}  # received, not yet collected
        self._unanswered: dict[_Worker, collections.deque[tuple[int, str]]] = collections.defaultdict(
            collections.deque
        )
        self._deadlines: dict[_Worker, float] = {}
        self.restarts = 0
        self.seconds = 0.0  # spent submitting and waiting, by this process's clock
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
        self._running, self._answers = {}, {}
        self._unanswered.clear()

    def reset(self, requests: Sequence[tuple[int, Task]]) -> list[Observation]:
        """Starts an episode of each task in its slot, ending what ran there. Observations in the order
        given."""
        return self.collect(self.submit_reset(requests))

    def step(self, requests: Sequence[tuple[int, str]]) -> list[Observation]:
        """Takes one action in each slot. Observations in the order given.

        Raises ValueError where a slot has no running episode (never reset, or its last observation was done).
        """
        return self.collect(self.submit_step(requests))

    def submit_reset(self, requests: Sequence[tuple[int, Task]]) -> list[int]:
        """`reset` without waiting for the answers: returns the slots, for `collect`."""
        return self._submit("reset", requests)

    def submit_step(self, requests: Sequence[tuple[int, str]]) -> list[int]:
        """`step` without waiting for the answers: returns the slots, for `collect`."""
        for slot, _ in requests:
            if slot not in self._running:
                raise ValueError(f"slot {slot} has no running episode: reset it before stepping it")
        return self._submit("step", requests)

    def collect(self, slots: Sequence[int]) -> list[Observation]:
        """The answers to what was submitted for these slots, once all are there. Other slots may stay under way.

        Raises ValueError where nothing was submitted for a slot.
        """
        if unasked := set(slots) - self.under_way():
            raise ValueError(f"slots {sorted(unasked)} are not under way: submit a reset or a step first")
        with self._watched():
            while any(slot not in self._answers for slot in slots):
                self._receive()
            return [self._answers.pop(slot) for slot in slots]

    def under_way(self) -> set[int]:
        """The slots with something submitted and not collected."""
        return {slot for asked in self._unanswered.values() for slot, _ in asked} | self._answers.keys()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        except BaseException:
            self.close()  # answers may still be on their way: another call would take them for its own
            raise
        finally:
            self.seconds += time.monotonic() - start

    def _submit(self, kind: str, requests: Sequence[tuple[int, Any]]) -> list[int]:
        slots = [slot for slot, _ in requests]
        if len(set(slots)) < len(slots):
            raise ValueError(f"a slot is given twice in one call: {slots}")
        if again := self.under_way().intersection(slots):
            raise ValueError(f"slots {sorted(again)} are under way: collect them first")
        if self._episodes is None and not self._workers:
            raise ValueError("the pool is closed")
        with self._watched():
            if self._episodes is not None:
                for slot, payload in requests:
                    self._answer(slot, self._episodes.play(kind, slot, payload))
                return slots
            shares: dict[_Worker, list[tuple[int, Any]]] = collections.defaultdict(list)
            for slot, payload in requests:
                if kind == "step" and (reason := self._running[slot]) is not None:
                    self._answer(slot, _fault(reason))
                else:
                    shares[self._workers[slot % len(self._workers)]].append((slot, payload))
            for worker, share in shares.items():
                worker.wait_until_ready()
                if not self._unanswered[worker]:
                    self._deadlines[worker] = time.monotonic() + self._timeout_s[kind]
                self._unanswered[worker].extend((slot, kind) for slot, _ in share)
                try:
                    worker.connection.send((kind, share))
                except OSError:
                    self._replace(worker, worker.kill())
        return slots

    def _answer(self, slot: int, observation: Observation) -> None:
        if observation.done:
            self._running.pop(slot, None)
        else:
            self._running[slot] = None
        self._answers[slot] = observation

    def _receive(self) -> None:
        """Waits until a worker answers or its time is over."""
        # A worker answers its slots in the order sent. Its deadline is that of the slot it is at: one slow
        # batch of quick steps is fine, one slow step is not.
        asked = [worker for worker in self._workers if self._unanswered[worker]]
        patience = min(self._deadlines[worker] for worker in asked) - time.monotonic()
        answered = multiprocessing.connection.wait(
            [worker.connection for worker in asked], timeout=max(patience, 0.0)
        )
        for worker in asked:
            slot, kind = self._unanswered[worker][0]
            if worker.connection in answered:
                try:
                    observation = worker.connection.recv()
                except (EOFError, OSError):
                    self._replace(worker, worker.kill())
                    continue
                self._unanswered[worker].popleft()
                self._answer(slot, observation)
                if self._unanswered[worker]:
                    _, kind = self._unanswered[worker][0]
                    self._deadlines[worker] = time.monotonic() + self._timeout_s[kind]
            elif time.monotonic() >= self._deadlines[worker]:
                worker.kill()
                self._replace(worker, f"no answer within {self._timeout_s[kind]:g} s")

    def _replace(self, worker: _Worker, reason: str) -> None:
        """Starts a new process for a killed worker. The slots it had not answered are faults, of which the first is
        to blame; its other running episodes are marked as lost."""
        (culprit, kind), *others = self._unanswered.pop(worker)
        lost = f"lost with its worker in the {kind} of slot {culprit}: {reason}"
        for slot in self._running:
            if slot % len(self._workers) == worker.index:
                self._running[slot] = lost
        self._answer(culprit, _fault(f"{kind} of slot {culprit}: {reason}"))
        for slot, _ in others:
            self._answer(slot, _fault(lost))
        self._workers[worker.index] = _Worker(worker.index, self._make_world)
        self.restarts += 1


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
