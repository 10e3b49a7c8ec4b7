"""The terminal: a plain line an iteration off a terminal, one live line on it, always given back."""

import io
import re

import pytest
from rich.console import Console

from rlanything_jax.report import Display
from rlanything_jax.report.display import clock


def plain() -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    return out, Console(file=out, force_terminal=False, width=40)


def terminal() -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    return out, Console(file=out, force_terminal=True, width=100, legacy_windows=False)


def test_one_whole_line_an_iteration_off_a_terminal() -> None:
    out, console = plain()
    with Display(3, console=console) as display:
        for success in (0.2, 0.4, 0.6):
            for done in range(100):
                display.phase("rollout", done, 100)
            display.iteration(
                {
                    "rollout/success": success,
                    "judge/balanced_accuracy": 0.71,
                    "tasks/accepted_total": 4,
                    "eval/success": 0.5,
                }
            )
    lines = re.sub(r"\b0:0\d\b", "0:00", out.getvalue()).splitlines()  # a slow machine takes seconds
    assert len(lines) == 3
    numbers = "held out 50%  judge 0.71  accepted 4"
    assert lines[1] == f"iteration 2/3  0:00, 0:00 left  success 40% (mean 30%)  {numbers}"
    assert lines[2] == f"iteration 3/3  0:00  success 60% (mean 40%)  {numbers}"


def test_every_k_iterations_and_the_last() -> None:
    out, console = plain()
    with Display(7, every=3, console=console) as display:
        for _ in range(7):
            display.iteration({})
    assert [line.split("  ")[0] for line in out.getvalue().splitlines()] == [
        "iteration 3/7", "iteration 6/7", "iteration 7/7",
    ]  # fmt: skip


def test_a_resumed_run_counts_on() -> None:
    out, console = plain()
    with Display(10, console=console) as display:
        display.resume(6)
        display.iteration({})
    assert out.getvalue().startswith("iteration 7/10")


def test_metrics_that_are_not_logged_every_time_stay_on_the_line() -> None:
    out, console = plain()
    with Display(2, console=console) as display:
        display.iteration({"eval/success": 0.25})
        display.iteration({"rollout/success": 0.5})
    assert "held out 25%" in out.getvalue().splitlines()[1]


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_the_cursor_comes_back(error: type[BaseException] | None) -> None:
    out, console = terminal()
    try:
        with Display(2, console=console) as display:
            display.phase("judge", 1, 4)
            display.iteration({"rollout/success": 0.5})
            if error:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        assert error
    written = out.getvalue()
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_the_live_line_shows_the_phase_on_one_row() -> None:
    out, console = terminal()
    with Display(5, console=console) as display:
        display.iteration({"rollout/success": 0.5, "judge/balanced_accuracy": 0.7, "tasks/accepted_total": 3})
        display.phase("judge", 3, 64)
        line = display._line()
        plain_line = re.sub(r"\b0:0\d\b", "0:00", line.plain)
        assert plain_line.startswith("iteration 2/5  judge 3/64  0:00, 0:00 left  success 50% (mean 50%)")
        assert line.no_wrap and line.overflow == "ellipsis"
    assert "\n\n" not in out.getvalue()


def test_a_warning_is_shown_once_and_is_not_markup() -> None:
    out, console = plain()
    with Display(2, console=console) as display:
        for _ in range(3):
            display.warn("no verdict parsed in [bold]task[/] 3: see the judge's max_new_tokens")
        display.warn("another")
    assert out.getvalue().splitlines() == [
        "warning: no verdict parsed in [bold]task[/] 3: see the judge's max_new_tokens", "warning: another",
    ]  # fmt: skip


def test_disabled_shows_nothing() -> None:
    for out, console in (plain(), terminal()):
        with Display(2, enabled=False, console=console) as display:
            display.phase("rollout", 1, 2)
            display.iteration({"rollout/success": 0.5})
            display.warn("w")
            display.summary_table({"eval/success": 0.1}, {"eval/success": 0.2})
        assert out.getvalue() == ""


def test_summary_table_by_hand() -> None:
    out = io.StringIO()
    with Display(1, console=Console(file=out, width=100)) as display:
        display.summary_table(
            {"eval/success": 0.125, "rollout/inadmissible": 0.3, "judge/auc": 0.5, "iteration": 0},
            {"eval/success": 0.625, "rollout/inadmissible": 0.1, "iteration": 9},
        )
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert rows == [
        ["before", "after", "change"],
        ["Held-out", "success", "12.5%", "62.5%", "+50.0%"],
        ["Inadmissible", "actions", "30.0%", "10.0%", "-20.0%"],
    ]


def test_bad_every_is_named() -> None:
    with pytest.raises(ValueError, match="every=0"):
        Display(2, every=0)


def test_clock_by_hand() -> None:
    assert [clock(s) for s in (0, 61.4, 3599.7, 7265)] == ["0:00", "1:01", "1:00:00", "2:01:05"]
