"""The train step against batches of one plain sequence each, and updates written out by hand.

A schedule sized for another number of steps (case 25) is in `test_optimizers`: the step knows no number of steps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from rlanything_jax.models import ModelConfig, Params, unstack
from rlanything_jax.sampler import Sampling, decode, extend, new_sessions
from rlanything_jax.trainer.batches import Batch, Piece, TrainSequence, normalise, pack
from rlanything_jax.trainer.optimizers import optimizer
from rlanything_jax.trainer.step import (
    Objective,
    TrainState,
    add,
    gradient,
    init_state,
    on_policy_loss,
    policy_loss,
    supervised_loss,
    token_logprobs,
    train,
    train_epoch,
    update,
)

LENGTH, TOKENS = 32, 64  # one shape, two rows of 32
RATE = 20.0  # far enough to leave the clip range in one update
SGD = optax.sgd(RATE)
ADAM = optimizer(0.01)


def random_piece(rng: np.random.Generator, n: int, trained: slice, point: int = 0) -> Piece:
    weight, advantage, logprobs = np.zeros(n), np.zeros(n), np.zeros(n)
    weight[trained] = 1 / max(len(weight[trained]), 1)
    advantage[trained] = rng.normal()
    logprobs[trained] = rng.normal(-5, 0.3, len(weight[trained]))
    tokens = rng.integers(3, 280, n).tolist()
    return Piece(tokens, weight.tolist(), advantage.tolist(), logprobs.tolist(), point)


def judged(seed: int, trunk: int, branches: Sequence[tuple[int, int]]) -> TrainSequence:
    """A trajectory that is only read, with votes of (size, point), trained but for their first token."""
    rng = np.random.default_rng(seed)
    reading = random_piece(rng, trunk, slice(0, 0))
    return TrainSequence(reading, [random_piece(rng, n, slice(1, None), point) for n, point in branches])


def played(seed: int, size: int = 12) -> TrainSequence:
    """A trajectory with one trained action."""
    return TrainSequence(random_piece(np.random.default_rng(seed), size, slice(4, 8)))


def one_by_one(sequence: TrainSequence) -> list[TrainSequence]:
    """The naive batch: every branch a sequence of its own, behind the part of the trunk that it sees."""
    trunk, alone = sequence.trunk, []
    for branch in sequence.branches:
        seen, zeros = trunk.tokens[: branch.point], [0.0] * branch.point
        alone.append(
            TrainSequence(
                Piece(
                    seen + branch.tokens,
                    zeros + branch.weight,
                    zeros + branch.advantage,
                    zeros + branch.logprobs,
                )
            )
        )
    return alone


def packed(sequences: Sequence[TrainSequence], tokens: int = TOKENS) -> list[Batch]:
    return pack(sequences, tokens=tokens, lengths=(LENGTH,))


def summed(
    params: Params,
    model: ModelConfig,
    batches: Sequence[Batch],
    loss: Any = on_policy_loss,
    how: Objective | None = None,
) -> tuple[Params, dict[str, Any]]:
    total = gradient(params, {}, model, batches[0], how or Objective(), loss)
    for batch in batches[1:]:
        total = add(total, gradient(params, {}, model, batch, how or Objective(), loss))
    return total


def assert_close(a: Any, b: Any, rel: float = 1e-5) -> None:
    """Leaf by leaf, relative to the leaf's largest entry."""
    for path, x in jax.tree_util.tree_leaves_with_path(a):
        y = np.asarray(_at(b, path))
        np.testing.assert_allclose(x, y, rtol=0, atol=rel * np.abs(y).max() + 1e-12, err_msg=str(path))


def _at(tree: Any, path: tuple) -> Any:
    for key in path:
        tree = tree[getattr(key, "key", getattr(key, "idx", None))]
    return tree


@pytest.fixture
def state(params: Params) -> Callable[..., TrainState]:
    """A fresh state: `update` takes its buffers over."""
    return lambda tx=SGD: init_state(jax.tree.map(jnp.array, params), tx)


