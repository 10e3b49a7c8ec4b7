"""One-turn generation: a prompt in, responses out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlanything_jax.dialogue import Dialogue, Speaker
from rlanything_jax.sampler.session import Sampling, bucket, decode, extend, new_sessions, pad_rows, select


class Response(NamedTuple):
    """One sampled response, with its tokens as sampled."""

    text: str
    finished: bool  # by a stop token, not by its budget
    tokens: list[int]
    logprobs: list[float]


def generate(
    speaker: Speaker,
    prompts: Sequence[str],
    samples: int,
    *,
    temperature: float,
    max_tokens: int,
    length_buckets: tuple[int, ...],
    seed: int,
    first_request: int = 0,
    rows: int = 8,
) -> list[list[Response]]:
    """`samples` responses to each prompt, [prompt][sample]; each prompt is read once and forked.

    Prompts are read `rows` at a time, so the batch compiles once; a response that met no end is returned as far
    as it went. A prompt that is longer than the longest bucket is not read and gets none.
    """
    params, model, dialogue = speaker
    responses: list[list[Response]] = []
    encoded = [dialogue.open(prompt) for prompt in prompts]
    encoded = [ids if len(ids) <= length_buckets[-1] else [] for ids in encoded]
    for at in range(0, len(encoded), rows):
        group = encoded[at : at + rows]
        width = bucket(max(map(len, group)), length_buckets)
        tokens, count = pad_rows([*group, *[[]] * (rows - len(group))], width)
        sessions = extend(params, model, new_sessions(model, rows, width + max_tokens), tokens, count)
        sessions = select(sessions, np.repeat(np.arange(rows), samples), width + max_tokens)
        size = rows * samples
        real = np.repeat(count > 0, samples)
        sampling = Sampling(
            temperature=np.full(size, temperature, np.float32),
            budget=np.where(real, max_tokens, 0).astype(np.int32),
            stop=np.tile(np.array(dialogue.stop, np.int32), (size, 1)),
            request=(first_request + at * samples + np.arange(size)).astype(np.uint32),
            seed=np.uint32(seed),
        )
        _, sampled = decode(params, model, sessions, sampling, max_tokens)
        ids, logprobs, lengths, _ = (np.asarray(x) for x in sampled)

        for i in range(len(group)):
            rows_of_prompt = range(i * samples, (i + 1) * samples if group[i] else i * samples)
            responses.append(
                [_response(dialogue, ids[r, : lengths[r]], logprobs[r, : lengths[r]]) for r in rows_of_prompt]
            )
    return responses


def _response(dialogue: Dialogue, tokens: np.ndarray, logprobs: np.ndarray) -> Response:
    new = tokens.tolist()
    return Response(dialogue.text(new), bool(new) and new[-1] in dialogue.stop, new, logprobs.tolist())
