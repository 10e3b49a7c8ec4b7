"""The plan of a config on slices, as text and as rows for a file."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from rlanything_jax.planning.chips import GIB, Topology
from rlanything_jax.planning.compiled import Compiled
from rlanything_jax.planning.sizes import Assumed

PREDICTION = (
    "Memory is what XLA for TPU says of the compiled programs. Times are predicted by a roofline (operations, bytes and "
    "exchanges at the chips' peak rates, side by side) and not measured on a TPU: a run takes longer."
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A config on one slice."""

    top: Topology
    mesh: Mapping[str, int]
    programs: list[Compiled]
    runs: Mapping[str, tuple[str, float]]  # program -> (phase, how often in an iteration)
    tokens: Mapping[str, float]
    iterations: int

    @property
    def fits(self) -> bool:
        return all(program.fits for program in self.programs)

    @property
    def least_chips(self) -> int | None:
        """Chips below which states would not fit beside what each chip has anyway, in whole hosts; None where nothing helps.

        By proportion: a chip keeps the same rows, and a host the same models to sample with.
        """
        chips, host = len(self.top.devices), len(self.top.devices) // self.top.hosts
        needed = 1.0
        for program in self.programs:
            room = program.limit - (program.total - program.spread)
            if room <= 0:
                return None
            needed = max(needed, chips * program.spread / room)
        return math.ceil(needed / host) * host

    def phases(self) -> dict[str, float]:
        """Seconds of an iteration by phase."""
        seconds: dict[str, float] = collections.defaultdict(float)
        for program in self.programs:
            phase, times = self.runs[program.name]
            seconds[phase] += times * program.seconds
        return dict(seconds)

    @property
    def seconds(self) -> float:
        return sum(self.phases().values())

    @property
    def chip_hours(self) -> float:
        """Of one iteration."""
        return self.seconds * len(self.top.devices) / 3600


def text(plans: Sequence[Plan], config: ConfigDict, assumes: Assumed, models: Mapping[str, str]) -> str:
    """What `python -m rlanything_jax.plan` prints."""
    lines = [
        ", ".join(f"{role} {name}" for role, name in models.items())
        + f"; assumed: episodes of {assumes.episode} tokens, {assumes.sampled} of them sampled, votes of {assumes.vote}"
    ]
    for plan in plans:
        lines += ["", *_plan(plan)]
    fitting = [plan for plan in plans if plan.fits]
    lines.append("")
    if fitting:
        least = min(fitting, key=lambda plan: len(plan.top.devices))
        lines.append(
            f"Smallest of these slices that it fits on: {least.top.name}, {len(least.top.devices)} chips."
        )
    else:
        lines.append("It fits on none of these slices.")
    return "\n".join([*lines, PREDICTION])


def _plan(plan: Plan) -> list[str]:
    top, chip = plan.top, plan.top.chip
    axes = ", ".join(f"{name} {size}" for name, size in plan.mesh.items() if size > 1) or "one chip"
    lines = [
        f"{top.name}: {len(top.devices)} chips on {top.hosts} hosts, mesh {axes}; a chip has {chip.memory / GIB:.1f} GiB, "
        f"{chip.operations / 1e12:.0f} TFLOP/s, {chip.bandwidth / 1e9:.0f} GB/s",
        "",
        f"  {'of one chip':<26} {'GiB':>6} {'':>6} {'TFLOP':>8} {'GB':>8} {'GB sent':>8} {'ms':>10}  bound by   MFU",
    ]
    for program in plan.programs:
        lines.append(_row(program, chip.memory, chip.operations))
        lines += [f"      {line}" for line in _collectives(program)]
        if "token" in program.name and not program.refused:
            lines.append(
                f"      {program.ideal / program.bytes:.0%} of its bytes are weights and cache, read once"
            )
        if not program.fits:
            group, setting = program.blame()
            lines.append(f"      does not fit: {_groups(program)}. Most is {group}; {setting} would help.")
    least = plan.least_chips
    if not plan.fits:
        return [
            *lines,
            "",
            "  It does not fit" + ("." if least is None else f": it needs about {least} chips."),
        ]
    seconds = ", ".join(f"{phase} {s:.0f} s" for phase, s in plan.phases().items())
    counts = ", ".join(f"{n / 1e6:.1f} M {name}" for name, n in plan.tokens.items() if n)
    return [
        *lines,
        "",
        f"  It fits. An iteration takes {plan.seconds:.0f} s ({seconds}) and {plan.chip_hours:.1f} chip-hours; tokens: {counts}.",
        f"  {plan.iterations} iterations take {plan.seconds * plan.iterations / 3600:.1f} hours and "
        f"{plan.chip_hours * plan.iterations:.0f} chip-hours. By memory about {least} chips of this kind would do.",
    ]


