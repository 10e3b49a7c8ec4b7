"""Worlds behind one protocol (`base`) and the pool of worker processes that plays their episodes (`pool`)."""

from rlanything_jax.envs.base import Environment, Observation, Refused, World

__all__ = ["Environment", "Observation", "Refused", "World"]
