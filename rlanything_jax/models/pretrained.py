"""Models by name: a checkpoint folder, a GGUF file or a preset in; a folder that `transformers` loads out."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
from pathlib import Path

import jax
from jax.sharding import Mesh
from tokenizers import Tokenizer

from rlanything_jax.models.chat import NAMED_TEMPLATES, TEMPLATE, Chat, chat_from_gguf, load_chat, save_chat
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, init
from rlanything_jax.models.families import PRESETS, config_from_hf, config_to_hf
from rlanything_jax.models.gguf import GgufWeights, hf_config, read_gguf
from rlanything_jax.models.sharding import abstract_params
from rlanything_jax.models.tensor_files import SafetensorsFolder, write_folder
from rlanything_jax.models.tokenizer_files import CONFIG as TOKENIZER_CONFIG
from rlanything_jax.models.tokenizer_files import TOKENIZER, load_tokenizer, read_json, tokenizer_from_gguf
from rlanything_jax.models.weights import export_tensors, load_params

__all__ = ["Model", "abstract_params", "from_pretrained", "save_pretrained"]

CONFIG = "config.json"
SHARD_BYTES = 5 * 10**9  # the size that hubs recommend


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A decoder and what it reads and writes text with."""

    config: ModelConfig
    params: Params  # layers stacked
    tokenizer: Tokenizer | None = None
    chat: Chat | None = None


def from_pretrained(
    path_or_preset: str | Path, *, mesh: Mesh | None = None, dtype: str | None = None, seed: int = 0
) -> Model:
    """Loads a model.

    Args:
      path_or_preset: a folder with `config.json` and safetensors weights, a `.gguf` file, or the name of a preset, which
        is random weights of that shape without a tokenizer. A folder wins over a preset of the same name.
      mesh: where the parameters go, by the rules of `parallel.layout`; axes among data, fsdp, tensor, sequence and
        expert. Without one, the first device.
      dtype: of parameters and activations; by default what the config says, float32 for a GGUF file.
      seed: of a preset's weights.

    Host memory holds one piece of one leaf at a time, as large as what one device holds of it. `tokenizer` is None
    where a folder has no `tokenizer.json`, `chat` where there is no chat template.

    Raises:
      ValueError: an unknown architecture or preset, a tensor that is missing, extra or of another shape, a truncated
        file, a tokenizer with more ids than the embedding has rows; file and field are named.
      FileNotFoundError: no weights, or a shard is missing.
    """
    path = Path(path_or_preset)
    if path.is_dir():
        model = _from_folder(path, mesh, dtype)
    elif path.is_file() and path.suffix == ".gguf":
        model = _from_gguf(path, mesh, dtype)
    elif str(path_or_preset) in PRESETS:
        config = _with_dtype(PRESETS[str(path_or_preset)], dtype)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_params(config, mesh))
        make = jax.jit(functools.partial(init, config), out_shardings=shardings)
        model = Model(config, make(jax.random.key(seed)))
    else:
        raise ValueError(
            f"{str(path_or_preset)!r} is neither a folder, nor a .gguf file, nor a preset; presets: {', '.join(PRESETS)}"
        )
    return model


def _from_folder(folder: Path, mesh: Mesh | None, dtype: str | None) -> Model:
    file = folder / CONFIG
    if not file.is_file():
        raise FileNotFoundError(f"{folder} has no {CONFIG}")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not JSON: {error}") from None
    config = _with_dtype(config_from_hf(values, source=str(file)), dtype)
    tokenizer = chat = None
    if (folder / TOKENIZER).is_file():
        tokenizer = load_tokenizer(folder)
        _check_vocabulary(tokenizer, config, folder / TOKENIZER, file)
        if _has_template(folder):
            chat = load_chat(folder, tokenizer)
    return Model(config, load_params(SafetensorsFolder(folder), config, mesh), tokenizer, chat)


def _from_gguf(path: Path, mesh: Mesh | None, dtype: str | None) -> Model:
    file = read_gguf(path)
    config = _with_dtype(config_from_hf(hf_config(file), source=str(path)), dtype)
    chat = None
    try:
        tokenizer = tokenizer_from_gguf(file.metadata)
        if "tokenizer.chat_template" in file.metadata:
            chat = chat_from_gguf(file.metadata, tokenizer)
    except ValueError as error:  # names the field
        raise ValueError(f"{path}: {error}") from error
    _check_vocabulary(tokenizer, config, path, path)
    return Model(config, load_params(GgufWeights(file), config, mesh), tokenizer, chat)


def _has_template(folder: Path) -> bool:
    """Base models have none."""
    return (
        (folder / TEMPLATE).is_file()
        or (folder / NAMED_TEMPLATES).is_dir()
        or bool(read_json(folder / TOKENIZER_CONFIG).get("chat_template"))
    )


def _with_dtype(config: ModelConfig, dtype: str | None) -> ModelConfig:
    return config if dtype is None else dataclasses.replace(config, dtype=dtype, param_dtype=None)


def _check_vocabulary(tokenizer: Tokenizer, config: ModelConfig, file: Path, config_file: Path) -> None:
    """Fewer ids than rows are usual (tables are padded); more would read beyond the table without an error."""
    ids = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if ids > config.vocab_size:
        raise ValueError(
            f"{file}: the tokenizer has {ids} ids, but vocab_size is {config.vocab_size} in {config_file}"
        )


def save_pretrained(model: Model, folder: str | Path, *, shard_bytes: int = SHARD_BYTES) -> None:
    """Writes a folder that `from_pretrained` and `transformers` load: config, weights, tokenizer and chat template.

    Weights are written tensor by tensor, each in its own dtype, in files of at most `shard_bytes`. All goes to
    `<folder>.partial` first, which is renamed at the end: a folder of the right name is whole.

    Raises FileExistsError where the folder exists, ValueError on parameters that no Hugging Face model has (merge
    adapters first).
    """
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} exists; remove it or choose another")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a save that was killed
    partial.mkdir(parents=True)
    values = config_to_hf(model.config)
    (partial / CONFIG).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    write_folder(partial, export_tensors(model.params), shard_bytes=shard_bytes)
    if model.chat is not None:
        save_chat(model.chat, partial)
    elif model.tokenizer is not None:
        model.tokenizer.save(str(partial / TOKENIZER))
    os.replace(partial, folder)
