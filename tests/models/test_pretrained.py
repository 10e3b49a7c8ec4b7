"""Whole models in and out, against `transformers` on tiny random configs of every family."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from rlanything_jax.models import logits
from rlanything_jax.models.families import PRESETS
from rlanything_jax.models.pretrained import Model, from_pretrained, save_pretrained
from rlanything_jax.models.tensor_files import INDEX, WEIGHTS, SafetensorsFolder

transformers = pytest.importorskip("transformers", reason="parity needs transformers and torch")
torch = pytest.importorskip("torch", reason="parity needs transformers and torch")

SHAPE: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
FAMILIES = {
    "llama-tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama-untied": ("LlamaConfig", {"tie_word_embeddings": False}),
    "qwen2-tied": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen2-untied": ("Qwen2Config", {"tie_word_embeddings": False}),
    "qwen3-tied": ("Qwen3Config", {"tie_word_embeddings": True, "head_dim": 16}),
    "qwen3moe-untied": ("Qwen3MoeConfig", {"tie_word_embeddings": False, "head_dim": 16} | MOE),
}
TOKENS = np.random.default_rng(0).integers(0, 61, (2, 12))
TOLERANCE = 2e-4


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


def hf_model(family: str) -> Any:
    """A random model whose norms and biases are not the ones and zeros of a fresh one."""
    name, options = FAMILIES[family]
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**SHAPE, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def hf_logits(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits.float().numpy()


def our_logits(model: Model) -> np.ndarray:
    return np.asarray(logits(model.params, model.config, jnp.asarray(TOKENS), jnp.ones(TOKENS.shape, bool)))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_survive_the_way_in_and_the_way_out(tmp_path: Path, family: str) -> None:
    theirs = hf_model(family)
    expected = hf_logits(theirs)
    theirs.save_pretrained(tmp_path / "in", max_shard_size="20KB")
    assert (tmp_path / "in" / INDEX).is_file()  # sharded

    ours = from_pretrained(tmp_path / "in", dtype="float32")
    assert np.abs(our_logits(ours) - expected).max() <= TOLERANCE

    save_pretrained(ours, tmp_path / "out", shard_bytes=20_000)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    state = back.state_dict()
    assert state.keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(state[name], tensor), name
    assert np.abs(hf_logits(back) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_folder_is_read_in_its_dtype_and_in_another(tmp_path: Path, dtype: str) -> None:
    theirs = hf_model("qwen2-tied").to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path)
    kernel = theirs.model.layers[1].mlp.up_proj.weight.float().numpy(force=True).T
    for target in (dtype, "float32"):
        leaf = from_pretrained(tmp_path, dtype=target).params["layers"]["w_up"]["kernel"]
        assert leaf.dtype == target
        np.testing.assert_array_equal(leaf[1].astype("float32"), kernel)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied Qwen2 checkpoint in one file. Copy it before changing it."""
    path = tmp_path_factory.mktemp("checkpoint")
    hf_model("qwen2-tied").save_pretrained(path)
    return path


def copied(folder: Path, to: Path) -> Path:
    to.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_config_that_does_not_fit_the_weights(folder: Path, tmp_path: Path) -> None:
    copied(folder, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 40}))
    with pytest.raises(
        ValueError, match=r"layers.0.mlp.gate_proj.weight in .*model.safetensors has shape \[48, 32\]"
    ):
        from_pretrained(tmp_path)


