"""Hugging Face weights in and out of our parameter tree.

Ours and theirs differ in three ways: a linear layer is `[in,out]` here and `[out,in]` there; layers (and experts)
are stacked along leading axes here and separate tensors there; and the names. One table says all of it. Loading
builds every leaf piece by piece, each piece only what one device holds, read and converted just then, so host
memory sees one piece of one leaf at a time; export walks the same table backwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params
from rlanything_jax.models.sharding import abstract_params
from rlanything_jax.models.tensor_files import NewTensor, TensorSource

# Our leaf -> their tensor. `{}` is filled with the layer, then the expert.
NAMES = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "layers/attn_norm/scale": "model.layers.{}.input_layernorm.weight",
    "layers/wq/kernel": "model.layers.{}.self_attn.q_proj.weight",
    "layers/wk/kernel": "model.layers.{}.self_attn.k_proj.weight",
    "layers/wv/kernel": "model.layers.{}.self_attn.v_proj.weight",
    "layers/wo/kernel": "model.layers.{}.self_attn.o_proj.weight",
    "layers/wq/bias": "model.layers.{}.self_attn.q_proj.bias",
    "layers/wk/bias": "model.layers.{}.self_attn.k_proj.bias",
    "layers/wv/bias": "model.layers.{}.self_attn.v_proj.bias",
    "layers/q_norm/scale": "model.layers.{}.self_attn.q_norm.weight",
    "layers/k_norm/scale": "model.layers.{}.self_attn.k_norm.weight",
    "layers/ff_norm/scale": "model.layers.{}.post_attention_layernorm.weight",
    "layers/w_gate/kernel": "model.layers.{}.mlp.gate_proj.weight",
    "layers/w_up/kernel": "model.layers.{}.mlp.up_proj.weight",
    "layers/w_down/kernel": "model.layers.{}.mlp.down_proj.weight",
    "layers/router/kernel": "model.layers.{}.mlp.gate.weight",
    "layers/experts/w_gate": "model.layers.{}.mlp.experts.{}.gate_proj.weight",
    "layers/experts/w_up": "model.layers.{}.mlp.experts.{}.up_proj.weight",
    "layers/experts/w_down": "model.layers.{}.mlp.experts.{}.down_proj.weight",
}
# Tables that older exports carry and that follow from the config.
DERIVED = re.compile(r".*\.(rotary_emb\.inv_freq|attn\.masked_bias|attn\.bias)")
SHOWN = 5  # of the tensors that do not fit, in an error
Index = tuple[slice, ...]


def load_params(source: TensorSource, config: ModelConfig, mesh: jax.sharding.Mesh | None = None) -> Params:
    """Our parameters from a source of Hugging Face tensors, placed by `parallel.layout` on the mesh.

    Raises ValueError that names every tensor (the first few, with their number) that is missing, extra or of another
    shape, and its file; and where the config ties the output table to the embedding but the file holds another one.
    """
    leaves = flatten_dict(abstract_params(config, mesh), sep="/")
    check_tensors(source, leaves, tied=config.tie_embeddings)
    return unflatten_dict({leaf: _load(source, leaf, spec) for leaf, spec in leaves.items()}, sep="/")


def check_tensors(source: TensorSource, leaves: dict[str, jax.ShapeDtypeStruct], *, tied: bool) -> None:
    """Compares names and shapes with what the leaves need, before anything is read; raises as `load_params` says."""
    wanted = {name: shape for leaf, spec in leaves.items() for name, shape in _tensors(leaf, spec.shape)}
    found = dict(source.tensors)
    files = sorted({str(info.file) for info in found.values()})
    where = (
        files[0] if len(files) == 1 else f"the {len(files)} files beside {files[0]}" if files else "no file"
    )
    problems = [
        f"{name} {list(shape)} is missing from {where}" for name, shape in wanted.items() if name not in found
    ]
    for name, (file, shape) in found.items():
        if name in wanted:
            if shape != wanted[name]:
                problems.append(
                    f"{name} in {file} has shape {list(shape)}, the config asks for {list(wanted[name])}"
                )
        elif not DERIVED.fullmatch(name) and not (tied and name == NAMES["head"]):
            problems.append(f"{name} {list(shape)} in {file} has no place in this model")
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise ValueError("weights do not fit the config: " + "; ".join(problems[:SHOWN]) + more)
    if tied and NAMES["head"] in found:
        _check_tied(source)


def _check_tied(source: TensorSource) -> None:
    """A tied model may store its table twice, but not two tables."""
    embed, head = NAMES["embed"], NAMES["head"]
    (_, shape), (file, head_shape) = source.tensors[embed], source.tensors[head]
    step = 4096  # rows at a time, so that no table is in memory

    def differ(start: int) -> bool:
        rows = (slice(start, start + step), slice(None))
        return not np.array_equal(source.read(embed, rows), source.read(head, rows))

    if shape != head_shape or any(map(differ, range(0, shape[0], step))):
        raise ValueError(
            f"{head} in {file} differs from {embed}, but the config ties them; set tie_word_embeddings to false"
        )


def _tensors(leaf: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(their name, their shape) of every tensor that makes up a leaf, in the order of its stacked axes."""
    if leaf not in NAMES:
        raise ValueError(f"parameter {leaf!r} has no Hugging Face name; merge adapters before an export")
    lead = NAMES[leaf].count("{}")
    inner = shape[lead:][::-1] if _transposed(leaf) else shape[lead:]
    for at in np.ndindex(shape[:lead]):
        yield NAMES[leaf].format(*at), inner


