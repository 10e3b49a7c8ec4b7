"""claims.md: every table with its command, its intervals and its plot, from the rows of finished runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import plots
from benchmarks.claims.arms import TABLES
from benchmarks.claims.rows import Results
from benchmarks.claims.runs import Plan
from benchmarks.claims.sections import SECTIONS, Section

_HEAD = """# Do the three parts help one another?

The claims of RLAnything (arXiv 2602.02488), measured on the household world with generated games. An arm is configs/demo.py with
a few overrides, listed in [arms.py](claims/arms.py); all arms of a seed start from the same warm start and are compared with one
another seed by seed. `a -> b` is a mean over seeds before and after; brackets are 95 % bootstrap intervals over seeds (10,000
resamples); p is two-sided, of a sign-flip permutation test on the paired differences: with n seeds it is 2^(1-n) at least, so
five seeds cannot reach 5 %. **A claim whose interval includes 0, or that rests on one seed, is written as not shown.** An
interval of very few seeds is too narrow, as bootstrap intervals of small samples are.

'Success' is on held-out games of known rooms, sampled; 'OOD' on unknown rooms and unknown pairs of things and places. A judge's
process accuracy (balanced) and AUC are of its verdicts against the planner's labels, its outcome accuracy of their mean over an
episode against the outcome. Before is the judge of the warm start, after the trained one, both on the same episodes: those of
the policy at the end of the run, or, where it says 'start', of the warm start's policy.
"""


def write_report(plan: Plan) -> Path:
    """Writes claims.md, or claims_small.md, and its plots; returns its path."""
    results = Results(plan.results, plan.marks())
    path = plan.results.parent / ("claims_small.md" if plan.small else "claims.md")
    parts = [_HEAD, _state(results, plan)]
    for name, section in SECTIONS.items():
        parts.append(_section(name, section, results, plan))
    plan.results.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))
    return path


def command(table: str, plan: Plan) -> str:
    """The command that makes a table."""
    words = ["python -m benchmarks.claims", table]
    words += [f"--iterations={plan.iterations}"] * bool(plan.iterations) + ["--small"] * plan.small
    return " ".join(words)


def _state(results: Results, plan: Plan) -> str:
    """Which rows there are, of which code."""
    rows = results.all_rows()
    commits = sorted({row["commit"] for row in rows})
    text = (
        f"{len(rows)} finished rows, of commits {', '.join(commits)} ('+': with changes)."
        if rows
        else "No finished rows yet."
    )
    if results.stale:
        text += f" Rows of other configs are left out: {', '.join(results.stale)}."
    return textwrap.fill(text, 130, break_on_hyphens=False) + "\n"


def _section(name: str, section: Section, results: Results, plan: Plan) -> str:
    arms = plan.arms(name)
    lines = [f"## {section.title}", "", f"    {command(name, plan)}", ""]
    there = [arm for arm in arms if results.rows(arm)]
    if not there:
        return "\n".join([*lines, "No finished runs: the command above makes them.", ""])
    if lacking := [arm for arm in arms if arm not in there]:
        lines += [f"Not run yet: {', '.join(map(short, lacking))}.", ""]
    lines += [*notes(results, there), *section.body(results, arms)]
    picture = plan.results / f"{'small_' * plan.small}{name}.svg"
    if plots.draw(name, results, there, picture):
        lines += ["", f"![{section.title}]({picture.relative_to(plan.results.parent)})"]
    return "\n".join([*lines, ""])


def notes(results: Results, arms: Sequence[str]) -> list[str]:
    """A warning where arms of a seed did not start from the same warm start, as they do if the code stays the same."""
    starts: dict[tuple, set[float]] = {}
    for arm in arms:
        if arm.rpartition("/")[2] in ("easy", "hard") or "horizon" in arm:
            continue  # evaluated on other games
        for seed, value in results.values(arm, "eval/success", "before").items():
            starts.setdefault((seed, "judge-" in arm and "alone" not in arm), set()).add(value)
    different = sorted({seed for (seed, _), values in starts.items() if len(values) > 1})
    if not different:
        return []
    return [
        f"**Seeds {', '.join(map(str, different))}: not all arms have the same success before training, so their warm starts "
        "differ.** They were run with different code; delete their rows and run them again.",
        "",
    ]


def short(arm: str) -> str:
    """An arm's name in a table."""
    return arm.rpartition("/")[2]


assert set(SECTIONS) == set(TABLES)
