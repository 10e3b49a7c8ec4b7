"""Sample trajectories as HTML: one task early and late side by side, then more of both ends, step by step."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from rlanything_jax.report.read import Row
from rlanything_jax.report.text import shown, signed

PAIRS = 3
SINGLES = 8
STEPS = (20, 6)  # of a long trajectory, its first and its last steps are shown
OBSERVATION, RESPONSE, RATIONALE = 500, 700, 300  # characters shown of each text
VERDICTS = 5  # votes shown of each step


def samples(rows: Sequence[Row]) -> str:
    """The section of trajectories: at most PAIRS comparisons and SINGLES others, '' for no rows."""
    pairs = choose_pairs(rows)
    paired = {id(row) for pair in pairs for row in pair}
    singles = choose_singles([row for row in rows if id(row) not in paired])
    blocks = [
        f'<article class="pair"><h3>{shown(early.get("instruction"), 300)}</h3>{_origin(early)}'
        f'<div class="sides">{_trajectory("Early", early)}{_trajectory("Late", late)}</div></article>'
        for early, late in pairs
    ]
    blocks += [
        f'<details class="single"><summary>{_outcome(row)} '
        f"<span>{shown(row.get('instruction'), 300)}</span>"
        f"<small>iteration {escape(str(row.get('iteration')))}, {_kind(row)}, "
        f"{_count(len(row['steps']), 'step')}</small></summary>{_origin(row)}{_steps(row['steps'])}</details>"
        for row in singles
    ]
    return "".join(blocks)


def choose_pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """(early, late) trajectories of one task, one pair a task, those that learned to succeed first."""
    iterations = sorted({row["iteration"] for row in rows})
    if len(iterations) < 2:
        return []
    middle = (iterations[0] + iterations[-1]) / 2
    by_task: dict[tuple[Any, Any], tuple[list[Row], list[Row]]] = {}
    for row in rows:
        by_task.setdefault((row.get("task"), row.get("kind")), ([], []))[row["iteration"] > middle].append(
            row
        )
    pairs = []
    for early, late in by_task.values():
        if early and late:
            first = min(early, key=lambda row: (_won(row), row["iteration"]))
            last = max(late, key=lambda row: (_won(row), row["iteration"], -len(row["steps"])))
            pairs.append((first, last))

    def preference(pair: tuple[Row, Row]) -> tuple[bool, bool, bool]:
        early, late = pair
        return (_won(late) > _won(early), _won(late), any(step.get("verdicts") for step in early["steps"]))

    tasks: dict[Any, tuple[Row, Row]] = {}
    for pair in sorted(pairs, key=preference, reverse=True):
        tasks.setdefault(pair[0].get("task"), pair)
    return list(tasks.values())[:PAIRS]


def choose_singles(rows: Sequence[Row]) -> list[Row]:
    """Up to SINGLES trajectories: success and failure at each end of the run, judged ones first."""
    if not rows:
        return []
    middle = (min(row["iteration"] for row in rows) + max(row["iteration"] for row in rows)) / 2
    chosen: list[Row] = []
    for late in (False, True):
        for won in (True, False):
            group = [row for row in rows if (row["iteration"] > middle) == late and _won(row) == won]
            group.sort(
                key=lambda row: (not any(step.get("verdicts") for step in row["steps"]), row["iteration"])
            )
            distinct = {row.get("task"): row for row in reversed(group)}
            chosen += list(reversed(distinct.values()))[: SINGLES // 4]
    return chosen


def _won(row: Row) -> bool:
    outcome = row.get("outcome")
    return isinstance(outcome, int | float) and outcome > 0


def _kind(row: Row) -> str:
    return {"train": "training", "verify": "verifying a rewrite", "eval": "held out"}.get(
        str(row.get("kind")), "rollout"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _outcome(row: Row) -> str:
    return '<b class="tag good">success</b>' if _won(row) else '<b class="tag bad">failure</b>'


def _origin(row: Row) -> str:
    parent = row.get("parent")
    rewrite = f", a rewrite of <code>{shown(parent, 120)}</code>" if parent else ""
    return f'<p class="origin">task <code>{shown(row.get("task"), 120)}</code>{rewrite}</p>'


def _trajectory(title: str, row: Row) -> str:
    return (
        f'<section class="side"><header><h4>{title}</h4>{_outcome(row)}<small>iteration '
        f"{escape(str(row['iteration']))}, {_kind(row)}, {_count(len(row['steps']), 'step')}</small></header>"
        f"{_steps(row['steps'])}</section>"
    )


def _steps(steps: Sequence[Row]) -> str:
    head, tail = STEPS
    numbered = [(i, step) for i, step in enumerate(steps, 1) if isinstance(step, dict)]
    skipped = len(numbered) - head - tail
    if skipped <= 1:
        items: Iterable[str] = (_step(i, step) for i, step in numbered)
    else:
        gap = f'<li class="gap">{skipped} steps left out</li>'
        items = (*(_step(*s) for s in numbered[:head]), gap, *(_step(*s) for s in numbered[-tail:]))
    legend = '<div class="heads" aria-hidden="true"><span>action</span><span>judge</span><span>truth</span>'
    return f'{legend}<span>R</span><span>A</span></div><ol class="steps">{"".join(items)}</ol>'


def _step(number: int, step: Row) -> str:
    verdicts = [v for v in step.get("verdicts") or () if isinstance(v, dict)]
    chips = "".join(_chip(verdict.get("score")) for verdict in verdicts[:VERDICTS])
    more = f"<small>+{len(verdicts) - VERDICTS}</small>" if len(verdicts) > VERDICTS else ""
    label = step.get("label")
    truth = f'<i class="truth {_sign(label)}">{_sign_text(label)}</i>' if label in (-1, 1) else ""
    bad = '<b class="tag bad" title="the environment did not offer this action">inadmissible</b>'
    rationales = "".join(
        f"<li>{_chip(verdict.get('score'))}<span>{shown(verdict.get('text'), RATIONALE)}</span></li>"
        for verdict in verdicts[:VERDICTS]
    )
    judge = f'<dt>Judge</dt><dd><ul class="rationales">{rationales}</ul></dd>' if rationales else ""
    numbers = "".join(
        f'<span class="num {color}"><em>{name} </em>{signed(step.get(key))}</span>'
        for key, name, color in (("reward", "R", ""), ("advantage", "A", _sign(step.get("advantage"))))
        if step.get(key) is not None
    )
    return (
        f'<li><details><summary><span class="n">{number}</span><code class="action">'
        f"{shown(step.get('action'), 160)}</code>{bad if step.get('admissible') is False else ''}"
        f'<span class="votes">{chips}{more}</span><span class="label">{truth}</span>{numbers}</summary>'
        f"<dl><dt>Observation</dt><dd>{shown(step.get('observation'), OBSERVATION)}</dd>"
        f"<dt>Response</dt><dd>{shown(step.get('response'), RESPONSE)}</dd>"
        f"{judge}</dl></details></li>"
    )


def _chip(score: Any) -> str:
    return f'<i class="chip {_sign(score)}">{_sign_text(score)}</i>'


def _sign(value: Any) -> str:
    """The CSS class of a number's sign."""
    if not isinstance(value, int | float) or value == 0:
        return "none"
    return "good" if value > 0 else "bad"


def _sign_text(score: Any) -> str:
    return {"good": "+1", "bad": "−1", "none": "?"}[_sign(score)]
