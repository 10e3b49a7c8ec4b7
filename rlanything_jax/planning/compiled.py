"""Compiles a program and says what it takes of a chip: memory, collectives, and time by the roofline."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping

import jax

from rlanything_jax.planning import hlo
from rlanything_jax.planning.chips import GIB, Topology, positions, ring_bandwidth
from rlanything_jax.planning.programs import Program, Programs, per_chip, shares_chips
from rlanything_jax.planning.traffic import Collective, collectives, hbm_bytes

_ROWS = "a smaller config.trainer.tokens_per_batch"
_TENSOR = "a larger config.mesh.tensor"
_SPLIT = "a larger config.rollout_mesh.tensor"
_SPREAD = ("params", "moments", "gradient", "base")
# (part of a program's name, part of a group of memory, the settings that would help); the first that fits counts.
_HELP = (
    (
        "",
        "moments",
        "more chips along config.mesh.fsdp, config.*.moments='bfloat16', or adapters (config.*.lora.rank)",
    ),
    ("", "params", f"more chips along config.mesh.fsdp, {_TENSOR}, or adapters (config.*.lora.rank)"),
    ("", "base", f"more chips along config.mesh.fsdp, or {_TENSOR}"),
    ("", "weights", f"{_SPLIT} (of one host's chips), or chips with more memory"),
    ("gradient", "temporaries", f"config.model.remat='full', {_ROWS}, or config.mesh.sequence"),
    ("log-probabilities", "temporaries", f"{_ROWS}, or config.mesh.sequence"),
    ("policy", "temporaries", f"a smaller config.sampler.batch_buckets or turn_buckets, or {_SPLIT}"),
    ("judge", "temporaries", f"a smaller config.judge.rows or branch_buckets, or {_SPLIT}"),
    ("rewriter", "temporaries", "a smaller config.adapt.max_pending or length_buckets"),
    ("policy", "cache", "a smaller config.sampler.batch_buckets or length_buckets"),
    ("judge", "cache", "a smaller config.judge.rows or length_buckets"),
    ("rewriter", "cache", "a smaller config.adapt.max_pending or attempts"),
    ("", "", "more chips along config.mesh.fsdp or tensor"),
)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What one program takes of one chip."""

    name: str
    memory: Mapping[str, int]  # bytes by group: what lies there during the run, arguments, temporaries
    needed: float  # operations of the mathematics
    done: float  # operations of the program
    bytes: float  # moved between the chip and its HBM
    ideal: float  # those of them that no program could do without
    collectives: list[Collective]
    compute_s: float
    memory_s: float
    link_s: float
    exposed_s: float  # of link_s, what is not compiled to run beside computation
    limit: float  # bytes of the chip
    compile_s: float
    refused: str = ""  # the compiler's reason, where it gave up for lack of memory

    @property
    def total(self) -> int:
        return sum(self.memory.values())

    @property
    def spread(self) -> int:
        """Of the total, what is spread over all chips that train, so that more of them hold less of it each."""
        return sum(size for name, size in self.memory.items() if any(part in name for part in _SPREAD))

    @property
    def fits(self) -> bool:
        return not self.refused and self.total <= self.limit

    @property
    def seconds(self) -> float:
        """By the roofline: computation, memory and links side by side, the slowest decides."""
        return max(self.compute_s, self.memory_s, self.link_s)

    def utilisation(self, peak: float) -> float:
        """Share of the peak that is spent on operations of the mathematics."""
        return self.needed / (self.seconds * peak) if self.seconds else 0.0

    def blame(self) -> tuple[str, str]:
        """(the largest group of memory, the setting that would make it smaller)."""
        group = max(self.memory, key=lambda name: self.memory[name])
        return group, next(h for n, g, h in _HELP if n in self.name and g in group)


def compile_program(program: Program, programs: Programs, top: Topology) -> Compiled:
    """Compiles it; a lack of memory is a result, any other failure is raised."""
    began = time.monotonic()
    beside = {
        name: per_chip(tree)
        for name, tree in programs.resident.items()
        if name not in program.arguments and shares_chips(tree, program.mesh)
    }
    beside |= {name: per_chip(tree) for name, tree in program.beside.items()}
    given = {name: per_chip(tree) for name, tree in program.arguments.items()}
    moved, found, refused = program.work.bytes, [], ""
    memory = beside | given
    try:
        compiled = program.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        refused = str(error).splitlines()[0]
        memory["temporaries"] = _temporaries(refused)
    else:
        stats = compiled.memory_analysis()
        out = stats.output_size_in_bytes - stats.alias_size_in_bytes
        used = (
            stats.argument_size_in_bytes + stats.temp_size_in_bytes + out + stats.generated_code_size_in_bytes
        )
        memory["temporaries"] = max(0, used - sum(given.values()))
        module = hlo.parse(compiled.as_text())
        start = hlo.token_loop(module) if program.token else module.entry
        found = collectives(module, dict(program.mesh.shape), start, program.visits)
        moved = hbm_bytes(module, start, program.visits)
    chip, places = top.chip, positions(program.mesh.devices)

    def seconds(one: Collective) -> float:
        return one.total / ring_bandwidth(top, places[one.group])

    return Compiled(
        program.name,
        memory,
        program.work.needed,
        program.work.done,
        moved,
        program.work.bytes,
        found,
        program.work.done / chip.operations,
        moved / chip.bandwidth,
        sum(map(seconds, found)),
        sum(seconds(one) for one in found if not one.hidden),
        chip.memory,
        time.monotonic() - began,
        refused,
    )


def _temporaries(message: str) -> int:
    """Bytes that the compiler wanted: '... required for HLO temporaries (160.00G) exceeds ...' or 'Used 20.1G of 15.7G hbm'."""
    match = re.search(r"temporaries \(([\d.]+)([KMGT])", message) or re.search(
        r"Used ([\d.]+)([KMGT])", message
    )
    return int(float(match[1]) * GIB * 1024.0 ** ("KMGT".index(match[2]) - 2)) if match else 0
