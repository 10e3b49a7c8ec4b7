"""Policy, judge and rewriter: which model plays which part, what of it is trained, and how it reads and writes.

Without `config.checkpoint` the three are small models out of the warm start, trained whole. With it, each role names a checkpoint
that `models.from_pretrained` loads; roles of one checkpoint share its weights, and with a `lora.rank` only adapters are trained.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import optax
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from rlanything_jax.dialogue import ChatDialogue, Dialogue, Speaker, WordDialogue
from rlanything_jax.envs.base import World
from rlanything_jax.models.chat import Chat
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, unstack
from rlanything_jax.models.lora import combine, init_adapters
from rlanything_jax.models.pretrained import Model, from_pretrained
from rlanything_jax.models.quantize import quantize_params
from rlanything_jax.parallel.layout import DECODE, on_mesh, pin, place, shardings, this_host
from rlanything_jax.parallel.mesh import Meshes
from rlanything_jax.trainer.optimizers import optimizer, schedule


@dataclasses.dataclass(frozen=True)
class Role:
    """A model that learns: everything about it but the parameters that are trained."""

    model: ModelConfig
    dialogue: Dialogue
    tx: optax.GradientTransformation
    meshes: Meshes
    frozen: Params = dataclasses.field(
        default_factory=dict
    )  # stacked, to train beside; empty where all is trained
    frozen_decode: Params = dataclasses.field(
        default_factory=dict
    )  # the same to generate with; roles may share it

    def speaker(self, trained: Params) -> Speaker:
        """The model as it is with these trained parameters, ready to generate on this host."""
        params = decode_params(trained, self.model, self.meshes)
        if self.frozen_decode:
            layers = [
                combine(*both) for both in zip(self.frozen_decode["layers"], params["layers"], strict=True)
            ]
            params = combine(self.frozen_decode | {"layers": {}}, params | {"layers": {}}) | {
                "layers": layers
            }
        return Speaker(params, self.model, self.dialogue)


class Cast(NamedTuple):
    """The three parts of a run, with the parameters that its policy and judge begin with."""

    policy: Role
    judge: Role
    rewriter: Speaker  # frozen, as in the paper
    policy_params: Params
    judge_params: Params


def decode_params(params: Params, model: ModelConfig, meshes: Meshes) -> Params:
    """Stacked parameters of any mesh or host, unstacked and in the layout of decoding on this host's devices.

    Made once for each weight update, in memory: nothing is gathered between two tokens, and nothing goes through a disk.
    """
    everywhere = place(params, shardings(params, meshes.by_host, DECODE))
    mine = this_host(everywhere, meshes.here)
    if meshes.local != meshes.here:  # devices that only sample
        mine = place(mine, shardings(mine, meshes.local, DECODE))
    with on_mesh(meshes.local):
        return _unstacked(mine, model)


@functools.partial(jax.jit, static_argnames="model")
def _unstacked(params: Params, model: ModelConfig) -> Params:
    return pin(unstack(params, model), DECODE)


def cast_words(
    config: ConfigDict,
    model: ModelConfig,
    tokenizer: Tokenizer,
    params: Mapping[str, Params],
    meshes: Meshes,
) -> Cast:
    """Small models of one shape and tokenizer, `params` by role; all of their parameters are trained."""
    dialogue = WordDialogue(tokenizer)
    policy, judge = (
        Role(model, dialogue, make_optimizer(config, name), meshes) for name in ("policy", "judge")
    )
    rewriter = Speaker(decode_params(params["rewriter"], model, meshes), model, dialogue)
    return Cast(policy, judge, rewriter, params["policy"], params["judge"])


def cast_checkpoints(config: ConfigDict, world: World, meshes: Meshes) -> Cast:
    """Chat models from `config.checkpoint`, each loaded once.

    Raises ValueError for a checkpoint without a chat template, and whatever `from_pretrained` and `init_adapters` find wrong.
    """

    @functools.cache
    def load(path: str) -> Model:
        model = from_pretrained(path, mesh=meshes.train, dtype=config.model.dtype)
        options = {"remat": config.model.remat, "scan_unroll": config.model.scan_unroll}
        return dataclasses.replace(model, config=dataclasses.replace(model.config, **options))

    @functools.cache
    def base(path: str, int8: bool) -> Params:
        return quantize_params(load(path).params) if int8 else load(path).params

    @functools.cache
    def base_decode(path: str, int8: bool) -> Params:
        return decode_params(base(path, int8), load(path).config, meshes)

    @functools.cache
    def player(path: str) -> ChatDialogue:
        """Of policy and judge: a judge of the policy's own checkpoint reads what the policy read, token for token."""
        return ChatDialogue(_chat(load(path), path), system=world.system, question=world.question)

    def learner(number: int, name: str) -> tuple[Role, Params]:
        path, lora, tx = config.checkpoint[name], config[name].lora, make_optimizer(config, name)
        shape = load(path).config
        if not lora.rank:
            return Role(shape, player(path), tx, meshes), load(path).params
        frozen, adapters = init_adapters(
            base(path, lora.int8_base),
            rank=lora.rank,
            alpha=lora.alpha,
            targets=tuple(lora.targets),
            key=jax.random.fold_in(jax.random.key(config.seed), number),
        )
        frozen = place(frozen, shardings(frozen, meshes.train))
        decode = base_decode(path, lora.int8_base)
        scales = decode_params({"layers": _scales(frozen["layers"])}, shape, meshes)["layers"]
        joined = [combine(*both) for both in zip(decode["layers"], scales, strict=True)]
        return Role(shape, player(path), tx, meshes, frozen, decode | {"layers": joined}), adapters

    (policy, policy_params), (judge, judge_params) = map(learner, (0, 1), ("policy", "judge"))
    path = config.checkpoint.rewriter
    model = load(path)
    rewriter = Speaker(base_decode(path, False), model.config, ChatDialogue(_chat(model, path)))
    return Cast(policy, judge, rewriter, policy_params, judge_params)


def make_optimizer(config: ConfigDict, name: str) -> optax.GradientTransformation:
    """The optimizer of `config.policy` or `config.judge`, its schedule laid over the updates of the whole run."""
    options = config[name]
    rate = schedule(
        options.learning_rate,
        updates=config.iterations * options.updates,
        warmup=options.warmup,
        final_share=options.final_share,
    )
    return optimizer(
        rate,
        weight_decay=options.weight_decay,
        clip=options.max_grad_norm,
        moments=options.moments,
        master_weights=options.master_weights,
        gain_rate=options.gain_rate,
    )


def _scales(layers: Params) -> Params:
    """What `init_adapters` adds to the layers of a base."""
    return {
        name: {"lora_scale": leaves["lora_scale"]}
        for name, leaves in layers.items()
        if "lora_scale" in leaves
    }


def _chat(model: Model, path: str) -> Chat:
    if model.chat is None:
        raise ValueError(
            f"{path} has no chat template: policy, judge and rewriter need an instruction-tuned checkpoint"
        )
    return model.chat
