"""Tokenizers of checkpoints: read from a Hugging Face folder or a GGUF file's metadata, written to a folder.

A tokenizer is loaded once and never changed after that: the `tokenizers` library lets any number of threads encode with one
object, but fails with "Already borrowed" when a thread sets truncation, padding or tokens while another encodes. So truncation
and padding, which some files store, are taken off here: no text is cut behind one's back, and who batches rows pads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from rlanything_jax.models.tokenizer import protected

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
GENERATION = "generation_config.json"

# What templates and files call the tokens that have a role.
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

# Contractions, words, numbers, punctuation, line ends, blanks; the families differ in how many digits make a piece.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GGUF_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type: special tokens, other added tokens


class Specials(NamedTuple):
    """The tokens of a checkpoint that have a role."""

    names: dict[str, str]  # {"bos_token": "<s>", ...}: the variables of a chat template
    eos: tuple[int, ...]  # ids that end a generation, according to the files


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder: `tokenizer.json`, and the tokens that `tokenizer_config.json` adds.

    Its `encode` reads the name of a special token in a text as characters; it neither cuts nor pads. Raises FileNotFoundError
    without a `tokenizer.json`, and ValueError, naming the file, where one cannot be read or both disagree about an id.
    """
    path = Path(folder) / TOKENIZER
    if not path.is_file():
        raise FileNotFoundError(
            f"no {TOKENIZER} in {folder}; a checkpoint that ships another kind of tokenizer is converted by "
            "transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing more precise
        raise ValueError(f"{path} is not a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    config_path = Path(folder) / CONFIG
    config = read_json(config_path)
    known = tokenizer.get_added_tokens_decoder()
    for key, entry in sorted(config.get("added_tokens_decoder", {}).items(), key=lambda item: int(item[0])):
        token = AddedToken(**{name: value for name, value in entry.items() if name != "__type"})
        if known.get(int(key)) != token:
            tokenizer.add_tokens([token])
        if (found := tokenizer.token_to_id(token.content)) != int(key):
            raise ValueError(
                f"{config_path}: added_tokens_decoder gives {token.content!r} the id {key}, {TOKENIZER} gives {found}"
            )
    for name in _names(config).values():
        if tokenizer.token_to_id(name) is None:
            tokenizer.add_special_tokens([name])
    return protected(tokenizer)


def load_specials(folder: str | Path, tokenizer: Tokenizer) -> Specials:
    """The roles in `tokenizer_config.json`, and the ids that end a generation in it and in `generation_config.json`.

    Raises ValueError on an id that the tokenizer does not have.
    """
    names = _names(read_json(Path(folder) / CONFIG))
    path = Path(folder) / GENERATION
    ends = read_json(path).get("eos_token_id")
    eos = [] if ends is None else ends if isinstance(ends, list) else [ends]
    for token in eos:
        if not isinstance(token, int) or tokenizer.id_to_token(token) is None:
            raise ValueError(
                f"{path}: eos_token_id holds {token!r}; the tokenizer has {tokenizer.get_vocab_size()} ids"
            )
    return Specials(names, _unique([*eos, tokenizer.token_to_id(names.get("eos_token", ""))]))


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path, specials: Specials) -> None:
    """Writes the files that `load_tokenizer`, `load_specials` and transformers' `AutoTokenizer` read.

    Other entries of files that are already there are kept.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / TOKENIZER))
    # The class that takes tokenizer.json as it is; those named after a family rebuild their pieces in their own way.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    update_json(folder / CONFIG, config | specials.names)
    update_json(folder / GENERATION, {"eos_token_id": list(specials.eos)})


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The byte-level BPE tokenizer in the metadata of a GGUF file, set as by `load_tokenizer`.

    Raises ValueError, naming the field, on one that is missing, contradicts another, or asks for another kind of tokenizer.
    """
    algorithm = _field(metadata, "model")
    if algorithm != "gpt2":
        raise ValueError(f"tokenizer.ggml.model is {algorithm!r}; only 'gpt2' (byte-level BPE) can be read")
    pieces, kinds, merges = (_field(metadata, name) for name in ("tokens", "token_type", "merges"))
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise ValueError(f"tokenizer.ggml.tokens holds {len(pieces) - len(vocabulary)} token(s) twice")
    if len(kinds) != len(pieces):
        raise ValueError(f"tokenizer.ggml.token_type has {len(kinds)} entries for {len(pieces)} tokens")
    split = _field(metadata, "pre")
    # Llama 3 takes a piece that is in the vocabulary as it is, even where no merges lead to it.
    whole = split == "llama-bpe"
    try:
        model = BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges], ignore_merges=whole)
    except Exception as error:  # the library raises nothing more precise
        raise ValueError(f"tokenizer.ggml.merges do not fit tokenizer.ggml.tokens: {error}") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _gguf_pieces(split)
    tokenizer.decoder = decoders.ByteLevel()
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens(
        [
            AddedToken(piece, special=kind == _CONTROL, normalized=False)
            for piece, kind in zip(pieces, kinds, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if metadata.get("tokenizer.ggml.add_bos_token") and bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{pieces[bos]} $A",
            pair=f"{pieces[bos]} $A {pieces[bos]}:1 $B:1",
            special_tokens=[(pieces[bos], bos)],
        )
    return protected(tokenizer)


def specials_from_gguf(metadata: Mapping[str, Any]) -> Specials:
    """The roles of tokens, and the ids that end a generation, in the metadata of a GGUF file."""
    pieces = _field(metadata, "tokens")
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in (*_GGUF_ROLES, "eot", "eom")}
    for name, token in ids.items():
        if token is not None and not 0 <= token < len(pieces):
            raise ValueError(f"tokenizer.ggml.{name}_token_id is {token}; there are {len(pieces)} tokens")
    names = {role: pieces[ids[name]] for name, role in _GGUF_ROLES.items() if ids[name] is not None}
    return Specials(names, _unique(ids[name] for name in ("eos", "eot", "eom")))


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object, or {} without a file. Raises ValueError, naming the file, where it is something else."""
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds a {type(values).__name__}, not an object")
    return values


def update_json(path: Path, values: Mapping[str, Any]) -> None:
    """Sets entries of a file's JSON object and keeps its others."""
    path.write_text(
        json.dumps(read_json(path) | dict(values), indent=2, ensure_ascii=False), encoding="utf-8"
    )


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    """{role: token}; a token is stored as its text or as an object with its text."""
    tokens = {role: config[role] for role in ROLES if config.get(role)}
    return {role: token if isinstance(token, str) else token["content"] for role, token in tokens.items()}


def _unique(ids: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def _field(metadata: Mapping[str, Any], name: str) -> Any:
    key = f"tokenizer.ggml.{name}"
    if key not in metadata:
        raise ValueError(f"the GGUF file has no {key}")
    return metadata[key]


def _gguf_pieces(name: str) -> pre_tokenizers.PreTokenizer:
    """How a text is cut before BPE, by the name that llama.cpp gives it."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "gpt-2":
        return gpt2
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    digits = {"qwen2": r"\p{N}", "llama-bpe": r"\p{N}{1,3}"}
    if name not in digits:
        raise ValueError(
            f"tokenizer.ggml.pre is {name!r}; only {sorted([*digits, 'smollm', 'gpt-2'])} can be read"
        )
    words = pre_tokenizers.Split(Regex(_WORDS.format(digits=digits[name])), behavior="isolated")
    return pre_tokenizers.Sequence([words, byte_level])
