"""Decoders: their shape, their parameters, their forward functions."""

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, init, logits, unstack

__all__ = ["ModelConfig", "Params", "init", "logits", "unstack"]
