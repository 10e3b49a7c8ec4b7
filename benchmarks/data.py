"""Measures how fast prepared data sets are read, by index and as a shuffled stream.

    python -m benchmarks.data [RAW] [--json FILE]

RAW is a folder with HumanEval's, MBPP's and other raw files; without it, 2,000 questions are made up. They are
prepared in a temporary folder first, which is measured too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rlanything_jax.data import DATA_SETS, Loader, load
from rlanything_jax.data.builders import prepare

RECORDS = 2000  # to be read of each set's largest split, in several rounds where it has fewer


def rate(count: int, action: Callable[[], object]) -> tuple[float, float]:
    """(records a second of wall time, of processor time) of an action on `count` records."""
    wall, processor = time.perf_counter(), time.process_time()
    action()
    return count / (time.perf_counter() - wall), count / (time.process_time() - processor)


def measure(raw: Path, prepared: Path) -> list[dict[str, object]]:
    """One row for each split and way of reading."""
    rows: list[dict[str, object]] = []

    def add(workload: str, count: int, action: Callable[[], object]) -> None:
        wall, processor = rate(count, action)
        rows.append({"workload": workload, "unit": "records/s", "value": wall, "value_per_core": processor})

    for name, data_set in DATA_SETS.items():
        try:
            data_set.paths(raw)
        except FileNotFoundError:
            continue
        start = time.process_time()
        builder = prepare(name, raw, prepared)
        count, seconds = (
            sum(split.num_examples for split in builder.info.splits.values()),
            time.process_time() - start,
        )
        rows.append({"workload": f"{name} prepare", "unit": "records/s", "value_per_core": count / seconds})
        split = max(builder.info.splits.values(), key=lambda info: info.num_examples).name
        source = load(name, split, prepared)
        loader = Loader(source, seed=0)
        add(f"{name}/{split} index", RECORDS, lambda: [source[i % len(source)] for i in range(RECORDS)])  # noqa: B023
        add(f"{name}/{split} stream", RECORDS, lambda: [next(loader) for _ in range(RECORDS)])  # noqa: B023
    return rows


def make_up(folder: Path) -> Path:
    """Writes raw files of 2,000 questions and returns their folder."""
    (folder / "gsm8k").mkdir(parents=True)
    record = {"question": "How many apples are left? " * 10, "answer": "So many.\n" * 20 + "#### 42"}
    (folder / "gsm8k" / "train.jsonl").write_text(f"{json.dumps(record)}\n" * 2000, encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data")
    parser.add_argument("raw", nargs="?", type=Path, metavar="RAW", help="raw files; made up ones if absent")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options.raw or make_up(Path(folder, "raw")), Path(folder, "prepared"))
    for row in rows:
        print(f"{row['workload']:28}{row.get('value', 0):12,.0f}{row['value_per_core']:12,.0f} a core")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
