"""Which trajectories are shown and what a step looks like."""

import re

from rlanything_jax.report.trajectories import choose_pairs, choose_singles, samples


def row(iteration: int, task: str, outcome: int, kind: str = "train", steps: int = 1, **step: object) -> dict:
    return {
        "iteration": iteration, "task": task, "kind": kind, "outcome": outcome, "instruction": f"do {task}",
        "steps": [{"observation": "o", "response": "r", "action": "look", **step} for _ in range(steps)],
    }  # fmt: skip


def test_pairs_are_the_same_task_early_and_late_learned_ones_first() -> None:
    rows = [
        row(0, "a", 1),
        row(0, "b", 1),
        row(0, "b", -1),
        row(0, "c", -1),
        row(9, "a", 1),
        row(9, "b", 1),
        row(9, "d", 1),
    ]
    pairs = choose_pairs(rows)
    assert [(early["task"], late["task"]) for early, late in pairs] == [("b", "b"), ("a", "a")]
    assert [early["outcome"] for early, _ in pairs] == [-1, 1]


def test_training_and_evaluation_are_not_compared() -> None:
    assert choose_pairs([row(0, "a", -1, "train"), row(9, "a", 1, "eval")]) == []


def test_one_iteration_has_no_pairs() -> None:
    assert choose_pairs([row(3, "a", -1), row(3, "a", 1)]) == []
    assert choose_singles([]) == []


def test_singles_show_both_outcomes_of_both_ends() -> None:
    rows = [row(i, f"t{k}", outcome) for i in (0, 9) for k in range(5) for outcome in (-1, 1)]
    chosen = choose_singles(rows)
    assert [(r["iteration"], r["outcome"]) for r in chosen] == [
        *[(0, 1)] * 2, *[(0, -1)] * 2, *[(9, 1)] * 2, *[(9, -1)] * 2,
    ]  # fmt: skip


def test_a_step_shows_votes_label_reward_and_what_was_inadmissible() -> None:
    verdicts = [
        {"text": "good since", "score": 1},
        {"text": "bad since", "score": -1},
        {"text": "?!", "score": 0},
    ]
    html = samples(
        [row(0, "a", 1, admissible=False, label=-1, reward=1.0, advantage=-0.254, verdicts=verdicts)]
    )
    votes = re.search(r'<span class="votes">(.*?)</span>', html)[1]
    assert re.findall(r'chip (\w+)">([^<]*)<', votes) == [("good", "+1"), ("bad", "−1"), ("none", "?")]
    assert '<i class="truth bad">−1</i>' in html and ">inadmissible<" in html
    assert "+1.00" in html and "−0.25" in html and "good since" in html


def test_an_evaluation_has_no_votes_and_no_numbers() -> None:
    html = samples([row(0, "a", -1, "eval", admissible=True)])
    assert (
        "chip" not in html
        and "inadmissible" not in html
        and 'class="num' not in html
        and "truth " not in html
    )


def test_the_middle_of_a_long_trajectory_is_left_out() -> None:
    html = samples([row(0, "a", -1, steps=50)])
    assert re.findall(r'<span class="n">(\d+)<', html) == [str(i) for i in (*range(1, 21), *range(45, 51))]
    assert "24 steps left out" in html
