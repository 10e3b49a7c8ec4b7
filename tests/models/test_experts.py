"""Routed experts against a loop over tokens, and the same numbers from eight devices."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from rlanything_jax.models.experts import Experts, route, run_experts

B, T, D, F, E, A = 2, 5, 6, 4, 5, 2


@pytest.fixture
def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(B, T, D))
    share = rng.random((B, T, A))
    # Expert 3 gets nothing, expert 0 is the first choice of a whole row.
    chosen = np.stack([rng.permutation([0, 1, 2, 4])[:A] for _ in range(B * T)]).reshape(B, T, A)
    chosen[0] = [0, 4]
    weights = [rng.normal(size=(E, D, F)), rng.normal(size=(E, D, F)), rng.normal(size=(E, F, D))]
    return [a.astype(np.int32 if a is chosen else np.float32) for a in (x, share, chosen, *weights)]


def loop(
    x: np.ndarray,
    share: np.ndarray,
    chosen: np.ndarray,
    w_gate: np.ndarray,
    w_up: np.ndarray,
    w_down: np.ndarray,
) -> np.ndarray:
    out = np.zeros_like(x)
    for b, t, a in np.ndindex(chosen.shape):
        e = chosen[b, t, a]
        gate = x[b, t] @ w_gate[e]
        out[b, t] += share[b, t, a] * ((gate / (1 + np.exp(-gate)) * (x[b, t] @ w_up[e])) @ w_down[e])
    return out


def test_every_token_is_the_sum_of_its_experts(inputs: list[np.ndarray]) -> None:
    np.testing.assert_allclose(run_experts(*inputs), loop(*inputs), rtol=1e-4, atol=1e-5)


def test_parts_of_the_experts_add_up_to_all(inputs: list[np.ndarray]) -> None:
    x, share, chosen, *weights = inputs
    parts = [
        run_experts(x, share, chosen, *(w[part] for w in weights), first=part.start)
        for part in (slice(0, 2), slice(2, 5))
    ]
    np.testing.assert_allclose(sum(parts), loop(*inputs), rtol=1e-4, atol=1e-5)


def test_a_broken_expert_spoils_only_the_tokens_that_chose_it(inputs: list[np.ndarray]) -> None:
    """Case 14: NaN must not leak through a product with zero."""
    x, share, chosen, *weights = inputs
    x[1, 0] = np.nan
    out = np.array(run_experts(x, share, chosen, *weights))
    assert np.isnan(out[1, 0]).all()
    out[1, 0] = 0
    assert np.isfinite(out).all()


def test_gradients_equal_finite_differences(inputs: list[np.ndarray]) -> None:
    x, share, chosen, *weights = inputs
    check_grads(
        lambda x, share, *w: run_experts(x, share, chosen, *w), (x, share, *weights), order=1, modes=["rev"]
    )


def test_routing_takes_the_likeliest_and_normalises_on_request() -> None:
    logits = np.log([[0.1, 0.4, 0.2, 0.3]]).astype(np.float32)
    share, chosen = route(logits, 2, normalise=False)
    assert chosen.tolist() == [[1, 3]]
    np.testing.assert_allclose(share, [[0.4, 0.3]], rtol=1e-5)
    share, _ = route(logits, 2, normalise=True)
    np.testing.assert_allclose(share, [[4 / 7, 3 / 7]], rtol=1e-5)


def test_initial_experts_differ_and_keep_the_variance() -> None:
    layer = Experts(16, 64)
    x, share, chosen = np.zeros((1, 1, 25)), np.zeros((1, 1, 1)), np.zeros((1, 1, 1), np.int32)
    params = layer.init(jax.random.key(0), x, share, chosen)["params"]
    assert {name: leaf.shape for name, leaf in params.items()} == {
        "w_gate": (16, 25, 64),
        "w_up": (16, 25, 64),
        "w_down": (16, 64, 25),
    }
    assert float(params["w_gate"].std()) == pytest.approx(1 / 5, rel=0.05)
    assert float(params["w_down"].std()) == pytest.approx(1 / 8, rel=0.05)
    assert np.abs(params["w_up"][0] - params["w_up"][1]).max() > 0.1


EIGHT_DEVICES = """
import jax, numpy as np
from jax.sharding import AxisType
from rlanything_jax.models import ModelConfig, init
from rlanything_jax.models.decoder import hidden
from rlanything_jax.models.sharding import abstract_params

config = ModelConfig(vocab_size=32, embed_dim=16, layers=2, heads=2, kv_heads=2, head_dim=8, ff_dim=16,
                     experts=8, experts_per_token=2, expert_ff_dim=8, remat="full")
params = jax.jit(init, static_argnums=0)(config, jax.random.key(0))
tokens = np.random.default_rng(0).integers(0, 32, (4, 6))
positions = np.broadcast_to(np.arange(6), (4, 6))
mask = np.broadcast_to(np.tril(np.ones((6, 6), bool)), (4, 6, 6))

def compute(params, tokens, positions, mask):
    def loss(params):
        x = hidden(params, config, tokens, positions, mask)
        return (x ** 2).mean(), x
    (_, x), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return x, gradient

def close(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * float(np.abs(y).max()))

alone = jax.jit(compute)(params, tokens, positions, mask)
for shape, names in (((8,), ("expert",)), ((2, 2, 2), ("fsdp", "expert", "tensor"))):
    mesh = jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_params(config, mesh))
    placed = jax.device_put(params, shardings)
    with jax.set_mesh(mesh):
        program = jax.jit(compute).lower(placed, tokens, positions, mask).compile()
        close(program(placed, tokens, positions, mask), alone)
    if names == ("expert",):
        kernel = placed["layers"]["experts"]["w_up"]
        assert kernel.addressable_shards[0].data.shape == (2, 1, 16, 8)
        assert "all-gather" not in program.as_text(), "weights are gathered"
        close(jax.jit(compute)(placed, tokens, positions, mask), alone)  # also without a set mesh
print("equal")
"""


def test_experts_on_eight_devices_equal_those_on_one() -> None:
    """Logits and gradients, over experts alone and together with data, fsdp and tensor."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EIGHT_DEVICES],
        cwd=root,
        env=os.environ
        | {
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(root),
        },
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.stdout.strip() == "equal", done.stderr[-3000:]
