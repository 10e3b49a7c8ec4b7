"""Rewards and advantages: hand-computed tables, properties, and the faults of other code bases (named after
the symptom)."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax import feedback

Q, N, T, M = 2, 4, 3, 3
fast = settings(deadline=None, max_examples=25)


def ragged_mask(lengths, steps=T):
    return np.arange(steps) < np.asarray(lengths)[..., None]


@st.composite
def batches(draw):
    """(outcome, scores, step_mask) of one shape; lengths may be 0 and votes unparsed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    outcome = rng.choice([-1.0, 1.0], (Q, N))
    scores = rng.choice([-1.0, 0.0, 1.0], (Q, N, T, M), p=[0.4, 0.1, 0.5])
    return outcome, scores, ragged_mask(rng.integers(0, T + 1, (Q, N)))


def advantages(outcome, scores, step_mask, estimator="centred", lam=1.0):
    reward = feedback.integrated_reward(outcome, scores, step_mask, lam=lam)
    consistency = feedback.consistency_reward(reward, scores)
    return feedback.policy_advantage(reward, step_mask), feedback.judge_advantage(
        consistency, step_mask, estimator=estimator
    )


def zscore(votes):
    return (votes - votes.mean(-1, keepdims=True)) / votes.std(-1, keepdims=True)


def test_integrated_reward_by_hand():
    outcome = np.array([[1, -1]])
    scores = np.array([[[[1, 1, -1], [1, 0, 0]], [[-1, -1, -1], [1, 1, 1]]]])
    mask = ragged_mask([[2, 1]], 2)
    reward = feedback.integrated_reward(outcome, scores, mask)
    # An unparsed vote counts as 0 among the M of the mean: (1 + 0 + 0) / 3.
    np.testing.assert_allclose(reward, [[[1 + 1 / 3, 1 + 1 / 3], [-2, 0]]], rtol=1e-6)
    np.testing.assert_allclose(
        feedback.integrated_reward(outcome, scores, mask, lam=0.3), [[[1.1, 1.1], [-1.3, 0]]], rtol=1e-6
    )


def test_integrated_reward_without_votes_is_the_outcome():
    reward = feedback.integrated_reward(np.array([[1, -1]]), np.zeros((1, 2, 2, 0)), ragged_mask([[2, 1]], 2))
    np.testing.assert_array_equal(reward, [[[1, 1], [-1, 0]]])


def test_policy_advantage_by_hand():
    reward = np.array([[[2.0, 1.0], [0.0, 1.0], [-2.0, 4.0]]])
    advantage = feedback.policy_advantage(reward, ragged_mask([[2, 2, 1]], 2))
    # Step 0: mean 0, population variance 8/3. Step 1: two equal rewards; the third rollout is not there.
    root = np.sqrt(8 / 3)
    np.testing.assert_allclose(advantage, [[[2 / root, 0], [0, 0], [-2 / root, 0]]], atol=1e-6)


def test_late_step_singleton_gets_no_advantage_instead_of_its_raw_reward():
    reward = np.array([[[2.0, 2.0, 2.0], [1.0, 1.5, -2.0]]])
    mask = ragged_mask([[2, 3]])
    advantage = feedback.policy_advantage(reward, mask)
    np.testing.assert_array_equal(advantage[0, :, 2], [0, 0])
    np.testing.assert_allclose(advantage[0, :, :2], [[1, 1], [-1, -1]], rtol=1e-6)


def test_case_15_earlier_steps_keep_their_advantage_when_the_last_step_is_masked():
    outcome = np.array([[1.0, -1.0, 1.0]])
    scores = np.random.default_rng(0).choice([-1.0, 1.0], (1, 3, 3, M))
    advantage, _ = advantages(outcome, scores, ragged_mask([[1, 2, 3]]), lam=0.5)
    assert np.all(np.asarray(advantage)[0, :, 0] != 0)
    assert np.all(np.asarray(advantage)[0, 1:, 1] != 0)
    assert np.all(np.asarray(advantage)[~ragged_mask([[1, 2, 3]])] == 0)


@pytest.mark.parametrize("members", [2, 3, 7, 100, 5000])
def test_rewards_equal_up_to_rounding_give_exactly_zero(members):
    third = np.float32(1) / np.float32(3)
    reward = np.full((1, members, 1), 1 + third, np.float32)
    reward[0, ::2] = np.nextafter(reward[0, ::2], np.float32(2))  # one unit in the last place apart
    assert np.all(np.asarray(feedback.policy_advantage(reward, np.ones((1, members, 1), bool))) == 0)


