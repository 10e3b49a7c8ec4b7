"""Measures the code sandbox: runs a second of a trivial program, one at a time and many in flight.

    python -m benchmarks.sandbox [--runs N] [--backend NAME] [--json FILE]

The bar: at least 200 runs a second on two cores, and with 64 in flight at least half of the best rate. Beside the
rate stands the processor time of a run, of client, server and program together: on a shared machine it says more.

On two x86-64 cores shared with a load of 17, 400 runs a row: 88 runs/s one at a time, 195 with 4 in flight, 232
with 64; 8 ms of processor a run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path

from rlanything_jax.envs.code.sandbox import BACKENDS, Program, Sandbox

TRIVIAL = Program("print(int(input()) + 1)", stdin="41\n")
IN_FLIGHT = (1, 2, 4, 16, 64)


def processor_s() -> float:
    """Processor time of this process and of all its children that have ended and been waited for."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def starting_s(backend: str) -> tuple[float, float]:
    """Wall-clock and processor time of starting and closing a sandbox."""
    wall, processor = time.perf_counter(), processor_s()
    Sandbox(1, backend=backend).close()
    return time.perf_counter() - wall, processor_s() - processor


def measure(backend: str, slots: int, runs: int) -> dict[str, object]:
    """One row: `runs` programs with `slots` in flight."""
    start_s, start_cpu_s = starting_s(backend)
    before = processor_s()
    with Sandbox(slots, backend=backend) as sandbox:
        start = time.perf_counter()
        results = sandbox.run_all([TRIVIAL] * runs)
        seconds = time.perf_counter() - start
        name = sandbox.backend
    wrong = sum((result.status, result.stdout) != ("ok", "42\n") for result in results)
    return {
        "backend": name,
        "in_flight": slots,
        "runs_per_s": runs / seconds,
        "wrong": wrong,
        "start_s": start_s,
        "cpu_ms_per_run": 1e3 * (processor_s() - before - start_cpu_s) / runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sandbox")
    parser.add_argument("--runs", type=int, default=1000, help="programs for each row (1000)")
    parser.add_argument("--backend", choices=("auto", *BACKENDS), default="auto")
    parser.add_argument("--json", metavar="FILE", help="write the rows here too")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores")
    rows = [measure(options.backend, slots, options.runs) for slots in IN_FLIGHT]
    for row in rows:
        print(
            f"{row['backend']:12}{row['in_flight']:4} in flight{row['runs_per_s']:8.0f} runs/s"
            f"{row['cpu_ms_per_run']:8.2f} ms of processor a run   start {row['start_s']:.2f} s"
            f"   {row['wrong']} wrong"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
