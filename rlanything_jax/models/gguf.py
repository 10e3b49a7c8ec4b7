"""GGUF files: their header, their tensors dequantised on demand, their model's shape.

The header is parsed here because the `gguf` package builds a numpy view for each of the hundred thousand strings of
a tokenizer, which takes longer than loading the weights. The formulas of the quantised types are the package's
(extra `gguf`). To the rest of the code a GGUF file is one more source of tensors in Hugging Face names and layouts:
converters keep `[out,in]`, but for the architecture `llama` they reorder the query and key rows of each head from
halves (rotate row i against i + H/2) to pairs (2i against 2i + 1), which is undone here; Qwen files keep halves.
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlanything_jax.models.tensor_files import TensorInfo

# Type number -> name, values in a block, bytes of a block.
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
}  # -> model_type
# Theirs -> Hugging Face's; in `blk.N.` and `model.layers.N.` where there is a layer. `{}` is the expert.
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_gate_exps.weight": "mlp.experts.{}.gate_proj.weight",
    "ffn_up_exps.weight": "mlp.experts.{}.up_proj.weight",
    "ffn_down_exps.weight": "mlp.experts.{}.down_proj.weight",
}
ROPE_FREQUENCIES = "rope_freqs.weight"  # llama3's scaling, as one divisor for each frequency
# The parameters that every released model of llama3's scaling shares; files keep only what follows from them.
LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


class GgufTensor(NamedTuple):
    shape: tuple[int, ...]  # rows first, as in numpy
    type: int  # a key of TYPES
    offset: int  # of the first byte, from the start of the file


@dataclasses.dataclass(frozen=True)
class GgufFile:
    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def field(self, key: str) -> Any:
        """A metadata value. Raises ValueError that names file and key where there is none."""
        if key not in self.metadata:
            raise ValueError(f"{self.path}: metadata has no {key!r}")
        return self.metadata[key]

    def stored(self, name: str) -> np.ndarray:
        """The bytes of a tensor as a lazy view of the file, uint8 [..., bytes of a row]."""
        tensor = self.tensors[name]
        _, values, size = TYPES[tensor.type]
        shape = (*tensor.shape[:-1], tensor.shape[-1] // values * size)
        return np.memmap(self.path, np.uint8, mode="r", offset=tensor.offset, shape=shape)


class _Header:
    """Reads values in order from the start of a file."""

    FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    STRING, ARRAY = 8, 9

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer, self.at = buffer, 0

    def unpack(self, form: str) -> tuple:
        values = struct.unpack_from("<" + form, self.buffer, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def number(self, form: str) -> int:
        return self.unpack(form)[0]

    def string(self) -> str:
        length = self.number("Q")
        if self.at + length > len(self.buffer):
            raise EOFError
        self.at += length
        return self.buffer[self.at - length : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == self.STRING:
            return self.string()
        if kind == self.ARRAY:
            kind, length = self.unpack("IQ")
            if kind in self.FORMATS:
                return list(self.unpack(f"{length}{self.FORMATS[kind]}"))
            return [self.value(kind) for _ in range(length)]
        value = self.unpack(self.FORMATS[kind])[0]
        # The shortest decimal of a float32, which is what its writer meant: 1e-5, not 9.99999975e-6.
        return float(str(np.float32(value))) if self.FORMATS[kind] == "f" else value


def read_gguf(path: str | Path) -> GgufFile:
    """Metadata and the places of the tensors; no tensor is read.

    Raises ValueError that names file and tensor or field: not a GGUF file of version 2 or 3, truncated, or a tensor in a
    quantisation other than those of `TYPES`.
    """
    path = Path(path)
    metadata: dict[str, Any] = {}
    tensors: dict[str, GgufTensor] = {}
    at = "the header"
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path}: not a GGUF file: it does not begin with 'GGUF'")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            size, header = len(buffer), _Header(buffer)
            header.at = 4
            try:
                version = header.number("I")
                if version not in (2, 3):
                    raise ValueError(f"{path}: GGUF version {version} is not 2 or 3")
                count, fields = header.unpack("QQ")
                for _ in range(fields):
                    at = f"the metadata after {list(metadata)[-1:]}"
                    key = header.string()
                    at = f"metadata field {key!r}"
                    metadata[key] = header.value(header.number("I"))
                for _ in range(count):
                    at = f"the tensor table after {list(tensors)[-1:]}"
                    name = header.string()
                    shape = header.unpack(f"{header.number('I')}Q")[::-1]
                    tensors[name] = GgufTensor(shape, *header.unpack("IQ"))
            except (struct.error, EOFError):
                raise ValueError(f"{path}: truncated at byte {size}, within {at}") from None
            except KeyError as error:
                raise ValueError(f"{path}: {at} has the unknown type {error}") from None
    alignment = metadata.get("general.alignment", 32)
    start = -(-header.at // alignment) * alignment
    for name, tensor in tensors.items():
        if tensor.type not in TYPES:
            raise ValueError(
                f"{path}: tensor {name!r} has the unsupported quantisation type {tensor.type}{_type_name(tensor.type)}; "
                f"supported are {', '.join(t[0] for t in TYPES.values())}"
            )
        _, values, block = TYPES[tensor.type]
        if tensor.shape[-1] % values:
            raise ValueError(
                f"{path}: tensor {name!r}: rows of {tensor.shape[-1]} are not blocks of {values}"
            )
        end = start + tensor.offset + math.prod(tensor.shape) // values * block
        if end > size:
            raise ValueError(
                f"{path}: truncated: tensor {name!r} ends at byte {end}, the file at byte {size}"
            )
        tensors[name] = tensor._replace(offset=start + tensor.offset)
    return GgufFile(path, metadata, tensors)


def _type_name(number: int) -> str:
    """' (Q5_K)' where the package knows the number."""
    try:
        return f" ({_package().GGMLQuantizationType(number).name})"
    except (ImportError, ValueError):
        return ""


def _package() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise ImportError("reading GGUF weights needs the gguf package: pip install -e '.[gguf]'") from error
    return gguf


class GgufWeights:
    """A GGUF file as a source of float32 tensors in Hugging Face names and layouts (`tensor_files.TensorSource`).

    Tensors of unknown names keep them, for the loader to complain about.
    """

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._places: dict[str, tuple[str, int | None]] = {}  # theirs, expert
        self.tensors: dict[str, TensorInfo] = {}
        for name, tensor in file.tensors.items():
            if name == ROPE_FREQUENCIES:
                continue
            theirs = _hf_name(name)
            if "{}" in theirs:
                for expert in range(tensor.shape[0]):
                    self._add(theirs.format(expert), name, expert, tensor.shape[1:])
            else:
                self._add(theirs, name, None, tensor.shape)

    def _add(self, theirs: str, name: str, expert: int | None, shape: tuple[int, ...]) -> None:
        self._places[theirs] = name, expert
        self.tensors[theirs] = TensorInfo(self._file.path, shape)

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """float32; whole rows are dequantised, blocks run along them."""
        gguf = _package()
        name, expert = self._places[name]
        tensor, stored = self._file.tensors[name], self._file.stored(name)
        if expert is not None:
            stored = stored[expert]
        kind = gguf.GGMLQuantizationType(tensor.type)
        if stored.ndim == 1:  # norms and biases
            values = gguf.quants.dequantize(stored, kind)
            return _halves(values, self._heads(name))[index]
        rows = _halves(np.arange(len(stored)), self._heads(name))[index[0]]
        return gguf.quants.dequantize(stored[rows], kind)[:, index[1]]

    def _heads(self, name: str) -> int | None:
        """Heads of a tensor whose rows are in pairs; None for all others."""
        if self._file.metadata["general.architecture"] != "llama":
            return None
        if re.fullmatch(r"blk\.\d+\.attn_q\.\w+", name):
            return self._file.field("llama.attention.head_count")
        if re.fullmatch(r"blk\.\d+\.attn_k\.\w+", name):
            return self._file.metadata.get("llama.attention.head_count_kv") or self._file.field(
                "llama.attention.head_count"
            )
        return None


def _halves(rows: np.ndarray, heads: int | None) -> np.ndarray:
    """Rows [heads * H] from pairs to halves within each head."""
    return rows if heads is None else rows.reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _hf_name(name: str) -> str:
    if match := re.fullmatch(r"blk\.(\d+)\.(.*)", name):
        layer, rest = match.groups()
        return f"model.layers.{layer}.{LAYER_NAMES[rest]}" if rest in LAYER_NAMES else name
    return NAMES.get(name, name)


def hf_config(file: GgufFile) -> dict[str, Any]:
    """The `config.json` that a Hugging Face folder of this model would have.

    Raises ValueError that names file and field on an unsupported architecture, a missing field or a RoPE scaling that
    cannot be told from the file.
    """
    architecture = file.field("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ValueError(
            f"{file.path}: general.architecture={architecture!r} is not supported; {', '.join(ARCHITECTURES)} are"
        )

    def field(key: str) -> Any:
        return file.field(f"{architecture}.{key}")

    def optional(key: str, default: Any) -> Any:
        return file.metadata.get(f"{architecture}.{key}", default)

    if "token_embd.weight" not in file.tensors:
        raise ValueError(f"{file.path}: tensor 'token_embd.weight' is missing")
    heads, width = field("attention.head_count"), field("embedding_length")
    head_dim = optional("attention.key_length", width // heads)
    config = {
        "model_type": ARCHITECTURES[architecture],
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": width,
        "num_hidden_layers": field("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": optional("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": field("feed_forward_length"),
        "max_position_embeddings": field("context_length"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
        "rope_theta": optional("rope.freq_base", 10_000.0),
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "hidden_act": "silu",
    }
    if scaling := _rope_scaling(file, optional, head_dim, config["rope_theta"]):
        config["rope_scaling"] = scaling
    if architecture == "qwen3moe":
        config |= {
            "num_experts": field("expert_count"),
            "num_experts_per_tok": field("expert_used_count"),
            "moe_intermediate_size": field("expert_feed_forward_length"),
            "norm_topk_prob": True,  # the file does not say; every model of this architecture does
        }
    return config


def _rope_scaling(
    file: GgufFile, optional: Any, head_dim: int, theta: float
) -> Mapping[str, float | str] | None:
    if ROPE_FREQUENCIES in file.tensors:
        return _llama3_scaling(file, head_dim, theta)
    kind = optional("rope.scaling.type", "none")
    if kind == "none":
        return None
    key = f"{file.metadata['general.architecture']}.rope.scaling"
    if kind == "linear":
        return {"rope_type": "linear", "factor": file.field(f"{key}.factor")}
    if kind == "yarn":
        return {
            "rope_type": "yarn",
            "factor": file.field(f"{key}.factor"),
            "original_max_position_embeddings": file.field(f"{key}.original_context_length"),
        }
    raise ValueError(f"{file.path}: {key}.type={kind!r} is not supported; none, linear and yarn are")


def _llama3_scaling(file: GgufFile, head_dim: int, theta: float) -> Mapping[str, float | str]:
    """llama3's scaling from its divisors: the largest is the factor; the rest must follow from it."""
    if file.tensors[ROPE_FREQUENCIES].type != 0:
        raise ValueError(f"{file.path}: tensor {ROPE_FREQUENCIES!r} is not F32")
    divisors = np.asarray(file.stored(ROPE_FREQUENCIES)).view(np.float32)
    factor = float(divisors.max())
    low, high = LLAMA3_ROPE["low_freq_factor"], LLAMA3_ROPE["high_freq_factor"]
    wavelength = 2 * np.pi * theta ** (np.arange(head_dim // 2) * 2 / head_dim)
    turns = LLAMA3_ROPE["original_max_position_embeddings"] / wavelength
    kept = np.clip((turns - low) / (high - low), 0, 1)  # share of the unscaled frequency
    expected = 1 / (kept + (1 - kept) / factor)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-3):
        raise ValueError(
            f"{file.path}: tensor {ROPE_FREQUENCIES!r} is not llama3's scaling with {LLAMA3_ROPE}"
        )
    return {"rope_type": "llama3", "factor": factor, **LLAMA3_ROPE}
