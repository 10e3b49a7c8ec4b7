"""The planner as a whole, compiling the programs of tiny models for chips that are not here."""

import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from rlanything_jax.parallel.mesh import AXES, make_meshes
from rlanything_jax.planning import chips, report, sizes
from rlanything_jax.planning.compiled import Compiled
from rlanything_jax.planning.models import cast
from rlanything_jax.planning.slices import plan, with_mesh

ROOT = Path(__file__).resolve().parents[2]
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="compiling for a TPU needs libtpu: pip install -e '.[plan]'",
)


@pytest.fixture
def tiny(read_config: Callable[[Path], ConfigDict]) -> ConfigDict:
    return read_config(Path("tests/tiny_config.py"))


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict]]:
    """What the command prints and writes, of two slices; libtpu is loaded in a process of its own."""
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    command = [sys.executable, "-m", "rlanything_jax.plan", "--config=tests/tiny_config.py", f"--json={file}"]
    options = [
        "--topology=v5p:2x2x1,v5e:4x2",
        "--only=policy gradient,policy update,policy token",
    ]
    done = subprocess.run(
        [*command, *options, "--config.mesh.data=1", "--config.mesh.fsdp=-1", "--config.mesh.tensor=2"],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout, json.loads(file.read_text())


@needs_libtpu
def test_every_program_of_every_slice_is_compiled_and_fits(planned: tuple[str, list[dict]]) -> None:
    text, rows = planned
    programs = [row for row in rows if "program" in row]
    assert [row["program"] for row in programs] == 2 * [
        "policy gradient",
        "policy update",
        "policy token",
    ]
    for row in programs:
        assert row["fits"] and 0 < sum(row["memory"].values()) < row["memory_limit"]
        assert row["seconds"] == max(row["compute_s"], row["memory_s"], row["link_s"]) > 0
    assert "Smallest of these slices that it fits on: v5p:2x2x1, 4 chips" in text
    assert "not measured" in text


@needs_libtpu
def test_the_gradient_exchanges_over_the_axes_of_the_mesh(planned: tuple[str, list[dict]]) -> None:
    rows = {(row["topology"], row.get("program")): row for row in planned[1]}
    four, eight = rows["v5p:2x2x1", None], rows["v5e:4x2", None]
    assert (four["mesh"]["fsdp"], eight["mesh"]["fsdp"], eight["chips"]) == (2, 4, 8)
    for slice_name in ("v5p:2x2x1", "v5e:4x2"):
        moved = rows[slice_name, "policy gradient"]["collective_bytes"]
        assert moved and all(key.split()[1] in ("fsdp", "tensor", "fsdp+tensor") for key in moved)
    # The moments are spread over twice as many chips.
    small, large = (
        rows[name, "policy update"]["memory"]["policy.moments"] for name in ("v5e:4x2", "v5p:2x2x1")
    )
    assert small < 0.7 * large


@needs_libtpu
def test_a_run_is_the_sum_of_its_programs(planned: tuple[str, list[dict]]) -> None:
    for name in ("v5p:2x2x1", "v5e:4x2"):
        rows = [row for row in planned[1] if row["topology"] == name]
        total = rows.pop()
        phases: dict[str, float] = {}
        for row in rows:
            phases[row["phase"]] = phases.get(row["phase"], 0) + row["runs"] * row["seconds"]
        assert total["phases_s"] == pytest.approx(phases)
        assert total["iteration_s"] == pytest.approx(sum(phases.values()))
        assert total["chip_hours"] == pytest.approx(4 * total["iteration_s"] * total["chips"] / 3600)


@needs_libtpu
def test_what_does_not_fit_is_a_result_that_names_the_tensor(
    monkeypatch: pytest.MonkeyPatch, tiny: ConfigDict
) -> None:
    tiny.judge.rows = 2**22
    tiny.judge.length_buckets = (4096,)
    tiny.sampler.length_buckets = (384,)
    small = plan(tiny, "v5e:2x2", sizes.assumed(tiny), only=["judge reads"])
    assert not small.fits
    printed = report.text([small], tiny, sizes.assumed(tiny), cast(tiny).names)
    assert "config.judge.rows" in printed and "fits on none of these slices" in printed


@needs_libtpu
def test_an_axis_may_take_a_part_of_a_dimension_of_the_torus() -> None:
    meshes = make_meshes({"data": 2, "fsdp": 32}, chips.topology("v5p:4x4x4").devices)
    assert meshes.train.devices.shape == (2, 32, 1, 1, 1)


def test_without_libtpu_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"\.\[plan\]"):
        chips.topology("v5e:2x2")


