"""What the benchmarks of sampler and judge share: the machine's bound, memory, child processes, rows and their table.

Every system is measured in a process of its own, so that allocators do not mix and a peak belongs to one system. The
parent holds neither JAX nor torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SYSTEMS = ("ours", "naive", "transformers", "tunix")
INSTALL = {
    "transformers": "pip install -e '.[dev]'",
    "tunix": "python -m venv .venv-tunix && .venv-tunix/bin/pip install google-tunix==0.1.7, "
    "then RLANYTHING_TUNIX=.venv-tunix/bin/python",
}
# As the launchers set them: see launch/setup.sh.
ALLOCATOR = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000"


@dataclasses.dataclass(frozen=True)
class Bound:
    """What the machine can do, measured: matrix products (a multiply-add is two operations) and memory traffic."""

    flops: float  # a second
    bandwidth: float  # bytes a second, read and written together

    def seconds(self, flops: float, nbytes: float) -> float:
        return max(flops / self.flops, nbytes / self.bandwidth)


class Costs(NamedTuple):
    """What a token costs in a model, by which the least time of a workload is computed."""

    matrices: int  # parameters of the layers' matrices
    table: int  # parameters of the output table
    attention: int  # multiply-adds a token of context, in all layers
    cache: int  # bytes of keys and values a token

    def read(self, bound: Bound, tokens: int, context: float) -> float:
        """Seconds to read tokens together, each behind `context` others on average; logits of none."""
        flops = tokens * (2 * self.matrices + 4 * self.attention * context)
        return bound.seconds(flops, 4 * self.matrices + tokens * self.cache)

    def write(self, bound: Bound, rows: int, context: float, cached: float | None = None) -> float:
        """Seconds to sample one token in each row, behind `context` others; of them `cached` a row are read from memory."""
        flops = rows * (2 * (self.matrices + self.table) + 4 * self.attention * context)
        nbytes = 4 * (self.matrices + self.table) + rows * self.cache * (
            context if cached is None else cached
        )
        return bound.seconds(flops, nbytes)

    def train(self, bound: Bound, tokens: int, context: float) -> float:
        """Seconds of a forward and a backward pass; nothing is computed twice."""
        return 3 * tokens * (2 * (self.matrices + self.table) + 4 * self.attention * context) / bound.flops


@dataclasses.dataclass(frozen=True)
class Row:
    workload: str
    system: str
    size: str
    value: float | None  # median; higher is better
    unit: str
    bound_fraction: (
        float | None
    )  # the least seconds that the workload's result costs over the seconds it took
    peak_mb: float | None  # resident memory of the process
    repeats: int
    note: str = ""


def measure_bound() -> Bound:
    """In this process, on all cores that it may use."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones(2**26)  # 256 MB
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    a = jnp.ones((2048, 2048))
    multiply = jax.jit(jnp.matmul)
    copies, products = [], []
    for _ in range(6):
        start = time.perf_counter()
        x = jax.block_until_ready(add(x))
        copies.append(time.perf_counter() - start)
        start = time.perf_counter()
        jax.block_until_ready(multiply(a, a))
        products.append(time.perf_counter() - start)
    return Bound(flops=2 * 2048**3 / min(products[1:]), bandwidth=2 * x.nbytes / min(copies[1:]))


def timed(run: Callable[[], Any], repeats: int, *, budget_s: float = 60.0) -> list[float]:
    """Seconds of each of at most `repeats` runs; no further one starts when `budget_s` are spent."""
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < budget_s:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # proc(5)


def peak_mb() -> float:
    """The highest resident memory of this process since `reset_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def interpreter(system: str) -> str:
    """The Python that has the system: tunix pins libraries of its own and so lives in its own environment."""
    return os.environ.get("RLANYTHING_TUNIX", sys.executable) if system == "tunix" else sys.executable


def has(system: str) -> bool:
    """Whether the system's package can be imported."""
    package = {"transformers": "transformers, torch", "tunix": "tunix"}.get(system)
    if package is None:
        return True
    check = subprocess.run([interpreter(system), "-c", f"import {package}"], capture_output=True)
    return check.returncode == 0


