"""GGUF files written by the `gguf` package: every quantisation, row order, shapes of families, damaged files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlanything_jax.models.gguf import GgufWeights, hf_config, read_gguf

gguf = pytest.importorskip("gguf", reason="needs the extra gguf: pip install -e '.[gguf]'")
F32 = gguf.GGMLQuantizationType.F32
WHOLE = (slice(None), slice(None))
LLAMA: dict[str, Any] = {
    "embedding_length": 8,
    "block_count": 1,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "feed_forward_length": 12,
    "context_length": 64,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 5e5,
}
EMBED = {"token_embd.weight": np.zeros((5, 8), np.float32)}


def write(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    *,
    architecture: str = "llama",
    fields: Mapping[str, Any] = LLAMA,
    kinds: Mapping[str, Any] | None = None,
) -> Path:
    """A GGUF file; `kinds` gives the type of tensors whose bytes are quantised already."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in fields.items():
        if isinstance(value, float):
            writer.add_float32(f"{architecture}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{architecture}.{key}", value)
        else:
            writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_array("tokenizer.ggml.tokens", ["é", "b", "c", "d", "e"])
    writer.add_array("tokenizer.ggml.token_type", [1, 1, 3, 1, 1])
    for name, array in tensors.items():
        writer.add_tensor(name, array, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_is_what_was_written(tmp_path: Path) -> None:
    file = read_gguf(write(tmp_path / "a.gguf", EMBED))
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["tokenizer.ggml.tokens"] == ["é", "b", "c", "d", "e"]
    assert file.metadata["tokenizer.ggml.token_type"] == [1, 1, 3, 1, 1]
    assert file.metadata["llama.attention.layer_norm_rms_epsilon"] == 1e-5
    assert file.tensors["token_embd.weight"].shape == (5, 8)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_quantised_rows_are_near_the_original(tmp_path: Path, kind: str) -> None:
    """Rounded to 4 bits, the error is at most half a step: a step is 1/8 or 1/15 of a block's range."""
    array = np.random.default_rng(0).uniform(-1, 1, (6, 64)).astype(np.float32)
    number = gguf.GGMLQuantizationType[kind]
    data = array if kind == "F32" else gguf.quants.quantize(array, number)
    path = write(tmp_path / "a.gguf", {"other": data}, kinds={"other": number})
    weights = GgufWeights(read_gguf(path))
    assert weights.tensors["other"].shape == (6, 64)
    read = weights.read("other", WHOLE)
    bound = {"F32": 0, "F16": 1e-3, "BF16": 4e-3, "Q8_0": 5e-3, "Q4_0": 0.13, "Q4_1": 0.07}[kind]
    assert read.dtype == np.float32
    assert np.abs(read - array).max() <= bound
    np.testing.assert_array_equal(weights.read("other", (slice(2, 5), slice(3, 40))), read[2:5, 3:40])


def test_q6_k_block_by_hand(tmp_path: Path) -> None:
    """210 bytes: 128 of low nibbles, 64 of high pairs, 16 scales of 16 values, one half-precision factor.

    All low nibbles 5, all high pairs 2: 5 + 2 * 16 - 32 = 5, times scale k for values 16k to 16k + 15, times 0.5.
    """
    block = np.concatenate(
        [
            np.full(128, 0x55, np.uint8),
            np.full(64, 0b10101010, np.uint8),
            np.arange(16, dtype=np.uint8),
            np.frombuffer(np.float16(0.5).tobytes(), np.uint8),
        ]
    )
    path = write(tmp_path / "a.gguf", {"x": block[None]}, kinds={"x": gguf.GGMLQuantizationType.Q6_K})
    read = GgufWeights(read_gguf(path)).read("x", WHOLE)
    np.testing.assert_array_equal(read[0], 5 * 0.5 * np.repeat(np.arange(16), 16))


def test_q4_k_block_by_hand(tmp_path: Path) -> None:
    """144 bytes: factor and offset factor in half precision, 12 of packed 6-bit scales and offsets, 128 of nibbles.

    For the first four groups of 32 the scale is the low 6 bits of bytes 0 to 3, the offset those of bytes 4 to 7.
    Nibbles of 32 bytes hold two groups, low ones first. Here nibbles are 3 (low) and 7 (high).
    """
    halves = np.frombuffer(np.array([0.5, 0.25], np.float16).tobytes(), np.uint8)
    scales = np.array([1, 2, 3, 4, 8, 9, 10, 11, 0, 0, 0, 0], np.uint8)
    block = np.concatenate([halves, scales, np.full(128, 0x73, np.uint8)])
    path = write(tmp_path / "a.gguf", {"x": block[None]}, kinds={"x": gguf.GGMLQuantizationType.Q4_K})
    read = GgufWeights(read_gguf(path)).read("x", WHOLE)
    expected = [
        0.5 * s * n - 0.25 * m for s, m, n in zip((1, 2, 3, 4), (8, 9, 10, 11), (3, 7, 3, 7), strict=True)
    ]
    np.testing.assert_array_equal(read[0, :128], np.repeat(expected, 32))


def test_query_and_key_rows_of_llama_are_put_back_into_halves(tmp_path: Path) -> None:
    """Head dim 4: a converter stores rows 0 1 2 3 of a head as 0 2 1 3, so that rotated pairs are neighbours."""
    rows = np.arange(8, dtype=np.float32)
    stored = rows[[0, 2, 1, 3, 4, 6, 5, 7]]
    tensors = {
        "blk.0.attn_q.weight": np.repeat(stored[:, None], 8, axis=1),
        "blk.0.attn_q.bias": stored,
        "blk.0.attn_k.weight": np.repeat(stored[:4, None], 8, axis=1),
        "blk.0.attn_v.weight": np.repeat(stored[:4, None], 8, axis=1),
    }
    weights = GgufWeights(read_gguf(write(tmp_path / "a.gguf", tensors)))
    attention = "model.layers.0.self_attn"
    assert weights.read(f"{attention}.q_proj.weight", WHOLE)[:, 0].tolist() == rows.tolist()
    assert weights.read(f"{attention}.q_proj.weight", (slice(1, 3), slice(0, 1)))[:, 0].tolist() == [1, 2]
    assert weights.read(f"{attention}.q_proj.bias", (slice(0, 8),)).tolist() == rows.tolist()
    assert weights.read(f"{attention}.k_proj.weight", WHOLE)[:, 0].tolist() == [0, 1, 2, 3]
    assert weights.read(f"{attention}.v_proj.weight", WHOLE)[:, 0].tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "qwen3moe"])
