"""`python -m rlanything_jax.data prepare --raw=FOLDER --out=FOLDER`: prepare data sets from raw files."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rlanything_jax.data.builders import Builder, prepare
from rlanything_jax.data.catalogue import DATA_SETS

_SHOWN = 10  # of the records that a data set leaves out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rlanything_jax.data", description=__doc__)
    command = parser.add_subparsers(dest="command", required=True).add_parser("prepare")
    command.add_argument(
        "--raw", type=Path, required=True, metavar="FOLDER", help="the raw files, a folder a set"
    )
    command.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where prepared sets go")
    command.add_argument(
        "--only",
        action="append",
        choices=DATA_SETS,
        metavar="NAME",
        help=f"one of {', '.join(DATA_SETS)}; repeatable",
    )
    options = parser.parse_args(arguments)
    if not options.raw.is_dir():
        print(f"error: --raw: no folder {options.raw}", file=sys.stderr)
        return 1
    console = Console(file=sys.stdout)
    table = Table("data set", "split", "records", "rejected")
    rejected: list[str] = []
    absent = []
    for name in options.only or DATA_SETS:
        try:
            builder = _prepare(name, options.raw, options.out, console)
        except FileNotFoundError as error:
            absent.append(str(error))
            continue
        rejected += _add_rows(table, name, builder)
    for line in rejected:
        print(line)
    console.print(table)
    for line in absent:
        print(f"error: {line}" if options.only else f"skipped: {line}", file=sys.stderr)
    return 1 if absent and (options.only or not table.rows) else 0


def _prepare(name: str, raw: Path, out: Path, console: Console) -> Builder:
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed} records"), TimeElapsedColumn())
    with Progress(*columns, console=console, redirect_stdout=False) as progress:
        task = progress.add_task(name, total=None)
        return prepare(name, raw, out, on_record=lambda: progress.advance(task))


def _add_rows(table: Table, name: str, builder: Builder) -> list[str]:
    """Adds the splits of a data set to `table`; returns what to say of the records that were left out."""
    rejected = list(builder.info.metadata["rejected"])
    for index, (split, info) in enumerate(builder.info.splits.items()):
        first = index == 0  # the rejected ones belong to no split
        table.add_row(name * first, split, str(info.num_examples), str(len(rejected)) * first)
    more = [f"{name}: and {len(rejected) - _SHOWN} more, all in the data set's metadata"]
    return [f"{name}: {line}" for line in rejected[:_SHOWN]] + more * (len(rejected) > _SHOWN)


if __name__ == "__main__":
    sys.exit(main())
