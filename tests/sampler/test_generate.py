"""One-turn generation: how often prompts are read, and what each sample depends on."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from rlanything_jax.dialogue import Speaker, WordDialogue
from rlanything_jax.models import ModelConfig, Params
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.sampler.generate import generate

module = importlib.import_module("rlanything_jax.sampler.generate")
PROMPTS = ["put a mug", "the cup", "put a cup in the mug"]
ROWS, SAMPLES = 2, 3


@pytest.fixture(scope="module")
def tokenizer(model: ModelConfig) -> Tokenizer:
    tokenizer = build_tokenizer(["put a mug in the cup"], [])
    assert tokenizer.get_vocab_size() <= model.vocab_size
    return tokenizer


@pytest.fixture(scope="module")
def sample(params: Params, model: ModelConfig, tokenizer: Tokenizer) -> Any:
    speaker = Speaker(params, model, WordDialogue(tokenizer))

    def sample(prompts: list[str], samples: int = SAMPLES, **options: Any) -> list[list[str]]:
        how = dict(temperature=1.0, max_tokens=6, length_buckets=(8,), seed=0, rows=ROWS) | options
        return [[response.text for response in of] for of in generate(speaker, prompts, samples, **how)]

    return sample


@pytest.fixture(scope="module")
def texts(sample: Any) -> list[list[str]]:
    return sample(PROMPTS)


def test_every_prompt_gets_its_samples_and_they_differ(texts: list[list[str]]) -> None:
    assert [len(of_prompt) for of_prompt in texts] == [SAMPLES] * len(PROMPTS)
    assert len({text for of_prompt in texts for text in of_prompt}) == SAMPLES * len(PROMPTS)


def test_no_prompts_give_no_texts(sample: Any) -> None:
    assert sample([]) == []


def test_each_prompt_is_read_once(sample: Any, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    extend, read = module.extend, []

    def counting(params: Any, model: Any, sessions: Any, tokens: Any, count: np.ndarray) -> Any:
        read.append(count.sum())
        return extend(params, model, sessions, tokens, count)

    monkeypatch.setattr(module, "extend", counting)
    sample(PROMPTS)
    assert sum(read) == sum(len(tokenizer.encode(prompt).ids) for prompt in PROMPTS)
    assert len(read) == 2  # two rows at a time


def test_a_sample_depends_on_its_prompt_and_request_alone(sample: Any, texts: list[list[str]]) -> None:
    assert sample(PROMPTS) == texts
    assert sample(PROMPTS[1:], first_request=SAMPLES) == texts[1:]
    assert sample([PROMPTS[2], PROMPTS[0]], first_request=2 * SAMPLES)[0] == texts[2]
    assert sample(PROMPTS, first_request=1)[0][:2] == texts[0][1:]
    assert not set(sample(PROMPTS, seed=1)[0]) & set(texts[0])


def test_greedy_samples_are_equal(sample: Any) -> None:
    for of_prompt in sample(PROMPTS, temperature=0.0):
        assert len(set(of_prompt)) == 1


def test_the_end_token_ends_the_text_and_is_not_part_of_it(
    params: Params, model: ModelConfig, tokenizer: Tokenizer
) -> None:
    class Ids(WordDialogue):
        """With another end, and ids for texts."""

        def __init__(self, end: int) -> None:
            super().__init__(tokenizer)
            self.stop = (end,)

        def text(self, written: Sequence[int]) -> Any:
            return [i for i in written if i not in self.stop]

    def sample(end: int) -> Any:
        how = dict(temperature=1.0, max_tokens=6, length_buckets=(8,), seed=0, rows=ROWS)
        return generate(Speaker(params, model, Ids(end)), PROMPTS, SAMPLES, **how)

    full = [[response.text for response in of_prompt] for of_prompt in sample(-1)]
    assert {len(ids) for of_prompt in full for ids in of_prompt} == {6}
    end = full[1][0][2]
    for cut, uncut in zip(sample(end), full, strict=True):
        for response, ids in zip(cut, uncut, strict=True):
            n = ids.index(end) if end in ids else len(ids)
            assert response.text == ids[:n]
            assert response.finished == (end in ids)
            assert response.tokens == ids[: n + 1]
            assert len(response.logprobs) == len(response.tokens) and max(response.logprobs) < 0


def test_a_prompt_that_is_too_long_gets_no_text_and_costs_the_others_nothing(sample: Any) -> None:
    short, long = sample(["the cup", " ".join(["mug"] * 7)])
    assert long == [] and len(short) == SAMPLES
    assert short == sample(["the cup"])[0]
