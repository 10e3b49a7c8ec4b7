"""Do the three parts help one another? The paper's claims, each a table of runs from the same warm starts.

    python -m benchmarks.claims TABLE... [--seeds=5] [--parallel=2] [--small] [--iterations=N]
    python -m benchmarks.claims --report                 writes claims.md from the rows that are there
    python -m benchmarks.claims all --dry-run            prints the commands of the runs that are missing

Runs what is missing of the tables' arms, one training a run and each continued where it was stopped, keeps a row of every
finished run in --results, and writes claims.md (claims_small.md with --small) beside that folder. A row is valid as long as
its arm's config is what it was: a later call adds seeds, and arms that tables share are run once.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims.arms import TABLES
from benchmarks.claims.report import write_report
from benchmarks.claims.runs import ROOT, Plan, run_all
from launch.sweep import Processes
from rlanything_jax.parallel.preemption import EXIT_STATUS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.claims", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("tables", nargs="*", choices=[*TABLES, "all", []], metavar="TABLE", help=f"all, {', '.join(TABLES)}")
    add("--seeds", type=int, help="how many: 0, 1, ... (5; 2 with --small)")
    add("--parallel", type=int, default=2, help="trainings at once; as many as cores: each on one of them")
    add("--iterations", type=int, help="of every run, instead of the arm's own")
    add("--small", action="store_true", help="fewer arms, seeds, iterations and episodes of evaluation")
    add("--results", type=Path, default=ROOT / "benchmarks" / "results", help="where the rows go")
    add("--workdir", type=Path, default=ROOT / "runs" / "claims", help="where the runs go")
    add("--report", action="store_true", help="run nothing")
    add("--dry-run", action="store_true", help="print the commands of the missing runs")
    options = parser.parse_args(arguments)
    if not options.tables and not options.report:
        parser.error(f"name tables to run, or 'all': {', '.join(TABLES)}; --report writes what is there")
    tables = list(TABLES) if "all" in options.tables else list(dict.fromkeys(options.tables))
    plan = Plan(
        tables=tables,
        seeds=options.seeds or (2 if options.small else 5),
        small=options.small,
        iterations=options.iterations,
        results=options.results,
        workdir=options.workdir,
    )
    missing = [] if options.report else plan.missing(options.parallel)
    if options.dry_run:
        for job in missing:
            print(shlex.join(job.words))
        return 0
    processes = Processes()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, processes.stop)
    print(f"claims: {len(missing)} runs to go", flush=True)
    failed = run_all(missing, processes, options.parallel)
    print(f"report: {write_report(plan)}")
    if processes.stopped:
        return EXIT_STATUS
    for job in failed:
        print(f"claims: {job.name} failed, see {job.log}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
