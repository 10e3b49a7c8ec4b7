"""What one device computes, eight compute as well: run by test_eight_devices.py, which sets their number.

Prints one line of JSON for each comparison: {name, shape of the mesh, largest relative difference}.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from rlanything_jax.models.attention import attend
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, init, unstack
from rlanything_jax.models.spans import attend_spans
from rlanything_jax.parallel.layout import DECODE, assert_shardings, on_mesh, place, place_rows, shardings
from rlanything_jax.parallel.mesh import Meshes, make_meshes
from rlanything_jax.roles import decode_params
from rlanything_jax.sampler import Sampling, decode, decode_branches, extend, new_sessions, select
from rlanything_jax.trainer.batches import Batch, Piece, TrainSequence, attention_mask, normalise, pack, spans
from rlanything_jax.trainer.optimizers import optimizer
from rlanything_jax.trainer.step import Objective, add, gradient, init_state, on_policy_loss, update

MODEL = ModelConfig(
    vocab_size=64, embed_dim=32, layers=2, heads=8, kv_heads=8, head_dim=4, ff_dim=32, qkv_bias=True, remat="full"
)  # fmt: skip
TX = optimizer(3e-4, master_weights=True)
LENGTH = 32


def piece(rng: np.random.Generator, n: int, trained: slice, point: int = 0) -> Piece:
    weight, advantage, logprobs = np.zeros(n), np.zeros(n), np.zeros(n)
    weight[trained], advantage[trained], logprobs[trained] = 1.0, rng.normal(), -4 + 0.3 * rng.normal()
    tokens = rng.integers(0, 64, n).tolist()
    return Piece(tokens, weight.tolist(), advantage.tolist(), logprobs.tolist(), point)


def batches(shards: int) -> dict[str, list[Batch]]:
    """Of the policy: packed episodes with an action each. Of the judge: trees. Rows of four to a micro-batch, or eight."""
    rng = np.random.default_rng(0)
    policy = [TrainSequence(piece(rng, n, slice(4, 9))) for n in rng.integers(12, 20, 12)]
    none = slice(0, 0)
    judge = [
        TrainSequence(
            piece(rng, n, none), [piece(rng, m, slice(1, None), n // 2) for m in rng.integers(2, 8, 3)]
        )
        for n in rng.integers(8, 11, 9)
    ]
    return {
        name: pack(normalise(sequences), tokens=4 * LENGTH, lengths=(LENGTH,), shards=shards)
        for name, sequences in (("policy", policy), ("judge", judge))
    }


def step(mesh: Mesh | None, params: Params, of_rows: list[Batch]) -> tuple[Any, ...]:
    """(loss, gradient, updated parameters) of one update, whose results lie where the layout says."""
    state = init_state(params, TX, mesh)
    with on_mesh(mesh):
        total = None
        for batch in map(place_rows, of_rows):
            part = gradient(state.params, {}, MODEL, batch, Objective(), on_policy_loss)
            total = part if total is None else add(total, part)
        grads, metrics = total
        kept = jax.tree.map(np.asarray, grads)
        stated = shardings(state, mesh) if mesh else None
        state, _ = update(state, grads, TX)
    if stated:
        assert_shardings(grads, stated.params)
        assert_shardings(state, stated)
    return metrics["loss"], kept, state.params


def difference(got: Any, expected: Any) -> float:
    """The largest over the leaves, relative to the leaf's largest entry."""
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(b).max()) for a, b in pairs)


def tell(name: str, sizes: dict[str, int], **differences: float) -> None:
    print(json.dumps({"what": name, "mesh": sizes} | differences), flush=True)


def random_params() -> Params:
    """Biases too, which are zero at first: a difference could not be relative to them."""
    rng = np.random.default_rng(3)
    return jax.tree.map(
        lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), init(MODEL, jax.random.key(0))
    )


def train_steps() -> None:
    params = random_params()
    alone = {name: step(None, params, of_rows) for name, of_rows in batches(1).items()}
    for sizes in ({"data": 8}, {"fsdp": 8}, {"tensor": 8}, {"data": 2, "fsdp": 2, "tensor": 2}):
        mesh = make_meshes(sizes).train
        for name, of_rows in batches(8).items():
            got = step(mesh, params, of_rows)
            parts = dict(zip(("loss", "gradient", "params"), map(difference, got, alone[name]), strict=True))
            tell(name, sizes, **parts)


