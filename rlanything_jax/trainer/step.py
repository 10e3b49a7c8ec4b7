"""The train step: one pair of jitted programs for policy, judge and rewriter.

`gradient` serves one micro-batch, `update` applies the sum. The weights of all micro-batches of an update add
up to one, so that the result does not depend on how the rows were cut, and the number of micro-batches
compiles nothing anew.

A model is the union of two trees: what is trained, which is all that a state holds, and what is frozen, which
has neither gradient nor moments. Training the whole model leaves the frozen tree empty; with adapters it is the
base.

Everything runs on the mesh on which the state lies: rows of a batch are split over `data` and `fsdp`, states and
gradients lie where `parallel.layout` says, before and after every step. On one device nothing of it shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from rlanything_jax import losses
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, hidden, unembed
from rlanything_jax.models.lora import combine
from rlanything_jax.parallel.layout import (
    assert_shardings,
    auto_mesh,
    mesh_of,
    on_mesh,
    pin,
    place,
    place_rows,
    row_shards,
    shardings,
    split,
)
from rlanything_jax.trainer.batches import Batch, TrainSequence, normalise, pack, spans

Metrics = dict[str, Array]

LOGITS_AT_ONCE = 2**24  # of a device, 64 MB; more where the model is large, see `positions_at_once`
TABLES = ("embed", "head")


class TrainState(NamedTuple):
    params: Params  # stacked; the trainable ones
    opt_state: Any
    step: Array  # [] int32 updates so far; also the weight version that the sampler records


class Objective(NamedTuple):
    """What is learned from each token; arrays, so that a schedule may move them."""

    temperature: Array | float = (
        1.0  # at which the behaviour sampled: log-probabilities are compared at the same one
    )
    eps_low: Array | float = 0.2
    eps_high: Array | float = 0.28
    kl: Array | float = 0.0  # weight of the k3 estimate of the KL to the policy before the update
    correction_cap: Array | float = 2.0  # of the sampler-to-trainer importance correction


LossFn = Callable[[Array, Batch, Objective], tuple[Array, Metrics]]


def policy_loss(logp: Array, batch: Batch, objective: Objective) -> tuple[Array, Metrics]:
    """Clipped surrogate of sampled tokens, [R,S] -> (loss [], metrics), against `batch.old`, the trainer's
    own log-probabilities before the first update. The sampler's enter by a truncated importance correction.
    """
    mask = batch.weight > 0
    correction = losses.importance_correction(batch.old, batch.logprobs, mask, cap=objective.correction_cap)
    loss, metrics = losses.clipped_surrogate(
        logp,
        batch.old,
        batch.advantage * correction,
        mask,
        eps_low=objective.eps_low,
        eps_high=objective.eps_high,
        weights=batch.weight,
    )
    kl = jnp.sum(batch.weight * losses.kl_estimate(logp, batch.old, mask))
    gap = jnp.sum(jnp.where(mask, batch.weight * jnp.abs(batch.old - batch.logprobs), 0.0))
    return loss + objective.kl * kl, metrics | {"loss": loss, "kl": kl, "logprob_gap": gap}


def on_policy_loss(logp: Array, batch: Batch, objective: Objective) -> tuple[Array, Metrics]:
    """`policy_loss` of the first update, which starts at the parameters of `batch.old`: no pass for it."""
    return policy_loss(logp, batch._replace(old=jax.lax.stop_gradient(logp)), objective)


def supervised_loss(logp: Array, batch: Batch, objective: Objective) -> tuple[Array, Metrics]:
    """Weighted cross-entropy, [R,S] -> (loss [], metrics)."""
    del objective
    loss, metrics = losses.cross_entropy(logp, batch.weight > 0, weights=batch.weight)
    return loss, metrics | {"loss": loss}


@functools.partial(jax.jit, static_argnames="config")
def token_logprobs(params: Params, config: ModelConfig, batch: Batch, temperature: Array | float) -> Array:
    """Log-probability of every token given those it sees before it, [R,S] float32; 0 for the first column.

    Where the logits of all positions would be too many, they are computed some positions at a time, and once more
    for the gradient.
    """
    tokens, position = jnp.asarray(batch.tokens), jnp.asarray(batch.position)
    x = hidden(params, config, tokens, position, spans(batch))
    table = params["embed"] if config.tie_embeddings else params["head"]
    logp = _next_logprobs(x, tokens, params["norm"], table, config, temperature)
    return jnp.pad(logp, ((0, 0), (1, 0)))


def _next_logprobs(
    x: Array, tokens: Array, norm: Array, table: Array, config: ModelConfig, temperature: Array | float
) -> Array:
    """Log-probabilities [R,S-1] of the tokens [R,S] but the first, from the last layer's output [R,S,D].

    On a mesh every device takes its rows and its part of the vocabulary. It gathers the table once and adds up its
    part of the table's gradient by itself; left to the partitioner, both would be exchanged for every piece.
    """

    def local(
        x: Array,
        targets: Array,
        norm: Array,
        table: Array,
        temperature: Array | float,
        axis: str | None = None,
    ) -> Array:
        head = {"norm": norm, "embed": table, "head": table}

        def logprobs(x: Array, targets: Array) -> Array:
            return _log_softmax_at(unembed(head, config, x) / temperature, targets, axis)

        size = positions_at_once(x.shape[0], table.shape[0], config)
        return _map_positions(logprobs, size, x, targets)

    mesh = auto_mesh()
    if mesh is None:
        return local(x[:, :-1], tokens[:, 1:], norm, table, temperature)
    rows, positions = split(("rows", "positions"), tokens.shape, mesh)
    vocab = split(("vocab",), table.shape[:1], mesh)[0]
    here = PartitionSpec(rows, positions)
    sharing = tuple(name for part in here if part for name in ([part] if isinstance(part, str) else part))

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(here, here, PartitionSpec(), PartitionSpec(vocab), PartitionSpec()),
        out_specs=here,
    )
    def spread(x: Array, targets: Array, norm: Array, table: Array, temperature: Array) -> Array:
        # Said here, once: the gradients of what all devices share are summed behind the pieces, not for each of them.
        norm, table = (jax.lax.pcast(y, sharing, to="varying") if sharing else y for y in (norm, table))
        return local(x, targets, norm, table, temperature, vocab)

    targets = jnp.roll(tokens, -1, axis=1)  # as many as positions, which may be split as well
    return spread(x, targets, norm, table, jnp.asarray(temperature, jnp.float32))[:, :-1]


def positions_at_once(rows: int, vocab: int, config: ModelConfig) -> int:
    """Positions of each of a device's rows whose logits over its part of the vocabulary are there at once.

    Each piece reads the table and adds to the table's gradient, which is as much as some D / 2 tokens' logits are: with less
    than a quarter of D tokens a large model would spend its time on the table.
    """
    return max(1, max(LOGITS_AT_ONCE // vocab, config.embed_dim // 4) // rows)


def _log_softmax_at(logits: Array, targets: Array, axis: str | None) -> Array:
    """Log-probabilities of targets [R,T] under logits [R,T,V]; the devices of a mesh axis may have a part of V each."""
    if axis is None:
        target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return target - jax.nn.logsumexp(logits, axis=-1)
    size = logits.shape[-1]
    local = targets - jax.lax.axis_index(axis) * size
    inside = (local >= 0) & (local < size)
    target = jnp.take_along_axis(logits, jnp.clip(local, 0, size - 1)[..., None], axis=-1)[..., 0]
    top = jax.lax.stop_gradient(jax.lax.pmax(jax.lax.stop_gradient(logits.max(-1)), axis))
    total = jax.lax.psum(jnp.exp(logits - top[..., None]).sum(-1), axis)
    return jax.lax.psum(jnp.where(inside, target, 0), axis) - top - jnp.log(total)


def _map_positions(f: Callable[..., Array], size: int, *arrays: Array) -> Array:
    """f of arrays [R,T,...] -> [R,T], at most `size` positions at a time, each piece recomputed for its gradient."""
    rows, length = arrays[0].shape[:2]
    if length <= size:
        return f(*arrays)
    count = -(-length // size)
    size = -(-length // count)  # equal pieces leave the least padding

    def cut(x: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, count * size - length), *[(0, 0)] * (x.ndim - 2)))
        return x.reshape(rows, count, size, *x.shape[2:]).swapaxes(0, 1)

    pieces = jax.lax.map(jax.checkpoint(lambda piece: f(*piece), prevent_cse=False), tuple(map(cut, arrays)))
    return pieces.swapaxes(0, 1).reshape(rows, count * size)[:, :length]


def init_state(params: Params, tx: optax.GradientTransformation, mesh: Mesh | None = None) -> TrainState:
    """A fresh state on a copy of the trainable `params`: updates are in place, and several models may start alike.

    Given a mesh it lies there, in the layout of training; else where `params` are.
    """

    def make(params: Params) -> TrainState:
        params = jax.tree.map(jnp.copy, params)
        return TrainState(params, tx.init(params), jnp.zeros((), jnp.int32))

    if mesh is None:
        return make(params)
    layout = shardings(jax.eval_shape(make, params), mesh)
    return jax.jit(make, out_shardings=layout)(place(params, layout.params))


@functools.partial(jax.jit, static_argnames=("config", "loss_fn"))
def gradient(
    trainable: Params,
    frozen: Params,
    config: ModelConfig,
    batch: Batch,
    objective: Objective,
    loss_fn: LossFn,
) -> tuple[Params, Metrics]:
    """The gradient of the trainable parameters and the metrics of one micro-batch, float32: they are summed."""

    def loss(trainable: Params) -> tuple[Array, Metrics]:
        logp = token_logprobs(combine(frozen, trainable), config, batch, objective.temperature)
        return loss_fn(logp, batch, objective)

    # A row of a table adds up as many gradients as its token occurs; in bfloat16 a sum stops growing at 256 of them.
    wide = {name: x.astype(jnp.float32) if name in TABLES else x for name, x in trainable.items()}
    gradient, metrics = jax.grad(loss, has_aux=True)(wide)
    return pin(jax.tree.map(lambda g: g.astype(jnp.float32), gradient)), metrics


@functools.partial(jax.jit, donate_argnums=0)
def add(total: tuple[Params, Metrics], other: tuple[Params, Metrics]) -> tuple[Params, Metrics]:
    gradient, metrics = jax.tree.map(jnp.add, total, other)
    return pin(gradient), metrics


@functools.partial(jax.jit, static_argnames="tx", donate_argnames="state")
def update(state: TrainState, gradient: Params, tx: optax.GradientTransformation) -> tuple[TrainState, Array]:
    """Applies a gradient; returns the new state and the gradient's norm before the clip."""
    updates, opt_state = tx.update(gradient, state.opt_state, state.params)
    norm = optax.tree.norm(gradient)
    return pin(TrainState(optax.apply_updates(state.params, updates), opt_state, state.step + 1)), norm


