"""The claims: statistics with known answers, what is run once, rows, and a report that says what is not there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from benchmarks.claims import arms, sections
from benchmarks.claims.__main__ import main
from benchmarks.claims.agreement import compare
from benchmarks.claims.rows import Results, make_row, row_path, write_row
from benchmarks.claims.runs import Plan
from benchmarks.claims.stats import bootstrap, entropy, line, paired, sign_flip_p
from benchmarks.claims.tasks import diversity, linearity, success_by_period
from benchmarks.claims.theory import Point, bins
from rlanything_jax.check import check
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.pretrain.warm_start import _fingerprint


def make_plan(folder: Path, **changes: Any) -> Plan:
    options = dict(tables=["ablation"], seeds=2, small=False, iterations=None)
    return Plan(**(options | changes), results=folder / "results", workdir=folder / "runs")


def row_of(plan: Plan, arm: str, seed: int, success: float, **more: Any) -> dict[str, Any]:
    found = {
        "arm": arm,
        "hash": plan.marks()[arm],
        "seed": seed,
        "commit": "abc",
        "iterations": 3,
        "seconds": 60.0,
        "tokens": 1e6,
    }
    measured = {"eval/success": success, "eval/success_ood": success / 2}
    return (
        found
        | {
            "before": {"eval/success": 0.25},
            "after": measured,
            "curves": {"eval/success": [[0, 2], [0.25, success]]},
        }
        | more
    )


def keep(plan: Plan, row: dict[str, Any]) -> None:
    write_row(row_path(plan.results, row["arm"], row["hash"], row["seed"]), row)


def test_sign_flips_of_three_positive_pairs() -> None:
    """Of the eight sign patterns only all plus and all minus are as far from 0."""
    assert sign_flip_p([0.1, 0.2, 0.3]) == 2 / 8
    assert sign_flip_p([0.1, -0.1]) == 1.0
    assert 0 < sign_flip_p([1.0] * 20) < 0.01


def test_the_bootstrap_interval_of_many_values_is_that_of_the_mean() -> None:
    values = np.random.default_rng(1).normal(2.0, 1.0, 400)
    found = bootstrap(values)
    assert found.mean == pytest.approx(values.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.06)
    assert bootstrap([0.5]) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="no values"):
        bootstrap([])


def test_pairs_are_seeds_that_both_arms_have() -> None:
    found = paired({0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.5, 7: 0.0})
    assert found and found.seeds == (0, 1) and found.mean == pytest.approx(0.15) and found.shown
    single = paired({0: 0.5}, {0: 0.4})
    assert single and not single.shown
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_entropy_and_lines() -> None:
    assert entropy([4, 4]) == 1.0 and entropy([3]) == entropy([]) == 0.0
    assert line([0, 1, 2], [1, 3, 5]) == pytest.approx((2.0, 1.0))
    with pytest.raises(ValueError, match="at least 2"):
        line([0], [1])


def test_a_claim_whose_interval_holds_0_is_not_shown() -> None:
    assert "**shown**" in sections.claim_line("a", paired({0: 2.0, 1: 3.0}, {0: 1.0, 1: 1.0}))
    assert "**the opposite is shown**" in sections.claim_line("a", paired({0: 1.0, 1: 1.0}, {0: 2.0, 1: 3.0}))
    assert "**not shown**" in sections.claim_line("a", paired({0: 1.0, 1: 0.0}, {0: 0.0, 1: 1.0}))
    assert "no seed" in sections.claim_line("a", None)


@pytest.mark.parametrize("small", [False, True])
def test_every_arm_is_a_config_that_can_run(small: bool) -> None:
    for table in arms.TABLES:
        for name in arms.arms_of(table, small=small):
            check(arms.get_config(name).lock())


def test_an_unknown_arm_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown arm 'luck'"):
        arms.get_config("luck")


def test_all_arms_but_those_of_the_horizon_share_a_warm_start() -> None:
    """What the hash of a warm start is made of, with one and the same tokenizer."""
    tokenizer = build_tokenizer(["put a mug"], [])

    def keys(name: str) -> list[str]:
        return [
            _fingerprint(arms.get_config(name), tokenizer, stage) for stage in ("policy", "judge", "rewriter")
        ]

    same = [name for name in arms.ARMS if name[:10] not in ("horizon-35", "horizon-50")]
    assert all(keys(name) == keys("env") for name in same)
    assert keys("horizon-50-reward") == keys("horizon-50-outcome") != keys("env")


def test_seeds_do_not_change_a_hash_and_settings_do() -> None:
    config = arms.get_config("env")
    mark = arms.config_hash(config)
    config.seed = config.world.seed = 4
    config.record_rollouts = 7
    assert arms.config_hash(config) == mark
    config.feedback.lam = 0.123
    assert arms.config_hash(config) != mark


def test_arms_with_equal_configs_run_once_and_rows_are_not_made_again(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, tables=["ablation", "tasks"], seeds=3)
    jobs = [job.name for job in plan.missing(2)]
    assert jobs[:4] == ["outcome, seed 0", "outcome, seed 1", "policy, seed 0", "policy, seed 1"]
    assert len(jobs) == len(set(jobs)) == 12 and jobs[-1] == "env, seed 2"  # 'tasks' reads env's
    keep(plan, row_of(plan, "policy", 1, 0.5))
    assert "policy, seed 1" not in [job.name for job in plan.missing(2)]
    other = make_plan(tmp_path, iterations=7)
    assert "policy, seed 1" in [job.name for job in other.missing(2)]


def test_rows_of_another_config_are_left_out(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    keep(plan, row_of(plan, "env", 0, 0.5))
    keep(plan, row_of(plan, "env", 1, 0.9) | {"hash": "0ld"})
    results = Results(plan.results, plan.marks())
    assert results.values("env", "eval/success") == {0: 0.5} and results.stale == ["env"]


def test_a_row_keeps_what_tables_need(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"votes_per_step": 3, "adapt_tasks": False}))
    metrics = [
        {"iteration": i, "eval/success": 0.25 * i, "time/iteration_s": 2.0, "rollout/tokens": 10.0}
        for i in range(3)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    judged = [
        {"policy": "last", "judge": "first", "judge/auc": 0.6},
        {"policy": "last", "judge": "last", "judge/auc": 0.7},
        {"policy": "first", "judge": "last", "judge/auc": 0.8},
    ]
    row = make_row(tmp_path, arm="env", mark="m", seed=5, judged=judged)
    assert row["curves"] == {"eval/success": [[0, 1, 2], [0.0, 0.25, 0.5]]}
    assert row["before"] == {"eval/success": 0.0, "eval/auc": 0.6}
    assert row["after"] == {"eval/success": 0.5, "eval/auc": 0.7, "start/auc": 0.8}
    assert (row["seconds"], row["tokens"], row["iterations"]) == (6.0, 30, 3)


def test_a_report_without_runs_says_how_to_make_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--report", f"--results={tmp_path / 'results'}"]) == 0
    text = (tmp_path / "claims.md").read_text()
    for table in arms.TABLES:
        assert f"    python -m benchmarks.claims {table}\n\nNo finished runs" in text


def test_a_report_of_rows_has_tables_claims_and_plots(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    event = {
        "iteration": 1,
        "generation": 1,
        "direction": "easier",
        "accuracy_after": 0.5,
        "edit": "hint",
        "family": "look",
    }
    for seed in (0, 1, 2):
        keep(plan, row_of(plan, "outcome", seed, 0.5))
        theory = {key: [[0, 1, 2], [1.2, 1.3, 1.4]] for key in ("judge/mu", "theory/importance_ratio")}
        theory |= {
            f"theory/{key}": [[0, 1, 2], [0.5, 0.5, 0.5]]
            for key in ("precision", "precision_exact", "bound_paper", "bound_hoeffding")
        }
        curves = {
            "eval/success": [[0, 2], [0.25, 0.7]],
            "tasks/accepted_total": [[0, 1, 2], [0, 1, 2]],
            **theory,
        }
        more = {"accepted": [event], "audit": {"proposed": 2, "accepted": 1}, "curves": curves}
        keep(plan, row_of(plan, "env", seed, 0.7 + seed / 100, **more))
        keep(plan, row_of(plan, "reward", seed, 0.6, curves=curves))
    assert main(["--report", f"--results={plan.results}"]) == 0
    text = (tmp_path / "claims.md").read_text()
    assert "Not run yet: policy." in text
    assert (
        "all three together beat outcomes only (success, env - outcome): **shown**; difference +0.210" in text
    )
    assert "1 of 2" not in text and "3 of 6" in text  # accepted, of proposed
    assert "| 1.2-1.3 | 6 | 0.500 |" in text and "| all | 3 | 0.00 | 0.00 |" in text
    for name in ("ablation", "tasks", "theory"):
        assert (plan.results / f"{name}.svg").read_text().startswith("<?xml")


def test_different_starts_are_told(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    keep(plan, row_of(plan, "outcome", 0, 0.5))
    curves = {"eval/success": [[0, 2], [0.3, 0.5]], "tasks/accepted_total": [[0, 1, 2], [0, 0, 0]]}
    more = {"before": {"eval/success": 0.3}, "curves": curves, "accepted": [], "audit": {}}
    keep(plan, row_of(plan, "env", 0, 0.5) | more)
    main(["--report", f"--results={plan.results}"])
    assert (
        "Seeds 0: not all arms have the same success before training" in (tmp_path / "claims.md").read_text()
    )


def test_of_adapted_tasks() -> None:
    row = {
        "iterations": 6,
        "curves": {
            "tasks/accepted_total": [[0, 1, 2], [1, 2, 3]],
            "rollout/success_rewritten": [[1, 5], [0.5, 0.75]],
        },
    }
    assert linearity(row) == pytest.approx((1.0, 1.0))
    assert success_by_period(row) == [0.5, None, 0.75]
    assert diversity([{"edit": "hint", "family": "a"}, {"edit": "open", "family": "a"}]) == (1.0, 0.0)


def test_bins_of_mu_count_what_is_below_a_bound() -> None:
    (found,) = bins([Point(1.05, 0.2, 0.3, 0.1, 0.25), Point(1.06, 0.4, 0.3, 0.1, 0.25)])
    assert found[0] == "1-1.1" and found[1] == 2 and found[2].precision == pytest.approx(0.3)
    assert found[3:] == (0.0, 0.5)


def test_agreement_counts_only_labelled_steps_with_a_signal() -> None:
    found = compare(np.array([1.0, -2.0, 0.0, 1.0, 1.0]), np.array([1, -1, 1, -1, 0]))
    assert found == pytest.approx({"coverage": 3 / 4, "agreement": 2 / 3, "balanced": (1 + 1 / 2) / 2})


def test_a_dry_run_prints_the_missing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "ablation",
                "--seeds=1",
                "--dry-run",
                f"--results={tmp_path / 'results'}",
                f"--workdir={tmp_path}",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all("-m rlanything_jax.train" in line for line in lines)
    assert "arms.py:outcome" in lines[0] and "--config.seed=0" in lines[0]


def test_a_run_from_end_to_end(
    make_tiny: Callable[[], ConfigDict],
    compiled: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One iteration of a tiny arm, its judges compared, its row kept, and nothing to do the second time."""
    tiny = tmp_path / "arms.py"
    cache = make_tiny().pretrain.cache
    tiny.write_text(
        "from tests.tiny_config import get_config as base\n"
        "def get_config(name):\n"
        f"    config = base(); config.iterations = 1; config.pretrain.cache = {cache!r}\n"
        "    config.train_judge = False\n"
        "    return config\n"
    )
    from benchmarks.claims import runs
    from tests.tiny_config import get_config as base

    def config(self: Plan, arm: str) -> ConfigDict:
        found = base()
        found.iterations, found.pretrain.cache, found.train_judge = 1, cache, False
        return found

    monkeypatch.setattr(runs, "ARMS_FILE", tiny)
    monkeypatch.setattr(Plan, "config", config)
    for name, value in (compiled | {"JAX_PLATFORMS": "cpu"}).items():
        monkeypatch.setenv(name, value)
    plan = make_plan(tmp_path, seeds=1)
    (job,) = plan.missing(1)  # all arms are one here
    failed = runs.run_all([job], runs.Processes(), 1)
    assert not failed, job.log.read_text()[-3000:]
    (path,) = plan.results.glob("*.json")
    row = json.loads(path.read_text())
    assert row["arm"] == "outcome" and row["iterations"] == 1 and 0 <= row["after"]["eval/success"] <= 1
    assert row["audit"].keys() or row["accepted"] == []
    assert plan.missing(1) == []
