"""Verdicts in a judge's own words: which score a vote means, and why it says so.

Strict on purpose: a text that hedges, names two verdicts or goes on behind its verdict scores 0 and is punished as unparsed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# A rationale that says "Verdict:" itself hedges between two.
_WORDS = re.compile(r"(?P<rationale>(?=\S)(?:(?!Verdict:).)+) Verdict: (?P<verdict>[+-]1)")
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")


class Verdict(NamedTuple):
    score: int  # +1 or -1; 0 where none could be parsed
    rationale: str  # "" where none could be parsed


UNPARSED = Verdict(0, "")


def format_verdict(rationale: str, score: int) -> str:
    """The text of a vote that `parse_words` reads back."""
    return f"{rationale} Verdict: {score:+d}"


def parse_words(text: str) -> Verdict:
    """A rationale followed by exactly one 'Verdict: +1' or 'Verdict: -1' at the end, for word-level models."""
    match = _WORDS.fullmatch(text)
    return Verdict(int(match["verdict"]), match["rationale"]) if match else UNPARSED


def parse_boxed(text: str) -> Verdict:
    r"""Reasoning, then the verdict as the last \boxed{1} or \boxed{-1} (RLAnything, section 3.2), for chat models.

    Deviation: the published parser falls back to any lone integer in the last box; here another content of it is no verdict.
    """
    boxes = list(_BOX.finditer(text))
    content = boxes[-1][1].strip() if boxes else ""
    if content not in ("1", "+1", "-1"):
        return UNPARSED
    rationale = text[: boxes[-1].start()].rpartition("</think>")[2].strip()
    return Verdict(int(content), rationale)
