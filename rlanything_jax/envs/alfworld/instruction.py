"""The sentence that tells the agent its goal, in the words of ALFWorld's goal library, and perhaps a hint."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything_jax.envs.alfworld.goal import Goal

_HINT = " Hint: "

# The first of a pair is the fixed phrasing.
TEMPLATES = {
    "pick_and_place_simple": ("put a {object} in {receptacle}.", "put some {object} on {receptacle}."),
    "look_at_obj_in_light": (
        "look at {object} under the {toggle}.",
        "examine the {object} with the {toggle}.",
    ),
    "pick_clean_then_place_in_recep": (
        "put a clean {object} in {receptacle}.",
        "clean some {object} and put it in {receptacle}.",
    ),
    "pick_heat_then_place_in_recep": (
        "put a hot {object} in {receptacle}.",
        "heat some {object} and put it in {receptacle}.",
    ),
    "pick_cool_then_place_in_recep": (
        "put a cool {object} in {receptacle}.",
        "cool some {object} and put it in {receptacle}.",
    ),
    "pick_two_obj_and_place": (
        "put two {object} in {receptacle}.",
        "find two {object} and put them in {receptacle}.",
    ),
}


def instruct(goal: Goal, template: str, hints: Sequence[tuple[str, str]] = ()) -> str:
    """Fills in a template; `hints` are (object type, receptacle name) pairs that say where a target is."""
    types = {"object": goal.object, "receptacle": goal.receptacle, "toggle": goal.toggle}
    text = template.format(**{role: type.lower() for role, type in types.items() if type})
    if hints:
        text += _HINT + ", ".join(f"a {type.lower()} is in {name}" for type, name in hints) + "."
    return text


def has_hint(instruction: str) -> bool:
    """Whether the instruction says where a target is."""
    return _HINT in instruction


def template_of(goal: Goal, instruction: str) -> str:
    """The template that `instruction` was made from, or the fixed one where it was made from none."""
    stem = instruction.split(_HINT)[0]
    templates = TEMPLATES[goal.task_type]
    return next((t for t in templates if instruct(goal, t) == stem), templates[0])
