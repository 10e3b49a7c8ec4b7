"""Decoders: their shape, their parameters, their forward functions, and the checkpoints they are read from and written to."""

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, init, logits, unstack
from rlanything_jax.models.pretrained import Model, from_pretrained, save_pretrained
from rlanything_jax.models.rope import RopeScaling

__all__ = [
    "Model",
    "ModelConfig",
    "Params",
    "RopeScaling",
    "from_pretrained",
    "init",
    "logits",
    "save_pretrained",
    "unstack",
]
