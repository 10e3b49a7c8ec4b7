"""From trajectories and votes to arrays: padding, episodes that were lost, missing labels."""

import numpy as np
import pytest

from rlanything_jax.dialogue import WordDialogue
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.reward.arrays import to_arrays
from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Step, Trajectory
from rlanything_jax.tasks.task import Task

DIALOGUE = WordDialogue(build_tokenizer(["put a mug"], []))


def episode(labels: list[int | None], *, won: bool = False, error: str | None = None) -> Trajectory:
    steps = [Step("", "", "", 0, 0, 1, label=label) for label in labels]
    return Trajectory(Task("t", "w", "", {}), 0, 0, DIALOGUE, steps=steps, won=won, error=error)


def votes(*steps: list[int]) -> list[list[Vote]]:
    return [[Vote("", score, "", [], []) for score in scores] for scores in steps]


def test_arrays_are_padded_to_the_configured_size() -> None:
    trajectories = [episode([1, None], won=True), episode([-1]), episode([None]), episode([])]
    cast = [votes([1, -1], [0, 1]), votes([-1, -1]), votes([1, 1]), []]
    arrays = to_arrays(trajectories, cast, 2, 2, tasks=3, steps=3)
    np.testing.assert_array_equal(arrays.outcome, [[1, -1], [-1, -1], [-1, -1]])
    np.testing.assert_array_equal(
        arrays.step_mask, [[[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]
    )
    np.testing.assert_array_equal(
        arrays.labels, [[[1, 0, 0], [-1, 0, 0]], [[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]
    )
    assert arrays.scores.shape == (3, 2, 3, 2)
    np.testing.assert_array_equal(arrays.scores[0, 0], [[1, -1], [0, 1], [0, 0]])
    np.testing.assert_array_equal(arrays.scores[0, 1, 0], [-1, -1])
    np.testing.assert_array_equal(arrays.scores[1, 0, 0], [1, 1])
    assert not arrays.scores[~arrays.step_mask].any()


def test_an_episode_that_the_environment_lost_is_masked() -> None:
    """Its outcome means nothing, though it may have steps, votes and a won flag."""
    trajectories = [episode([1, 1], won=True, error="worker died"), episode([1], won=True)]
    arrays = to_arrays(trajectories, [votes([1], [1]), votes([1])], 2, 1, tasks=1, steps=2)
    np.testing.assert_array_equal(arrays.step_mask, [[[0, 0], [1, 0]]])
    np.testing.assert_array_equal(arrays.outcome, [[-1, 1]])
    assert not arrays.labels[0, 0].any() and not arrays.scores[0, 0].any()


def test_states_are_numbered_alike_within_a_task() -> None:
    trajectories = [episode([1, 1]), episode([1]), episode([1]), episode([1], error="worker died")]
    for trajectory, states in zip(trajectories, ("abc", "ba", "ab", "ab"), strict=True):
        trajectory.states = list(states)
    arrays = to_arrays(
        trajectories, [votes(*[[1]] * len(t.steps)) for t in trajectories], 2, 1, tasks=2, steps=3
    )
    a, b, c = arrays.state[0, 0, :3]
    assert len({a, b, c}) == 3
    np.testing.assert_array_equal(arrays.state[0], [[a, b, c, -1], [b, a, -1, -1]])
    assert arrays.state[1, 0, 0] != a  # the same name in another task
    np.testing.assert_array_equal(arrays.state[1, 1], [-1, -1, -1, -1])


def test_votes_that_do_not_match_their_trajectories_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        to_arrays([episode([1, 1])], [votes([1])], 1, 1, tasks=1, steps=2)
    with pytest.raises(ValueError, match="zip"):
        to_arrays([episode([1]), episode([1])], [votes([1])], 1, 1, tasks=2, steps=2)
    with pytest.raises(ValueError, match="broadcast|shape"):
        to_arrays([episode([1])], [votes([1, 1, 1])], 1, 2, tasks=1, steps=2)