def test_query_rows_of_qwen_are_left_alone(tmp_path: Path, architecture: str) -> None:
    stored = np.repeat(np.arange(8, dtype=np.float32)[:, None], 8, axis=1)
    path = write(tmp_path / "a.gguf", {"blk.0.attn_q.weight": stored}, architecture=architecture)
    read = GgufWeights(read_gguf(path)).read("model.layers.0.self_attn.q_proj.weight", WHOLE)
    np.testing.assert_array_equal(read, stored)


def test_experts_are_separate_tensors(tmp_path: Path) -> None:
    stacked = np.arange(3 * 4 * 32, dtype=np.float32).reshape(3, 4, 32)
    quantised = gguf.quants.quantize(stacked, gguf.GGMLQuantizationType.Q8_0)
    path = write(
        tmp_path / "a.gguf",
        {"blk.0.ffn_up_exps.weight": quantised},
        architecture="qwen3moe",
        kinds={"blk.0.ffn_up_exps.weight": gguf.GGMLQuantizationType.Q8_0},
    )
    weights = GgufWeights(read_gguf(path))
    name = "model.layers.0.mlp.experts.2.up_proj.weight"
    assert len(weights.tensors) == 3
    assert weights.tensors[name].shape == (4, 32)
    np.testing.assert_allclose(weights.read(name, (slice(1, 2), slice(0, 32))), stacked[2, 1:2], rtol=0.01)


def test_config_of_llama(tmp_path: Path) -> None:
    config = hf_config(read_gguf(write(tmp_path / "a.gguf", EMBED)))
    assert config["model_type"] == "llama"
    assert config["vocab_size"] == 5
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (2, 1, 4)
    assert (config["rope_theta"], config["rms_norm_eps"]) == (5e5, 1e-5)
    assert config["tie_word_embeddings"] and not config["attention_bias"]
    assert "rope_scaling" not in config


