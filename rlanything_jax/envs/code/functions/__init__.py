"""A family of small generated programming problems: functions of one argument in a restricted grammar."""

from rlanything_jax.envs.code.functions.edit import build, fingerprint
from rlanything_jax.envs.code.functions.function import Function

__all__ = ["Function", "build", "fingerprint"]
