"""Measures the judge, which reads each trajectory once, against one call for every vote; and how its cost grows.

    python -m benchmarks.judge [--workloads=...] [--sizes=tiny,135m] [--systems=...] [--repeats=5] [--json=FILE] [--plot=FILE]

All systems run on the same weights, trajectories and lengths, each in a process of its own:

  judging          m = 3 votes of 24 tokens on each of the 16 steps of a trajectory: an opening of 120 tokens, steps of an
                   observation of 80 and an action of 16, a question of 4. Ours is `judge`; naive, `transformers` and tunix
                   read the trajectory up to the step anew for every vote, in batches of 32, on a part of the votes.
  judge-training   forward and backward of those votes. Ours packs a trajectory and its votes as one tree; naive has a
                   sequence for every vote, packed in rows of the same length. Their gradients are compared.
  growth           seconds for each judged step while T goes from 8 to 64 and m from 1 to 16, ours alone; --plot draws it.

"of bound" counts every token of a trajectory and of its votes once, for all systems: see benchmarks.sampler.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import (
    Bound,
    Costs,
    Row,
    arguments,
    has,
    in_child,
    missing,
    peak_mb,
    row,
    show,
    timed,
    write,
)
from benchmarks.workloads import Shape, evaluations, in_batches, shape_of, texts

WORKLOADS = ("judging", "judge-training", "growth")
MEASURED = {
    "judging": ("ours", "naive", "transformers", "tunix"),
    "judge-training": ("ours", "naive"),
    "growth": ("ours",),
}
GROWTH = {"T": (8, 16, 32, 64), "m": (1, 2, 4, 8, 16)}


def computed_tokens(shape: Shape) -> tuple[int, int]:
    """Of one trajectory's votes: by trunk and branches, and by one call for each vote."""
    branch = shape.question + shape.rationale
    once = shape.trunk + shape.steps * shape.votes * branch
    return once, shape.votes * sum(point + branch for point in shape.points())


def least_seconds(workload: str, shape: Shape, costs: Costs, bound: Bound) -> float:
    """For one vote."""
    votes = shape.steps * shape.votes
    context = sum(shape.points()) / shape.steps
    branch = shape.question + shape.rationale
    if workload == "judge-training":
        trunk = costs.train(bound, shape.trunk, shape.trunk / 2)
        return (trunk + costs.train(bound, votes * branch, context + branch / 2)) / votes
    rows = shape.trajectories * votes
    # A step of all branches reads each trunk's cache once, and each branch's own.
    cached = shape.trunk / votes + branch / 2
    decode = shape.rationale * costs.write(bound, rows, context + branch / 2, cached) / shape.trajectories
    asked = costs.read(bound, votes * shape.question, context)
    return (costs.read(bound, shape.trunk, shape.trunk / 2) + asked + decode) / votes


def trajectories(shape: Shape, dialogue: Any, count: int) -> list[Any]:
    from rlanything_jax.rollouts import Segment, Step, Trajectory
    from rlanything_jax.tasks.task import Task

    task, turn = Task("t", "recital", "", {}), shape.step_observation + shape.step_action
    made = []
    for i, tokens in enumerate(texts(shape, count, shape.trunk, 100)):
        steps = []
        for point in shape.points():
            start = point - turn
            steps.append(Step("", "", "", 0, start, start + shape.step_action, point=point))
        made.append(Trajectory(task, 0, i, dialogue, [Segment(tokens, [0.0] * len(tokens))], steps))
    return made


def judging(speaker: Any, shape: Shape) -> Callable[[], Any]:
    from benchmarks.models import Ids
    from rlanything_jax.reward.judge import JudgeConfig, judge

    question = texts(shape, 1, shape.question, 101)[0]
    speaker = speaker._replace(dialogue=Ids(question))
    config = JudgeConfig(
        max_tokens=shape.rationale,
        rows=min(8, shape.trajectories),
        branch_buckets=(shape.steps * shape.votes,),
        length_buckets=(shape.trunk,),
    )
    played = trajectories(shape, speaker.dialogue, shape.trajectories)
    return functools.partial(judge, speaker, played, shape.votes, config, seed=0)