def test_config_of_qwen3moe(tmp_path: Path) -> None:
    fields = LLAMA | {
        "attention.key_length": 16, "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 6,
    }  # fmt: skip
    tensors = EMBED | {"output.weight": EMBED["token_embd.weight"]}
    config = hf_config(read_gguf(write(tmp_path / "a.gguf", tensors, architecture="qwen3moe", fields=fields)))
    assert config["model_type"] == "qwen3_moe"
    assert config["head_dim"] == 16 and not config["tie_word_embeddings"]
    assert (config["num_experts"], config["num_experts_per_tok"], config["moe_intermediate_size"]) == (
        4,
        2,
        6,
    )


@pytest.mark.parametrize(
    ("fields", "scaling"),
    [
        ({"rope.scaling.type": "none"}, None),
        (
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 32,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        ),
    ],
)
def test_rope_scaling_from_metadata(tmp_path: Path, fields: dict[str, Any], scaling: Any) -> None:
    config = hf_config(read_gguf(write(tmp_path / "a.gguf", EMBED, fields=LLAMA | fields)))
    assert config.get("rope_scaling") == scaling


# Divisors that a converter writes for llama 3.2 (theta 5e5, factor 32): wavelengths below 8192 / 4 are kept, those
# above 8192 divided by 32, those between blended. Head dim 8 has wavelengths 6.3, 167, 4443 and 118143.
BLENDED = (8192 / (2 * np.pi * 5e5**0.5) - 1) / 3
LLAMA3 = np.array([1, 1, 1 / (BLENDED + (1 - BLENDED) / 32), 32], np.float32)


def test_llama3_scaling_is_found_from_its_divisors(tmp_path: Path) -> None:
    tensors = EMBED | {"rope_freqs.weight": LLAMA3}
    file = read_gguf(write(tmp_path / "a.gguf", tensors, fields=LLAMA | {"attention.key_length": 8}))
    assert hf_config(file)["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert "rope_freqs.weight" not in GgufWeights(file).tensors


def test_divisors_of_another_scaling_are_refused(tmp_path: Path) -> None:
    tensors = EMBED | {"rope_freqs.weight": LLAMA3 * np.array([1, 1.2, 1, 1], np.float32)}
    file = read_gguf(write(tmp_path / "a.gguf", tensors, fields=LLAMA | {"attention.key_length": 8}))
    with pytest.raises(ValueError, match="'rope_freqs.weight' is not llama3's scaling"):
        hf_config(file)


def test_unknown_rope_scaling(tmp_path: Path) -> None:
    file = read_gguf(write(tmp_path / "a.gguf", EMBED, fields=LLAMA | {"rope.scaling.type": "longrope"}))
    with pytest.raises(ValueError, match=r"a.gguf: llama.rope.scaling.type='longrope' is not supported"):
        hf_config(file)


def test_unsupported_architecture(tmp_path: Path) -> None:
    file = read_gguf(write(tmp_path / "a.gguf", EMBED, architecture="mamba"))
    with pytest.raises(
        ValueError, match=r"a.gguf: general.architecture='mamba' is not supported; llama, qwen2"
    ):
        hf_config(file)


def test_missing_field_is_named(tmp_path: Path) -> None:
    fields = {key: value for key, value in LLAMA.items() if key != "feed_forward_length"}
    file = read_gguf(write(tmp_path / "a.gguf", EMBED, fields=fields))
    with pytest.raises(ValueError, match=r"a.gguf: metadata has no 'llama.feed_forward_length'"):
        hf_config(file)


def test_unsupported_quantisation_is_named_with_its_tensor(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q5_0
    data = gguf.quants.quantize(np.zeros((2, 32), np.float32), kind)
    path = write(tmp_path / "a.gguf", {"blk.0.attn_q.weight": data}, kinds={"blk.0.attn_q.weight": kind})
    with pytest.raises(
        ValueError, match=r"a.gguf: tensor 'blk.0.attn_q.weight' has the unsupported .* \(Q5_0\)"
    ):
        read_gguf(path)


def test_truncation_anywhere_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", EMBED)
    data = path.read_bytes()
    messages = set()
    for size in range(4, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"a.gguf: truncated") as caught:
            read_gguf(path)
        messages.add(str(caught.value).partition(":")[2])
    assert any("metadata field 'tokenizer.ggml.tokens'" in message for message in messages)
    assert any("tensor 'token_embd.weight' ends at byte" in message for message in messages)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGML" + bytes(100))
    with pytest.raises(ValueError, match="not a GGUF file"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + (9).to_bytes(4, "little") + bytes(100))
    with pytest.raises(ValueError, match="GGUF version 9"):
        read_gguf(path)
