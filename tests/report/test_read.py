"""Reading run directories: torn lines, resumed runs, non-finite values, missing files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlanything_jax.report.read import flatten, moving_average, read_run, series
from rlanything_jax.report.summary import before_after


def test_reads_every_part(run_folder: Path) -> None:
    run = read_run(run_folder)
    assert [row["iteration"] for row in run.metrics] == list(range(40))
    assert run.config["world"]["name"] == "alfworld"
    assert run.events and run.unread == 0
    # the three first and last files and the first and last evaluated iterations (0 and 39)
    assert sorted({row["iteration"] for row in run.trajectories}) == [0, 1, 2, 37, 38, 39]


def test_first_and_last_evaluations_are_read(run_folder: Path) -> None:
    path = run_folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["iteration"] in (0, 39):
            del row["eval/success"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = sorted({row["iteration"] for row in read_run(run_folder).trajectories})
    assert found == [0, 1, 2, 10, 30, 37, 38, 39]


def test_torn_last_line_is_skipped_and_counted(run_folder: Path) -> None:
    with (run_folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"iteration": 40, "rollout/success": 0.\xe2\x82')
    run = read_run(run_folder)
    assert run.metrics[-1]["iteration"] == 39
    assert run.unread == 1


def test_line_logged_last_wins_after_a_resume(tmp_path: Path) -> None:
    rows = [
        {"iteration": i, "rollout/success": v} for i, v in ((0, 0.1), (1, 0.2), (2, 0.9), (1, 0.3), (2, 0.4))
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert series(read_run(tmp_path).metrics, "rollout/success") == ([0, 1, 2], [0.1, 0.3, 0.4])


def test_events_repeated_by_a_resume_count_once(run_folder: Path) -> None:
    before = read_run(run_folder).events
    path = run_folder / "tasks.jsonl"
    path.write_text(path.read_text() + "".join(json.dumps(event) + "\n" for event in before[-3:]))
    assert read_run(run_folder).events == before


def test_folder_without_metrics_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} is not a run directory.*metrics.jsonl"):
        read_run(tmp_path)


@pytest.mark.parametrize("text", ["", '{"iteration": ', '[1]\n"x"\n'])
def test_metrics_without_a_complete_line_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(ValueError, match="metrics.jsonl has no complete line"):
        read_run(tmp_path)


def test_series_leaves_out_what_is_not_a_finite_number() -> None:
    values = [0.5, None, float("nan"), float("inf"), "0.7", True, 1]
    metrics = [{"iteration": i, "a": value} for i, value in enumerate(values)] + [{"iteration": 9}]
    assert series(metrics, "a") == ([0, 6], [0.5, 1.0])


def test_moving_average_by_hand() -> None:
    assert moving_average([1.0, 3.0, 5.0, 1.0], 2) == [1.0, 2.0, 4.0, 3.0]


def test_flatten_by_hand() -> None:
    assert flatten({"b": {"d": 1, "c": {}}, "a": [2]}) == {"a": [2], "b.c": {}, "b.d": 1}


def test_before_and_after_by_hand() -> None:
    metrics = [{"iteration": i, "judge/auc": i / 100, "eval/success": i / 100} for i in range(30)]
    before, after, k = before_after(metrics, "judge/auc") or (0, 0, 0)
    assert (before, after, k) == (
        pytest.approx(0.01),
        pytest.approx(0.28),
        3,
    )  # means of 0, 1, 2 and of 27, 28, 29
    assert before_after(metrics, "eval/success") == (0.0, 0.29, 1)
    assert before_after(metrics, "never/logged") is None


def test_only_a_few_trajectory_files_are_opened(run_maker: Callable[..., Path], tmp_path: Path) -> None:
    folder = run_maker(tmp_path / "long", iterations=60)
    middle = folder / "trajectories" / "00030.jsonl"
    middle.write_bytes(b"\x00 not json")
    assert read_run(folder).unread == 0