def training(model: Any, shape: Shape, count: int, votes: int, *, as_trees: bool) -> Callable[[], Any]:
    """The gradient of `votes` votes on each step of `count` trajectories, packed."""
    import jax

    from rlanything_jax.trainer.batches import Piece, TrainSequence, normalise, pack
    from rlanything_jax.trainer.step import Objective, add, gradient, supervised_loss

    size = shape.question + shape.rationale
    said = texts(shape, count * shape.steps * votes, size, 102)
    weight = [0.0] * shape.question + [1.0] * shape.rationale
    sequences = []
    for i, trunk in enumerate(texts(shape, count, shape.trunk, 100)):
        branches = []
        for j, point in enumerate(shape.points()):
            for vote in said[(i * shape.steps + j) * votes :][:votes]:
                zeros = [0.0] * size
                branches.append(Piece(vote, list(weight), zeros, zeros, point))
        if as_trees:
            nothing = [0.0] * shape.trunk
            sequences.append(TrainSequence(Piece(trunk, nothing, nothing, nothing), branches))
            continue
        for branch in branches:
            nothing = [0.0] * branch.point
            zeros = [0.0] * (branch.point + size)
            tokens = trunk[: branch.point] + branch.tokens
            sequences.append(TrainSequence(Piece(tokens, nothing + branch.weight, zeros, zeros)))
    length = -(-(shape.trunk + shape.steps * shape.votes * size) // 256) * 256
    batches = pack(normalise(sequences), tokens=length, lengths=(length,))

    def run() -> Any:
        total = None
        for batch in batches:
            new = gradient(model.params, {}, model.config, batch, Objective(), supervised_loss)
            total = new if total is None else add(total, new)
        return jax.block_until_ready(total)

    return run


def gradient_gap(model: Any, shape: Shape) -> float:
    """The largest difference of a gradient's entry between trees and single sequences, relative to its array's largest."""
    import jax
    import numpy as np

    small = dataclasses.replace(shape, steps=min(shape.steps, 4), votes=2)
    trees, single = (training(model, small, 1, 2, as_trees=as_trees)()[0] for as_trees in (True, False))
    gaps = jax.tree.map(lambda a, b: float(np.abs(a - b).max() / (np.abs(b).max() + 1e-12)), trees, single)
    return max(jax.tree.leaves(gaps))


def growth(speaker: Any, shape: Shape, repeats: int) -> dict[str, list[tuple[int, float]]]:
    """Seconds for each judged step of 2 trajectories, by T at m = 3 and by m at T = 16."""
    found: dict[str, list[tuple[int, float]]] = {}
    for name, values in GROWTH.items():
        found[name] = []
        for value in values:
            changed = {"steps": value} if name == "T" else {"votes": value}
            of_two = dataclasses.replace(shape, trajectories=2, **changed)
            run = judging(speaker, of_two)
            run()  # compiles
            seconds = sorted(timed(run, repeats, budget_s=20))
            found[name].append((value, seconds[len(seconds) // 2] / (2 * of_two.steps)))
    return found


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """The child's side: one workload of ours."""
    from benchmarks.models import generator, load

    shape, workload, note = shape_of(job), job["workload"], ""
    model, speaker = load(job["folder"])
    ours = job["system"] == "ours"
    if workload == "growth":
        return {"growth": growth(speaker, shape, job["repeats"])}
    if workload == "judging":
        if ours:
            run, count = judging(speaker, shape), shape.trajectories * shape.steps * shape.votes
            once, each = computed_tokens(shape)
            note = f"{each / once:.1f}x fewer tokens than per call"
        else:
            buckets = tuple(
                sorted({point + shape.question + shape.rationale for point in shape.points()[1::2]})
            )
            prompts = evaluations(shape, shape.judged)
            run = functools.partial(
                in_batches, generator(speaker, buckets), prompts, shape.rationale, shape.batch
            )
            count, note = len(prompts), f"one call a vote, {len(prompts)} votes"
    elif ours:
        run = training(model, shape, shape.trajectories, shape.votes, as_trees=True)
        count = shape.trajectories * shape.steps * shape.votes
        note = f"gradient equals the naive one to {gradient_gap(model, shape):.0e}"
    else:
        run = training(model, shape, shape.judged, 1, as_trees=False)
        count = shape.judged * shape.steps
        note = f"a sequence a vote, {count} votes"
    run()  # compiles
    return {"seconds": timed(run, job["repeats"]), "count": count, "peak_mb": peak_mb(), "note": note}


def draw_growth(found: dict[str, dict[str, list[tuple[int, float]]]], path: Path) -> None:
    """Writes the picture: one panel for T, one for m, each relative to its first value."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for panel, name, label in zip(panels, ("T", "m"), ("steps T, m = 3", "votes m, T = 16"), strict=True):
        for size, curves in found.items():
            x, y = zip(*curves[name], strict=True)
            panel.plot(
                x,
                [seconds / y[0] for seconds in y],
                marker="o",
                label=f"{size}: {1e3 * y[0]:.3g} ms at first",
            )
        highest = max(line.get_ydata().max() for line in panel.get_lines())
        panel.set(xlabel=label, ylabel="time of a judged step", ylim=(0, 1.1 * highest), xticks=GROWTH[name])
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    parser = arguments("python -m benchmarks.judge", __doc__ or "", WORKLOADS, ("tiny", "135m"))
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the growth here, for example growth.svg"
    )
    options = parser.parse_args()
    if options.job:
        print(json.dumps(measure(json.loads(options.job))))
        return
    bound = Bound(**in_child("benchmarks.measure", {}))
    rows: list[Row] = []
    grown: dict[str, dict[str, list[tuple[int, float]]]] = {}
    installed = {system: has(system) for system in options.systems}
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes:
            folder = str(Path(scratch, size))
            job = {"size": size, "folder": folder, "shrink": options.shrink, "repeats": options.repeats}
            costs = Costs(*in_child("benchmarks.sampler", job | {"workload": "prepare"})["costs"])
            for workload in options.workloads:
                for system in (s for s in options.systems if s in MEASURED[workload]):
                    if not installed[system]:
                        rows.append(missing(workload, system, size, "votes/s"))
                        continue
                    module = "benchmarks.judge" if system in ("ours", "naive") else "benchmarks.peers"
                    result = in_child(module, job | {"workload": workload, "system": system}, system=system)
                    if workload == "growth":
                        grown[size] = result["growth"]
                        continue
                    least = least_seconds(workload, shape_of(job), costs, bound)
                    rows.append(row(workload, system, size, "votes/s", result, least))
                    print(f"{size} {workload} {system}: {rows[-1].value:,.2f} votes/s", flush=True)
    show(rows, bound, "judge")
    for size, curves in grown.items():
        for name, points in curves.items():
            line = ", ".join(f"{name}={value}: {1e3 * seconds:.2f}" for value, seconds in points)
            print(f"{size}, ms for each judged step: {line}")
    write(rows, options.json)
    if options.json and grown:
        path = Path(options.json).with_suffix(".growth.json")
        path.write_text(json.dumps(grown, indent=1), encoding="utf-8")
    if options.plot and grown:
        draw_growth(grown, options.plot)


if __name__ == "__main__":
    main()
