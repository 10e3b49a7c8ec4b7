"""Fixtures of the whole suite."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets: RLANYTHING_DATA, or shared/data beside the repository."""
    folder = Path(os.environ.get("RLANYTHING_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}: set RLANYTHING_DATA to their folder")
    return folder
