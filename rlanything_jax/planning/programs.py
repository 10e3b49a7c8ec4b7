"""The programs of a run, ready to be compiled for chips that are not here.

Every program is the one that the run itself would call, lowered from shapes with the shardings that its arrays would have:
`trainer.step` on the mesh of all chips, `sampler` on the mesh of one host.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, unstack
from rlanything_jax.models.lora import combine, init_adapters
from rlanything_jax.models.quantize import quantize_params
from rlanything_jax.models.sharding import abstract_params
from rlanything_jax.models.spans import block_of
from rlanything_jax.parallel.layout import DECODE, on_mesh, row_shards, shardings, split
from rlanything_jax.parallel.mesh import Meshes
from rlanything_jax.planning import counts
from rlanything_jax.planning.counts import Work
from rlanything_jax.planning.models import Cast
from rlanything_jax.planning.sizes import Sizes
from rlanything_jax.reward.judge import READ_AT_ONCE
from rlanything_jax.roles import make_optimizer
from rlanything_jax.sampler import Sampling, Sessions, decode, decode_branches, extend
from rlanything_jax.trainer.batches import Batch
from rlanything_jax.trainer.step import Objective, TrainState, gradient, policy_loss, token_logprobs, update

Tree = Any


@dataclasses.dataclass(frozen=True)
class Program:
    """One program of the run, called once for what its name says: a micro-batch, an update, a turn, one token of all rows."""

    name: str
    lower: Callable[[], Any]
    mesh: Mesh
    work: Work  # of one chip
    arguments: Mapping[str, Tree]  # what it is given, by name; those in `Programs.resident` are there anyway
    token: bool = False  # whether it is one run of a loop over sampled tokens that counts
    visits: float = (
        1.0  # runs of the loops whose number depends on values: blocks of keys that attention visits
    )
    beside: Mapping[str, Tree] = dataclasses.field(default_factory=dict)  # what the caller keeps meanwhile
    batch: int = 0  # rows of a micro-batch, where it is one


@dataclasses.dataclass(frozen=True)
class Programs:
    programs: list[Program]
    resident: Mapping[str, Tree]  # what lies on the chips during the whole run


@dataclasses.dataclass(frozen=True)
class Weights:
    """Those that a role generates with, and the parts of them by name."""

    params: Params
    parts: Mapping[str, Tree]


def _shape(shape: tuple[int, ...], dtype: Any, place: NamedSharding | None = None) -> Any:
    """An array that is not there, where an array is expected; without a place one of the host's."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=place)


