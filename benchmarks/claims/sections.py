"""What each table of claims.md shows and claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.claims.rows import Results
from benchmarks.claims.stats import Difference, bootstrap, paired
from benchmarks.claims.tasks import tasks_body
from benchmarks.claims.theory import theory_body

NAMES = {
    "eval/success": "success",
    "eval/success_ood": "success OOD",
    "eval/balanced_accuracy": "process accuracy",
    "eval/auc": "AUC",
    "eval/outcome_accuracy": "outcome accuracy",
    "start/balanced_accuracy": "process accuracy, start",
    "start/auc": "AUC, start",
    "rollout/inadmissible": "inadmissible",
}
POLICY = ("eval/success", "eval/success_ood")
JUDGE = ("eval/balanced_accuracy", "eval/auc", "eval/outcome_accuracy")


class Claim(NamedTuple):
    """That one arm's metric is above another's."""

    text: str
    better: str
    worse: str
    key: str = "eval/success"


class Section(NamedTuple):
    title: str
    body: Callable[[Results, Sequence[str]], list[str]]  # the lines below the command


def table(results: Results, arms: Sequence[str], keys: Sequence[str]) -> list[str]:
    """A row an arm: seeds, each metric before and after with its interval, and what a run took."""
    lines = ["| arm | seeds | " + " | ".join(NAMES[key] for key in keys) + " | minutes | M tokens |"]
    lines.append("|---" * (len(keys) + 4) + "|")
    for arm in arms:
        rows = results.rows(arm)
        if rows:
            cells = [_cell(results, arm, key) for key in keys]
            cost = [
                sum(row[k] for row in rows.values()) / len(rows) / by
                for k, by in (("seconds", 60), ("tokens", 1e6))
            ]
            lines.append(
                f"| {_short(arm)} | {len(rows)} | {' | '.join(cells)} | {cost[0]:.1f} | {cost[1]:.2f} |"
            )
    return lines


def _cell(results: Results, arm: str, key: str) -> str:
    before, after = (results.values(arm, key, when) for when in ("before", "after"))
    if not after:
        return ""
    mean, low, high = bootstrap(list(after.values()))
    start = f"{sum(before.values()) / len(before):.3f} -> " if before else ""
    return f"{start}{mean:.3f} [{low:.3f}, {high:.3f}]"


def claim_line(text: str, found: Difference | None) -> str:
    """One claim with its verdict."""
    if found is None:
        return f"- {text}: no seed has both runs."
    verdict = (
        "**not shown**" if not found.shown else "**shown**" if found.mean > 0 else "**the opposite is shown**"
    )
    return (
        f"- {text}: {verdict}; difference {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}], p = {found.p:.3f}, "
        f"{len(found.seeds)} seeds."
    )


def claims(results: Results, arms: Sequence[str], made: Sequence[Claim]) -> list[str]:
    """The claims of arms that are in the table."""
    full = {_short(arm): arm for arm in arms}
    return [
        claim_line(
            f"{claim.text} ({NAMES[claim.key]}, {claim.better} - {claim.worse})",
            paired(
                results.values(full[claim.better], claim.key), results.values(full[claim.worse], claim.key)
            ),
        )
        for claim in made
        if claim.better in full and claim.worse in full
    ]


def improvement(results: Results, arm: str, key: str) -> Difference | None:
    """After training against before, over seeds."""
    return paired(results.values(arm, key), results.values(arm, key, "before"))


def _compared(
    keys: Sequence[str], made: Sequence[Claim], note: str = "", improves: Sequence[str] = ()
) -> Callable[[Results, Sequence[str]], list[str]]:
    """A section of a table, its claims, and for the arms of `improves` that training helped their judge."""

    def body(results: Results, arms: Sequence[str]) -> list[str]:
        lines = [*([note, ""] if note else []), *table(results, arms, keys), ""]
        lines += claims(results, arms, made)
        lines += [
            claim_line(
                f"training improves the judge of {_short(arm)} ({NAMES[key]})", improvement(results, arm, key)
            )
            for arm in arms
            if _short(arm) in improves
            for key in ("eval/balanced_accuracy", "eval/auc")
        ]
        return lines

    return body


def _both(text: str, better: str, worse: str) -> list[Claim]:
    return [Claim(text, better, worse, key) for key in POLICY]


def _adaptation(others: Sequence[str]) -> list[Claim]:
    return [
        claim for other in others for claim in _both(f"rewriting from critiques beats {other}", "env", other)
    ]


def _judge_body(results: Results, arms: Sequence[str]) -> list[str]:
    """Agreement of the signals before training, then what each estimator makes of the judge."""
    lines = ["Sign of the signal against the planner's label, warm-started policy, before any training:", ""]
    rows = results.rows("agreement")
    if rows:
        names = list(next(iter(rows.values()))["signals"])
        lines += [f"| signal ({len(rows)} seeds) | coverage | agreement | balanced |", "|---|---|---|---|"]
        for name in names:
            found = [row["signals"].get(name, {}) for row in rows.values()]
            cells = [[f[key] for f in found if key in f] for key in ("coverage", "agreement", "balanced")]
            shown = (f"{sum(c) / len(c):.3f}" if c else "" for c in cells)
            lines.append(f"| {name} | {' | '.join(shown)} |")
    else:
        lines.append("Not measured yet.")
    keys = ("start/balanced_accuracy", "start/auc")
    lines += [
        "",
        "After training the judge alone, the policy as it was: the same held-out episodes before and after.",
        "",
    ]
    lines += [*table(results, arms, keys), ""]
    for arm in arms:
        differences = [improvement(results, arm, key) for key in keys]
        if all(differences):
            points = ", ".join(f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]" for d in differences if d)
            every = _every_seed(results, arm, keys)
            lines.append(f"- {_short(arm)}: {points}; better in both on {every[0]} of {every[1]} seeds.")
    return lines


def _every_seed(results: Results, arm: str, keys: Sequence[str]) -> tuple[int, int]:
    """On how many seeds all metrics rose, and how many seeds there are."""
    rows = [row for row in results.rows(arm).values() if all(key in row["after"] for key in keys)]
    return sum(all(row["after"][key] > row["before"][key] for key in keys) for row in rows), len(rows)


def _horizon_body(results: Results, arms: Sequence[str]) -> list[str]:
    """The gain of the integrated reward by the length of episodes, and whether it grows."""
    lines = [
        "Each length has its own games (more receptacles and things) and so its own warm start. Gain: reward - outcome.",
        "",
        *table(results, arms, POLICY),
        "",
    ]
    gains: dict[int, dict[int, float]] = {}
    full = {_short(arm): arm for arm in arms}
    lengths = sorted({int(_short(arm).split("-")[1]) for arm in arms})
    for length in lengths:
        better, worse = (
            results.values(full[f"horizon-{length}-{arm}"], "eval/success") for arm in ("reward", "outcome")
        )
        gains[length] = {seed: better[seed] - worse[seed] for seed in better.keys() & worse.keys()}
        lines.append(
            claim_line(f"integrated reward helps with episodes of {length} steps", paired(better, worse))
        )
    first, last = lengths[0], lengths[-1]
    lines.append(
        claim_line(
            f"its gain is larger with {last} steps than with {first}", paired(gains[last], gains[first])
        )
    )
    return lines


def _short(arm: str) -> str:
    return arm.rpartition("/")[2]


SECTIONS: dict[str, Section] = {
    "ablation": Section(
        "Ablation: outcome only, policy, + reward, + env",
        _compared(
            (*POLICY, *JUDGE, "start/balanced_accuracy", "start/auc"),
            [
                *_both("the integrated reward beats outcomes only", "policy", "outcome"),
                *_both("a judge that learns helps the policy", "reward", "policy"),
                *_both("tasks that adapt help the policy", "env", "reward"),
                *_both("all three together beat outcomes only", "env", "outcome"),
                Claim("tasks that adapt help the judge", "env", "reward", "start/balanced_accuracy"),
                Claim("tasks that adapt help the judge", "env", "reward", "start/auc"),
            ],
            improves=("reward", "env"),
        ),
    ),
    "signal": Section(
        "The judge's signal alone",
        _compared(
            (*POLICY, "rollout/inadmissible"),
            [
                *_both(
                    "the votes of a frozen judge, without outcomes, beat outcomes only",
                    "judge-alone-frozen",
                    "outcome",
                ),
                *_both(
                    "the votes of a judge that learns, without outcomes, beat outcomes only",
                    "judge-alone",
                    "outcome",
                ),
                *_both(
                    "training the judge helps where its votes are all there is",
                    "judge-alone",
                    "judge-alone-frozen",
                ),
                *_both(
                    "outcome and votes beat outcome and label-free evidence without a judge",
                    "reward",
                    "evidence",
                ),
                *_both("label-free evidence without a judge beats outcomes only", "evidence", "outcome"),
            ],
            note="'evidence' adds to the outcome whether a step led to a new state, in place of votes; '-alone' has no outcome.",
        ),
    ),
    "lam": Section(
        "Weight of the votes in the policy's reward",
        _compared(
            (*POLICY, *JUDGE[:2]),
            [
                claim
                for lam in ("0.25", "1", "4")
                for claim in _both("votes of this weight help", f"lam-{lam}", "outcome")
            ],
            note="The judge learns, tasks stay; weight 0 is 'outcome'. The weight in the judge's own reward is as always.",
        ),
    ),
    "votes": Section(
        "Votes a step",
        _compared(
            (*POLICY, *JUDGE),
            [
                *_both("six votes beat three", "votes-6", "votes-3"),
                *_both("twelve votes beat three", "votes-12", "votes-3"),
                *_both("six votes beat one", "votes-6", "votes-1"),
            ],
            note="With one vote the judge is frozen: its advantages compare the votes of a step, so it needs two to learn.",
        ),
    ),
    "thresholds": Section(
        "Thresholds of the success rate at which tasks are rewritten",
        _compared(
            (*POLICY, *JUDGE[:2]),
            [
                *_both("0.1-0.9 beats 0.2-0.8", "thresholds-0.1-0.9", "thresholds-0.2-0.8"),
                *_both("0.3-0.7 beats 0.2-0.8", "thresholds-0.3-0.7", "thresholds-0.2-0.8"),
            ],
            note="The same bounds choose the tasks that the judge is trained on.",
        ),
    ),
    "tasks": Section("Tasks that adapt: how many, how hard, how diverse", tasks_body),
    "theory": Section("Theorems 1 and 2", theory_body),
    "adaptation": Section(
        "Adaptation against its alternatives at equal compute",
        _compared(
            (*POLICY, *JUDGE[:2]),
            _adaptation(("none", "progress", "filtered", "random-edits")),
            note=(
                "Arms without proposals play as many tasks more as proposals may wait, so 'env' never has more episodes. "
                "'filtered' leaves out tasks whose last success rate was outside of the thresholds."
            ),
        ),
    ),
    "judge": Section("Signals that teach the judge", _judge_body),
    "horizon": Section(
        "Does the gain of the integrated reward grow with the length of episodes?", _horizon_body
    ),
}
