"""Rewards of written unit tests, against tables of programs x tests that were filled in by hand."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from rlanything_jax import feedback

fast = settings(deadline=None, max_examples=60)


def table(rows: list[str], correct: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(correct [1,N,1], scores [1,N,1,M], step_mask [1,N,1]): a row a program, + passes, - fails, . not parsed."""
    scores = np.array([[{"+": 1, "-": -1, ".": 0}[x] for x in row] for row in rows], np.int32)
    good = np.array([x == "c" for x in correct])
    return good[None, :, None], scores[None, :, None], np.ones((1, len(rows), 1), bool)


def rewards(rows: list[str], correct: str) -> list[float]:
    return np.asarray(feedback.unit_test_reward(*table(rows, correct)))[0].tolist()


@pytest.mark.parametrize(
    ("rows", "correct", "expected"),
    [
        # Two correct programs, three wrong ones. True tests reject 3, 2, 0 of them; the fourth, which a correct program fails,
        # accepts 2; the fifth is false too but accepts none; the last could not be parsed.
        (["++++-.", "+++--.", "-++--.", "--++-.", "--++-."], "ccwww", [3, 2, 0, -2, 0, -3]),
        # No wrong program: nothing to detect, a test is true or not.
        (["+-.", "++."], "cc", [1, -1, -1]),
        # No correct program: what can be parsed is neither right nor wrong.
        (["+-.", "+-."], "ww", [0, 0, -2]),
        (["+-", "-+"], "cw", [1, -1]),
    ],
    ids=["mixed", "all correct", "none correct", "one of each"],
)
def test_rewards_by_hand(rows: list[str], correct: str, expected: list[float]) -> None:
    assert rewards(rows, correct) == expected


def test_what_cannot_be_parsed_is_worth_less_than_any_test() -> None:
    """The reference code gives it -0, more than a test that accepts a wrong program."""
    values = rewards(["+-+.", "-++.", "++-."], "cww")
    assert values[3] == min(values) and values[3] < values[2] - 1e-6
    assert (
        rewards(["-.", "+."], "cw")[1] == rewards(["-.", "+."], "cw")[0] == -1
    )  # never more, though it may be as bad


def test_advantages_are_standardised_over_the_tests_of_a_task() -> None:
    value = np.array([[3.0, 1.0, 0.0, -2.0, 0.0, -3.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]], np.float32)
    advantage = np.asarray(feedback.unit_test_advantage(value))
    first = value[0]
    np.testing.assert_allclose(advantage[0], (first - first.mean()) / first.std(), rtol=1e-6)
    assert not advantage[1].any()


def test_centred_advantages_keep_how_much_the_tests_of_a_task_differ() -> None:
    value = np.array([[3.0, -3.0], [1.0, -1.0], [2.0, 2.0]], np.float32)
    scale = np.sqrt((2 * 9 + 2 * 1) / 4)
    np.testing.assert_allclose(
        feedback.unit_test_advantage(value, estimator="centred"),
        np.array([[3, -3], [1, -1], [0, 0]]) / scale,
        rtol=1e-6,
    )


def test_unknown_estimator_is_named_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"'rloo'.*'centred', 'published', 'task'"):
        feedback.unit_test_advantage(np.zeros((1, 2), np.float32), estimator="rloo")


def test_programs_that_do_not_exist_say_nothing() -> None:
    correct, scores, mask = table(["+-", "-+", "++", "--"], "cwcw")
    mask[0, 2:] = False
    assert np.asarray(feedback.unit_test_reward(correct, scores, mask))[0].tolist() == [1, -1]


@fast
@given(st.data())
def test_the_reward_orders_tests_as_precision_and_detection_do(data: st.DataObject) -> None:
    """Written out as in the reference: for each test, count wrong programs that fail or pass it."""
    n, m = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    correct = data.draw(arrays.arrays(bool, (1, n, 1)))
    scores = data.draw(arrays.arrays(np.int32, (1, n, 1, m), elements=st.sampled_from([-1, 1])))
    unparsed = data.draw(arrays.arrays(bool, m))
    scores[..., unparsed] = 0
    value = np.asarray(feedback.unit_test_reward(correct, scores, np.ones((1, n, 1), bool)))[0]
    good, passed = correct[0, :, 0], scores[0, :, 0] == 1
    wrong = int((~good).sum())
    for j in range(m):
        if unparsed[j]:
            expected = -max(wrong, 1)
        elif not good.any():
            expected = 0
        elif passed[good, j].all():
            expected = int((~passed[~good, j]).sum()) if wrong else 1
        else:
            expected = -int(passed[~good, j].sum()) if wrong else -1
        assert value[j] == expected