def long_rows() -> None:
    """Block by block, also where the positions of a row are split."""
    (batch,) = batches(8)["judge"][:1]
    rng = np.random.default_rng(1)
    q, k, v = (
        rng.normal(size=(8, *shape)).astype(np.float32) for shape in ((LENGTH, 8, 4), *[(2, LENGTH, 4)] * 2)
    )
    real = (batch.segment > 0)[..., None, None]

    def compute(attention: Callable[..., jax.Array], q: Any, k: Any, v: Any, batch: Batch) -> Any:
        def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            return jnp.sum(jnp.where(real, attention(q, k, v, batch), 0) * jnp.sin(q))

        return jax.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)

    whole = jax.jit(compute, static_argnums=0)(
        lambda q, k, v, batch: attend(q, k, v, attention_mask(batch)), q, k, v, batch
    )
    for sizes in ({"fsdp": 2, "tensor": 2, "sequence": 2}, {"data": 2, "tensor": 4}):
        mesh = make_meshes(sizes).train
        with on_mesh(mesh):
            got = jax.jit(compute, static_argnums=0)(
                lambda q, k, v, batch: attend_spans(q, k, v, spans(batch), block=8),
                q,
                k,
                v,
                place_rows(batch),
            )
        tell("long rows", sizes, gradient=difference(got, whole))


def sample(params: Params, mesh: Mesh | None) -> tuple[np.ndarray, ...]:
    """Two turns of eight sessions, forked from four, and votes on each: (tokens, log-probabilities, ...)."""
    rng = np.random.default_rng(2)
    with on_mesh(mesh):
        sessions = new_sessions(MODEL, 4, 16)
        sessions = extend(params, MODEL, sessions, rng.integers(0, 64, (4, 6)), np.array([6, 4, 5, 6]))
        sessions = select(sessions, np.arange(8) // 2, 32)

        def sampling(size: int) -> Sampling:
            full = {"temperature": np.ones(size, np.float32), "budget": np.full(size, 5, np.int32)}
            full |= {"stop": np.full((size, 1), 3, np.int32), "request": np.arange(size, dtype=np.uint32)}
            others = {name: default for name, default in Sampling._field_defaults.items() if name not in full}
            return Sampling(**full, seed=np.uint32(7), **others)

        sessions, first = decode(params, MODEL, sessions, sampling(8), 5)
        sessions = extend(params, MODEL, sessions, rng.integers(0, 64, (8, 3)), np.full(8, 3))
        sessions, second = decode(params, MODEL, sessions, sampling(8), 5)
        points = np.tile(np.array([4, 8], np.int32), (8, 1))
        votes = decode_branches(params, MODEL, sessions, points, np.array([5]), sampling(16), 5)
    if mesh:
        for cache in (*sessions.keys, *sessions.values):
            assert cache.sharding.spec[:2] == ("data", "tensor"), cache.sharding
        weights = params["layers"][0]["wo"]["kernel"]
        assert weights.sharding.spec[0] == "tensor" and weights.is_fully_addressable
        assert_shardings(params, shardings(params, mesh, DECODE))
    return tuple(np.asarray(x) for sampled in (first, second, votes) for x in sampled[:3])


def sampled_tokens() -> None:
    params = random_params()
    alone = sample(unstack(params, MODEL), None)
    for sizes in ({"data": 4, "tensor": 2}, {"fsdp": 4, "tensor": 2}):
        meshes = make_meshes(sizes)
        placed = place(params, shardings(params, meshes.train))
        got = sample(decode_params(placed, MODEL, meshes), meshes.local)
        assert all(np.array_equal(a, b) for a, b in zip(got, alone, strict=True) if a.dtype == np.int32)
        pairs = zip(got, alone, strict=True)
        gap = max(float(np.abs(a - b).max()) for a, b in pairs if a.dtype == np.float32)
        tell("samples", sizes, logprobs=gap)


def two_meshes() -> None:
    """Sampled, trained, and sampled with what was learned: on four devices in turns, and on four beside four others."""

    def iteration(devices: list[jax.Device], apart: int) -> tuple[Meshes, tuple[np.ndarray, ...], Params]:
        rollout = {"devices": apart, "tensor": 2}
        meshes = make_meshes({"data": 2, "fsdp": 2}, devices, rollout=rollout)
        params = random_params()
        before = place(params, shardings(params, meshes.train))
        first = sample(decode_params(before, MODEL, meshes), meshes.local)
        _, _, after = step(meshes.train, params, batches(4)["policy"])
        second = sample(decode_params(after, MODEL, meshes), meshes.local)
        return meshes, (*first, *second), after

    devices = jax.devices()
    together, tokens, params = iteration(devices[:4], 0)
    apart, same_tokens, same_params = iteration(devices, 4)
    assert (
        together.train == apart.train
        and together.local.devices.tolist() == apart.train.devices.reshape(2, 2, 1).tolist()
    )
    assert set(apart.local.devices.flat) == set(devices[4:]) and apart.local.shape == together.local.shape
    for a, b in zip((*tokens, params), (*same_tokens, same_params), strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)
    tell("two meshes", dict(apart.local.shape), params=difference(same_params, params))


modes = {"train": train_steps, "long rows": long_rows, "sample": sampled_tokens, "two meshes": two_meshes}
modes[sys.argv[1]]()
