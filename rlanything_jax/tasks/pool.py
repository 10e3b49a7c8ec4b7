"""The task pool of Algorithm 1: originals, accepted rewrites, proposals that wait for verification, and the
log.

A task that the policy finds too easy or too hard is rewritten. The rewrite is a proposal until the policy has
played it; it enters the pool only if its measured success rate moved the right way and stayed in range.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlanything_jax.tasks.task import Task

Direction = Literal["harder", "easier"]


@dataclasses.dataclass
class Statistics:
    """What is known of the policy on one task, over all iterations."""

    rollouts: int = 0
    wins: int = 0
    last_iteration: int = -1
    last_accuracy: float = 0.0


class TaskPool:
    """All tasks of a run, each under its own id. Originals never leave.

    Every change is an event: a flat dict with the keys event ('refused', 'proposed', 'accepted', 'rejected'),
    iteration, task (None where refused), parent, generation, direction, instruction, parent_instruction,
    critique, edit, accuracy_before, accuracy_after (None before verification) and reason.

    Args:
      tasks: the originals, with distinct ids. seed: of the samples. original_share: the share of a sample
      that is drawn from the originals, in [0, 1]. fingerprint: equal for two tasks if and only if they are
      the same game: `World.fingerprint`. Called once for
        a task, for originals when the first rewrite needs them.

    Raises:
      ValueError: no tasks, two of one id, one that is itself a rewrite, or a share out of range.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        seed: int,
        original_share: float,
        fingerprint: Callable[[Task], str],
    ) -> None:
        if not 0.0 <= original_share <= 1.0:
            raise ValueError(f"original_share={original_share}: give a share in [0, 1]")
        if not tasks:
            raise ValueError("no tasks: a pool needs at least one original")
        self._originals = {task.id: task for task in tasks}
        if len(self._originals) < len(tasks):
            twice = [id for id, n in collections.Counter(task.id for task in tasks).items() if n > 1]
            raise ValueError(f"two tasks with the id {twice[0]!r}: ids must be distinct")
        for task in tasks:
            if task.parent is not None or task.generation != 0:
                raise ValueError(f"task {task.id!r} is a rewrite of {task.parent!r}, not an original")
        self._seed = seed
        self._original_share = original_share
        self._fingerprint = fingerprint
        self._fingerprints: dict[str, str] = {}  # by task id, as far as they were needed
        self._accepted: dict[str, Task] = {}
        self._pending: dict[str, Task] = {}
        self._proposals: dict[str, dict[str, Any]] = {}  # the 'proposed' event of each pending task
        self._statistics: dict[str, Statistics] = {}
        self._events: list[dict[str, Any]] = []

    def originals(self) -> list[Task]:
        return list(self._originals.values())

    def accepted(self) -> list[Task]:
        """Returns the verified rewrites, in the order of acceptance."""
        return list(self._accepted.values())

    def pending(self) -> list[Task]:
        """Returns the proposals to be verified, in the order of proposal."""
        return list(self._pending.values())

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._originals or task_id in self._accepted or task_id in self._pending

    def __getitem__(self, task_id: str) -> Task:
        for tasks in (self._originals, self._accepted, self._pending):
            if task_id in tasks:
                return tasks[task_id]
        raise KeyError(f"no task {task_id!r} in the pool: it was never there, or was rejected")

    def lineage(self, task_id: str) -> list[Task]:
        """Returns the chain of rewrites that leads to a task: the original first, the task itself last."""
        chain = [self[task_id]]
        while chain[-1].parent is not None:
            chain.append(self[chain[-1].parent])
        return chain[::-1]

    def generations(self) -> dict[int, int]:
        """Returns how many tasks to sample from there are of each generation (0: originals)."""
        return dict(collections.Counter(task.generation for task in (*self.originals(), *self.accepted())))

    def fingerprints(self) -> frozenset[str]:
        """Returns the fingerprints of all tasks, pending ones included: what a rewrite must not equal."""
        return frozenset(self._fingerprint_of(task) for task in self._all())

    def sample(
        self, iteration: int, k: int, weigh: Callable[[Sequence[Task]], np.ndarray] | None = None
    ) -> list[Task]:
        """Draws the k tasks of an iteration: the same for the same seed, iteration and pool.

        `original_share` of them are originals, the rest accepted rewrites as far as there are enough of
        these. Among each they are drawn in proportion to what `weigh` gives them, uniformly without it; those
        of weight 0 only once there are no others. No task comes twice unless k exceeds the number of tasks.
        """
        rng = np.random.default_rng((self._seed, iteration))
        wanted = max(k - round(self._original_share * k), k - len(self._originals))
        rewrites = min(wanted, len(self._accepted))
        return _draw(rng, self.originals(), k - rewrites, weigh) + _draw(
            rng, self.accepted(), rewrites, weigh
        )

    def record(self, task_id: str, *, iteration: int, wins: int, rollouts: int) -> None:
        """Adds an iteration's rollouts of one task to its statistics."""
        if task_id not in self:
            raise KeyError(f"no task {task_id!r} in the pool")
        if not 0 <= wins <= rollouts or rollouts == 0:
            raise ValueError(f"task {task_id!r}: {wins} wins in {rollouts} rollouts")
        statistics = self._statistics.setdefault(task_id, Statistics())
        statistics.rollouts += rollouts
        statistics.wins += wins
        statistics.last_iteration = iteration
        statistics.last_accuracy = wins / rollouts

    def statistics(self, task_id: str) -> Statistics:
        """Returns a copy of a task's statistics."""
        return dataclasses.replace(self._statistics.get(task_id, Statistics()))

    def propose(
        self,
        task: Task,
        *,
        direction: Direction,
        critique: str,
        edit: str,
        accuracy_before: float,
        iteration: int,
    ) -> bool:
        """Adds a rewrite of the pool's task `task.parent` to the pending ones.

        Returns False, and logs it as refused, where it is the same game as its parent or another task of the
        pool. Raises ValueError where its id is taken, or where its parent or generation is wrong.
        """
        if direction not in ("harder", "easier"):
            raise ValueError(f"direction {direction!r}: 'harder' or 'easier'")
        if task.id in self:
            raise ValueError(f"task {task.id!r} is in the pool already: a rewrite needs an id of its own")
        parent = self._parent(task.parent)
        if task.generation != parent.generation + 1:
            raise ValueError(
                f"task {task.id!r} has generation {task.generation}, its parent {parent.generation}: "
                f"it must be {parent.generation + 1}"
            )
        proposal = _event(
            "proposed", iteration, parent, direction, critique, edit, accuracy_before, task=task
        )
        if (twin := self._twin(task)) is not None:
            reason = f"the same game as {'its parent' if twin == parent else f'task {twin.id}'}"
            self._events.append(proposal | {"event": "refused", "task": None, "reason": reason})
            return False
        self._events.append(proposal)
        self._pending[task.id] = task
        self._proposals[task.id] = proposal
        return True

    def refuse(
        self,
        parent: str,
        *,
        direction: Direction,
        critique: str,
        edit: str,
        accuracy_before: float,
        iteration: int,
        reason: str,
    ) -> None:
        """Logs an attempt to rewrite the task `parent` that did not become a task."""
        task = self._parent(parent)
        self._events.append(
            _event("refused", iteration, task, direction, critique, edit, accuracy_before, reason=reason)
        )

    def settle(self, iteration: int, accuracies: Mapping[str, float], low: float, high: float) -> list[Task]:
        """Accepts or rejects pending tasks by their measured success rates (Algorithm 1).

        With acc of the parent when the task was proposed and acc' measured now, a harder task is accepted if
        low < acc' < acc and an easier one if acc < acc' < high. Pending tasks without a measurement stay
        pending. Returns the tasks accepted. Raises KeyError, before any change, where a measured task is not
        pending.
        """
        for task_id in accuracies:
            if task_id not in self._pending:
                raise KeyError(f"task {task_id!r} is not pending: {list(self._pending)}")
        accepted = []
        for task_id in [task_id for task_id in self._pending if task_id in accuracies]:
            task, proposal = self._pending.pop(task_id), self._proposals.pop(task_id)
            before, after = proposal["accuracy_before"], float(accuracies[task_id])
            lower, upper = (low, before) if proposal["direction"] == "harder" else (before, high)
            if lower < after < upper:
                event, reason = "accepted", f"{lower:g} < {after:g} < {upper:g}"
                self._accepted[task_id] = task
                accepted.append(task)
            else:
                event, reason = "rejected", f"measured {after:g}, needs {lower:g} < accuracy < {upper:g}"
                self._fingerprints.pop(task_id, None)
                self._statistics.pop(task_id, None)
            self._events.append(
                proposal | {"event": event, "iteration": iteration, "accuracy_after": after, "reason": reason}
            )
        return accepted

    def events(self) -> list[dict[str, Any]]:
        """Returns all events, oldest first."""
        return self.events_since(0)

    def events_since(self, count: int) -> list[dict[str, Any]]:
        """Returns the events after the first `count`."""
        return [dict(event) for event in self._events[count:]]

    def to_json(self) -> dict[str, Any]:
        """Returns the complete state: a pool restored from it behaves the same ever after."""
        return {
            "seed": self._seed,
            "original_share": self._original_share,
            "originals": [task.to_json() for task in self.originals()],
            "accepted": [task.to_json() for task in self.accepted()],
            "pending": [task.to_json() for task in self.pending()],
            "proposals": {task_id: dict(event) for task_id, event in self._proposals.items()},
            "fingerprints": dict(self._fingerprints),
            "statistics": {id: dataclasses.asdict(value) for id, value in self._statistics.items()},
            "events": self.events(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, fingerprint: Callable[[Task], str]) -> TaskPool:
        """Inverse of `to_json`."""
        originals, accepted, pending = (
            [Task.from_json(task) for task in data[key]] for key in ("originals", "accepted", "pending")
        )
        pool = cls(
            originals, seed=data["seed"], original_share=data["original_share"], fingerprint=fingerprint
        )
        pool._accepted = {task.id: task for task in accepted}
        pool._pending = {task.id: task for task in pending}
        pool._proposals = {task_id: dict(event) for task_id, event in data["proposals"].items()}
        pool._fingerprints = dict(data["fingerprints"])
        pool._statistics = {task_id: Statistics(**value) for task_id, value in data["statistics"].items()}
        pool._events = [dict(event) for event in data["events"]]
        return pool

    def _all(self) -> Iterable[Task]:
        yield from self._originals.values()
        yield from self._accepted.values()
        yield from self._pending.values()

    def _parent(self, task_id: str | None) -> Task:
        if task_id in self._originals:
            return self._originals[task_id]
        if task_id in self._accepted:
            return self._accepted[task_id]
        raise ValueError(f"parent {task_id!r} is neither an original nor an accepted task")

    def _fingerprint_of(self, task: Task) -> str:
        if task.id not in self._fingerprints:
            self._fingerprints[task.id] = self._fingerprint(task)
        return self._fingerprints[task.id]

    def _twin(self, task: Task) -> Task | None:
        """The task of the pool that is the same game as a new one: its parent where that is one of them."""
        fingerprint = self._fingerprint(task)
        twins = {other.id: other for other in self._all() if self._fingerprint_of(other) == fingerprint}
        if not twins:
            self._fingerprints[task.id] = fingerprint
            return None
        return twins.get(task.parent or "") or next(iter(twins.values()))


def _event(
    event: str,
    iteration: int,
    parent: Task,
    direction: Direction,
    critique: str,
    edit: str,
    accuracy_before: float,
    *,
    task: Task | None = None,
    reason: str = "",
) -> dict[str, Any]:
    return {
        "event": event,
        "iteration": iteration,
        "task": task.id if task else None,
        "parent": parent.id,
        "generation": parent.generation + 1,
        "direction": direction,
        "instruction": task.instruction if task else parent.instruction,
        "parent_instruction": parent.instruction,
        "critique": critique,
        "edit": edit,
        "accuracy_before": float(accuracy_before),
        "accuracy_after": None,
        "reason": reason,
    }


def _draw(
    rng: np.random.Generator,
    tasks: Sequence[Task],
    k: int,
    weigh: Callable[[Sequence[Task]], np.ndarray] | None,
) -> list[Task]:
    """k tasks without replacement, starting over as often as k needs it."""
    drawn: list[Task] = []
    weights = None if weigh is None or not k else np.asarray(weigh(tasks))
    while len(drawn) < k:
        order = rng.permutation(len(tasks)) if weights is None else _weighted_order(rng, weights)
        drawn += [tasks[i] for i in order[: k - len(drawn)]]
    return drawn


def _weighted_order(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """One after the other in proportion to the weights of those that are left (Efraimidis and Spirakis 2006)."""
    waits = rng.exponential(size=len(weights)) / np.where(weights > 0, weights, 1.0)
    return np.lexsort((waits, weights <= 0))
