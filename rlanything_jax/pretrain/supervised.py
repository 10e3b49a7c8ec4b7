"""Supervised training of a small model from scratch on a stream of examples: the stand-in for a pretrained checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import optax

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params
from rlanything_jax.trainer.batches import Batch, TrainSequence, normalise, pack
from rlanything_jax.trainer.optimizers import muon
from rlanything_jax.trainer.step import Objective, init_state, supervised_loss, train


def fit(
    params: Params,
    model: ModelConfig,
    examples: Iterator[TrainSequence],
    *,
    steps: int,
    learning_rate: float,
    tokens_per_batch: int,
    length: int,
    progress: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> Params:
    """Trains for `steps` updates of one micro-batch each, with warm-up and cosine decay; returns the parameters.

    Each batch takes as many examples as fill its rows; what does not fit any more opens the next.
    """
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, max(1, steps // 20), steps, end_value=learning_rate / 20
    )
    tx = muon(schedule)
    state = init_state(params, tx)
    batches = full_batches(examples, tokens_per_batch, length)
    for step in range(steps):
        state, metrics = train(state, {}, model, tx, [next(batches)], Objective(), supervised_loss)
        if step % 10 == 9 or step + 1 == steps:
            progress(step + 1, steps, float(metrics["loss"]))
    return state.params


def full_batches(examples: Iterator[TrainSequence], tokens: int, length: int) -> Iterator[Batch]:
    """Packs a stream into micro-batches of rows of `length` tokens; what no longer fits opens the next batch.

    An example that is longer gets a row of twice or four times the length.
    """
    lengths = (length, 2 * length, 4 * length)
    capacity = max(1, tokens // length) * length
    held: list[TrainSequence] = []
    for example in examples:
        # First fit may fail long before every row is full to its last token.
        if held and sum(map(len, held)) + len(example) > capacity // 2:
            if len(pack([*held, example], tokens=tokens, lengths=lengths)) > 1:
                yield from pack(normalise(held), tokens=tokens, lengths=lengths)
                held = []
        held.append(example)
