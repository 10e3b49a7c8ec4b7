"""From a config to everything that a run needs: the world, its environments, the tokenizer, the models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import optax
from ml_collections import ConfigDict

from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.envs.registry import world_maker
from rlanything_jax.loop import Setting, State
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import unstack
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.pretrain.warm_start import warm_start
from rlanything_jax.reward.judge import JudgeConfig
from rlanything_jax.rollouts import SamplerConfig
from rlanything_jax.tasks.pool import TaskPool
from rlanything_jax.trainer.checkpoints import Checkpoints
from rlanything_jax.trainer.step import init_state, optimizer

Progress = Callable[[str, int, int], None]


@contextlib.contextmanager
def open_run(config: ConfigDict, progress: Progress) -> Iterator[tuple[Setting, State]]:
    """Builds a run at its beginning: warm-started models, fresh optimizers, the original tasks.

    Raises whatever is wrong with the config or the data before anything is trained.
    """
    options = config.world.to_dict()
    pool = {key: options.pop(key) for key in ("workers", "step_timeout_s", "reset_timeout_s")}
    make_world = world_maker(options.pop("name"), options)
    world = make_world()
    originals = world.tasks("train")
    tokenizer = build_tokenizer(world.corpus(), world.phrases)
    model = ModelConfig.from_dict(config.model, vocab_size=tokenizer.get_vocab_size())
    sampler = SamplerConfig(**_tuples(config.sampler))
    judge_config = JudgeConfig(
        **_tuples(config.judge, "temperature", "max_tokens", "rows", "branch_buckets", "length_buckets")
    )
    policy_tx, judge_tx = (_optimizer(config.policy), _optimizer(config.judge))
    with EnvironmentPool(make_world, **pool) as envs:
        params = warm_start(config, world, envs, tokenizer, model, sampler, progress)
        yield (
            Setting(
                config=config,
                world=world,
                envs=envs,
                tokenizer=tokenizer,
                model=model,
                rewriter=unstack(params["rewriter"], model),
                sampler=sampler,
                judge=judge_config,
                policy_tx=policy_tx,
                judge_tx=judge_tx,
            ),
            State(
                iteration=0,
                policy=init_state(params["policy"], policy_tx),
                judge=init_state(params["judge"], judge_tx),
                tasks=TaskPool(
                    originals,
                    seed=config.seed,
                    original_share=config.adapt.original_share,
                    fingerprint=world.fingerprint,
                ),
            ),
        )


def restore(checkpoints: Checkpoints, setting: Setting, state: State) -> None:
    """Puts the latest checkpoint into `state`."""
    state.iteration, arrays, host = checkpoints.restore({"policy": state.policy, "judge": state.judge})
    state.policy, state.judge = arrays["policy"], arrays["judge"]
    state.tasks = TaskPool.from_json(host["tasks"], fingerprint=setting.world.fingerprint)


def _optimizer(options: ConfigDict) -> optax.GradientTransformation:
    return optimizer(options.learning_rate, weight_decay=options.weight_decay, clip=options.max_grad_norm)


def _tuples(options: ConfigDict, *names: str) -> dict[str, Any]:
    """The named options (all of them by default), lists as tuples: a config read from JSON knows no tuples."""
    chosen = {name: options[name] for name in names or options}
    return {
        name: tuple(value) if isinstance(value, list | tuple) else value for name, value in chosen.items()
    }
