"""Endless streams of training sequences for a warm start, each from its own seeded generator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer

from rlanything_jax.envs.base import Teacher, TeacherOfTests, TeacherOfVerdicts
from rlanything_jax.models.tokenizer import END, JUDGE, special_id
from rlanything_jax.reward.verdicts import format_verdict
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.trainer.batches import Piece, TrainSequence


def play_examples(
    teacher: Teacher, tokenizer: Tokenizer, seed: int, *, read_weight: float, longest: int
) -> Iterator[TrainSequence]:
    """Noisy episodes: what the teacher writes has weight 1, what it reads `read_weight`, since reading teaches copying.

    Episodes are cut at `longest` tokens.
    """
    end, rng = special_id(tokenizer, END), random.Random(f"play {seed}")
    while True:
        turns = teacher.play(teacher.task(rng), rng)
        prompts = tokenizer.encode_batch([turn.prompt for turn in turns], add_special_tokens=False)
        actions = tokenizer.encode_batch([turn.action for turn in turns], add_special_tokens=False)
        tokens: list[int] = []
        weight: list[float] = []
        for prompt, action in zip(prompts, actions, strict=True):
            tokens += [*prompt.ids, *action.ids, end]
            weight += [read_weight] * len(prompt.ids) + [1.0] * (len(action.ids) + 1)
        yield TrainSequence(_supervised(tokens[:longest], [0.0, *weight[1:longest]]))


def judge_examples(
    teacher: TeacherOfVerdicts,
    tokenizer: Tokenizer,
    trajectories: Sequence[Trajectory],
    seed: int,
    *,
    noise: float,
    longest: int,
) -> Iterator[TrainSequence]:
    """Verdicts on the policy's own episodes, one a step: the world's label, flipped with probability `noise`, explained.

    Episodes of more than `longest` tokens are left out.
    """
    end, question = special_id(tokenizer, END), special_id(tokenizer, JUDGE)
    rng = random.Random(f"judge {seed}")
    readable = [t for t in trajectories if t.steps and not t.error and len(t.tokens) <= longest]
    if not readable:
        raise ValueError(
            f"no episode of at most {longest} tokens to warm up a judge with: raise pretrain.judge_length"
        )
    while True:
        for trajectory in rng.sample(readable, len(readable)):
            n = trajectory.steps[-1].point
            branches = []
            for t, step in enumerate(trajectory.steps):
                if step.label is None:
                    raise ValueError(
                        f"world {trajectory.task.world!r} labels no steps: there is nothing to warm up a judge with"
                    )
                verdict = -step.label if rng.random() < noise else step.label
                actions = [s.response for s in trajectory.steps[: t + 1]]
                text = format_verdict(teacher.explain(actions, step.admissible, verdict), verdict)
                ids = [question, *tokenizer.encode(text, add_special_tokens=False).ids, end]
                branches.append(_supervised(ids, [0.0] + [1.0] * (len(ids) - 1), step.point))
            yield TrainSequence(_supervised(trajectory.tokens[:n], [0.0] * n), branches)


def rewrite_examples(teacher: Teacher, tokenizer: Tokenizer, seed: int) -> Iterator[TrainSequence]:
    """Rewriting prompts with an edit in the wanted direction."""
    rng = random.Random(f"rewrite {seed}")
    while True:
        example = teacher.rewrite(teacher.task(rng), rng.choice(("easier", "harder")), rng)
        if example is not None:
            yield _answered(tokenizer, *example)


def unit_test_examples(teacher: TeacherOfTests, tokenizer: Tokenizer, seed: int) -> Iterator[TrainSequence]:
    """What a writer of unit tests reads, with a test."""
    rng = random.Random(f"test {seed}")
    while True:
        yield _answered(tokenizer, *teacher.test(teacher.task(rng), rng))


def _answered(tokenizer: Tokenizer, prompt: str, answer: str) -> TrainSequence:
    """A prompt and its answer, of which the answer is learned."""
    end = special_id(tokenizer, END)
    read, wrote = (e.ids for e in tokenizer.encode_batch([prompt, answer], add_special_tokens=False))
    return TrainSequence(_supervised([*read, *wrote, end], [0.0] * len(read) + [1.0] * (len(wrote) + 1)))


def _supervised(tokens: list[int], weight: list[float], point: int = 0) -> Piece:
    return Piece(tokens, weight, [0.0] * len(tokens), [0.0] * len(tokens), point)
