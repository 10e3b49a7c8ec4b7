"""The training loop's terminal: one live line on a terminal, one plain line an iteration anywhere else."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlanything_jax.report.summary import HEADLINES

SILENCE_S = 20.0  # off a terminal, a phase that takes longer than this says so
WINDOW = 10  # iterations in the moving average of success and in the pace behind the time left


class Display:
    """Shows where a run is: iteration, phase, elapsed and remaining time, success, judge and tasks so far.

    Use it as a context manager: the terminal is given back on any exception and on Ctrl-C. `done` is the
    number of iterations already behind a resumed run. `enabled=False` (all hosts but the first) accepts every
    call and shows nothing. Off a terminal a line is printed every `every` iterations, for the last one, and in
    phases that take long.
    """

    def __init__(
        self,
        total_iterations: int,
        *,
        enabled: bool = True,
        every: int = 1,
        console: Console | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(
                f"every={every} must be at least 1: it is how many iterations pass between printed lines"
            )
        self._total = total_iterations
        self._enabled = enabled
        self._done = 0
        self._every = every
        self._console = console or Console(file=sys.stdout)
        self._phase = ""
        self._start = self._last = self._spoke = time.monotonic()
        self._paces: deque[float] = deque(maxlen=WINDOW)
        self._success: deque[float] = deque(maxlen=WINDOW)
        self._metrics: dict[str, Any] = {}
        self._warned: set[str] = set()
        self._is_live = False
        self._live = Live(
            get_renderable=self._line, console=self._console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        self._start = self._last = self._spoke = time.monotonic()
        if self._enabled and self._console.is_terminal:
            self._is_live = True
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        self._is_live = False

    def phase(self, name: str, done: int = 0, total: int | None = None) -> None:
        """Now in phase `name` of the current iteration, with `done` of `total` of its work behind."""
        self._phase = f"{name} {done}/{total}" if total else name
        now = time.monotonic()
        if self._enabled and not self._console.is_terminal and now - self._spoke >= SILENCE_S:
            self._print(self._line())

    def resume(self, done: int) -> None:
        """`done` iterations are behind a run that goes on from a checkpoint."""
        self._done = done
        self._last = time.monotonic()

    def iteration(self, metrics: Mapping[str, Any]) -> None:
        """An iteration ended with these metrics (the keys of metrics.jsonl)."""
        now = time.monotonic()
        self._paces.append(now - self._last)
        self._last = now
        self._done += 1
        self._phase = ""
        self._metrics |= {key: value for key, value in metrics.items() if isinstance(value, int | float)}
        if "rollout/success" in metrics:
            self._success.append(float(metrics["rollout/success"]))
        last = self._done >= self._total
        if self._enabled and not self._console.is_terminal and (last or self._done % self._every == 0):
            self._print(self._line())

    def warn(self, message: str) -> None:
        """Print a warning above the line, the first time it is given."""
        if self._enabled and message not in self._warned:
            self._print(Text.assemble(("warning: ", "yellow"), message))
        self._warned.add(message)

    def summary_table(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> None:
        """Print the headline metrics that both rows of metrics.jsonl have, before and after."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("")
        for name in ("before", "after", "change"):
            table.add_column(name, justify="right")
        for headline in HEADLINES:
            before, after = first.get(headline.key), last.get(headline.key)
            if before is None or after is None:
                continue
            show = headline.pattern.format
            change = (after - before) * headline.better
            style = "green" if change > 0 else "red" if change < 0 else ""
            sign = "+" if after >= before else "-"
            table.add_row(
                headline.label, show(before), show(after), Text(sign + show(abs(after - before)), style=style)
            )
        if self._enabled and table.row_count:
            self._console.print(table)

    def _print(self, line: Text) -> None:
        self._spoke = time.monotonic()
        self._console.print(line, soft_wrap=True)

    def _line(self) -> Text:
        current = min(self._done + self._is_live, self._total)
        parts = [Text(f"iteration {current}/{self._total}", style="bold")]
        if self._phase:
            parts.append(Text(self._phase, style="cyan"))
        elapsed = clock(time.monotonic() - self._start)
        if self._paces and self._done < self._total:
            pace = sum(self._paces) / len(self._paces)
            left = max(0.0, pace * (self._total - self._done) - (time.monotonic() - self._last))
            elapsed += f", {clock(left)} left"
        parts.append(Text(elapsed, style="dim"))
        if self._success:
            mean = sum(self._success) / len(self._success)
            parts.append(Text(f"success {self._success[-1]:.0%} (mean {mean:.0%})"))
        for key, label, pattern in SHOWN:
            if key in self._metrics:
                parts.append(Text(f"{label} {pattern.format(self._metrics[key])}"))
        line = Text("  ").join(parts)
        if self._is_live:  # one line whatever the width; a plain line is printed whole
            line.no_wrap, line.overflow = True, "ellipsis"
        return line


SHOWN = (
    ("eval/success", "held out", "{:.0%}"),
    ("judge/balanced_accuracy", "judge", "{:.2f}"),
    ("tasks/accepted_total", "accepted", "{:.0f}"),
)


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