def _transposed(leaf: str) -> bool:
    return leaf.endswith("/kernel") or leaf.startswith("layers/experts/")


def _load(source: TensorSource, leaf: str, spec: jax.ShapeDtypeStruct) -> jax.Array:
    """One leaf, placed. Devices that hold the same piece share one reading of it."""
    holders: dict[tuple[tuple[int, int], ...], list[jax.Device]] = {}
    for device, index in spec.sharding.addressable_devices_indices_map(spec.shape).items():
        bounds = tuple(s.indices(n)[:2] for s, n in zip(index, spec.shape, strict=True))
        holders.setdefault(bounds, []).append(device)
    pieces = []
    for bounds, devices in holders.items():
        piece = _read(source, leaf, spec.dtype, bounds)
        pieces += [jax.device_put(piece, device) for device in devices]
        # Transfers are asynchronous: without waiting, the pieces in flight would add up to the model.
        jax.block_until_ready(pieces)
    return jax.make_array_from_single_device_arrays(spec.shape, spec.sharding, pieces)


def _read(
    source: TensorSource, leaf: str, dtype: np.dtype, bounds: tuple[tuple[int, int], ...]
) -> np.ndarray:
    """The piece of a leaf between `bounds` (first and last + 1 of each dimension), in our layout and dtype."""
    piece = np.empty([stop - start for start, stop in bounds], dtype)
    lead = NAMES[leaf].count("{}")
    inner: Index = tuple(slice(*b) for b in bounds[lead:])
    for at in np.ndindex(piece.shape[:lead]):
        name = NAMES[leaf].format(*(start + i for (start, _), i in zip(bounds, at, strict=False)))
        if _transposed(leaf):
            piece[at] = source.read(name, inner[::-1]).T
        else:
            piece[at] = source.read(name, inner)
    return piece


def export_tensors(params: Params) -> list[NewTensor]:
    """Every Hugging Face tensor of stacked parameters, cut out of its leaf only when it is made.

    Raises ValueError on a leaf without a counterpart (adapters, int8 kernels).
    """
    tensors = []
    for leaf, array in flatten_dict(params, sep="/").items():
        for at, (name, shape) in zip(
            np.ndindex(array.shape[: NAMES.get(leaf, "").count("{}")]),
            _tensors(leaf, array.shape),
            strict=True,
        ):

            def make(array: jax.Array = array, at: tuple[int, ...] = at, leaf: str = leaf) -> np.ndarray:
                tensor = np.asarray(array[at])
                return tensor.T if _transposed(leaf) else tensor

            tensors.append(NewTensor(name, shape, np.dtype(array.dtype), make))
    return tensors
