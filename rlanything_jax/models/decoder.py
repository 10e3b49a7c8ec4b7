"""The decoder: Llama / Qwen-type blocks as a Linen parameter factory, the rest functions on dicts of arrays.

    axis   B batch, T query, S key, L layers, N heads, K kv-heads, H head dim, D model, F ff, V vocabulary

Parameters are one plain dict. For training the layers are stacked, `params['layers']['wq'] [L,D,N*H]`, and
run by one scan; for generation `unstack` gives a list of L dicts, since slicing stacked weights inside a
decode loop copies them at every token. Policy, judge and rewriter are dicts of this shape through the same
functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from rlanything_jax.models.attention import attend, within
from rlanything_jax.models.config import REMAT, ModelConfig
from rlanything_jax.models.dense import Dense
from rlanything_jax.models.experts import Experts, route
from rlanything_jax.models.rope import rope
from rlanything_jax.models.spans import Spans
from rlanything_jax.parallel.layout import constrain

Params = dict[str, Any]

SCORES_AT_ONCE = 2**26  # of a sampled row, 256 MB; more are computed block by block


class RMSNorm(nn.Module):
    eps: float

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)
        return (y * scale).astype(x.dtype)


class Block(nn.Module):
    """One layer in two halves, so that every attention (packed, cached, branched) can stand between them."""

    config: ModelConfig

    def setup(self) -> None:
        c = self.config
        dense = functools.partial(Dense, dtype=c.jax_dtype, param_dtype=c.jax_param_dtype)
        self.attn_norm = RMSNorm(c.norm_eps)
        self.wq = dense(c.heads * c.head_dim, use_bias=c.qkv_bias)
        self.wk = dense(c.kv_heads * c.head_dim, use_bias=c.qkv_bias)
        self.wv = dense(c.kv_heads * c.head_dim, use_bias=c.qkv_bias)
        if c.qk_norm:
            self.q_norm = RMSNorm(c.norm_eps)
            self.k_norm = RMSNorm(c.norm_eps)
        self.wo = dense(c.embed_dim)
        self.ff_norm = RMSNorm(c.norm_eps)
        if c.experts:
            # In float32: rounded logits would choose other experts.
            self.router = Dense(c.experts, dtype=jnp.float32, param_dtype=c.jax_param_dtype)
            self.experts = Experts(c.experts, c.expert_ff_dim, c.jax_dtype, c.jax_param_dtype)
        else:
            self.w_gate = dense(c.ff_dim)
            self.w_up = dense(c.ff_dim)
            self.w_down = dense(c.embed_dim)

    def qkv(self, x: Array, positions: Array) -> tuple[Array, Array, Array]:
        """x [B,T,D], positions [B,T] -> q [B,T,N,H], k and v [B,K,T,H] (head-major, as in the cache)."""
        c = self.config
        b, t, _ = x.shape
        x = self.attn_norm(x)
        q = self.wq(x).reshape(b, t, c.heads, c.head_dim)
        k = self.wk(x).reshape(b, t, c.kv_heads, c.head_dim)
        v = self.wv(x).reshape(b, t, c.kv_heads, c.head_dim)
        if c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (rope(y, positions, c.rope_theta, c.rope_scaling) for y in (q, k))
        return q, k.swapaxes(1, 2), v.swapaxes(1, 2)

    def finish(self, x: Array, attended: Array) -> Array:
        """Residual [B,T,D] and attention result [B,T,N,H] -> [B,T,D]."""
        c = self.config
        x = x + self.wo(attended.reshape(*x.shape[:2], -1))
        y = self.ff_norm(x)
        if c.experts:
            return x + self.experts(y, *route(self.router(y), c.experts_per_token, c.normalise_experts))
        return x + self.w_down(nn.silu(self.w_gate(y)) * self.w_up(y))

    def __call__(self, x: Array, positions: Array, mask: Array | Spans) -> Array:
        q, k, v = self.qkv(x, positions)
        return self.finish(x, attend(q, k, v, mask))


def init(config: ModelConfig, key: Array) -> Params:
    """Fresh parameters; fan-in initialisation (a flat 0.02 did not learn at small widths)."""
    embed_key, head_key, layer_key = jax.random.split(key, 3)
    x = jnp.zeros((1, 1, config.embed_dim), config.jax_dtype)
    position, mask = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1, 1), bool)
    block = Block(config)
    layers = jax.vmap(lambda k: block.init(k, x, position, mask)["params"])(
        jax.random.split(layer_key, config.layers)
    )
    scale = config.embed_dim**-0.5
    table = (config.vocab_size, config.embed_dim)
    params = {
        "embed": jax.random.normal(embed_key, table, config.jax_param_dtype) * scale,
        "layers": layers,
        "norm": jnp.ones((config.embed_dim,)),
    }
    if not config.tie_embeddings:
        params["head"] = jax.random.normal(head_key, table, config.jax_param_dtype) * scale
    return params


def unstack(params: Params, config: ModelConfig) -> Params:
    """The same parameters with `layers` as a list of dicts, for generation. Do it once per weight update."""
    layers = [jax.tree.map(lambda x, i=i: x[i], params["layers"]) for i in range(config.layers)]
    return params | {"layers": layers}


def embed(params: Params, config: ModelConfig, tokens: Array) -> Array:
    """tokens [B,T] -> [B,T,D]. Scaling a tied table gives input and output unit variance."""
    table = constrain(
        params["embed"], "vocab", None
    )  # gathered once, where rows of the result would be resorted
    x = table[tokens].astype(config.jax_dtype)
    x = constrain(x, "rows", "positions", None)
    return x * config.embed_dim**0.5 if config.scale_embeddings else x


def block_qkv(layer: Params, config: ModelConfig, x: Array, positions: Array) -> tuple[Array, Array, Array]:
    return _apply(layer, config, x, positions, method=Block.qkv)


def block_finish(layer: Params, config: ModelConfig, x: Array, attended: Array) -> Array:
    return _apply(layer, config, x, attended, method=Block.finish)


def _apply(
    layer: Params, config: ModelConfig, *args: Array | Spans, method: Callable[..., Any] | None = None
) -> Any:
    return Block(config).apply({"params": layer}, *args, method=method)


def hidden(
    params: Params, config: ModelConfig, tokens: Array, positions: Array, mask: Array | Spans
) -> Array:
    """The last layer's output [B,S,D] for tokens and positions [B,S] under a mask [B,S,S] or spans, layers stacked."""

    def layer(x: Array, weights: Params, mask: Array | Spans) -> Array:
        return constrain(_apply(weights, config, x, positions, mask), "rows", "positions", None)

    policy = REMAT[config.remat]
    run = jax.checkpoint(layer, prevent_cse=False, policy=policy) if policy else layer
    x = embed(params, config, tokens)
    if not config.sliding_layers:
        x, _ = jax.lax.scan(
            lambda x, weights: (run(x, weights, mask), None), x, params["layers"], unroll=config.scan_unroll
        )
        return x
    # One program serves all layers of the scan; a flag tells it which mask a layer has.
    window = config.sliding_window
    near = (
        mask.within(positions, window)
        if isinstance(mask, Spans)
        else within(mask, positions, positions, window)
    )
    sliding = jnp.isin(jnp.arange(config.layers), jnp.array(config.sliding_layers))
    x, _ = jax.lax.scan(
        lambda x, xs: (run(x, xs[0], jax.tree.map(functools.partial(jnp.where, xs[1]), near, mask)), None),
        x,
        (params["layers"], sliding),
        unroll=config.scan_unroll,
    )
    return x


