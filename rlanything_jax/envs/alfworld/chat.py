r"""The words around the game for chat models: they reason, and put what counts into a \boxed{...}.

Policy, judge and rewriter are asked as in RLAnything, appendix B, each in one message: admissible actions are numbered from 0, a
verdict is 1 or -1, a rewrite is an edit of the language in `edit`.
"""

from __future__ import annotations

import re

from rlanything_jax.envs.alfworld import prompts
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.base import Observation
from rlanything_jax.tasks.task import Task

_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_CRITIQUE = 600  # characters of the judge's rationales that a rewriter is shown

SYSTEM = (
    "You act in a household. At each step you see what happened and a numbered list of the actions that are possible now. "
    "Think briefly about which of them brings you closer to the goal of your task, in as few steps as you can, "
    "then give its number in \\boxed{}. Example: The mug is on desk 1, so I go there first. \\boxed{2}"
)

_ASK = "Which action do you choose? Think briefly, then \\boxed{number}."

QUESTION = (
    "Now judge the last action only. It is good if it suits what was seen before and brings the task closer to its goal or "
    "searches a new place for what is missing, and if the reasoning for it does not contradict itself. It is bad if nothing "
    "happened, if it repeats or undoes an earlier step, or if it does not help. Think briefly, then give your verdict: "
    "\\boxed{1} for good, \\boxed{-1} for bad."
)

_EDITS = (
    "Change the task by one edit from this list, with names from the room:\n"
    "hint on | hint off: say, or no longer say, where the wanted object is\n"
    "object TYPE: ask for another type of object\n"
    "receptacle TYPE: ask for it in another type of receptacle\n"
    "move target to PLACE: start the wanted object somewhere else\n"
    "add distractor in PLACE: put one more object of the wanted type there\n"
    "remove distractors: take away objects of the wanted type that are not needed\n"
    "close PLACE | open PLACE\n"
    "Think briefly, then give the edit in \\boxed{}."
)


def render(observation: Observation, task: Task, first: bool) -> str:
    """What the policy reads before it acts: what happened, the task, and the numbered actions."""
    text = prompts.engine_text(observation, first)
    actions = "\n".join(f"{i}: {action}" for i, action in enumerate(observation.admissible))
    return f"{text}\n\nYour task: {task.instruction}\nActions:\n{actions}\n{_ASK}"


def boxed(response: str) -> str | None:
    r"""The content of the last \boxed{...} of a response, None where there is none."""
    found = _BOX.findall(response)
    return found[-1].strip() if found else None


def action(response: str, observation: Observation) -> str:
    """The action that a response chose by its number or its name.

    Deviation: the published code clamps a number that is out of range and takes action 0 where there is none. Here such a
    response is an action that does nothing, which the judge can see and the policy can unlearn.
    """
    content = boxed(response)
    if content is None:
        return ""
    if content.isdecimal() and int(content) < len(observation.admissible):
        return observation.admissible[int(content)]
    return content


def rewrite_prompt(game: Game, direction: str, critique: str) -> str:
    """What the rewriter reads: the room, the task, what went wrong with it, which way to change it, and how."""
    room = prompts.rewrite_prompt(game, direction, critique[:_CRITIQUE]).removesuffix("\n> ")
    return f"{room}.\n{_EDITS}"


def edit(response: str) -> str:
    """The edit in a rewriter's response, "" where it holds none."""
    return boxed(response) or ""