def trained_logprobs(params: Params, model: ModelConfig, batches: Sequence[Batch]) -> dict[tuple, float]:
    """{(advantage, token): log-probability} of the trained tokens; a sample's advantage is its name."""
    found = {}
    for batch in batches:
        logp = np.asarray(token_logprobs(params, model, batch, 0.8))
        for at in zip(*np.nonzero(batch.weight), strict=True):
            found[float(batch.advantage[at]), int(batch.position[at])] = float(logp[at])
    return found


TREES = [judged(1, 9, [(3, 4), (4, 4), (2, 9), (3, 9)]), judged(2, 12, [(4, 5), (3, 12)])]


def test_a_tree_gives_the_logprobs_of_one_sequence_a_branch(params: Params, model: ModelConfig) -> None:
    tree = trained_logprobs(params, model, packed(TREES))
    naive = trained_logprobs(params, model, packed([s for t in TREES for s in one_by_one(t)]))
    assert len(tree) == 2 + 3 + 1 + 2 + 3 + 2
    assert tree == pytest.approx(naive, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("loss", [on_policy_loss, supervised_loss])
def test_a_tree_gives_the_gradient_of_one_sequence_a_branch(
    params: Params, model: ModelConfig, loss: Any
) -> None:
    tree, _ = summed(params, model, packed(normalise(TREES)), loss)
    naive, _ = summed(params, model, packed(normalise([s for t in TREES for s in one_by_one(t)])), loss)
    assert_close(tree, naive)


def test_a_tree_that_is_cut_gives_the_gradient_of_the_whole(params: Params, model: ModelConfig) -> None:
    """Six branches of 4 tokens beside a trunk of 16 do not fit 32: the trunk is repeated, not retrained."""
    tree = judged(3, 16, [(4, 6), (4, 6), (4, 11), (4, 11), (4, 16), (4, 16)])
    batches = packed(normalise([tree]))
    assert int((batches[0].segment > 0).sum()) == 16 * 2 + 6 * 4
    cut, _ = summed(params, model, batches)
    naive, _ = summed(params, model, packed(normalise(one_by_one(tree))))
    assert_close(cut, naive)


def test_several_sequences_a_row_give_the_gradient_of_one_a_row(params: Params, model: ModelConfig) -> None:
    sequences = normalise([played(1), played(2, 9), *TREES, played(3, 8)])
    dense = packed(sequences)
    assert int(dense[0].segment.max()) > 1
    together, metrics = summed(params, model, dense)
    apart, alone = summed(params, model, [batch for s in sequences for batch in packed([s])])
    assert_close(together, apart)
    assert {k: float(v) for k, v in metrics.items()} == pytest.approx(
        {k: float(v) for k, v in alone.items()}, abs=1e-5
    )


def test_multi_turn_loss_mask_reused_as_attention_mask(params: Params, model: ModelConfig) -> None:
    """Case 7: tokens that are not trained on are still read."""
    changed = played(1)
    changed.trunk.tokens[1] += 1
    assert not changed.trunk.weight[1]
    before, after = (trained_logprobs(params, model, packed([s])) for s in (played(1), changed))
    assert before.keys() == after.keys()
    assert min(abs(before[k] - after[k]) for k in before) > 1e-4


def test_nan_at_a_masked_position_leaks(params: Params, model: ModelConfig) -> None:
    """Case 14: what stands at tokens that are not trained on reaches neither metrics nor gradient."""
    batch = packed(normalise([played(1), *TREES]))[0]
    hole = batch.weight == 0
    dirty = batch._replace(
        **{k: np.where(hole, np.nan, getattr(batch, k)) for k in ("advantage", "logprobs")}
    )
    clean_gradient, clean = summed(params, model, [batch])
    got_gradient, got = summed(params, model, [dirty])
    assert_close(got_gradient, clean_gradient, rel=0)
    assert {k: float(v) for k, v in got.items()} == {k: float(v) for k, v in clean.items()}


def test_the_loss_on_numbers_by_hand() -> None:
    """Two tokens: ratio 1.5 is clipped at 1.28, its correction of 3 capped at 2; ratio 0.5 is bad news."""
    row = np.zeros((1, 3), np.float32)
    batch = Batch(*(row,) * 5, *(row,) * 4)._replace(
        weight=np.array([[0.75, 0.25, 0.0]], np.float32),
        advantage=np.array([[1.0, -1.0, 5.0]], np.float32),
        old=np.array([[-1.0, -2.0, 0.0]], np.float32),
        logprobs=np.array([[-1.0 - np.log(3.0), -2.0 - np.log(1.25), 0.0]], np.float32),
    )
    logp = batch.old + np.log(np.array([[1.5, 0.5, 9.0]], np.float32))
    loss, metrics = policy_loss(logp, batch, Objective(kl=10.0))
    surrogate = -(0.75 * 1.28 * 2.0 - 0.25 * 0.8 * 1.25)
    kl = 0.75 * (1 / 1.5 - 1 + np.log(1.5)) + 0.25 * (1 / 0.5 - 1 + np.log(0.5))
    assert float(metrics["loss"]) == pytest.approx(surrogate, rel=1e-5)
    assert float(metrics["kl"]) == pytest.approx(kl, rel=1e-5)
    assert float(loss) == pytest.approx(surrogate + 10 * kl, rel=1e-5)
    assert float(metrics["logprob_gap"]) == pytest.approx(0.75 * np.log(3) + 0.25 * np.log(1.25), rel=1e-5)
    assert float(metrics["clip_fraction"]) == pytest.approx(1.0)
    assert float(metrics["ratio"]) == pytest.approx(0.75 * 1.5 + 0.25 * 0.5)


def test_tokens_without_advantage_give_no_gradient(params: Params, model: ModelConfig) -> None:
    batch = packed(normalise([played(1), played(2)]))[0]
    nothing, metrics = summed(params, model, [batch._replace(advantage=np.zeros_like(batch.advantage))])
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(nothing))
    assert float(metrics["loss"]) == 0.0
    half = batch._replace(advantage=np.where(batch.segment == 1, batch.advantage, 0).astype(np.float32))
    other = batch._replace(weight=np.where(batch.segment == 1, batch.weight, 0).astype(np.float32))
    assert_close(summed(params, model, [half])[0], summed(params, model, [other])[0])