def test_unknown_architecture_is_named_with_its_file(folder: Path, tmp_path: Path) -> None:
    copied(folder, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    with pytest.raises(ValueError, match="mamba") as caught:
        from_pretrained(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_truncated_weights(folder: Path, tmp_path: Path) -> None:
    weights = copied(folder, tmp_path) / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"model.safetensors: truncated: tensor 'model\."):
        from_pretrained(tmp_path)


def test_vocabulary_larger_than_the_embedding(folder: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    copied(folder, tmp_path)
    tokenizer = Tokenizer(BPE({f"t{i}": i for i in range(61)}, []))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert from_pretrained(tmp_path).tokenizer.get_vocab_size() == 61
    tokenizer.add_special_tokens(["<more>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        ValueError, match=r"tokenizer.json: the tokenizer has 62 ids, but vocab_size is 61 in .*config.json"
    ):
        from_pretrained(tmp_path)


def test_tokenizer_and_chat_template_travel_along(folder: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    copied(folder, tmp_path / "in")
    tokenizer = Tokenizer(BPE({f"t{i}": i for i in range(60)}, []))
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(tmp_path / "in" / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.content }}<end>{% endfor %}"
    settings = {"chat_template": template, "eos_token": "<end>"}
    (tmp_path / "in" / "tokenizer_config.json").write_text(json.dumps(settings))
    model = from_pretrained(tmp_path / "in")
    save_pretrained(model, tmp_path / "out")
    again = from_pretrained(tmp_path / "out")
    assert again.tokenizer.get_vocab() == tokenizer.get_vocab()
    messages = [{"role": "user", "content": "t1t2"}]
    assert again.chat.render(messages) == model.chat.render(messages) == "t1t2<end>"
    assert again.chat.stop == (60,)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs.apply_chat_template(messages, tokenize=False) == "t1t2<end>"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [(None, FileNotFoundError, "has no config.json"), ("{", ValueError, "config.json: not JSON")],
)
def test_folder_without_a_readable_config(
    tmp_path: Path, text: str | None, error: type[Exception], message: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(error, match=message):
        from_pretrained(tmp_path)


def test_name_that_is_nothing() -> None:
    with pytest.raises(
        ValueError, match="'qwen9' is neither a folder, nor a .gguf file, nor a preset; presets: .*qwen"
    ):
        from_pretrained("qwen9")


def test_killed_save_leaves_no_folder_that_looks_whole(folder: Path, tmp_path: Path) -> None:
    model = from_pretrained(folder)
    broken = dict(model.params)
    broken["norm"] = jnp.zeros(32, jnp.int32)  # fails while the weights are written
    with pytest.raises(ValueError, match="int32"):
        save_pretrained(dataclasses.replace(model, params=broken), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    save_pretrained(model, tmp_path / "out")  # over what the failed one left
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(FileExistsError, match="out exists; remove it"):
        save_pretrained(model, tmp_path / "out")


def test_preset_has_its_shape_and_is_the_same_for_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(
        PRESETS["qwen2.5-0.5b"],
        vocab_size=11,
        embed_dim=8,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=4,
        ff_dim=12,
    )
    monkeypatch.setitem(PRESETS, "small", small)
    first, same, other = (from_pretrained("small", dtype="bfloat16", seed=seed) for seed in (0, 0, 1))
    assert first.params["layers"]["w_up"]["kernel"].shape == (2, 8, 12)
    assert first.params["embed"].dtype == "bfloat16"
    assert first.tokenizer is None and first.chat is None
    np.testing.assert_array_equal(first.params["embed"], same.params["embed"])
    assert not np.array_equal(first.params["embed"], other.params["embed"])


SHARDED = """
import sys
import jax, numpy as np
from rlanything_jax.models import pretrained, tensor_files

reads = []
read = tensor_files.SafetensorsFolder.read
tensor_files.SafetensorsFolder.read = lambda self, *args: reads.append(args) or read(self, *args)
mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
params = pretrained.from_pretrained(sys.argv[1], mesh=mesh, dtype="float32").params
embed = [args for args in reads if args[0] == "model.embed_tokens.weight"]
shards = {s.device.id: s.data.shape for s in params["layers"]["w_up"]["kernel"].addressable_shards}
assert len(shards) == 8 and set(shards.values()) == {(2, 16, 24)}, shards
assert params["embed"].sharding.spec == jax.sharding.PartitionSpec(None, "fsdp"), params["embed"].sharding
assert len(embed) == 2, embed  # 61 rows stay whole; the 4 holders of each half share one reading
np.savez(sys.argv[2], embed=params["embed"], up=params["layers"]["w_up"]["kernel"])
"""


def test_each_of_8_devices_gets_its_part_and_no_part_is_read_twice(folder: Path, tmp_path: Path) -> None:
    result = tmp_path / "arrays.npz"
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", SHARDED, folder, result], check=True, env=environment)
    arrays = np.load(result)
    params = from_pretrained(folder, dtype="float32").params
    np.testing.assert_array_equal(arrays["embed"], params["embed"])
    np.testing.assert_array_equal(arrays["up"], params["layers"]["w_up"]["kernel"])


def gguf_of(folder: Path, path: Path, architecture: str) -> Path:
    """The checkpoint as a GGUF file in float32, written by the `gguf` package and its table of names."""
    gguf = pytest.importorskip("gguf", reason="needs the extra gguf: pip install -e '.[gguf]'")
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
    if architecture == "qwen3moe":
        writer.add_expert_count(MOE["num_experts"])
        writer.add_expert_used_count(MOE["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(MOE["moe_intermediate_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["a", "b", "ab", *(f"t{i}" for i in range(3, 61))])
    writer.add_token_types([1] * 61)
    writer.add_token_merges(["a b"])
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    source = SafetensorsFolder(folder)
    experts: dict[str, list[np.ndarray]] = {}
    for name in sorted(source.tensors):
        array = np.array(source.read(name, (slice(None),) * len(source.tensors[name].shape)))
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            array = array.reshape(heads, 2, -1, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)
        if ".experts." in name:
            before, _, after = name.partition(".experts.")
            experts.setdefault(f"{before}.experts.{after.partition('.')[2]}", []).append(array)
        else:
            writer.add_tensor(names.get_name(name, (".weight", ".bias")), array)
    for name, arrays in experts.items():
        writer.add_tensor(names.get_name(name, (".weight",)), np.stack(arrays))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("family", "architecture"),
    [
        ("llama-tied", "llama"),
        ("qwen2-untied", "qwen2"),
        ("qwen3-tied", "qwen3"),
        ("qwen3moe-untied", "qwen3moe"),
    ],
)
def test_gguf_file_gives_the_model_of_the_folder(tmp_path: Path, family: str, architecture: str) -> None:
    theirs = hf_model(family)
    theirs.save_pretrained(tmp_path / "in")
    folder = from_pretrained(tmp_path / "in", dtype="float32")
    file = from_pretrained(gguf_of(tmp_path / "in", tmp_path / "a.gguf", architecture), dtype="float32")
    assert file.config == folder.config
    expected = flatten_dict(folder.params, sep="/")
    for leaf, array in flatten_dict(file.params, sep="/").items():
        np.testing.assert_array_equal(array, expected.pop(leaf), leaf)
    assert not expected
    assert file.tokenizer.get_vocab_size() == 61 and file.chat is None


@pytest.mark.parametrize("field", ["tokens", "merges"])
def test_field_of_a_gguf_tokenizer_is_named_with_the_file(folder: Path, tmp_path: Path, field: str) -> None:
    path = gguf_of(folder, tmp_path / "a.gguf", "qwen2")
    path.write_bytes(path.read_bytes().replace(f"ggml.{field}".encode(), f"ggml.{field[::-1]}".encode()))
    with pytest.raises(ValueError, match=f"a.gguf: the GGUF file has no tokenizer.ggml.{field}"):
        from_pretrained(path)
