"""The SVG charts: coordinates computed by hand, ticks, gaps and extreme values."""

import json
import re
from html import unescape
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything_jax.report.charts import POINTS, Series, line_chart, nice_ticks, sparkline, stacked

finite = st.floats(-1e6, 1e6, allow_nan=False)


def data_of(figure: str) -> dict:
    return json.loads(unescape(re.search("data-chart='([^']*)'", figure)[1]))


def test_points_are_where_the_axes_say() -> None:
    figure = line_chart("t", [Series("a", [0, 5, 10], [0.0, 0.5, 1.0])], y_range=(0, 1), height=132)
    # plot: x from 42 to 390, y from 108 (0) to 8 (1)
    assert 'd="M42.0 108.0L216.0 58.0L390.0 8.0"' in figure
    assert data_of(figure)["curves"][0] == {
        "name": "a", "color": 1, "x": [0, 5, 10], "label": ["0", "0.5", "1"], "top": [108.0, 58.0, 8.0],
    }  # fmt: skip


def test_log_axis_spaces_factors_evenly() -> None:
    figure = line_chart("t", [Series("a", [0, 1, 2], [0.25, 1.0, 4.0])], log=True, height=132)
    assert data_of(figure)["curves"][0]["top"] == [108.0, 58.0, 8.0]


def test_ratios_below_one_are_fractions() -> None:
    assert ">1/4<" in line_chart("t", [Series("a", [0, 1], [0.25, 4.0])], unit="ratio", log=True)


def test_zero_on_a_log_axis_is_drawn_at_the_bottom() -> None:
    top = data_of(line_chart("t", [Series("a", [0, 1], [0.0, 1.0])], log=True, height=132))["curves"][0][
        "top"
    ]
    assert top == [108.0, 8.0]


def test_stacked_layers_stand_on_each_other() -> None:
    lower, upper = stacked([Series("a", [0, 1], [1.0, 2.0]), Series("b", [0, 1], [3.0, 4.0])])
    assert (lower.base, upper.base) == ([0.0, 0.0], [1.0, 2.0])
    curves = data_of(line_chart("t", [lower, upper], unit="seconds", y_range=(0, 6)))["curves"]
    assert curves[1]["label"] == ["3 s", "4 s"]  # a layer shows its own height, not the sum
    assert curves[1]["top"][1] == 8.0  # while it is drawn at 2 + 4 = 6


def test_no_points_no_chart() -> None:
    assert line_chart("t", [Series("a", [], [])]) == ""
    assert sparkline([1.0]) == ""


def test_long_runs_are_averaged_to_the_screen() -> None:
    n = 3 * POINTS
    curve = data_of(line_chart("t", [Series("a", range(n), [float(i) for i in range(n)])]))["curves"][0]
    assert len(curve["x"]) == POINTS
    assert curve["x"][0] == 1 and curve["label"][0] == "1"  # the mean of 0, 1, 2


def test_names_are_escaped() -> None:
    figure = line_chart("<b>", [Series("it's <i>\"", [0, 1], [0.0, 1.0])])
    ElementTree.fromstring(figure)
    assert "<b>" not in figure.replace("<b>1</b>", "") and "<i>" not in figure
    assert data_of(figure)["curves"][0]["name"] == "it's <i>\""


@given(
    st.lists(finite, min_size=1, max_size=30), st.sampled_from(["line", "faint", "marked", "bars", "dashed"])
)
def test_any_finite_values_give_well_formed_svg_inside_the_frame(y: list[float], style: str) -> None:
    figure = line_chart("t", [Series("a", range(len(y)), y, style=style)])
    ElementTree.fromstring(figure)
    assert "nan" not in figure and "inf" not in figure
    assert all(8 <= top <= 166 for top in data_of(figure)["curves"][0]["top"])


@given(finite, st.floats(1e-3, 1e6), st.integers(2, 9))
def test_ticks_cover_the_range_evenly(low: float, span: float, count: int) -> None:
    ticks = nice_ticks(low, low + span, count)
    slack = 1e-6 * max(abs(low), span)
    assert ticks[0] <= low + slack and ticks[-1] >= low + span - slack
    assert 2 <= len(ticks) <= count + 2
    steps = [b - a for a, b in zip(ticks, ticks[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-4)