def test_correction_silently_off(params: Params, model: ModelConfig) -> None:
    """Case 13: the trainer's to the sampler's probability scales each token's gradient, up to the cap."""
    batch = packed(normalise([played(1)]))[0]
    own = np.asarray(token_logprobs(params, model, batch, 1.0))
    equal, metrics = summed(params, model, [batch._replace(logprobs=own)])
    assert float(metrics["logprob_gap"]) < 1e-6
    for ratio, factor in [(1.5, 1.5), (0.25, 0.25), (5.0, 2.0)]:
        shifted, metrics = summed(params, model, [batch._replace(logprobs=own - np.float32(np.log(ratio)))])
        assert_close(shifted, jax.tree.map(lambda g, f=factor: f * g, equal))
        assert float(metrics["logprob_gap"]) == pytest.approx(abs(np.log(ratio)), abs=1e-5)


def sampled_sequence(params: Params, model: ModelConfig, temperature: float) -> TrainSequence:
    """Two turns of one session: 4 tokens read, 5 sampled, 3 read, 5 sampled."""
    layers, sessions = unstack(params, model), new_sessions(model, 1, LENGTH)
    how = Sampling(
        temperature=np.array([temperature], np.float32),
        budget=np.array([5], np.int32),
        stop=np.array([[-1]], np.int32),
        request=np.array([0], np.uint32),
        seed=np.uint32(0),
    )
    trunk = Piece([], [], [], [])
    for text in ([7, 8, 9, 10], [11, 12, 13, 0]):
        count = 4 if text[-1] else 3
        sessions = extend(layers, model, sessions, np.array([text]), np.array([count]))
        sessions, out = decode(layers, model, sessions, how, 5)
        trunk.tokens += text[:count] + np.asarray(out.tokens[0]).tolist()
        trunk.weight += [0.0] * count + [1.0] * 5
        trunk.advantage += [0.0] * count + [1.0] * 5
        trunk.logprobs += [0.0] * count + np.asarray(out.logprobs[0]).tolist()
    return TrainSequence(trunk)