@pytest.mark.parametrize(
    "lam, right, wrong", [(1.0, 0, 3), (3.0, 1, 2), (4.0, 3, 5), (1.2, 1, 11), (1.4, 1, 6)]
)
def test_outcome_and_votes_that_cancel_leave_no_advantage(lam, right, wrong):
    """O + lam * mean S = 0 for both outcomes; what rounding leaves of it must not be standardised."""
    outcome, mask = np.array([[1.0, -1.0]]), np.ones((1, 2, 1), bool)
    scores = outcome[..., None, None] * np.array([1.0] * right + [-1.0] * wrong)
    np.testing.assert_array_equal(
        feedback.integrated_reward(outcome, scores, mask, lam=lam), np.zeros((1, 2, 1))
    )
    for estimator in feedback.ESTIMATORS:
        for advantage in advantages(outcome, scores, mask, estimator, lam):
            assert np.all(np.asarray(advantage) == 0)


def test_one_vote_of_eight_at_a_small_lam_is_not_taken_for_rounding():
    scores = np.ones((1, 64, 1, 8))
    scores[0, 0, 0, 0] = -1
    advantage, _ = advantages(np.ones((1, 64)), scores, np.ones((1, 64, 1), bool), lam=0.1)
    assert float(advantage[0, 0, 0]) == pytest.approx(-np.sqrt(63), rel=1e-3)


@fast
@given(batches())
def test_policy_advantage_is_a_zscore_of_each_step_group(batch):
    _, _, mask = batch
    reward = np.asarray(feedback.integrated_reward(*batch))
    advantage = np.asarray(feedback.policy_advantage(reward, mask))
    assert np.all(advantage[~mask] == 0)
    for q, t in itertools.product(range(Q), range(T)):
        group, expected = reward[q, mask[q, :, t], t], np.zeros(N)
        if len(group) > 1 and np.ptp(group) > 1e-3:
            expected[mask[q, :, t]] = (group - group.mean()) / group.std()
        np.testing.assert_allclose(advantage[q, :, t], expected, atol=2e-5)


@fast
@given(batches(), st.floats(0.1, 10), st.floats(-3, 3))
def test_policy_advantage_ignores_scale_and_shift(batch, scale, shift):
    mask = batch[2]
    reward = feedback.integrated_reward(*batch)
    np.testing.assert_allclose(
        feedback.policy_advantage(scale * reward + shift, mask),
        feedback.policy_advantage(reward, mask),
        atol=1e-4,
    )


@fast
@given(batches(), st.sampled_from(feedback.ESTIMATORS), st.permutations(range(N)), st.permutations(range(M)))
def test_permuting_rollouts_and_votes_permutes_advantages(batch, estimator, rollouts, votes):
    outcome, scores, mask = batch
    policy, judge = advantages(outcome, scores, mask, estimator)
    policy_after, judge_after = advantages(
        outcome[:, rollouts], scores[:, rollouts][..., votes], mask[:, rollouts], estimator
    )
    np.testing.assert_allclose(policy_after, policy[:, np.array(rollouts)], atol=1e-4)
    np.testing.assert_allclose(judge_after, judge[:, np.array(rollouts)][..., np.array(votes)], atol=1e-4)


@fast
@given(batches(), st.sampled_from(feedback.ESTIMATORS), st.sampled_from([np.nan, np.inf, -7.0]))
def test_case_14_nan_at_a_masked_step_does_not_leak(batch, estimator, poison):
    outcome, scores, mask = batch
    poisoned = np.where(mask[..., None], scores, poison)
    clean = np.where(mask[..., None], scores, 0.0)
    outcome_poisoned = np.where(mask.any(-1), outcome, poison)
    for got, expected in zip(
        advantages(outcome_poisoned, poisoned, mask, estimator),
        advantages(outcome, clean, mask, estimator),
        strict=True,
    ):
        np.testing.assert_array_equal(got, expected)


@fast
@given(batches(), st.sampled_from(feedback.ESTIMATORS), st.sampled_from([np.nan, np.inf, 1e9]))
def test_case_14_nan_in_a_masked_reward_does_not_leak(batch, estimator, poison):
    _, scores, mask = batch
    reward = feedback.integrated_reward(*batch)
    consistency = feedback.consistency_reward(reward, scores)
    np.testing.assert_array_equal(
        feedback.policy_advantage(jnp.where(mask, reward, poison), mask),
        feedback.policy_advantage(reward, mask),
    )
    np.testing.assert_array_equal(
        feedback.judge_advantage(jnp.where(mask[..., None], consistency, poison), mask, estimator=estimator),
        feedback.judge_advantage(consistency, mask, estimator=estimator),
    )