def in_child(module: str, job: dict[str, Any], *, system: str = "ours") -> dict[str, Any]:
    """What `python -m module` prints as JSON in its last line when it is given `job`.

    Raises RuntimeError with the child's last words where it fails.
    """
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "TOKENIZERS_PARALLELISM": "false"}
    environment.setdefault("GLIBC_TUNABLES", ALLOCATOR)
    child = subprocess.run(
        [interpreter(system), "-m", module, "--job", json.dumps(job)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    if child.returncode:
        raise RuntimeError(f"{module} {job}: exit status {child.returncode}\n{child.stderr[-3000:]}")
    return json.loads(child.stdout.splitlines()[-1])


def row(
    workload: str,
    system: str,
    size: str,
    unit: str,
    result: dict[str, Any],
    least_seconds: float,
) -> Row:
    """A row from what a child measured: the seconds of its runs, and how many of the unit each run made.

    `least_seconds` are what the bound allows for one of the unit.
    """
    seconds = statistics.median(result["seconds"])
    return Row(
        workload=workload,
        system=system,
        size=size,
        value=result["count"] / seconds,
        unit=unit,
        bound_fraction=least_seconds * result["count"] / seconds,
        peak_mb=result["peak_mb"],
        repeats=len(result["seconds"]),
        note=result.get("note", ""),
    )


def missing(workload: str, system: str, size: str, unit: str) -> Row:
    return Row(workload, system, size, None, unit, None, None, 0, f"not installed: {INSTALL[system]}")


def show(rows: Sequence[Row], bound: Bound, title: str) -> None:
    from rich.console import Console  # here, since what is measured need not have it
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    machine = f"{bound.flops / 1e9:.0f} GFLOP/s, {bound.bandwidth / 1e9:.0f} GB/s"
    table = Table(title=f"{title}: measured bound {machine}", title_justify="left")
    for name in (
        "workload",
        "size",
        "system",
        "value",
        "unit",
        "of bound",
        "peak MB",
        "runs",
        "against",
        "note",
    ):
        table.add_column(
            name, justify="right" if name in ("value", "of bound", "peak MB", "runs") else "left"
        )
    ours = {(r.workload, r.size): r.value for r in rows if r.system == "ours"}
    for r in rows:
        best = ours.get((r.workload, r.size))
        table.add_row(
            r.workload,
            r.size,
            r.system,
            "-" if r.value is None else f"{r.value:,.1f}",
            r.unit,
            "-" if r.bound_fraction is None else f"{r.bound_fraction:.1%}",
            "-" if r.peak_mb is None else f"{r.peak_mb:,.0f}",
            str(r.repeats),
            f"ours is {best / r.value:.1f}x" if best and r.value and r.system != "ours" else "",
            r.note,
        )
    console.print(table)


def write(rows: Sequence[Row], path: str | None) -> None:
    if path:
        Path(path).write_text(json.dumps([dataclasses.asdict(r) for r in rows], indent=1), encoding="utf-8")


def arguments(
    prog: str, description: str, workloads: Sequence[str], sizes: Sequence[str]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=description)

    def names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
        def split(text: str) -> list[str]:
            if unknown := set(text.split(",")) - set(allowed):
                raise argparse.ArgumentTypeError(f"{unknown} not among {', '.join(allowed)}")
            return text.split(",")

        return split

    for flag, allowed in (("workloads", workloads), ("sizes", sizes), ("systems", SYSTEMS)):
        parser.add_argument(
            f"--{flag}", type=names(allowed), default=list(allowed), help=f"of {','.join(allowed)} (all)"
        )
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, of which the median counts (5)")
    parser.add_argument(
        "--shrink", type=int, default=1, help="divides the workloads' counts, to see that all runs (1)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows here too")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    print(json.dumps(dataclasses.asdict(measure_bound())))


if __name__ == "__main__":
    main()
