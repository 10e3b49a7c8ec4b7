"""The coding world: programs that policies write, judged by running them in a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlanything_jax.envs.code.sandbox import Result, run

__all__ = ["Result", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlanything_jax.envs.code import sandbox

    return getattr(sandbox, name)
