"""A synthetic run directory that looks like a real one: curves, trajectories, a task pool with lineage."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOMS = ("cabinet", "drawer", "countertop", "shelf", "fridge", "sinkbasin", "microwave", "garbagecan")
THINGS = ("mug", "apple", "plate", "knife", "potato", "egg", "tomato", "bread", "spatula", "cup")
GOALS = (
    "put a hot {0} in the {1}",
    "put a clean {0} in the {1}",
    "cool some {0} and put it in the {1}",
    "put two {0}s in the {1}",
    "look at the {0} under the desklamp near the {1}",
)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_metrics(iterations: int, rng: random.Random) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    total = 0
    for i in range(iterations):
        t = i / max(1, iterations - 1)
        skill = 1 / (1 + math.exp(-7 * (t - 0.45)))
        proposed = rng.randint(0, 3) if i > 2 else 0
        accepted = min(proposed, rng.choice((0, 0, 1, 1, 2)))
        total += accepted
        p_plus, p_minus = 0.52 + 0.33 * t + rng.gauss(0, 0.02), 0.49 + 0.28 * t + rng.gauss(0, 0.02)
        seconds = {
            name: base * rng.uniform(0.9, 1.15)
            for name, base in (("rollout", 4.1), ("judge", 2.7), ("train", 3.2), ("adapt", 0.9), ("env", 0.4))
        }
        row = {
            "iteration": i,
            "rollout/success": min(1.0, max(0.0, 0.08 + 0.72 * skill + rng.gauss(0, 0.06))),
            "rollout/inadmissible": max(0.0, 0.31 * math.exp(-5 * t) + 0.01 + rng.gauss(0, 0.012)),
            "judge/balanced_accuracy": 0.5 + 0.33 * (1 - math.exp(-3 * t)) + rng.gauss(0, 0.015),
            "judge/auc": min(1.0, 0.52 + 0.4 * (1 - math.exp(-3 * t)) + rng.gauss(0, 0.015)),
            "judge/outcome_accuracy": min(1.0, 0.55 + 0.3 * t + rng.gauss(0, 0.03)),
            "judge/p_plus": p_plus,
            "judge/p_minus": p_minus,
            "judge/mu": p_plus + p_minus,
            "judge/parse_rate": min(1.0, 0.82 + 0.18 * (1 - math.exp(-9 * t))),
            "tasks/proposed": proposed,
            "tasks/accepted": accepted,
            "tasks/accepted_total": total,
            "theory/importance_ratio": math.exp(rng.gauss(3 * (t - 0.6), 0.5)),
            "sampler/logprob_gap": abs(rng.gauss(0, 3e-4)),
            "policy/kl": abs(rng.gauss(0.01, 0.004)),
            "policy/clip_fraction": abs(rng.gauss(0.05, 0.02)),
            "policy/entropy": 1.4 - 0.8 * t + rng.gauss(0, 0.03),
            **{f"time/{name}_s": value for name, value in seconds.items()},
            "time/iteration_s": sum(seconds.values()) + 0.5,
        }
        if i % 10 == 0 or i == iterations - 1:
            row["eval/success"] = min(1.0, max(0.0, 0.06 + 0.74 * skill + rng.gauss(0, 0.02)))
            row["eval/success_ood"] = min(1.0, max(0.0, 0.05 + 0.62 * skill + rng.gauss(0, 0.03)))
        rows.append(row)
    return rows


def make_goal(rng: random.Random) -> str:
    return rng.choice(GOALS).format(rng.choice(THINGS), rng.choice(ROOMS)) + "."


def make_trajectory(iteration: int, kind: str, task: int, skill: float, rng: random.Random) -> dict[str, Any]:
    goal = random.Random(task)
    won = rng.random() < skill
    count = rng.randint(6, 14) if won else rng.choice((22, 30, 50))
    steps = []
    for _ in range(count):
        place, thing = rng.choice(ROOMS), rng.choice(THINGS)
        number = rng.randint(1, 4)
        action = rng.choice(
            (
                f"go to {place} {number}",
                f"open {place} {number}",
                f"take {thing} 1 from {place} {number}",
                f"move {thing} 1 to {place} {number}",
                f"heat {thing} 1 with microwave 1",
                "look",
            )
        )
        label = 1 if rng.random() < 0.3 + 0.5 * skill else -1
        scores = [
            0 if rng.random() < 0.04 else label if rng.random() < 0.55 + 0.3 * skill else -label
            for _ in range(3)
        ]
        step: dict[str, Any] = {
            "observation": f"You arrive at {place} {number}. On it you see a {thing} 1, a fork 2, "
            f"and a dishsponge 1.",
            "response": f"The {thing} is likely to be in a {place}.\n<action>{action}</action>",
            "action": action,
            "admissible": rng.random() > 0.3 * (1 - skill),
            "label": label,
        }
        if kind != "eval":
            reward = (1 if won else -1) + sum(scores) / 3
            step |= {
                "verdicts": [
                    {
                        "text": f"It {'moves towards' if s > 0 else 'does nothing for'} the goal: {thing} "
                        f"{'is' if s > 0 else 'was never'} at {place} {number}. Verdict: {s:+d}",
                        "score": s,
                    }
                    for s in scores
                ],
                "reward": reward,
                "advantage": reward + rng.gauss(0, 0.4),
            }
        steps.append(step)
    return {
        "iteration": iteration,
        "kind": kind,
        "task": f"{'valid' if kind == 'eval' else 'train'}/{task:04d}",
        "parent": None,
        "generation": 0,
        "instruction": make_goal(goal),
        "rollout": 0,
        "outcome": 1 if won else -1,
        "steps": steps,
    }


def make_events(iterations: int, rng: random.Random) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    pool = [(f"train/{i:04d}", make_goal(random.Random(i)), 0) for i in range(max(4, iterations // 6))]
    for i in range(iterations):
        for k in range(rng.randint(0, 3)):
            task, instruction, generation = rng.choice(pool[-12:] if rng.random() < 0.6 else pool)
            harder = rng.random() < 0.6
            before = rng.choice((0.875, 1.0)) if harder else rng.choice((0.0, 0.125))
            words = instruction.split()
            words[rng.randrange(2, len(words))] = rng.choice(THINGS)
            common = {
                "iteration": i,
                "parent": task,
                "generation": generation + 1,
                "direction": "harder" if harder else "easier",
                "instruction": " ".join(words),
                "parent_instruction": instruction,
                "critique": "It opens every cabinet although the mug is always on the counter; nothing to "
                "search."
                if harder
                else "The agent looks for the apple in the wrong room and runs out of steps.",
                "edit": f"move {rng.choice(THINGS)} 1 to drawer 3; close drawer 3",
                "accuracy_before": before,
                "accuracy_after": None,
            }
            if rng.random() < 0.2:
                reason = rng.choice(
                    ("no knife can be sliced in this scene", "the goal already holds at the start")
                )
                events.append(common | {"event": "refused", "task": None, "reason": reason})
                continue
            new = f"{task}+{i}.{k}"
            events.append(common | {"event": "proposed", "task": new, "reason": ""})
            if i == iterations - 1:
                continue
            after = rng.choice((0.25, 0.375, 0.5, 0.625, 0.75, before))
            good = 0.2 <= after <= 0.8
            events.append(
                common
                | {
                    "event": "accepted" if good else "rejected",
                    "task": new,
                    "iteration": i + 1,
                    "accuracy_after": after,
                    "reason": "" if good else f"accuracy stayed at {after:.3g}",
                }
            )
            if good:
                pool.append((new, " ".join(words), generation + 1))
    return events


def make_run(folder: Path, iterations: int = 40, seed: int = 0, rollouts: int = 24) -> Path:
    """Write a run directory; only the ends of the run and its evaluations have trajectories."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "seed": seed,
        "iterations": iterations,
        "world": {"name": "alfworld", "data": "json_2.1.1"},
        "tasks_per_iteration": 16,
        "rollouts_per_task": 8,
        "votes_per_step": 3,
        "train_policy": True,
        "train_judge": True,
        "adapt_tasks": True,
        "feedback": {"lam": 1.0, "estimator": "centred"},
        "adapt": {"low": 0.2, "high": 0.8},
        "policy": {"preset": "tiny", "learning_rate": 3e-4},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    metrics = make_metrics(iterations, rng)
    write_lines(folder / "metrics.jsonl", metrics)
    write_lines(folder / "tasks.jsonl", make_events(iterations, rng))
    for row in metrics:
        i = row["iteration"]
        rows = []
        if i < 3 or i >= iterations - 3 or "eval/success" in row:
            skill = row["rollout/success"]
            rows = [make_trajectory(i, "train", rng.randrange(24), skill, rng) for _ in range(rollouts)]
            if "eval/success" in row:
                rows += [make_trajectory(i, "eval", 100 + k, row["eval/success"], rng) for k in range(12)]
        write_lines(folder / "trajectories" / f"{i:05d}.jsonl", rows)
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "demo")


@pytest.fixture
def run_maker() -> Callable[..., Path]:
    return make_run
