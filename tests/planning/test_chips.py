"""Slices by name, and how fast their chips exchange."""

import numpy as np
import pytest

from rlanything_jax.planning.chips import CHIPS, GIB, Topology, parse, ring_bandwidth


def test_a_slice_is_a_chip_and_a_shape() -> None:
    assert parse("v5p:4x4x8") == (CHIPS["v5p"], (4, 4, 8))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("v5p-64", "no slice"), ("v3:2x2", "one of v4"), ("v5e:4x4x4", "2 dimensions"), ("v5e:4x", "no slice")],
)
def test_other_names_are_refused_with_the_right_form(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(name)


def test_peak_rates_are_those_of_the_documentation() -> None:
    """The bandwidth of all links and directions of a chip: 1200 GB/s of a v5p, 800 of a v6e, 400 of a v5e."""
    totals = {name: 2 * 2 * chip.dimensions * chip.link / 1e9 for name, chip in CHIPS.items()}
    assert totals == {"v4": 600, "v5e": 400, "v5p": 1200, "v6e": 800}
    assert all(14 * GIB < chip.memory < 96 * GIB for chip in CHIPS.values())


@pytest.mark.parametrize(
    ("shape", "group", "links"),
    [
        ((4, 4, 4), [(0, 0, z) for z in range(4)], 2),  # a ring along one dimension
        ((4, 4, 4), [(0, 0, 0), (0, 0, 1)], 1),  # a part of it is a line
        ((4, 4, 4), [(x, y, z) for x in range(4) for y in range(4) for z in range(4)], 6),
        ((2, 2, 1), [(0, 0, 0), (1, 0, 0)], 1),  # too short to close
    ],
)
def test_a_ring_is_served_from_both_sides_and_dimensions_add_up(
    shape: tuple[int, ...], group: list[tuple[int, ...]], links: int
) -> None:
    top = Topology("v5p", CHIPS["v5p"], shape, [])
    assert ring_bandwidth(top, np.array(group)) == links * 100e9
