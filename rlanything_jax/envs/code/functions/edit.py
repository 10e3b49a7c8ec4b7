"""Edits of generated functions, and functions from the specs that name them.

An edit is one change, with a step in the words of the statements:

    append: Add 3.              one more step, the last
    replace 2: Reverse it.      another second step
    drop 2                      no second step
    example on | example off    show, or no longer show, an example in the statement

A spec is {"generate": {"seed", "split", knobs}, "edits": [...]}, the edits as text, none of them where there is no such key.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from rlanything_jax.envs.base import Refused
from rlanything_jax.envs.code.functions.function import Function, Step, flaw
from rlanything_jax.envs.code.functions.generate import generate, split_of
from rlanything_jax.envs.code.functions.ops import OPS

_FORM = re.compile(r"(?:(append)|(replace) (\d+)): (.+)|(drop) (\d+)|(example) (on|off)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Edit:
    """One change: 'append', 'replace', 'drop' or 'example'. `parse` and `str` are inverses.

    position: of the step, from 1; sentence: of the new step; shown: of the example.
    """

    verb: str
    position: int = 0
    sentence: str = ""
    shown: bool = False

    def __str__(self) -> str:
        match self.verb:
            case "append":
                return f"append: {self.sentence}"
            case "replace":
                return f"replace {self.position}: {self.sentence}"
            case "drop":
                return f"drop {self.position}"
        return f"example {'on' if self.shown else 'off'}"

    @staticmethod
    def parse(text: str) -> Edit:
        """Reads an edit, whatever its case and spaces. Raises `Refused`, naming the text it cannot read."""
        found = _FORM.fullmatch(" ".join(text.split()))
        if not found:
            raise Refused(
                f"cannot read {text.strip()!r}: write 'append: SENTENCE', 'replace N: SENTENCE', 'drop N' or 'example on|off'"
            )
        append, replace, place, sentence, drop, dropped, _, shown = found.groups()
        if sentence:
            known = next(
                (said for _, said in _SENTENCES if said.lower() == f"{sentence.rstrip('.')}.".lower()), None
            )
            if not known:
                raise Refused(f"cannot read {sentence!r}: no step is said like this")
            return Edit("append" if append else "replace", int(place or 0), known)
        if drop:
            return Edit("drop", int(dropped))
        return Edit("example", shown=shown.lower() == "on")

    def apply(self, function: Function) -> Function:
        """Returns the edited function. Raises `Refused` with the reason where it would be none, or the same, or held out."""
        steps = list(function.ops)
        if self.verb in ("replace", "drop") and not 1 <= self.position <= len(steps):
            raise Refused(f"{str(self)!r}: there are only steps 1 to {len(steps)}")
        at = len(steps) if self.verb == "append" else self.position - 1
        if self.verb == "drop":
            del steps[at]
        elif self.verb != "example":
            steps[at : at + 1] = [self._step([function.argument, *(step.op.gives for step in steps)][at])]
        shown = self.shown if self.verb == "example" else function.example
        edited = dataclasses.replace(function, ops=tuple(steps), example=shown)
        if edited.key == function.key:
            raise Refused(f"{str(self)!r} changes nothing")
        if reason := flaw(edited.argument, edited.ops):
            raise Refused(f"{str(self)!r}: {reason}")
        if split_of(edited.argument, edited.ops) != function.split:
            raise Refused(f"{str(self)!r} makes a function that is not of the split {function.split!r}")
        return edited

    def _step(self, type: str) -> Step:
        step = _SENTENCES.get((type, self.sentence))
        if step is None:
            raise Refused(f"{str(self)!r}: at this place the value is of type {type}")
        return step


# (type, sentence) -> the step that it means on a value of this type.
_SENTENCES = {
    (op.takes, step.sentence): step
    for op in OPS.values()
    for step in (
        Step(op, constant, wording) for constant in op.constants for wording in range(len(op.sentences))
    )
}


def build(spec: Mapping[str, Any]) -> Function:
    """The function of a task's spec; recently used ones are kept. Raises ValueError, or `Refused` for its edits."""
    return _build(json.dumps(spec, sort_keys=True))


def apply(spec: Mapping[str, Any], edit: str) -> dict[str, Any]:
    """The spec of the function that the text of an edit makes of that of `spec`. Raises `Refused` where it makes none."""
    change = Edit.parse(edit)
    change.apply(build(spec))
    return {**spec, "edits": [*spec.get("edits", ()), str(change)]}


def fingerprint(spec: Mapping[str, Any]) -> str:
    """Equal for two specs if and only if their functions take the same steps and both or neither show an example."""
    return build(spec).key


@functools.lru_cache(maxsize=4096)
def _build(spec: str) -> Function:
    fields = json.loads(spec)
    edits = fields.get("edits", [])
    if not edits:
        return generate(**fields["generate"])
    return Edit.parse(edits[-1]).apply(build({**fields, "edits": edits[:-1]}))