@partial(jax.jit, static_argnames="estimator")
@partial(jax.grad, argnums=(0, 1))
def weighted_advantages(reward, scores, mask, estimator):
    weights = jnp.arange(1.0, scores.size + 1).reshape(scores.shape)
    consistency = feedback.consistency_reward(reward, scores)
    judge = feedback.judge_advantage(consistency, mask, estimator=estimator)
    return jnp.sum(weights * judge) + jnp.sum(weights[..., 0] * feedback.policy_advantage(reward, mask))


@fast
@given(batches(), st.sampled_from(feedback.ESTIMATORS), st.sampled_from([np.nan, np.inf]))
def test_case_14_gradients_are_finite(batch, estimator, poison):
    _, scores, mask = batch
    reward = np.where(mask, np.asarray(feedback.integrated_reward(*batch)), poison)
    votes = np.where(mask[..., None], scores, poison)
    for gradient in weighted_advantages(reward, votes, mask, estimator=estimator):
        assert np.all(np.isfinite(gradient))
        assert np.all(np.asarray(gradient)[~mask] == 0)


def test_groups_without_variance_have_a_zero_gradient():
    gradient = jax.grad(lambda r: feedback.policy_advantage(r, np.ones((1, 3, 2), bool)).sum())(
        jnp.ones((1, 3, 2))
    )
    np.testing.assert_array_equal(gradient, np.zeros((1, 3, 2)))


def test_consistency_reward_by_hand():
    reward = np.array([[[4 / 3, -2.0]]])
    scores = np.array([[[[1, 1, -1], [-1, 0, -1]]]])
    consistency = feedback.consistency_reward(reward, scores)
    np.testing.assert_allclose(consistency, [[[[4 / 3, 4 / 3, -4 / 3], [2, -2, 2]]]], rtol=1e-6)
    assert float(feedback.consistency_reward(reward, scores, invalid=-5.0)[0, 0, 1, 1]) == -5


@fast
@given(batches(), st.floats(0, 1))
def test_an_unparsable_verdict_is_never_rewarded_above_a_parsed_one(batch, lam):
    outcome, scores, _ = batch
    mask = np.ones((Q, N, T), bool)
    consistency = np.asarray(
        feedback.consistency_reward(feedback.integrated_reward(outcome, scores, mask, lam=lam), scores)
    )
    parsed = np.where(scores != 0, consistency, np.inf)
    assert np.all(consistency[scores == 0] == -2)
    assert np.all(parsed >= -2)
    for estimator in ("published", "centred"):
        advantage = np.asarray(advantages(outcome, scores, mask, estimator, lam)[1])
        unparsed = np.where(scores == 0, advantage, -np.inf).max(-1)
        assert np.all(unparsed <= np.where(scores != 0, advantage, np.inf).min(-1) + 1e-5)


def every_ballot(m):
    """Both outcomes with every split ballot of m parsed votes, as (outcome, scores, mask) of one task."""
    ballots = np.array([b for b in itertools.product([-1.0, 1.0], repeat=m) if abs(sum(b)) < m])
    outcome = np.repeat([1.0, -1.0], len(ballots))[None]
    mask = np.ones((1, 2 * len(ballots), 1), bool)
    return outcome, np.concatenate([ballots, ballots])[None, :, None], mask


@pytest.mark.parametrize("m", [3, 5, 8])
@pytest.mark.parametrize("lam", [0.25, 1.0])
def test_published_judge_advantage_collapses_to_the_sign_of_the_outcome(m, lam):
    outcome, scores, mask = every_ballot(m)
    advantage = advantages(outcome, scores, mask, "published", lam)[1]
    np.testing.assert_allclose(advantage, outcome[..., None, None] * zscore(scores), atol=1e-5)


@pytest.mark.parametrize("m", [3, 5, 8])
def test_the_collapse_needs_lam_of_at_most_one(m):
    outcome, scores, mask = every_ballot(m)
    advantage = np.asarray(advantages(outcome, scores, mask, "published", 3.0)[1])
    assert not np.allclose(advantage, outcome[..., None, None] * zscore(scores), atol=0.1)


