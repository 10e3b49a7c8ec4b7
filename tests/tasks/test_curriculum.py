"""Curricula: what each prefers, and that the default draws what it always drew."""

import collections

import numpy as np
import pytest

from rlanything_jax.tasks import Task, TaskPool
from rlanything_jax.tasks.curriculum import EXPLORE, curriculum, parameters, progress_weights


def make(kinds: str) -> TaskPool:
    """A pool with a task a letter, of the kind that the letter names."""
    tasks = [
        Task(f"{kind}{i}", "toy", "play", {"generate": {"seed": i, "split": "train", "kind": kind}})
        for i, kind in enumerate(kinds)
    ]
    return TaskPool(tasks, seed=0, original_share=1.0, fingerprint=lambda task: task.id)


def play(pool: TaskPool, wins: dict[str, int]) -> None:
    for iteration, (id, won) in enumerate(wins.items()):
        pool.record(id, iteration=iteration, wins=won, rollouts=8)


def test_uniform_draws_what_it_always_drew() -> None:
    pool = make("abcdefgh")
    order = np.random.default_rng((0, 3)).permutation(8)[:5]
    assert pool.sample(3, 5, curriculum("uniform", pool, 0.2, 0.8)) == [pool.originals()[i] for i in order]


def test_filtered_draws_tasks_out_of_range_last() -> None:
    pool = make("abcd")
    play(pool, {"a0": 0, "b1": 4, "c2": 8})  # d3 is not known
    weigh = curriculum("filtered", pool, 0.2, 0.8)
    drawn = [[task.id for task in pool.sample(i, 4, weigh)] for i in range(20)]
    assert all(set(ids[:2]) == {"b1", "d3"} and set(ids[2:]) == {"a0", "c2"} for ids in drawn)


def test_progress_is_the_change_between_the_halves_of_a_kind() -> None:
    """Kind a went from 0 to 1, kind b from 1 to 1/2, kind c did not move: shares 2/3, 1/3 and 0 of what is not exploration."""
    pool = make("aaaabbbbcccc")
    ids = [task.id for task in pool.originals()]
    play(pool, dict(zip(ids, [0, 0, 8, 8, 8, 8, 4, 4, 6, 6, 6, 6], strict=True)))
    weights = progress_weights(pool, pool.originals())
    even = EXPLORE / 12
    np.testing.assert_allclose(weights[:4], even + (1 - EXPLORE) * 2 / 3 / 4)
    np.testing.assert_allclose(weights[4:8], even + (1 - EXPLORE) / 3 / 4)
    np.testing.assert_allclose(weights[8:], even)


def test_a_kind_of_which_little_is_known_counts_as_the_best() -> None:
    pool = make("aaaab")
    play(pool, {"a0": 0, "a1": 0, "a2": 8, "a3": 8})
    weights = progress_weights(pool, pool.originals())
    assert weights[:4].sum() - weights[4] == pytest.approx(EXPLORE * 3 / 5)


def test_nothing_known_is_uniform_and_draws_follow_the_weights() -> None:
    pool = make("ab")
    np.testing.assert_allclose(progress_weights(pool, pool.originals()), 0.5)
    first = collections.Counter(
        pool.sample(i, 1, lambda tasks: np.array([3.0, 1.0]))[0].id for i in range(400)
    )
    assert first["a0"] / 400 == pytest.approx(0.75, abs=0.07)  # three standard deviations


def test_a_restored_pool_draws_the_same() -> None:
    pool = make("aaaabbbb")
    play(pool, {"a0": 0, "a1": 0, "a2": 8, "a3": 8, "b4": 1})
    again = TaskPool.from_json(pool.to_json(), fingerprint=lambda task: task.id)
    for kind in ("filtered", "progress"):
        drawn = [p.sample(9, 5, curriculum(kind, p, 0.2, 0.8)) for p in (pool, again)]
        assert drawn[0] == drawn[1]


def test_parameters_leave_out_what_only_names_a_task() -> None:
    first, second = make("aa").originals()
    assert parameters(first) == parameters(second) != parameters(make("b").originals()[0])


def test_an_unknown_curriculum_is_refused() -> None:
    with pytest.raises(ValueError, match="'luck'.*uniform"):
        curriculum("luck", make("a"), 0.2, 0.8)
