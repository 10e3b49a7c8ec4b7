"""Worlds by name. Each is imported when it is asked for, so that one world's dependencies burden no other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from rlanything_jax.envs.base import World


def _alfworld(options: Mapping[str, Any]) -> World:
    from rlanything_jax.envs.alfworld.world import AlfworldWorld

    return AlfworldWorld(**options)


def _code(options: Mapping[str, Any]) -> World:
    from rlanything_jax.envs.code.world import CodeWorld

    return CodeWorld(**options)


def _math(options: Mapping[str, Any]) -> World:
    from rlanything_jax.envs.math.world import MathWorld

    return MathWorld(**options)


WORLDS: dict[str, Callable[[Mapping[str, Any]], World]] = {
    "alfworld": _alfworld,
    "code": _code,
    "math": _math,
}


def world_maker(name: str, options: Mapping[str, Any]) -> Callable[[], World]:
    """A picklable function that builds a world, here or in a worker. ValueError for an unknown name."""
    if name not in WORLDS:
        raise ValueError(f"world.name={name!r} is unknown: choose one of {', '.join(sorted(WORLDS))}")
    return functools.partial(WORLDS[name], dict(options))