def train(
    state: TrainState,
    frozen: Params,
    config: ModelConfig,
    tx: optax.GradientTransformation,
    batches: Sequence[Batch],
    objective: Objective,
    loss_fn: LossFn,
) -> tuple[TrainState, Metrics]:
    """One optimizer update from one or more micro-batches, on the mesh that is set."""
    total = gradient(state.params, frozen, config, batches[0], objective, loss_fn)
    for batch in batches[1:]:
        total = add(total, gradient(state.params, frozen, config, batch, objective, loss_fn))
    summed, metrics = total
    state, norm = update(state, summed, tx)
    return state, metrics | {"grad_norm": norm}


def train_epoch(
    state: TrainState,
    frozen: Params,
    config: ModelConfig,
    tx: optax.GradientTransformation,
    sequences: Sequence[TrainSequence],
    objective: Objective,
    *,
    updates: int,
    tokens_per_batch: int,
    lengths: tuple[int, ...],
) -> tuple[TrainState, dict[str, float]]:
    """One pass of reinforcement learning over sampled sequences, in `updates` optimizer updates.

    Args:
      frozen: the parameters beside the trained ones; empty when the whole model is trained.
      sequences: in random order; cut into `updates` groups of equal size.
      tokens_per_batch: size of a micro-batch, rows times row length.
      lengths: the row lengths to choose from.

    Returns:
      The new state and the metrics, averaged over the updates. Without anything to learn from, the state as
      it is and no metrics.
    """
    with on_mesh(mesh_of(state.params)) as mesh:
        stated = shardings(state, mesh) if mesh else None
        groups = [
            [
                place_rows(batch)
                for batch in pack(
                    normalise(sequences[start::updates]),
                    tokens=tokens_per_batch,
                    lengths=lengths,
                    shards=row_shards(mesh),
                )
            ]
            for start in range(updates)
        ]
        groups = [batches for batches in groups if batches]
        # The first update starts at the parameters that the others compare with.
        before = combine(frozen, state.params)
        groups[1:] = [
            [b._replace(old=token_logprobs(before, config, b, objective.temperature)) for b in batches]
            for batches in groups[1:]
        ]
        collected = []
        for i, batches in enumerate(groups):
            loss_fn = policy_loss if i else on_policy_loss
            state, metrics = train(state, frozen, config, tx, batches, objective, loss_fn)
            collected.append(metrics)
        if stated:
            assert_shardings(state, stated)
    return state, {k: sum(float(m[k]) for m in collected) / len(collected) for k in (collected or [{}])[0]}
