"""Three small models from nothing in minutes: policy, judge and rewriter.

It stands for the pretrained checkpoints that a lab would bring. The policy imitates a disturbed expert; the judge starts from the
policy and explains noisy verdicts on the policy's own episodes (verdicts on random play do not transfer to them); the rewriter
starts from the policy as well and learns which edits lead in which direction. Every stage is stored under the hash of all that it
depends on, so that a second run, or one that was killed in between, goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import jax
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict
from safetensors.flax import load_file, save_file
from tokenizers import Tokenizer

import rlanything_jax
from rlanything_jax.dialogue import Speaker, WordDialogue
from rlanything_jax.envs.base import TeacherOfTests, TeacherOfVerdicts, World
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, init, unstack
from rlanything_jax.pretrain.examples import (
    judge_examples,
    play_examples,
    rewrite_examples,
    unit_test_examples,
)
from rlanything_jax.pretrain.supervised import fit
from rlanything_jax.rollouts import SamplerConfig, rollout
from rlanything_jax.trainer.batches import TrainSequence

_VOTE = 32  # tokens that an episode leaves for a verdict in a row of the judge's stage

Progress = Callable[[str, int, int], None]


def warm_start(
    config: ConfigDict,
    world: World,
    envs: EnvironmentPool,
    tokenizer: Tokenizer,
    model: ModelConfig,
    sampler: SamplerConfig,
    progress: Progress,
) -> dict[str, Params]:
    """Stacked parameters of 'policy', 'judge' and 'rewriter', from the cache where they are there."""
    options = config.pretrain
    teacher = world.teacher(options.noise)
    folder = Path(os.path.expanduser(options.cache))

    def stage(name: str, start: Params, examples: Callable[[], Iterator[TrainSequence]]) -> Params:
        steps, tokens, length = (options[f"{name}_{key}"] for key in ("steps", "tokens", "length"))

        def train() -> Params:
            return fit(
                start,
                model,
                examples(),
                steps=steps,
                learning_rate=options.learning_rate,
                tokens_per_batch=tokens,
                length=length,
                progress=lambda step, steps, loss: progress(
                    f"warm start: {name}, loss {loss:.2f}", step, steps
                ),
            )

        return _cached(folder / f"{name}-{_fingerprint(config, tokenizer, name)}.safetensors", train)

    def judge_stream() -> Iterator[TrainSequence]:
        if config.reward == "unit_tests":
            return unit_test_examples(cast(TeacherOfTests, teacher), tokenizer, config.seed)
        trajectories = rollout(
            Speaker(unstack(policy, model), model, WordDialogue(tokenizer)),
            envs,
            world,
            world.tasks("train")[: options.judge_episodes],
            1,
            sampler,
            seed=config.seed,
            progress=lambda done, total: progress("warm start: episodes for the judge", done, total),
        )
        return judge_examples(
            cast(TeacherOfVerdicts, teacher),
            tokenizer,
            trajectories,
            config.seed,
            noise=options.judge_noise,
            longest=options.judge_length - _VOTE,
        )

    policy = stage(
        "policy",
        init(model, jax.random.key(config.seed)),
        lambda: play_examples(
            teacher,
            tokenizer,
            config.seed,
            read_weight=options.read_weight,
            longest=options.policy_length,
        ),
    )
    judge = stage("judge", policy, judge_stream)
    rewriter = stage("rewriter", policy, lambda: rewrite_examples(teacher, tokenizer, config.seed))
    return {"policy": policy, "judge": judge, "rewriter": rewriter}


def _cached(path: Path, make: Callable[[], Params]) -> Params:
    if path.exists():
        return unflatten_dict(load_file(path), sep="/")
    params = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    save_file(flatten_dict(params, sep="/"), partial)
    os.replace(partial, path)
    # Read back, so that a run that trained the model and one that found it start from the same arrays.
    return unflatten_dict(load_file(path), sep="/")


def _fingerprint(config: ConfigDict, tokenizer: Tokenizer, stage: str) -> str:
    """A hash of everything that a stage depends on, the package's own code included."""
    others = tuple(f"{name}_" for name in ("judge", "rewriter") if name != stage)
    apart = ("cache", "world")
    options = {k: v for k, v in config.pretrain.items() if k not in apart and not k.startswith(others)}
    relevant = {name: config[name].to_dict() for name in ("model", "world", "sampler")}
    relevant["world"] |= config.pretrain.world.to_dict()
    digest = hashlib.sha256(tokenizer.to_str().encode())
    digest.update(json.dumps([options, relevant, config.reward, config.seed], sort_keys=True).encode())
    package = Path(rlanything_jax.__file__).parent
    for room in ("pretrain", "models", "trainer", "sampler", "reward", "tasks", "envs"):
        for path in sorted((package / room).rglob("*.py")):
            digest.update(path.read_bytes())
    for name in ("losses.py", "rollouts.py", "dialogue.py"):
        digest.update((package / name).read_bytes())
    return digest.hexdigest()[:20]