def scores_fit(config: ModelConfig, queries: int, keys: int) -> bool:
    """Whether a sampler has mask and scores of a row whole in memory. Other rows have no say: results do not depend on them."""
    return config.heads * queries * keys <= SCORES_AT_ONCE


def layer_masks(config: ModelConfig, mask: Array | Spans, query: Array, key: Array) -> list[Any]:
    """The mask of each layer, [...,T,S] or spans, for unstacked layers; of queries and keys at positions [...,T] and [...,S]."""
    if not config.sliding_layers:
        return [mask] * config.layers
    window = config.sliding_window
    near = mask.within(query, window) if isinstance(mask, Spans) else within(mask, query, key, window)
    return [near if i in config.sliding_layers else mask for i in range(config.layers)]


def unembed(params: Params, config: ModelConfig, x: Array) -> Array:
    """Final norm and output table: [...,D] -> logits [...,V] in float32."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + config.norm_eps) * params["norm"]
    table = params["embed"] if config.tie_embeddings else params["head"]
    y, table = y.astype(config.jax_dtype), table.astype(config.jax_dtype)
    return jnp.einsum("...d,vd->...v", y, table, preferred_element_type=jnp.float32)


@functools.partial(jax.jit, static_argnames="config")
def logits(params: Params, config: ModelConfig, tokens: Array, mask: Array) -> Array:
    """Causal logits of padded sequences.

    Args:
      params: stacked parameters.
      tokens: [B,S] ids.
      mask: [B,S] bool, False at padding, on either side.

    Returns:
      [B,S,V] float32; what stands at padding is undefined.
    """
    s = tokens.shape[1]
    positions = jnp.maximum(jnp.cumsum(mask, axis=1) - 1, 0)
    causal = jnp.tril(jnp.ones((s, s), bool))[None] & mask[:, None, :]
    return unembed(params, config, hidden(params, config, tokens, positions, causal))
