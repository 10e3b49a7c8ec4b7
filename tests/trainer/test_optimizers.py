"""Optimizers: Adam written out in numpy, what bfloat16 storage may and may not lose, schedules of a whole run."""

from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rlanything_jax.trainer.optimizers import muon, optimizer, round_at_random, schedule
from rlanything_jax.trainer.step import TrainState, init_state, update

RATE = 0.01
rounded = jax.jit(round_at_random)


def params(dtype: str = "float32") -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)
    return {name: jnp.asarray(rng.normal(size=(4, 8)), dtype) for name in ("a", "b")}


def gradients(n: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [
        {name: rng.normal(size=(4, 8), scale=0.05).astype(np.float32) for name in ("a", "b")}
        for _ in range(n)
    ]


def run(tx: optax.GradientTransformation, start: Any, grads: list[Any]) -> TrainState:
    state = init_state(start, tx)
    for grad in grads:
        state, _ = update(state, grad, tx)
    return state


def adamw(start: Any, grads: list[Any], *, decay: float = 0.0) -> dict[str, np.ndarray]:
    """AdamW with betas 0.9 and 0.999 in float64; the gradients are too small for the clip."""
    found = {}
    for name, p in start.items():
        p, mean, square = np.asarray(p, np.float64), 0.0, 0.0
        for step, grad in enumerate((g[name] for g in grads), start=1):
            mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
            way = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
            p = p - RATE * (way + decay * p)
        found[name] = p
    return found


def size(tree: Any) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def test_adamw_by_hand() -> None:
    got = run(optimizer(RATE, weight_decay=0.1), params(), gradients(5)).params
    for name, expected in adamw(params(), gradients(5), decay=0.1).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)


def test_a_master_copy_takes_what_bfloat16_would_round_away() -> None:
    """200 updates of 1e-5: too small for bfloat16 one by one, exact in the master, rounded in the parameters."""
    start, grads = (
        params("bfloat16"),
        [{name: np.full((4, 8), 0.05, np.float32) for name in ("a", "b")}] * 200,
    )
    tx = optimizer(1e-5, master_weights=True)
    state = run(tx, start, grads)
    master = state.opt_state[1].master
    for name in start:
        assert master[name].dtype == jnp.float32 and state.params[name].dtype == jnp.bfloat16
        np.testing.assert_allclose(master[name], start[name].astype(jnp.float32) - 200e-5, atol=1e-5)
        np.testing.assert_array_equal(state.params[name], master[name].astype(jnp.bfloat16))


def test_parameters_follow_their_master_after_every_update() -> None:
    tx = optimizer(0.3, master_weights=True)
    state = init_state(params("bfloat16"), tx)
    for grad in gradients(20):
        state, _ = update(state, grad, tx)
        for name, master in state.opt_state[1].master.items():
            np.testing.assert_array_equal(state.params[name], master.astype(jnp.bfloat16))


def test_parameters_that_would_lose_their_updates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"parameter \['a'\] is bfloat16.*set master_weights"):
        init_state(params("bfloat16"), optimizer(RATE))


def test_an_unknown_dtype_of_the_moments_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"moments='float16' is unknown; choose from \('float32', 'bfloat16'\)"
    ):
        optimizer(RATE, moments="float16")


@pytest.mark.parametrize(
    ("dtype", "options", "bytes_a_parameter"),
    [
        ("float32", {}, 12),
        ("float32", {"moments": "bfloat16"}, 8),
        ("bfloat16", {"master_weights": True}, 14),
        ("bfloat16", {"master_weights": True, "moments": "bfloat16"}, 10),
    ],
)
def test_bytes_a_parameter(dtype: str, options: dict, bytes_a_parameter: int) -> None:
    """As the docstring says, besides the counters; and the same after an update as before it, or it compiles twice."""
    tx = optimizer(RATE, **options)
    state = init_state(params(dtype), tx)
    counters = sum(x.nbytes for x in jax.tree.leaves(state) if x.ndim == 0)
    assert size(state) - counters == bytes_a_parameter * 64
    before = jax.tree.map(lambda x: (x.shape, x.dtype), state)
    state, _ = update(state, gradients(1)[0], tx)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == before


def test_bfloat16_moments_go_where_float32_moments_go() -> None:
    got = run(optimizer(RATE, moments="bfloat16"), params(), gradients(50)).params
    for name, expected in adamw(params(), gradients(50)).items():
        moved = np.abs(expected - params()[name]).mean()
        assert np.abs(got[name] - expected).mean() < 0.03 * moved


def test_a_bfloat16_second_moment_does_not_freeze() -> None:
    """After large gradients it falls as 0.999 ** n; rounded to nearest it would stay where it is for ever."""
    large, none = ({"a": np.full((64, 64), g, np.float32)} for g in (1.0, 0.0))
    state = run(
        optimizer(RATE, moments="bfloat16", clip=1e9), {"a": jnp.zeros((64, 64))}, [large] + [none] * 100
    )
    nu = state.opt_state[1].inner[0].nu["a"]
    assert nu.dtype == jnp.bfloat16
    assert float(nu.astype(jnp.float32).mean()) == pytest.approx(0.001 * 0.999**100, rel=0.01)
    frozen = jnp.bfloat16(0.001)
    assert jnp.bfloat16(jnp.float32(frozen) * 0.999) == frozen


