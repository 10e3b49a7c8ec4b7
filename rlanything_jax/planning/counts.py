"""Operations and bytes of a program in closed form, of one chip; a multiply-add is two operations.

XLA's cost analysis counts the body of a loop once, and layers are a loop, so what loops is counted here from the shapes. Only
matrix products count. Two numbers of operations: what the mathematics needs, which utilisation is measured by, and what the
program does, which includes what the backward pass computes again and the masked half of attention that is computed anyway.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.spans import block_of
from rlanything_jax.trainer.step import positions_at_once

# Of a layer's forward pass: (products of weights, attention) that the backward pass does again, by `ModelConfig.remat`.
_AGAIN = {
    "none": (False, False),
    "full": (True, True),
    "dots": (False, False),
    "dots_no_batch": (False, True),
}


class Work(NamedTuple):
    needed: float  # operations of the mathematics
    done: float  # operations of the program
    bytes: float  # of HBM: every product reads its operands and writes its result once, what lies between is fused


@dataclasses.dataclass(frozen=True)
class Layer:
    """The products of a layer of one chip."""

    weights: int  # parameters that a token meets in products
    down: int  # those of them whose result is the layer's own, which nobody computes again
    held: int  # parameters that the chip multiplies by, all experts that it has included
    activations: int  # elements that the products of a token read and write
    heads: int  # N * H


def layer(config: ModelConfig, mesh: Mapping[str, int]) -> Layer:
    """One layer on a chip of a mesh whose `tensor` and `expert` axes split it, where they divide its dimensions."""
    tensor, d, h = mesh.get("tensor", 1), config.embed_dim, config.head_dim
    heads, kv = _part(config.heads * h, tensor), _part(config.kv_heads * h, tensor)
    attention = 2 * d * (heads + kv)
    activations = 4 * d + 2 * heads + 2 * kv  # q, k, v read one copy of x; o
    if not config.experts:
        ff = _part(config.ff_dim, tensor)
        weights = attention + 3 * d * ff
        return Layer(weights, d * ff, weights, activations + 3 * d + 3 * ff, heads)
    expert = mesh.get("expert", 1)
    ff, own = _part(config.expert_ff_dim, tensor), _part(config.experts, expert)
    each = 3 * d * ff
    chosen = config.experts_per_token * own / config.experts  # of a token, on this chip
    router = d * config.experts
    return Layer(
        int(attention + router + chosen * each),
        int(chosen * d * ff),
        attention + router + own * each,
        int(activations + chosen * (3 * d + 3 * ff)),
        heads,
    )


def _part(size: int, parts: int) -> int:
    return size // parts if size % parts == 0 else size


def forward(config: ModelConfig, mesh: Mapping[str, int], rows: int, length: int) -> Work:
    """Log-probabilities of packed rows that a chip has `rows` of, each one sequence of `length` tokens."""
    one, tokens = layer(config, mesh), rows * length / mesh.get("sequence", 1)
    layers, head = config.layers, _head(config, mesh)
    needed = 2 * one.weights * layers + 2 * head + 4 * one.heads * layers * (length + 1) / 2
    done = 2 * one.weights * layers + 2 * head + 4 * one.heads * layers * keys_visited(length)
    moved = _bytes(config) * (layers * one.held + head + tokens * layers * one.activations)
    return Work(needed * tokens, done * tokens, moved + 4 * tokens * head / config.embed_dim)


def keys_visited(length: int) -> float:
    """Keys that a query of one causal row is multiplied with, on average: whole blocks."""
    size = block_of(length)
    return size * (math.ceil(length / size) + 1) / 2


def train(config: ModelConfig, mesh: Mapping[str, int], rows: int, length: int, adapters: int = 0) -> Work:
    """The gradient of such rows.

    Args:
      adapters: elements of the adapters of a layer on this chip; 0 where all parameters are trained. With adapters no product
        makes a gradient of the base.
    """
    one, tokens = layer(config, mesh), rows * length / mesh.get("sequence", 1)
    whole = forward(config, mesh, rows, length)
    layers, head = config.layers, _head(config, mesh)
    back = 1 if adapters else 2  # products of the backward pass for each of the forward pass
    again, attention_again = _AGAIN[config.remat]
    vocab = _part(config.vocab_size, mesh.get("tensor", 1))
    pieces = length > positions_at_once(max(1, rows), vocab, config)
    attention = 4 * one.heads * layers * tokens
    low = 2 * adapters * layers * tokens
    needed = (
        tokens * ((1 + back) * 2 * (one.weights * layers + head)) + 3 * attention * (length + 1) / 2 + 3 * low
    )
    done = tokens * (1 + back) * 2 * one.weights * layers + tokens * (1 + back + pieces) * 2 * head
    done += tokens * again * 2 * (one.weights - one.down) * layers + (3 + again) * low
    # The backward pass multiplies queries and keys once more, whatever is stored of the forward pass.
    products = 2 + 5 + 2 * attention_again
    done += attention / 2 * products * keys_visited(length)
    passes = 1 + again + back
    return Work(needed, done, passes * whole.bytes + 4 * (0 if adapters else layers * one.held + head))


def read(config: ModelConfig, mesh: Mapping[str, int], rows: float, tokens: int, keys: int) -> Work:
    """Tokens [rows,tokens] of a chip behind a cache of `keys`, all of which they are compared with; logits of the last."""
    one, layers, head = layer(config, mesh), config.layers, _head(config, mesh)
    n = rows * tokens
    done = 2 * one.weights * layers * n + 2 * head * rows + 4 * one.heads * layers * keys * n
    used = one.held if not config.experts else min(one.held, one.weights * max(n, 1))
    cache = 2 * layers * keys * rows * _part(config.kv_heads, mesh.get("tensor", 1)) * config.head_dim
    return Work(done, done, _bytes(config) * (layers * used + head + cache + n * layers * one.activations))


def branch(
    config: ModelConfig, mesh: Mapping[str, int], trunks: float, branches: int, keys: int, own: int
) -> Work:
    """One token of each of `branches` continuations of each trunk: the trunk's cache is read once for all of them."""
    shared = read(config, mesh, trunks, branches, keys)
    alone = read(config, mesh, trunks * branches, 1, own)
    weights = read(config, mesh, 0, 0, 0).bytes
    return Work(shared.needed + alone.needed, shared.done + alone.done, shared.bytes + alone.bytes - weights)


def _head(config: ModelConfig, mesh: Mapping[str, int]) -> int:
    return config.embed_dim * _part(config.vocab_size, mesh.get("tensor", 1))


def _bytes(config: ModelConfig) -> int:
    return config.jax_dtype.itemsize
