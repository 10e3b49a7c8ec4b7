"""Audits a run's task log: `python -m benchmarks.adaptation WORKDIR [WORKDIR ...]`.

Replays every proposal of tasks.jsonl from the original tasks and asks the planner: can it be solved, is it unsolved at
reset, does it differ from its parent? And asks the log: was every accepted task verified, and did its success rate move the
right way and stay in range? Exits with 1 where anything is wrong.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rlanything_jax.envs.alfworld.planner import Planner
from rlanything_jax.envs.alfworld.simulator import Simulator
from rlanything_jax.envs.alfworld.world import AlfworldWorld


def audit(workdir: Path) -> Counter[str]:
    """Counts events, and faults under names that start with 'fault:'."""
    config = json.loads((workdir / "config.json").read_text())
    options = dict(config["world"])
    for name in ("name", "workers", "step_timeout_s", "reset_timeout_s"):
        options.pop(name)
    world = AlfworldWorld(**options)
    tasks = {task.id: task for task in world.tasks("train")}
    low, high = config["adapt"]["low"], config["adapt"]["high"]
    counts: Counter[str] = Counter()
    for line in (workdir / "tasks.jsonl").read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        counts[event["event"]] += 1
        if event["event"] == "proposed":
            parent = tasks[event["parent"]]
            task = world.rewrite(parent, event["edit"], ())
            tasks[task.id] = task
            simulator = Simulator(world.game(task))
            simulator.reset()
            distance = Planner(world.game(task)).distance(simulator.facts)
            counts["fault: another task than the log's"] += task.id != event["task"]
            counts["fault: unsolvable"] += distance == float("inf")
            counts["fault: satisfied at reset"] += simulator.won or distance == 0
            counts["fault: unchanged"] += world.fingerprint(task) == world.fingerprint(parent)
            counts["fault: goal changed without the instruction"] += (
                world.game(task).goal != world.game(parent).goal and task.instruction == parent.instruction
            )
        if event["event"] == "accepted":
            before, after = event["accuracy_before"], event["accuracy_after"]
            lower, upper = (low, before) if event["direction"] == "harder" else (before, high)
            counts["fault: accepted without verification"] += after is None or not lower < after < upper
    return counts


def main() -> None:
    if not sys.argv[1:]:
        sys.exit("usage: python -m benchmarks.adaptation WORKDIR [WORKDIR ...]")
    faults = 0
    for workdir in sys.argv[1:]:
        counts = audit(Path(workdir))
        print(workdir)
        for name, count in sorted(counts.items()):
            print(f"  {name:45s} {count}")
            faults += count if name.startswith("fault:") else 0
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
