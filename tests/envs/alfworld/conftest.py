"""Fixtures of the ALFWorld tests."""

import tarfile
from collections import Counter
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_games(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder of released games for each split, two of every task type in each."""
    archive = data / "alfworld" / "json_2.1.1.tar.xz"
    if not archive.is_file():
        pytest.skip(f"no released ALFWorld games at {archive}")
    folder = tmp_path_factory.mktemp("alfworld")
    count: Counter[tuple[str, str]] = Counter()
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            if member.name.endswith("game.tw-pddl"):
                _, split, task, *_ = member.name.split("/")
                count[split, task.split("-")[0]] += 1
                if count[split, task.split("-")[0]] <= 2:
                    tar.extract(member, folder, filter="data")
    return folder / "json_2.1.1"