def test_sampler_and_trainer_agree_on_logprobs(params: Params, model: ModelConfig) -> None:
    """The gap (slime, request 1968) is rounding at the temperature that sampled, and only there."""
    batches = packed(normalise([sampled_sequence(params, model, 0.6)]))
    gap = {t: float(summed(params, model, batches, how=Objective(t))[1]["logprob_gap"]) for t in (0.6, 1.0)}
    assert gap[0.6] < 1e-5
    assert gap[1.0] > 0.1


def descended(params: Params, grads: Params) -> Params:
    return jax.tree.map(lambda p, g: np.asarray(p) - RATE * np.asarray(g), params, grads)


def epoch(
    state: TrainState,
    model: ModelConfig,
    tx: Any,
    sequences: Sequence[TrainSequence],
    *,
    updates: int = 1,
    tokens: int = TOKENS,
    how: Objective | None = None,
) -> tuple[TrainState, dict[str, float]]:
    how = how or Objective()
    return train_epoch(
        state, {}, model, tx, sequences, how, updates=updates, tokens_per_batch=tokens, lengths=(LENGTH,)
    )


def test_the_result_does_not_depend_on_how_rows_are_cut(state: Any, model: ModelConfig) -> None:
    results = [
        epoch(state(), model, SGD, [played(i, 20) for i in range(5)], tokens=n) for n in (LENGTH, TOKENS)
    ]
    (a, a_metrics), (b, b_metrics) = results
    assert_close(a.params, b.params, rel=1e-4)
    assert a_metrics == pytest.approx(b_metrics, rel=1e-4, abs=1e-6)


def test_k_iterations_run_on_one_microbatch_before_the_next(state: Any, model: ModelConfig) -> None:
    """Case 17: an update sees all its micro-batches before any other update."""
    sequences = [played(i, 20) for i in range(6)]  # three micro-batches
    after, _ = epoch(state(), model, SGD, sequences)
    assert int(after.step) == 1
    batches = packed(normalise([played(i, 20) for i in range(6)]))
    assert len(batches) == 3
    before = state()
    whole, _ = summed(before.params, model, batches)
    assert_close(after.params, descended(before.params, whole), rel=1e-4)


def test_a_second_update_compares_with_the_parameters_before_the_first(
    state: Any, model: ModelConfig
) -> None:
    after, metrics = epoch(state(), model, SGD, [played(i) for i in range(4)], updates=2)
    first, second = ([played(i) for i in range(4)][start::2] for start in range(2))
    before = state()
    grads, _ = summed(before.params, model, packed(normalise(first)))
    moved = descended(before.params, grads)
    batch = packed(normalise(second))[0]
    old = np.asarray(token_logprobs(before.params, model, batch, 1.0))
    correction = np.minimum(np.exp(np.clip(old - batch.logprobs, -10, 10)), 2.0)

    def loss(params: Params) -> tuple[jax.Array, jax.Array]:
        ratio = jnp.exp(token_logprobs(params, model, batch, 1.0) - old)
        gain = batch.advantage * correction
        worst = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.28) * gain)
        return -jnp.sum(jnp.where(batch.weight > 0, batch.weight * worst, 0.0)), ratio

    grads, ratio = jax.jit(jax.grad(loss, has_aux=True))(moved)
    assert_close(after.params, descended(moved, grads), rel=1e-4)
    assert int(after.step) == 2
    outside = (batch.weight > 0) & ((ratio < 0.8) | (ratio > 1.28))
    assert outside.any()
    assert metrics["clip_fraction"] > 0 and metrics["ratio"] != pytest.approx(1.0, abs=1e-3)


