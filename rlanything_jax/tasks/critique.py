"""What the judge has against the attempts at a task, in one line for the rewriter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

NO_CRITIQUE = "nothing wrong"


def summarise(rationales: Iterable[str], *, most: int = 2) -> str:
    """The commonest rationales of votes that said -1, most frequent first; ties in alphabetical order.

    The paper lets a language model summarise failed trajectories; here the judge's own words are counted, so
    that no critique says what no vote said.
    """
    counts = Counter(rationale for rationale in rationales if rationale)
    common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return "; ".join(text for text, _ in common) or NO_CRITIQUE