def _row(program: Compiled, memory: float, peak: float) -> str:
    times = {"compute": program.compute_s, "HBM": program.memory_s, "links": program.link_s}
    moved = sum(one.total for one in program.collectives)
    cells = (
        f"{program.name:<26}",
        f"{program.total / GIB:>6.2f}",
        f"{program.total / memory:>5.0%}" + (" " if program.fits else "!"),
        f"{program.done / 1e12:>8.2f}",
        f"{program.bytes / 1e9:>8.2f}",
        f"{moved / 1e9:>8.3f}",
        f"{program.seconds * 1e3:>10.2f}",
        f" {max(times, key=lambda name: times[name]):<8}",
        f"{program.utilisation(peak):>5.0%}" if "gradient" in program.name else "",
    )
    return "  " + " ".join(cells).rstrip()


def _collectives(program: Compiled) -> list[str]:
    """One line for each kind and axis, the largest first, with the time on the links and what of it nothing hides."""
    moved: dict[tuple[str, str], float] = collections.defaultdict(float)
    for one in program.collectives:
        moved[one.kind, one.axis] += one.total
    if not moved:
        return []
    parts = sorted(moved.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{kind} over {axis or 'all'} {n / 1e6:.1f} MB" for (kind, axis), n in parts)
    share = program.exposed_s / program.seconds if program.seconds else 0
    return [
        f"{listed}: {program.link_s * 1e3:.2f} ms, of which {program.exposed_s * 1e3:.2f} ms ({share:.0%} of the time) "
        "are not compiled to run beside computation"
    ]


def _groups(program: Compiled) -> str:
    largest = sorted(program.memory.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in largest if size > GIB / 100)


def rows(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """One row a program and slice, and one a slice."""
    found: list[dict[str, Any]] = []
    for plan in plans:
        chip = plan.top.chip
        for program in plan.programs:
            moved: dict[str, float] = collections.defaultdict(float)
            for one in program.collectives:
                moved[f"{one.kind} {one.axis}".strip()] += one.total
            found.append(
                {
                    "topology": plan.top.name,
                    "program": program.name,
                    "memory": dict(program.memory),
                    "memory_limit": chip.memory,
                    "fits": program.fits,
                    "operations": program.done,
                    "operations_needed": program.needed,
                    "bytes": program.bytes,
                    "bytes_ideal": program.ideal,
                    "collective_bytes": dict(moved),
                    "compute_s": program.compute_s,
                    "memory_s": program.memory_s,
                    "link_s": program.link_s,
                    "exposed_link_s": program.exposed_s,
                    "seconds": program.seconds,
                    "mfu": program.utilisation(chip.operations),
                    "runs": plan.runs[program.name][1],
                    "phase": plan.runs[program.name][0],
                    "compile_s": program.compile_s,
                }
            )
        found.append(
            {
                "topology": plan.top.name,
                "chips": len(plan.top.devices),
                "mesh": dict(plan.mesh),
                "fits": plan.fits,
                "least_chips": plan.least_chips,
                "phases_s": plan.phases(),
                "iteration_s": plan.seconds,
                "chip_hours": plan.chip_hours * plan.iterations,
                "tokens": dict(plan.tokens),
            }
        )
    return found
