"""Eight devices compute what one computes, and results lie where the layout says."""

import json
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    ("what", "comparisons"), [("train", 8), ("long rows", 2), ("sample", 2), ("two meshes", 1)]
)
def test_eight_devices_equal_one(on_eight_devices: Callable[..., str], what: str, comparisons: int) -> None:
    rows = [json.loads(line) for line in on_eight_devices("eight_devices.py", what).splitlines()]
    assert len(rows) == comparisons
    for row in rows:
        differences = {key: value for key, value in row.items() if key not in ("what", "mesh")}
        assert differences and max(differences.values()) <= 1e-5, row
