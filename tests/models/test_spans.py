"""Attention block by block against attention under a whole mask, on packed rows and trees."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.models.attention import attend
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import hidden, init
from rlanything_jax.models.spans import Attend, Spans, _visits, attend_spans, by_blocks, by_kernel
from rlanything_jax.trainer.batches import Batch, Piece, TrainSequence, attention_mask, pack, spans

N, K, H, BLOCK = 4, 2, 8, 16


def piece(n: int, point: int = 0) -> Piece:
    return Piece([1] * n, [1.0] * n, [0.0] * n, [0.0] * n, point)


def tree(trunk: int, *branches: tuple[int, int]) -> TrainSequence:
    return TrainSequence(piece(trunk), [piece(n, point) for n, point in branches])


# Two rows: a tree whose branches span blocks, beside a short sequence; several sequences, and padding.
TREES = [tree(40, (9, 5), (20, 33), (3, 40)), tree(11), tree(30, (14, 30)), tree(25, (2, 1)), tree(4)]


def packed(length: int = 88) -> Batch:
    (batch,) = pack(TREES, tokens=2 * length, lengths=(length,))
    return batch


def queries_keys_values(length: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    shapes = [(2, length, N, H), (2, K, length, H), (2, K, length, H)]
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize("length", [88, 96])
def test_blocks_give_the_result_and_the_gradient_of_a_whole_mask(length: int) -> None:
    batch = packed(length)
    q, k, v = queries_keys_values(length)
    real = (batch.segment > 0)[..., None, None]

    def loss(q: jax.Array, k: jax.Array, v: jax.Array, blocks: bool) -> tuple[jax.Array, jax.Array]:
        out = (
            attend_spans(q, k, v, spans(batch), block=BLOCK)
            if blocks
            else attend(q, k, v, attention_mask(batch))
        )
        out = jnp.where(real, out, 0)
        return jnp.sum(jnp.sin(out) * q), out

    compute = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True), static_argnums=3)
    (whole, expected), (blocks, got) = compute(q, k, v, False), compute(q, k, v, True)
    np.testing.assert_allclose(got, expected, atol=2e-6)
    for a, b in zip(blocks, whole, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-6 * np.abs(b).max())


def test_the_kernel_gives_the_result_and_the_gradient_of_blocks() -> None:
    """In interpret mode: one row of three blocks of 128, trees whose branches span blocks, and padding."""
    sequences = [tree(150, (60, 20), (40, 150), (9, 3)), tree(50, (5, 49)), tree(20)]
    (batch,) = pack(sequences, tokens=384, lengths=(384,))
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(1, *shape)).astype(np.float32) for shape in ((384, 2, H), *[(1, 384, H)] * 2))

    def compute(attend: Attend) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
            out = attend_spans(q, k, v, spans(batch), block=128, attend=attend)
            return jnp.sum(jnp.sin(out) * q), out

        gradient, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
        return out, gradient

    kernel, blocks = compute(functools.partial(by_kernel, interpret=True)), compute(by_blocks)
    for a, b in zip(jax.tree.leaves(kernel), jax.tree.leaves(blocks), strict=True):
        np.testing.assert_allclose(a, b, atol=5e-6 * np.abs(b).max())


@given(st.integers(0, 4), st.integers(0, 2**16))
@settings(deadline=None, max_examples=50)
def test_every_block_that_somebody_sees_is_visited_once(at: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequences = [
        tree(n, *((int(rng.integers(1, 12)), int(rng.integers(0, n + 1))) for _ in range(rng.integers(0, 4))))
        for n in rng.integers(1, 40, 3)
    ]
    batch = pack(sequences, tokens=80, lengths=(80, 160))[0]
    seen = Spans(*(np.asarray(x)[:, at * BLOCK : (at + 1) * BLOCK] for x in spans(batch)))
    count, number = _visits(seen, BLOCK)
    visited = [int(number(i)) for i in range(int(count))]
    length = batch.tokens.shape[1]
    visible = np.asarray(seen.sees(np.arange(length))).any((0, 1))
    needed = {int(i) // BLOCK for i in np.flatnonzero(visible)}
    assert len(set(visited)) == len(visited) and needed <= set(visited)
    assert all(0 <= block < -(-length // BLOCK) for block in visited)


def test_blocks_of_other_branches_and_of_the_future_are_not_visited() -> None:
    """A trunk of 4 blocks and 8 branches of 2 blocks: the last branch visits the trunk and itself."""
    batch = pack([tree(64, *[(32, 64)] * 8)], tokens=320, lengths=(320,))[0]

    def visits(block: int) -> list[int]:
        at = slice(block * BLOCK, (block + 1) * BLOCK)
        count, number = _visits(Spans(*(x[:, at] for x in spans(batch))), BLOCK)
        return [int(number(i)) for i in range(int(count))]

    assert visits(1) == [0, 1]
    assert visits(19) == [0, 1, 2, 3, 18, 19]


def test_no_array_of_queries_times_keys_is_made() -> None:
    q, k, v = queries_keys_values(88)
    batch = packed()
    grad = jax.grad(lambda q: attend_spans(q, k, v, spans(batch), block=BLOCK).sum())
    assert "88x88" not in jax.jit(grad).lower(q).as_text()


def test_a_decoder_reads_spans_as_it_reads_masks() -> None:
    """One of the layers sees a window only; positions of a branch go on from its point."""
    config = ModelConfig(
        vocab_size=16, embed_dim=16, layers=2, heads=N, kv_heads=K, head_dim=H, ff_dim=16, remat="full",
        sliding_window=7, sliding_layers=(1,),
    )  # fmt: skip
    params = init(config, jax.random.key(0))
    batch = packed()._replace(tokens=np.random.default_rng(0).integers(0, 16, (2, 88)))

    def compute(config: ModelConfig, mask: jax.Array | Spans) -> tuple[jax.Array, dict]:
        def loss(params: dict) -> tuple[jax.Array, jax.Array]:
            x = hidden(params, config, batch.tokens, batch.position, mask)
            x = jnp.where((batch.segment > 0)[..., None], x, 0)
            return jnp.sum(x**2), x

        gradient, x = jax.jit(jax.grad(loss, has_aux=True))(params)
        return x, gradient

    x, gradient = compute(config, attention_mask(batch))
    blocks, of_blocks = compute(dataclasses.replace(config, remat="none"), spans(batch))
    np.testing.assert_allclose(blocks, x, rtol=1e-4, atol=1e-5)
    for a, b in zip(jax.tree.leaves(of_blocks), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(jnp.abs(b).max()))