@pytest.mark.parametrize("m", [3, 5, 8])
@pytest.mark.parametrize("lam", [0.25, 1.0, 3.0])
def test_centred_judge_advantage_keeps_the_magnitude_of_the_reward(m, lam):
    outcome, scores, mask = every_ballot(m)
    advantage = np.asarray(advantages(outcome, scores, mask, "centred", lam)[1])
    reward = outcome[..., None, None] + lam * scores.mean(-1, keepdims=True)
    expected = reward * (scores - scores.mean(-1, keepdims=True))
    expected[np.abs(expected) < 1e-6] = 0
    np.testing.assert_allclose(
        advantage, expected / np.sqrt(np.mean(expected[expected != 0] ** 2)), atol=1e-5
    )


def test_judge_advantages_by_hand():
    outcome, mask = np.array([[1.0, 1.0]]), np.ones((1, 2, 1), bool)
    scores = np.array([[[[1.0, 1.0, -1.0]], [[1.0, -1.0, -1.0]]]])
    # R = 4/3 and 2/3. Published: the same size for both steps. Centred: the step the judge agrees on weighs
    # twice as much.
    published = advantages(outcome, scores, mask, "published")[1]
    root = np.sqrt(2)
    np.testing.assert_allclose(
        published[0, :, 0], [[1 / root, 1 / root, -root], [root, -1 / root, -1 / root]], rtol=1e-5
    )
    centred = np.asarray(advantages(outcome, scores, mask, "centred")[1])[0, :, 0]
    raw = np.array([[4, 4, -8], [4, -2, -2]]) * 2 / 9
    np.testing.assert_allclose(centred, raw / np.sqrt(np.mean(raw**2)), rtol=1e-5)
    # Task: all six rewards 4/3, 4/3, -4/3, 2/3, -2/3, -2/3 in one group.
    task = advantages(outcome, scores, mask, "task")[1]
    consistency = np.array([[4, 4, -4], [2, -2, -2]]) / 3
    np.testing.assert_allclose(
        task[0, :, 0], (consistency - consistency.mean()) / consistency.std(), rtol=1e-5
    )


@fast
@given(batches())
def test_centred_has_unit_root_mean_square_and_no_sum(batch):
    advantage = np.asarray(advantages(*batch)[1])
    nonzero = advantage[advantage != 0]
    if nonzero.size:
        assert np.sqrt(np.mean(nonzero**2)) == pytest.approx(1, rel=1e-4)
    np.testing.assert_allclose(advantage.sum(-1), 0, atol=1e-5)
    assert np.all(advantage[~batch[2]] == 0)


@pytest.mark.parametrize("estimator", ["published", "centred"])
def test_unanimous_votes_and_single_votes_give_the_judge_no_advantage(estimator):
    outcome, mask = np.array([[1.0, -1.0]]), np.ones((1, 2, 2), bool)
    for scores in (np.ones((1, 2, 2, 3)), np.array([1.0, -1.0]).reshape(1, 2, 1, 1) * np.ones((1, 2, 2, 1))):
        np.testing.assert_array_equal(advantages(outcome, scores, mask, estimator)[1], np.zeros(scores.shape))


def test_task_estimator_trains_on_single_votes():
    scores = np.array([1.0, 1.0]).reshape(1, 2, 1, 1)
    advantage = advantages(np.array([[1.0, -1.0]]), scores, np.ones((1, 2, 1), bool), "task")[1]
    # R S is 2 for the vote that agrees with its outcome and 0 for the other.
    np.testing.assert_allclose(advantage.ravel(), [1, -1], rtol=1e-6)


def test_unknown_estimator_is_named_with_the_choices():
    with pytest.raises(ValueError, match=r"'rloo'.*'centred', 'published', 'task'"):
        feedback.judge_advantage(jnp.zeros((1, 1, 1, 3)), jnp.ones((1, 1, 1), bool), estimator="rloo")


def test_lam_and_invalid_do_not_recompile():
    outcome, scores, mask = np.ones((3, 5)), np.ones((3, 5, 2, 2)), np.ones((3, 5, 2), bool)
    sizes = []
    for lam, invalid in [(1.0, -2.0), (0.3, -3.0), (2.5, -4.5)]:
        reward = feedback.integrated_reward(outcome, scores, mask, lam=lam)
        feedback.consistency_reward(reward, scores, invalid=invalid)
        sizes.append((feedback.integrated_reward._cache_size(), feedback.consistency_reward._cache_size()))
    assert sizes[0] == sizes[1] == sizes[2]