def test_models_are_presets_or_folders(read_config: Callable[[Path], ConfigDict], chat_folder: Path) -> None:
    config = read_config(Path("configs/alfworld_qwen2_5_7b.py"))
    config.checkpoint = {"policy": "qwen2.5-7b", "judge": "qwen2.5-14b", "rewriter": str(chat_folder)}
    models = cast(config)
    assert (models.policy.layers, models.judge.layers, models.rewriter.layers) == (28, 48, 2)
    assert models.policy.remat == "full" and models.rewriter.dtype == "bfloat16"
    config.checkpoint.judge = "qwen9"
    with pytest.raises(ValueError, match=r"config.checkpoint.judge='qwen9'.*qwen2.5-14b"):
        cast(config)


def test_an_iteration_counts_what_the_config_says(read_config: Callable[[Path], ConfigDict]) -> None:
    """32 tasks (16 new, 16 under verification) with 8 rollouts on 16 hosts: 16 episodes each."""
    config = read_config(Path("configs/alfworld_qwen2_5_7b.py"))
    config.checkpoint = {"policy": "qwen2.5-7b", "judge": "qwen2.5-14b", "rewriter": "qwen3-4b"}
    size = sizes.sizes(config, cast(config).policy, hosts=16)
    assert (size.tasks, size.episodes, size.rows, size.context, size.branches) == (32, 16, 32, 20480, 120)
    assert (size.policy_row, size.judge_row) == (24576, 32768)  # of a tree that is cut
    assumes = sizes.assumed(config, 10_000, 4_000, 300)
    counted = sizes.tokens(config, size, assumes)
    assert counted["played"] == 256 * 10_000
    assert counted["sampled by the judge"] == 256 * 40 * 3 * 300
    runs = sizes.runs(config, size, assumes, rows=16, judge_rows=16)
    assert runs["policy token"] == ("rollouts", 4_000)
    assert runs["policy update"] == ("training", 4)
    assert runs["policy gradient"] == ("training", 8)  # two batches of 16 x 24576 in each of four updates
    assert runs["policy log-probabilities"] == ("training", 6)


def _compiled(memory: dict[str, int], name: str = "policy gradient") -> Compiled:
    nothing = dict.fromkeys(("compute_s", "memory_s", "link_s", "exposed_s", "compile_s"), 0.0)
    return Compiled(name, memory, 1.0, 1.0, 1.0, 1.0, [], limit=10.0, **nothing)


@pytest.mark.parametrize(
    ("name", "group", "setting"),
    [
        ("policy gradient", "policy.moments", "config.*.moments"),
        ("policy gradient", "temporaries", "tokens_per_batch"),
        ("policy token", "cache", "config.sampler.batch_buckets"),
        ("judge token", "weights", "config.rollout_mesh.tensor"),
    ],
)
def test_the_largest_group_is_blamed_and_a_setting_named(name: str, group: str, setting: str) -> None:
    program = _compiled({"batch": 1, group: 20}, name)
    assert not program.fits
    assert program.blame()[0] == group and setting in program.blame()[1]


def test_the_slowest_of_three_rates_decides() -> None:
    nothing = {"exposed_s": 0.0, "compile_s": 0.0, "limit": 10.0}
    program = Compiled("x", {}, 50.0, 80.0, 1.0, 1.0, [], compute_s=0.8, memory_s=0.5, link_s=0.1, **nothing)
    assert program.seconds == 0.8
    assert program.utilisation(100.0) == 50 / 80


def test_a_mesh_on_the_command_line_replaces_that_of_the_config(tiny: ConfigDict) -> None:

    assert with_mesh(tiny, ["fsdp:4", "tensor:2"]).mesh.to_dict() == dict(
        zip(AXES, (1, 4, 2, 1, 1), strict=True)
    )
    assert with_mesh(tiny, []) is tiny
    for wrong, reason in ((["rows:4"], "no axes"), (["fsdp"], "give axes and sizes")):
        with pytest.raises(ValueError, match=reason):
            with_mesh(tiny, wrong)


def _plan(*programs: Compiled) -> report.Plan:
    """On 8 chips of two hosts."""
    devices = [types.SimpleNamespace(process_index=i // 4) for i in range(8)]
    top = chips.Topology("v5e:2x4", chips.CHIPS["v5e"], (2, 4), devices)
    return report.Plan(top, {"fsdp": 8}, list(programs), {}, {}, 1)


def test_the_least_number_of_chips_follows_from_what_is_spread_over_them() -> None:
    """4 of 10 bytes a chip are states, 32 in all: with 2 taken otherwise they need 32 / 8 = 4 chips, with 5 taken 6.4."""
    small = _compiled({"policy.params": 3, "policy.moments": 1, "temporaries": 2})
    assert _plan(small).least_chips == 4
    large = _compiled({"policy.params": 3, "policy.moments": 1, "cache": 5}, "policy token")
    assert _plan(small, large).least_chips == 8  # whole hosts
    assert _plan(small, _compiled({"policy.params": 1, "cache": 10}, "policy token")).least_chips is None