def per_chip(tree: Tree) -> int:
    """Bytes of a tree of placed shapes on one chip."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def shares_chips(tree: Tree, mesh: Mesh) -> bool:
    """Whether a tree of placed shapes lies on chips of this mesh, by their place: a host may be a slice of its own."""
    leaves = jax.tree.leaves(tree)
    here = {tuple(device.coords) for device in mesh.devices.flat}
    return bool(leaves) and any(tuple(d.coords) in here for d in leaves[0].sharding.mesh.devices.flat)


def build(config: ConfigDict, cast: Cast, sizes: Sizes, meshes: Meshes) -> Programs:
    """All programs of the config on these meshes; nothing is compiled yet."""
    resident: dict[str, Tree] = {}
    programs: list[Program] = []
    speakers: dict[str, Weights] = {}
    local = meshes.local
    for name, model in (("policy", cast.policy), ("judge", cast.judge)):
        trained, frozen = _learner(config, name, model, meshes.train)
        state = _state(config, name, trained, meshes.train)
        kept = {f"{name}.params": state.params, f"{name}.moments": state.opt_state}
        base, base_decode = f"base {cast.names[name]}", f"decode weights {cast.names[name]}"
        if frozen:  # roles of one checkpoint share a base
            kept[base] = frozen
            resident[base_decode] = _decode_params(frozen, model, local)
            own = {base_decode: resident[base_decode], "adapters": _decode_params(trained, model, local)}
        else:
            own = {"weights": _decode_params(trained, model, local)}
        speakers[name] = Weights(_decode_params(combine(frozen, trained), model, local), own)
        resident |= kept
        if config[f"train_{name}"]:
            programs += _training(config, name, model, state, frozen, kept, sizes, meshes.train)
    rewriter = _decode_params(abstract_params(cast.rewriter, meshes.train), cast.rewriter, local)
    own = {f"decode weights {cast.names['rewriter']}": rewriter}
    resident |= own
    programs += [
        _read(
            "policy prompt", speakers["policy"], cast.policy, local, sizes.prompts, sizes.prompt, sizes.prompt
        ),
        _read("policy turn", speakers["policy"], cast.policy, local, sizes.rows, sizes.turn, sizes.context),
        _decode(
            "policy token", speakers["policy"], cast.policy, local, sizes.rows, sizes.context, sizes.action
        ),
    ]
    programs += _judging(config, speakers["judge"], cast.judge, local, sizes)
    if config.adapt_tasks:
        rows, written = config.adapt.max_pending, config.adapt.max_tokens
        room, rewriting = sizes.rewrite_context + written, Weights(rewriter, own)
        programs += [
            _read("rewriter reads", rewriting, cast.rewriter, local, rows, sizes.rewrite_context, room),
            _decode(
                "rewriter token", rewriting, cast.rewriter, local, rows * config.adapt.attempts, room, written
            ),
        ]
    return Programs(programs, resident)


def _judging(
    config: ConfigDict, judge: Weights, model: ModelConfig, local: Mesh, sizes: Sizes
) -> list[Program]:
    rows, context = sizes.judge_rows, sizes.judge_context
    if config.reward == "verdicts":
        reads = _read("judge reads", judge, model, local, rows, min(READ_AT_ONCE, context), context)
        return [reads, _branches("judge token", judge, model, local, sizes)]
    reads = _read("judge reads", judge, model, local, rows, context, context + sizes.vote)
    tests = rows * config.votes_per_step
    return [reads, _decode("judge token", judge, model, local, tests, context + sizes.vote, sizes.vote)]


def _learner(config: ConfigDict, name: str, model: ModelConfig, mesh: Mesh) -> tuple[Params, Params]:
    """(trained, frozen), as `roles.cast_checkpoints` makes them."""
    params = abstract_params(model, mesh)
    lora = config[name].get("lora", ConfigDict({"rank": 0}))
    if not lora.rank:
        return params, {}
    base = jax.eval_shape(quantize_params, params) if lora.int8_base else params
    make = functools.partial(init_adapters, rank=lora.rank, alpha=lora.alpha, targets=tuple(lora.targets))
    frozen, adapters = jax.eval_shape(lambda base: make(base, key=jax.random.key(0)), base)
    return _placed(adapters, shardings(adapters, mesh)), _placed(frozen, shardings(frozen, mesh))


def _placed(tree: Tree, layout: Tree) -> Tree:
    return jax.tree.map(lambda x, s: _shape(x.shape, x.dtype, s), tree, layout)


def _state(config: ConfigDict, name: str, trained: Params, mesh: Mesh) -> TrainState:
    tx = make_optimizer(config, name)

    def make(params: Params) -> TrainState:
        return TrainState(params, tx.init(params), jnp.zeros((), jnp.int32))

    shapes = jax.eval_shape(make, trained)
    return _placed(shapes, shardings(shapes, mesh))


def _decode_params(params: Params, model: ModelConfig, local: Mesh) -> Params:
    shapes = jax.eval_shape(functools.partial(unstack, config=model), params)
    return _placed(shapes, shardings(shapes, local, DECODE))


def _training(
    config: ConfigDict,
    name: str,
    model: ModelConfig,
    state: TrainState,
    frozen: Params,
    kept: Mapping[str, Tree],
    sizes: Sizes,
    mesh: Mesh,
) -> list[Program]:
    length = sizes.policy_row if name == "policy" else sizes.judge_row
    shards = row_shards(mesh)
    rows = -(-max(1, config.trainer.tokens_per_batch // length) // shards) * shards
    place = NamedSharding(mesh, split(("rows", "positions"), (rows, length), mesh))
    batch = Batch(
        *(_shape((rows, length), dtype, place) for dtype in (*(jnp.int32,) * 5, *(jnp.float32,) * 4))
    )
    objective = Objective(*(_shape((), jnp.float32),) * len(Objective._fields))
    tx = make_optimizer(config, name)
    wide = _placed(
        jax.tree.map(lambda x: _shape(x.shape, jnp.float32), state.params),
        shardings(state.params, mesh),
    )
    adapters = _elements_of_layer(state.params) if frozen else 0
    here = rows // shards
    visits = counts.keys_visited(length) / block_of(length)
    shape = dict(mesh.shape)
    moments = f"{name}.moments"
    given = {part: tree for part, tree in kept.items() if part != moments} | {"batch": batch}

    def lowered(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        def lower() -> Any:
            with on_mesh(mesh):
                return function.lower(*args)  # type: ignore[attr-defined]

        return lower

    programs = [
        Program(
            f"{name} gradient",
            lowered(gradient, state.params, frozen, model, batch, objective, policy_loss),
            mesh,
            counts.train(model, shape, here, length, adapters),
            given,
            visits=visits,
            beside={"gradient so far": wide},  # of the micro-batches before
            batch=rows,
        ),
        Program(
            f"{name} update",
            lowered(update, state, wide, tx),
            mesh,
            Work(0, 0, 2 * per_chip(state) + per_chip(wide)),
            {f"{name}.params": state.params, moments: state.opt_state, "gradient": wide},
        ),
    ]
    if config[name].updates > 1:
        everything = combine(frozen, state.params)
        temperature = _shape((), jnp.float32)
        programs.append(
            Program(
                f"{name} log-probabilities",
                lowered(token_logprobs, everything, model, batch, temperature),
                mesh,
                counts.forward(model, shape, here, length),
                given,
                visits=visits,
            )
        )
    return programs


def _elements_of_layer(adapters: Params) -> int:
    """Of one chip."""
    leaves = jax.tree.leaves(adapters["layers"])
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)[1:]) for leaf in leaves)


def _sessions(model: ModelConfig, rows: int, capacity: int, mesh: Mesh) -> Sessions:
    """As `sampler.session.pinned` places them."""

    def of(shape: tuple[int, ...], dtype: Any, *axes: str | None) -> Any:
        names = ("rows", *axes, *[None] * (len(shape) - 1 - len(axes)))
        return _shape(shape, dtype, NamedSharding(mesh, split(names, shape, mesh, DECODE)))

    cache = [
        of((rows, model.kv_heads, capacity, model.head_dim), model.jax_dtype, "kv_heads")
        for _ in range(model.layers)
    ]
    ids = of((rows,), jnp.int32)
    return Sessions(
        cache,
        list(cache),
        ids,
        of((rows, model.vocab_size), jnp.float32, "vocab"),
        ids,
        of((rows,), jnp.bool_),
    )


def _sampling(rows: int) -> Sampling:
    """Of two ids that end a turn, as chat models have."""

    def of(dtype: Any, *shape: int) -> Any:
        return _shape(shape, dtype)

    return Sampling(
        temperature=of(np.float32, rows),
        budget=of(np.int32, rows),
        stop=of(np.int32, rows, 2),
        request=of(np.uint32, rows),
        seed=of(np.uint32),
        top_k=of(np.int32, rows),
        top_p=of(np.float32, rows),
    )


def _read(
    name: str, weights: Weights, model: ModelConfig, mesh: Mesh, rows: int, tokens: int, capacity: int
) -> Program:
    sessions = _sessions(model, rows, capacity, mesh)

    def lower() -> Any:
        with on_mesh(mesh):
            read, count = (
                _shape((rows, tokens), jnp.int32),
                _shape((rows,), jnp.int32),
            )
            return extend.lower(weights.params, model, sessions, read, count)

    work = counts.read(model, dict(mesh.shape), _rows_of_chip(rows, mesh), tokens, capacity)
    return Program(name, lower, mesh, work, {**weights.parts, "cache": sessions})


def _decode(
    name: str, weights: Weights, model: ModelConfig, mesh: Mesh, rows: int, capacity: int, chunk: int
) -> Program:
    sessions = _sessions(model, rows, capacity, mesh)

    def lower() -> Any:
        with on_mesh(mesh):
            return decode.lower(weights.params, model, sessions, _sampling(rows), chunk)

    work = counts.read(model, dict(mesh.shape), _rows_of_chip(rows, mesh), 1, capacity)
    given = {**weights.parts, "cache": sessions}
    return Program(name, lower, mesh, work, given, token=True)


def _branches(name: str, weights: Weights, model: ModelConfig, mesh: Mesh, sizes: Sizes) -> Program:
    rows, branches = sizes.judge_rows, sizes.branches
    trunk = _sessions(model, rows, sizes.judge_context, mesh)

    def lower() -> Any:
        with on_mesh(mesh):
            point = _shape((rows, branches), jnp.int32)
            question = _shape((sizes.question,), jnp.int32)
            how = _sampling(rows * branches)
            how = how._replace(top_k=_shape((), jnp.int32), top_p=_shape((), jnp.float32))
            return decode_branches.lower(weights.params, model, trunk, point, question, how, sizes.vote)

    here = _rows_of_chip(rows, mesh)
    own = sizes.question + sizes.vote
    work = counts.branch(model, dict(mesh.shape), here, branches, sizes.judge_context, own)
    return Program(name, lower, mesh, work, {**weights.parts, "cache": trunk}, token=True)


def _rows_of_chip(rows: int, mesh: Mesh) -> float:
    data = mesh.shape["data"]
    return rows / data if rows % data == 0 else rows
