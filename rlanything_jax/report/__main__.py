"""`python -m rlanything_jax.report --workdir=DIR`: write DIR/report.html, or a picture of several runs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlanything_jax.report.page import write_report
from rlanything_jax.report.picture import learning_picture
from rlanything_jax.report.read import read_run
from rlanything_jax.report.tensorboard import open_writer, write_metrics


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rlanything_jax.report", description=__doc__)
    add = parser.add_argument
    add(
        "--workdir",
        metavar="DIR",
        action="append",
        required=True,
        help="a run directory; repeat it for several seeds",
    )
    add("--picture", metavar="FILE", help="draw all runs in FILE (.svg, .png or .pdf) instead of reports")
    add("--tensorboard", action="store_true", help="write DIR/tensorboard instead of reports")
    options = parser.parse_args(arguments)
    try:
        if options.picture:
            print(learning_picture([read_run(folder) for folder in options.workdir], options.picture))
        elif options.tensorboard:
            for folder in options.workdir:
                print(_write_events(Path(folder)))
        else:
            for folder in options.workdir:
                print(write_report(folder))
    except (OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _write_events(folder: Path) -> Path:
    metrics = read_run(folder).metrics
    with open_writer(folder / "tensorboard") as writer:
        for row in metrics:
            write_metrics(writer, row)
    return folder / "tensorboard"


if __name__ == "__main__":
    sys.exit(main())
