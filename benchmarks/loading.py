"""Measures the host memory that loading a checkpoint takes beyond the arrays themselves.

    python -m benchmarks.loading [--preset NAME] [--shard-mb N] [--json FILE]

Writes a checkpoint of the preset's shape (random bfloat16 weights, several shards, one tensor in memory at a time)
to a scratch folder and loads it in a fresh process onto 8 simulated devices, a mesh of fsdp 4 x tensor 2. The bar is
a peak of at most 1.3 times (the largest shard + the arrays).

The peak is the kernel's high-water mark of resident memory (VmHWM, reset just before loading) less what was
resident then. It counts pages of mapped files as well as the process's own: weights are read through a mapping of
one tensor at a time, and leaving those pages out (RssAnon) would hide a loader that maps a whole checkpoint. Simulated
devices keep their arrays in the same host memory, which is why the arrays are part of the bar.

On a 2-core x86-64 machine: a peak of 1049 MB for 990 MB of arrays and a largest shard of 299 MB, 0.81 of their sum.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from rlanything_jax.models.families import PRESETS, config_to_hf
from rlanything_jax.models.pretrained import CONFIG, abstract_params, from_pretrained
from rlanything_jax.models.tensor_files import NewTensor, write_folder
from rlanything_jax.models.weights import export_tensors

BAR = 1.3
DEVICES = 8
CHILD = "--load"  # the process that is measured


def write_checkpoint(folder: Path, preset: str, shard_bytes: int) -> None:
    """A folder of the preset's shape with random weights."""
    config = dataclasses.replace(PRESETS[preset], dtype="bfloat16", param_dtype=None)
    rng = np.random.default_rng(0)

    def random(tensor: NewTensor) -> NewTensor:
        def make() -> np.ndarray:
            return rng.standard_normal(tensor.shape, np.float32).astype(tensor.dtype)

        return tensor._replace(make=make)

    (folder / CONFIG).write_text(json.dumps(config_to_hf(config)), encoding="utf-8")
    write_folder(
        folder, [random(t) for t in export_tensors(abstract_params(config))], shard_bytes=shard_bytes
    )


def memory_bytes(field: str) -> int:
    """VmRSS (now) or VmHWM (the highest since the last reset) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def load(folder: str) -> dict[str, float]:
    """Loads the folder in this process; returns name -> value, with the unit in the name."""
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    jax.block_until_ready(
        jax.device_put(np.zeros(8), jax.devices()[-1])
    )  # the runtime starts before the count
    before = memory_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: proc(5)
    start = time.perf_counter()
    model = from_pretrained(folder, mesh=mesh)
    seconds = time.perf_counter() - start
    peak = memory_bytes("VmHWM") - before
    arrays = sum(
        shard.data.nbytes for leaf in jax.tree.leaves(model.params) for shard in leaf.addressable_shards
    )
    largest = max(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    return {
        "load_s": seconds,
        "peak_mb": peak / 1e6,
        "arrays_mb": arrays / 1e6,
        "largest_shard_mb": largest / 1e6,
        "peak_over_bar_memory": peak / (largest + arrays),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading")
    parser.add_argument("--preset", default="qwen2.5-0.5b", help="whose shape to load (qwen2.5-0.5b)")
    parser.add_argument("--shard-mb", type=int, default=300, help="largest size of a shard (300)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    parser.add_argument(CHILD, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        print(json.dumps(load(options.load)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), options.preset, options.shard_mb * 10**6)
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
        command = [sys.executable, "-m", "benchmarks.loading", CHILD, folder]
        environment = os.environ | {"XLA_FLAGS": flags.strip(), "JAX_PLATFORMS": "cpu"}
        child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(child.stdout)
    for name, value in result.items():
        print(f"{name:24}{value:12,.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
    if result["peak_over_bar_memory"] > BAR:
        sys.exit(
            f"the peak is {result['peak_over_bar_memory']:.2f} times shard + arrays, above the bar of {BAR}"
        )


if __name__ == "__main__":
    main()