@settings(max_examples=30, deadline=None)
@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(0, 1000))
def test_rounding_at_random_picks_a_neighbour(x: float, seed: int) -> None:
    got = np.asarray(rounded(np.full(8, x, np.float32), jax.random.key(seed))).astype(np.float32)
    assert np.all(np.abs(got - x) <= abs(x) * 2.0**-7 + 1e-40)
    assert np.all((got == x) | (np.float32(x).astype(jnp.bfloat16) != x))  # what fits stays


def test_rounding_at_random_keeps_the_mean() -> None:
    x = np.full(100_000, 1 + 0.3 / 128, np.float32)  # 0.3 of the way from 1 to the next bfloat16
    got = np.asarray(rounded(x, jax.random.key(0))).astype(np.float32)
    assert set(np.unique(got).tolist()) == {1.0, 1 + 1 / 128}
    assert float((got > 1).mean()) == pytest.approx(0.3, abs=0.01)


def rates(updates: int, **options: Any) -> np.ndarray:
    rate = schedule(RATE, updates=updates, **options)
    assert callable(rate)
    return np.array([rate(jnp.int32(i)) for i in range(updates)]) / RATE


def test_a_schedule_by_hand() -> None:
    np.testing.assert_allclose(
        rates(9, warmup=3, final_share=0.2), [0.25, 0.5, 0.75, 1, 0.84, 0.68, 0.52, 0.36, 0.2], rtol=1e-6
    )
    np.testing.assert_allclose(rates(3, final_share=0.5), [1, 0.75, 0.5], rtol=1e-6)
    np.testing.assert_allclose(rates(4, warmup=2), [1 / 3, 2 / 3, 1, 1], rtol=1e-6)


def test_a_schedule_keeps_its_last_rate() -> None:
    rate = schedule(RATE, updates=5, final_share=0.1)
    assert callable(rate)
    assert float(rate(jnp.int32(50))) == pytest.approx(0.1 * RATE)


def test_a_constant_schedule_is_the_number() -> None:
    assert schedule(RATE, updates=7) == RATE


@given(st.integers(1, 60), st.data())
@settings(max_examples=20, deadline=None)
def test_schedule_sized_for_150001_steps_never_warms_up(updates: int, data: st.DataObject) -> None:
    """Case 25: whatever the length of the run, it reaches its peak and ends where it should, or is refused."""
    warmup = data.draw(st.integers(0, updates - 1))
    share = schedule(1.0, updates=updates, warmup=warmup, final_share=0.25)
    assert callable(share)
    assert float(share(jnp.int32(warmup))) == pytest.approx(1.0)
    if warmup < updates - 1:
        assert float(share(jnp.int32(updates - 1))) == pytest.approx(0.25)
    with pytest.raises(ValueError, match=rf"warmup={updates} must be less than the {updates} update"):
        schedule(1.0, updates=updates, warmup=updates)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_final_share_outside_0_and_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=rf"final_share={share} must be from 0 to 1"):
        schedule(RATE, updates=3, final_share=share)


def test_a_schedule_moves_the_optimizer() -> None:
    """With one sign in every gradient Adam moves by the learning rate itself."""
    tx = optimizer(schedule(RATE, updates=5, warmup=1, final_share=0.0))
    state, at = init_state({"a": jnp.zeros(3)}, tx), [0.0]
    for _ in range(5):
        state, _ = update(state, {"a": np.full(3, 0.1, np.float32)}, tx)
        at.append(float(state.params["a"][0]))
    np.testing.assert_allclose(-np.diff(at) / RATE, [0.5, 1, 2 / 3, 1 / 3, 0], rtol=1e-3, atol=1e-6)


def test_muon_makes_the_singular_values_of_a_matrix_update_alike() -> None:
    rng = np.random.default_rng(0)
    start = {"kernel": jnp.zeros((2, 6, 6)), "embed": jnp.zeros((5, 4))}
    grads = {name: rng.normal(size=x.shape).astype(np.float32) for name, x in start.items()}
    got = run(muon(lambda step: jnp.float32(RATE)), start, [grads]).params
    before, after = (np.linalg.svd(x["kernel"], compute_uv=False) for x in (grads, got))
    assert np.all(after.max(-1) / after.min(-1) < 2.0) and np.all(before.max(-1) / before.min(-1) > 4.0)
    # Adam's first step, with Nesterov's look ahead.
    np.testing.assert_allclose(np.abs(got["embed"]), 0.3 * RATE * (1 + 0.9 * 0.1 / (1 - 0.9**2)), rtol=1e-3)


def test_gains_move_by_their_own_rate() -> None:
    rng = np.random.default_rng(2)
    start = {
        "norm": jnp.ones(8),
        "layers": {"ff_norm": {"scale": jnp.ones((2, 8))}, "wq": jnp.ones((2, 8, 8))},
    }
    grads = [jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), start) for _ in range(3)]
    slow, fast = (
        run(optimizer(RATE, gain_rate=rate), jax.tree.map(jnp.copy, start), grads) for rate in (1.0, 30.0)
    )
    moved = jax.tree.map(lambda a, b, c: np.asarray((a - c) / (b - c)), fast.params, slow.params, start)
    np.testing.assert_allclose(moved["layers"]["wq"], 1, rtol=0.01)
    np.testing.assert_allclose(moved["norm"], 30, rtol=0.01)
    np.testing.assert_allclose(moved["layers"]["ff_norm"]["scale"], 30, rtol=0.01)
