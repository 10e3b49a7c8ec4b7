"""Word tokenizers: any text survives, phrases are one id, no text can write a special token."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rlanything_jax.models.tokenizer import END, JUDGE, PAD, SPECIALS, build_tokenizer, protected

PHRASES = ("go to ", "You open the ", "You open ", ".\n> ", "+1", "-1", " Verdict: ")
CORPUS = ("go to cabinet 12.\n> ", "You open the fridge 1", "the mug is hot", *PHRASES)
TOKENIZER = build_tokenizer(CORPUS, PHRASES)


def pieces(text: str, tokenizer: Tokenizer = TOKENIZER) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text).ids]


@given(st.text())
def test_any_text_survives_a_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


@given(st.lists(st.sampled_from([*CORPUS, *SPECIALS, " ", "\n", "\r\n", "\t", "é", "🍎", "-", "cabinet 12"])))
def test_texts_of_the_world_survive_a_round_trip(parts: list[str]) -> None:
    text = "".join(parts)
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_is_one_id(phrase: str) -> None:
    assert len(TOKENIZER.encode(phrase).ids) == 1


def test_pieces_are_the_longest_phrase_then_names_then_words_then_bytes() -> None:
    assert pieces("You open the fridge 1") == ["You open the ", "fridge 1"]
    assert pieces("You open cabinet 12.\n> go to cabinet 12") == [
        "You open ", "cabinet 12", ".\n> ", "go to ", "cabinet 12",
    ]  # fmt: skip
    assert pieces("the mug is hot") == ["the", " mug", " is", " hot"]
    assert pieces(" cup") == [" ", "c", "u", "p"]


@pytest.mark.parametrize("name", SPECIALS)
def test_a_text_cannot_inject_a_special_token(name: str) -> None:
    special = TOKENIZER.token_to_id(name)
    loaded = Tokenizer.from_str(TOKENIZER.to_str())
    assert special in loaded.encode(f"mug{name}").ids  # what `protected` is for
    for tokenizer in (TOKENIZER, protected(loaded)):
        for ids in (tokenizer.encode(f"mug{name}").ids, tokenizer.encode_batch([f"mug{name}"])[0].ids):
            assert special not in ids
            assert tokenizer.decode(ids) == f"mug{name}"


def test_a_phrase_that_names_a_special_token_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\['<end>'\] are names of special tokens"):
        build_tokenizer(CORPUS, ["go to ", END])


def test_special_tokens_have_fixed_ids_and_padding_is_zero() -> None:
    assert [TOKENIZER.token_to_id(name) for name in (PAD, END, JUDGE)] == [0, 1, 2]


def test_no_token_is_added_so_none_is_doubled() -> None:
    """Case 6: nothing opens a text by itself, so template and tokenizer cannot both add it."""
    assert TOKENIZER.encode("go to ").ids == TOKENIZER.encode("go to ", add_special_tokens=False).ids


def test_a_stored_tokenizer_is_the_same_tokenizer() -> None:
    text = "You open the fridge 1.\n> go to cabinet 12 é"
    loaded = protected(Tokenizer.from_str(TOKENIZER.to_str()))
    assert loaded.encode(text).ids == TOKENIZER.encode(text).ids
    assert loaded.get_vocab_size() == TOKENIZER.get_vocab_size()


def test_the_vocabulary_does_not_depend_on_the_order_of_the_corpus() -> None:
    assert build_tokenizer(CORPUS[::-1], PHRASES[::-1]).get_vocab() == TOKENIZER.get_vocab()


def test_already_borrowed_under_concurrent_threads() -> None:
    """Case 29: encoding sets nothing on the tokenizer, so threads share it."""
    expected = TOKENIZER.encode(CORPUS[0]).ids
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda _: TOKENIZER.encode_batch([CORPUS[0]])[0].ids, range(400)))
    assert got == [expected] * 400
