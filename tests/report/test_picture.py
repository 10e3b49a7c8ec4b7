"""The README picture and TensorBoard events."""

import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlanything_jax.report import learning_picture, read_run
from rlanything_jax.report.__main__ import main
from rlanything_jax.report.tensorboard import open_writer, write_metrics


def test_several_seeds_in_one_reproducible_svg(run_maker: Callable[..., Path], tmp_path: Path) -> None:
    folders = [
        run_maker(tmp_path / f"seed{seed}", iterations=12 + seed, seed=seed, rollouts=1) for seed in range(2)
    ]
    pictures = [tmp_path / "docs" / name for name in ("a.svg", "b.svg")]
    for picture in pictures:
        assert main([*(f"--workdir={folder}" for folder in folders), f"--picture={picture}"]) == 0
    first, second = (picture.read_bytes() for picture in pictures)
    ElementTree.fromstring(first)
    assert first == second
    assert not (folders[0] / "report.html").exists()


def test_png_and_missing_metrics(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0, "rollout/success": 0.5}\n')
    picture = learning_picture([read_run(tmp_path)], tmp_path / "a.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bad_pictures_are_named(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        learning_picture([], tmp_path / "a.svg")
    with pytest.raises(ValueError, match=r"a\.jpg: name the picture"):
        learning_picture([read_run(run_folder)], tmp_path / "a.jpg")


def test_every_finite_number_becomes_a_scalar() -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def add_scalar(self, key: str, value: float, step: int) -> None:
            written.append((key, value, step))

    write_metrics(
        Writer(), {"iteration": 7, "a/b": 0.5, "n": 2, "bad": float("nan"), "text": "x", "none": None}
    )
    assert written == [("a/b", 0.5, 7), ("n", 2.0, 7)]


def test_events_file(run_folder: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the tensorboard extra")
    assert main([f"--workdir={run_folder}", "--tensorboard"]) == 0
    (events,) = (run_folder / "tensorboard").iterdir()
    assert b"judge/balanced_accuracy" in events.read_bytes()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'rlanything-jax\[tensorboard\]'"):
        open_writer(tmp_path)
