"""Closed forms against what XLA counts in a program without loops."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.sharding import abstract_params
from rlanything_jax.models.spans import BLOCK
from rlanything_jax.planning import counts
from rlanything_jax.trainer.batches import Batch
from rlanything_jax.trainer.step import Objective, gradient, policy_loss, token_logprobs

# Unrolled, and large enough that products are nearly all there is.
MODEL = ModelConfig(
    vocab_size=4096,
    embed_dim=512,
    layers=2,
    heads=8,
    kv_heads=4,
    head_dim=64,
    ff_dim=2048,
    scan_unroll=2,
    tie_embeddings=False,
)
ROWS, LENGTH = 2, 512
DTYPES = (*(jnp.int32,) * 5, *(jnp.float32,) * 4)
BATCH = Batch(*(jax.ShapeDtypeStruct((ROWS, LENGTH), dtype) for dtype in DTYPES))


def shapes(model: ModelConfig) -> dict:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), abstract_params(model))


@pytest.fixture(autouse=True)
def one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of one block, since XLA counts the body of a loop once; on a CPU blocks are smaller."""
    monkeypatch.setattr("rlanything_jax.models.spans.CPU_BLOCK", LENGTH)


def test_the_forward_pass_is_within_2_percent_of_xla() -> None:
    counted = token_logprobs.lower(shapes(MODEL), MODEL, BATCH, 1.0).cost_analysis()["flops"]
    assert counts.forward(MODEL, {}, ROWS, LENGTH).done == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("remat", ["none", "full"])
def test_the_gradient_is_within_2_percent_of_xla(remat: str) -> None:
    model = dataclasses.replace(MODEL, remat=remat)
    lowered = gradient.lower(shapes(model), {}, model, BATCH, Objective(), policy_loss)
    assert counts.train(model, {}, ROWS, LENGTH).done == pytest.approx(
        lowered.cost_analysis()["flops"], rel=0.02
    )


def test_what_is_computed_again_is_not_needed() -> None:
    none, full = (
        counts.train(dataclasses.replace(MODEL, remat=remat), {}, ROWS, LENGTH) for remat in ("none", "full")
    )
    assert none.needed == full.needed < none.done < full.done


def test_a_layer_by_hand() -> None:
    """q and o 512 x 512, k and v 512 x 256, three matrices 512 x 2048; half of it on each of two chips."""
    whole = 2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 2048
    assert counts.layer(MODEL, {}).weights == whole
    assert counts.layer(MODEL, {"tensor": 2}).weights == whole // 2
    assert counts.layer(MODEL, {"tensor": 3}).weights == whole  # which divides no dimension


def test_a_token_meets_its_experts_and_a_chip_holds_all_that_it_has() -> None:
    model = dataclasses.replace(MODEL, experts=8, experts_per_token=2, expert_ff_dim=256)
    attention, router, each = 2 * 512 * 512 + 2 * 512 * 256, 512 * 8, 3 * 512 * 256
    one = counts.layer(model, {"expert": 4})
    assert one.held == attention + router + 2 * each
    assert one.weights == attention + router + each // 2  # 2 of 8 experts, a quarter of which are here


def test_long_rows_visit_half_the_blocks_and_short_ones_all_keys() -> None:
    assert counts.keys_visited(300) == 384 and counts.keys_visited(BLOCK) == BLOCK
    assert counts.keys_visited(16 * BLOCK) == BLOCK * 17 / 2


def test_a_decoded_token_reads_weights_and_cache() -> None:
    weights = MODEL.layers * counts.layer(MODEL, {}).held + 512 * 4096
    cache = 2 * MODEL.layers * 3 * 1000 * 4 * 64  # keys and values of 3 rows of 1000 tokens
    read = counts.read(MODEL, {}, 3, 1, 1000)
    assert read.bytes == pytest.approx(4 * (weights + cache), rel=0.01)


def test_branches_share_the_cache_of_their_trunk() -> None:
    alone = counts.read(MODEL, {}, 1, 1, 1000)
    many = counts.branch(MODEL, {}, 1, 30, 1000, 10)
    assert many.bytes < 1.2 * alone.bytes
    assert many.done > 25 * alone.done
