"""From a config to everything that a run needs: the world, its environments, the tokenizer, the models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ml_collections import ConfigDict

from rlanything_jax.dialogue import ChatDialogue
from rlanything_jax.envs.base import World
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.envs.registry import world_maker
from rlanything_jax.loop import Setting, State
from rlanything_jax.models import Model, ModelConfig
from rlanything_jax.models.lora import merge
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.parallel.layout import on_mesh
from rlanything_jax.parallel.mesh import Meshes, make_meshes
from rlanything_jax.pretrain.warm_start import warm_start
from rlanything_jax.reward.judge import JudgeConfig
from rlanything_jax.reward.model import RewardModel
from rlanything_jax.reward.step_judge import StepJudge
from rlanything_jax.reward.unit_tests import ProgramWorld, UnitTests
from rlanything_jax.roles import Cast, cast_checkpoints, cast_words
from rlanything_jax.rollouts import SamplerConfig
from rlanything_jax.tasks.pool import TaskPool
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.checkpoints import Checkpoints
from rlanything_jax.trainer.step import init_state

Progress = Callable[[str, int, int], None]


@contextlib.contextmanager
def open_run(config: ConfigDict, progress: Progress) -> Iterator[tuple[Setting, State]]:
    """Builds a run at its beginning: models from checkpoints or a warm start, fresh optimizers, the original tasks.

    Raises whatever is wrong with the config or the data before anything is trained.
    """
    meshes = make_meshes(config.mesh.to_dict(), rollout=config.rollout_mesh.to_dict())
    options = config.world.to_dict()
    pool = {key: options.pop(key) for key in ("workers", "step_timeout_s", "reset_timeout_s")}
    style = "chat" if "checkpoint" in config else "words"
    make_world = world_maker(options.pop("name"), options | {"style": style})
    world = make_world()
    originals = world.tasks("train")
    sampler = SamplerConfig(**_tuples(config.sampler))
    with EnvironmentPool(make_world, **pool) as envs:
        # No name here for the cast: the parameters that it begins with would be kept as long as the run.
        run = _begin(
            config,
            world,
            envs,
            sampler,
            meshes,
            originals,
            _cast(config, world, envs, sampler, meshes, progress),
        )
        with on_mesh(meshes.local):  # all but the train step, which goes to the mesh of its state
            yield run


def _cast(
    config: ConfigDict,
    world: World,
    envs: EnvironmentPool,
    sampler: SamplerConfig,
    meshes: Meshes,
    progress: Progress,
) -> Cast:
    if "checkpoint" in config:
        progress("load checkpoints", 0, 0)
        return cast_checkpoints(config, world, meshes)
    if config.pretrain.world:
        options = {**config.world.to_dict(), **config.pretrain.world.to_dict(), "style": "words"}
        for key in ("workers", "step_timeout_s", "reset_timeout_s"):
            del options[key]
        world = world_maker(options.pop("name"), options)()
    tokenizer = build_tokenizer(world.corpus(), world.phrases)
    model = ModelConfig.from_dict(config.model, vocab_size=tokenizer.get_vocab_size())
    params = warm_start(config, world, envs, tokenizer, model, sampler, progress)
    return cast_words(config, model, tokenizer, params, meshes)


def _begin(
    config: ConfigDict,
    world: World,
    envs: EnvironmentPool,
    sampler: SamplerConfig,
    meshes: Meshes,
    originals: list[Task],
    cast: Cast,
) -> tuple[Setting, State]:
    longest = sampler.length_buckets[-1] + len(cast.judge.dialogue.question) + config.judge.max_tokens
    if config.trainer.length_buckets[-1] < longest:
        raise ValueError(
            f"config.trainer.length_buckets={config.trainer.length_buckets}: the longest must hold the sampler's longest "
            f"episode, the judge's question and one vote, {longest} tokens"
        )
    setting = Setting(
        config=config,
        world=world,
        envs=envs,
        policy=cast.policy,
        judge=cast.judge,
        rewriter=cast.rewriter,
        sampler=sampler,
        reward=_reward_model(config, world),
    )
    state = State(
        iteration=0,
        policy=init_state(cast.policy_params, cast.policy.tx, meshes.train),
        judge=init_state(cast.judge_params, cast.judge.tx, meshes.train),
        tasks=TaskPool(
            originals,
            seed=config.seed,
            original_share=config.adapt.original_share,
            fingerprint=world.fingerprint,
        ),
    )
    return setting, state


def restore(checkpoints: Checkpoints, setting: Setting, state: State) -> None:
    """Puts the latest checkpoint into `state`."""
    state.iteration, arrays, host = checkpoints.restore({"policy": state.policy, "judge": state.judge})
    state.policy, state.judge = arrays["policy"], arrays["judge"]
    state.tasks = TaskPool.from_json(host["tasks"], fingerprint=setting.world.fingerprint)


def trained_model(setting: Setting, state: State, name: str) -> Model:
    """The 'policy' or 'judge' as it is now, adapters merged into their base.

    Raises ValueError for models out of a warm start, whose word-level tokenizer no other library has.
    """
    role, trained = (setting.policy, state.policy) if name == "policy" else (setting.judge, state.judge)
    if not isinstance(role.dialogue, ChatDialogue):
        raise ValueError("models out of a warm start have a word-level tokenizer and are not exported")
    chat = role.dialogue.chat
    return Model(role.model, merge(role.frozen, trained.params), chat.tokenizer, chat)


def _reward_model(config: ConfigDict, world: World) -> RewardModel:
    """The kind of `config.reward`. ValueError where the world does not suit it."""
    if config.reward == "unit_tests":
        if not isinstance(world, ProgramWorld):
            raise ValueError(
                f"config.reward='unit_tests': the steps of world {world.name!r} are not programs"
            )
        options = _tuples(config.judge, "temperature", "max_tokens", "rows", "length_buckets", "aggregation")
        return UnitTests(world, **options, estimator=config.feedback.estimator)
    limits = ("temperature", "max_tokens", "rows", "branch_buckets", "length_buckets", "early")
    return StepJudge(
        JudgeConfig(**_tuples(config.judge, *limits)),
        signal=config.feedback.judge_signal,
        lam=config.feedback.judge_lam,
        estimator=config.feedback.estimator,
        invalid=config.feedback.invalid,
        aggregation=config.judge.aggregation,
        trajectories=config.judge.trajectories,
    )


def _tuples(options: ConfigDict, *names: str) -> dict[str, Any]:
    """The named options (all of them by default), lists as tuples: a config read from JSON knows no tuples."""
    chosen = {name: options[name] for name in names or options}
    return {
        name: tuple(value) if isinstance(value, list | tuple) else value for name, value in chosen.items()
    }