def test_an_update_without_sequences_is_skipped(state: Any, model: ModelConfig) -> None:
    """More updates than sequences: the first that exists is still the on-policy one."""
    after, metrics = epoch(state(), model, SGD, [played(1)], updates=3)
    assert int(after.step) == 1
    assert metrics["ratio"] == pytest.approx(1.0)
    idle = played(5)
    idle.trunk.weight = [0.0] * len(idle)
    again, metrics = epoch(state(), model, SGD, [idle, played(1)], updates=2)
    assert int(again.step) == 1 and metrics["ratio"] == pytest.approx(1.0)
    assert_close(again.params, after.params, rel=0)


def test_nothing_to_learn_from_leaves_the_state_alone(state: Any, model: ModelConfig) -> None:
    idle = played(5)
    idle.trunk.weight = [0.0] * len(idle)
    for sequences in ([], [idle]):
        before = state(ADAM)
        after, metrics = epoch(before, model, ADAM, sequences, updates=2)
        assert after is before and metrics == {}


def test_optimizer_moments_are_thrown_away_every_iteration(state: Any, model: ModelConfig) -> None:
    """Two iterations equal two steps of Adam, written out, not two first steps."""
    got, params = state(ADAM), jax.tree.map(np.asarray, state().params)
    mean = square = jax.tree.map(np.zeros_like, params)
    for step in (1, 2):
        grads, _ = summed(params, model, packed(normalise([played(step)])))
        grads = jax.tree.map(np.asarray, grads)
        norm = np.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g, n=norm: g / max(1.0, n), grads)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, square, grads)
        a, b = 1 - 0.9**step, 1 - 0.999**step
        params = jax.tree.map(
            lambda p, m, v, a=a, b=b: p - 0.01 * (m / a) / (np.sqrt(v / b) + 1e-8), params, mean, square
        )
        got, metrics = epoch(got, model, ADAM, [played(step)])
        assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert_close(got.params, params, rel=1e-4)
    assert int(got.step) == 2


def test_train_step_compiles_twice(state: Any, model: ModelConfig) -> None:
    """Case 27: neither a second update nor another objective or number of micro-batches compiles."""
    got, _ = epoch(state(ADAM), model, ADAM, [played(i) for i in range(9)], updates=2)
    compiled = [f._cache_size() for f in (gradient, add, update, token_logprobs)]
    for i in range(1, 4):
        how = Objective(
            temperature=0.5 + i, eps_low=0.1 * i, eps_high=0.2 * i, kl=0.1 * i, correction_cap=3.0 + i
        )
        got, _ = epoch(got, model, ADAM, [played(j) for j in range(4 * i)], updates=2, how=how)
    assert [f._cache_size() for f in (gradient, add, update, token_logprobs)] == compiled


def test_supervised_training_fits_its_examples(state: Any, model: ModelConfig) -> None:
    batches = packed(normalise([played(1), played(2)]))
    got, losses = state(ADAM), []
    for _ in range(12):
        got, metrics = train(got, {}, model, ADAM, batches, Objective(), supervised_loss)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] / 2
    assert losses[0] > 3 and float(metrics["likelihood"]) > 0.1


def test_the_gradient_norm_is_that_before_the_clip(state: Any, model: ModelConfig) -> None:
    sequences = normalise([played(1)])
    sequences[0].trunk.advantage = [1000 * a for a in sequences[0].trunk.advantage]
    grads, _ = summed(state().params, model, packed(sequences))
    _, metrics = train(state(ADAM), {}, model, ADAM, packed(sequences), Objective(), on_policy_loss)
    assert float(metrics["grad_norm"]) == pytest.approx(float(optax.tree.norm(grads)), rel=1e-5)
    assert float(metrics["grad_norm"]) > 1.0
