"""Tokenizers of checkpoints: folders and GGUF metadata in, folders that transformers reads out, errors that name the field."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from rlanything_jax.models.tokenizer_files import (
    Specials,
    load_specials,
    load_tokenizer,
    save_tokenizer,
    specials_from_gguf,
    tokenizer_from_gguf,
)

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def make_tokenizer() -> Tokenizer:
    vocabulary = {piece: i for i, piece in enumerate([*ALPHABET, "he", "<end>"])}
    tokenizer = Tokenizer(BPE(vocabulary, [("h", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


def write(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(values), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_text_is_not_cut_or_padded_as_the_file_says(folder: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=20)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert len(Tokenizer.from_file(str(folder / "tokenizer.json")).encode("a" * 9).ids) == 20
    assert len(load_tokenizer(folder).encode("a" * 9).ids) == 9


def test_a_text_cannot_write_a_special_token(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer.decode(tokenizer.encode("he<end>").ids, skip_special_tokens=True) == "he<end>"


def test_tokens_that_only_the_config_adds(folder: Path) -> None:
    added = {"258": {"content": "<think>", "special": False}, "259": {"content": "<a>", "special": True}}
    write(folder / "tokenizer_config.json", added_tokens_decoder=added, pad_token="<pad>")
    tokenizer = load_tokenizer(folder)
    assert [tokenizer.token_to_id(name) for name in ("<think>", "<a>", "<pad>")] == [258, 259, 260]
    assert [token.special for token in tokenizer.get_added_tokens_decoder().values()] == [
        True,
        False,
        True,
        True,
    ]
    assert tokenizer.encode("<think>").ids == [258]


def test_an_id_that_two_files_disagree_about(folder: Path) -> None:
    write(folder / "tokenizer_config.json", added_tokens_decoder={"300": {"content": "<a>"}})
    with pytest.raises(
        ValueError, match=r"tokenizer_config.json: .* gives '<a>' the id 300, tokenizer.json gives 258"
    ):
        load_tokenizer(folder)


def test_roles_and_ends_of_a_folder(folder: Path) -> None:
    config = {"eos_token": {"content": "<end>", "special": True}, "bos_token": None, "pad_token": "h"}
    write(folder / "tokenizer_config.json", **config)
    tokenizer = load_tokenizer(folder)
    assert load_specials(folder, tokenizer) == Specials({"eos_token": "<end>", "pad_token": "h"}, (257,))
    write(folder / "generation_config.json", eos_token_id=[3, 257])
    assert load_specials(folder, tokenizer).eos == (3, 257)
    write(folder / "generation_config.json", eos_token_id=4)
    assert load_specials(folder, tokenizer).eos == (4, 257)
    write(folder / "generation_config.json", eos_token_id=[4000])
    with pytest.raises(
        ValueError, match=r"generation_config.json: eos_token_id holds 4000; the tokenizer has 258 ids"
    ):
        load_specials(folder, tokenizer)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer.json", "{", r"tokenizer.json is not a tokenizer"),
        ("tokenizer_config.json", "{", r"tokenizer_config.json is not JSON"),
        ("tokenizer_config.json", "[]", r"tokenizer_config.json holds a list, not an object"),
    ],
)
def test_files_that_cannot_be_read(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(folder)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no tokenizer.json in .* converted by transformers"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "llama"])
def test_transformers_reads_what_is_saved(tmp_path: Path, model_type: str) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs transformers")
    tokenizer = tokenizer_from_gguf(gguf_metadata())
    write(tmp_path / "config.json", model_type=model_type)
    write(tmp_path / "tokenizer_config.json", model_max_length=77)
    save_tokenizer(tokenizer, tmp_path, Specials({"eos_token": "<end>"}, (256,)))
    again = load_tokenizer(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "he 123 hhe\n\n it's é🍎 <think>"
    assert theirs(text)["input_ids"] == again.encode(text).ids == tokenizer.encode(text).ids
    assert (theirs.eos_token, theirs.model_max_length) == ("<end>", 77)
    assert load_specials(tmp_path, again) == Specials({"eos_token": "<end>"}, (256,))


def test_many_threads_encode_without_already_borrowed(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    texts = [f"he {i} <end>" * 20 for i in range(300)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda t: tokenizer.decode(tokenizer.encode(t).ids), texts)) == texts


# GGUF metadata.


def gguf_metadata(**changes: Any) -> dict[str, Any]:
    pieces = [*ALPHABET, "<end>", "<think>", "he", "12", "hhe"]
    kinds = [1] * 256 + [3, 4, 1, 1, 1]
    fields = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": pieces,
        "token_type": kinds,
        "merges": ["h e", "1 2"],
    }
    fields |= {"eos_token_id": 256} | changes
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["it", "'s", "Ġ", "1", "2", "3", "4", "Ġa", "!", "ĊĊĠ", "Ġb"]),
        ("gpt-2", ["it", "'s", "Ġ1234", "Ġa", "!", "ĊĊĠ", "Ġb"]),
        ("qwen2", ["it", "'s", "Ġ", "1", "2", "3", "4", "Ġa", "!ĊĊ", "Ġ", "Ġb"]),
        ("llama-bpe", ["it", "'s", "Ġ", "123", "4", "Ġa", "!ĊĊ", "Ġ", "Ġb"]),
    ],
)
def test_texts_are_cut_as_each_family_does(pre: str, pieces: list[str]) -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(pre=pre))
    text = "it's 1234 a!\n\n  b"
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == pieces
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_qwen_cuts_as_transformers_does() -> None:
    module = pytest.importorskip(
        "transformers.models.qwen2.tokenization_qwen2", reason="parity needs transformers"
    )
    theirs = pre_tokenizers.Split(Regex(module.PRETOKENIZE_REGEX), behavior="isolated")
    theirs = pre_tokenizers.Sequence(
        [theirs, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    text = "I'LL we've\t\tx  \n\n y-12.5%é\r\n  ...?! 𝒳٣٤"
    ours = tokenizer_from_gguf(gguf_metadata(pre="qwen2")).pre_tokenizer
    assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)


def test_what_differs_between_families_besides() -> None:
    qwen, llama = (tokenizer_from_gguf(gguf_metadata(pre=pre)) for pre in ("qwen2", "llama-bpe"))
    assert qwen.decode(qwen.encode("e\u0301").ids) == "\u00e9"  # composed
    assert llama.decode(llama.encode("e\u0301").ids) == "e\u0301"
    assert llama.encode("hhe").ids == [260]  # a whole piece without merges
    assert len(qwen.encode("hhe").ids) == 2


def test_kinds_of_gguf_tokens() -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata())
    assert tokenizer.get_added_tokens_decoder() == {
        256: AddedToken("<end>", special=True, normalized=False),
        257: AddedToken("<think>", special=False, normalized=False),
    }
    assert tokenizer.encode("<think>").ids == [257] and 256 not in tokenizer.encode("<end>").ids


def test_bos_is_added_to_plain_texts_where_the_file_asks_for_it() -> None:
    with_bos = tokenizer_from_gguf(gguf_metadata(bos_token_id=256, add_bos_token=True))
    assert with_bos.encode("he").ids == [256, 258]
    assert tokenizer_from_gguf(gguf_metadata(bos_token_id=256)).encode("he").ids == [258]


def test_roles_and_ends_of_a_gguf_file() -> None:
    metadata = gguf_metadata(bos_token_id=1, padding_token_id=256, eot_token_id=3, unknown_token_id=None)
    names = {"bos_token": ALPHABET[1], "eos_token": "<end>", "pad_token": "<end>"}
    assert specials_from_gguf(metadata) == Specials(names, (256, 3))
    with pytest.raises(ValueError, match="tokenizer.ggml.bos_token_id is 999; there are 261 tokens"):
        specials_from_gguf(gguf_metadata(bos_token_id=999))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "llama"}, r"tokenizer.ggml.model is 'llama'; only 'gpt2'"),
        ({"pre": "default"}, r"tokenizer.ggml.pre is 'default'; only .*'qwen2'.*can be read"),
        ({"pre": None}, r"no tokenizer.ggml.pre"),
        ({"merges": None}, r"no tokenizer.ggml.merges"),
        ({"merges": ["x y"]}, r"tokenizer.ggml.merges do not fit tokenizer.ggml.tokens"),
        ({"tokens": ["a", "a"]}, r"tokenizer.ggml.tokens holds 1 token\(s\) twice"),
        ({"token_type": [1]}, r"tokenizer.ggml.token_type has 1 entries for 261 tokens"),
    ],
)
def test_metadata_that_cannot_be_read_names_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenizer_from_gguf(gguf_metadata(**changes))
