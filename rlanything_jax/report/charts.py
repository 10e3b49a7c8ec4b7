"""Small charts as inline SVG, coloured by the page's CSS variables and read by page.js for hover values.

One function draws them all: lines, marked evaluations, bars and stacked areas, on a linear or a log axis.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

WIDTH = 400
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 8, 24  # margins round the plot, in SVG units (about pixels)
POINTS = 400  # more iterations than this are averaged in groups: the screen has no more pixels

Style = Literal["line", "faint", "marked", "dashed", "bars", "area"]
Format = Literal["percent", "number", "count", "seconds", "ratio", "small"]


@dataclass(frozen=True)
class Series:
    """One curve: its points, a palette index (1..7, `--s1` in page.css) and how it is drawn.

    base: lower edge of an 'area', the sum of the areas below it; `y` is the height on top of it.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int = 1
    style: Style = "line"
    base: Sequence[float] | None = None


def stacked(layers: Sequence[Series]) -> list[Series]:
    """The same layers as areas, each standing on the sum of those before it. All must share their x."""
    below = [0.0] * len(layers[0].x)
    result = []
    for layer in layers:
        result.append(replace(layer, style="area", base=below))
        below = [b + y for b, y in zip(below, layer.y, strict=True)]
    return result


def line_chart(
    title: str,
    curves: Sequence[Series],
    *,
    note: str = "",
    unit: Format = "number",
    y_range: tuple[float | None, float | None] = (None, None),
    log: bool = False,
    band: tuple[float, float] | None = None,
    rule: float | None = None,
    height: int = 190,
) -> str:
    """A <figure> with a legend of last values and the plot; '' where no curve has a point.

    y_range: ends of the y axis, None to fit the data. band: a shaded interval of y. rule: a dashed line at y.
    On a log axis values below 1/1024 (zero included) are drawn at 1/1024.
    """
    curves = [_thin(curve) for curve in curves if len(curve.x)]
    if not curves:
        return ""
    show = FORMATS[unit]
    x_low = min(min(curve.x) for curve in curves)
    x_high = max(max(curve.x) for curve in curves)
    first, last = x_low, x_high
    if x_low == x_high:
        x_low, x_high = x_low - 1, x_high + 1
    bars = max((len(curve.x) for curve in curves if curve.style == "bars"), default=0)
    if bars > 1:  # room for the halves of the first and the last bar
        margin = (x_high - x_low) / (bars - 1) / 2
        x_low, x_high = x_low - margin, x_high + margin
    ticks = _y_ticks(curves, y_range, log, band, rule, count=2 + height // 90, whole=unit == "count")
    scale = _log_position if log else float
    low, high = scale(ticks[0]), scale(ticks[-1])

    def px(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - x_low) / (x_high - x_low)

    def py(y: float) -> float:
        share = (scale(y) - low) / (high - low)
        return height - BOTTOM - (height - TOP - BOTTOM) * min(1.0, max(0.0, share))

    parts = []
    if band:
        top, bottom = py(band[1]), py(band[0])
        width = WIDTH - LEFT - RIGHT
        parts.append(
            f'<rect class="band" x="{LEFT}" y="{top:.1f}" width="{width}" height="{bottom - top:.1f}"/>'
        )
    for tick in ticks:
        y = py(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 3.5:.1f}" text-anchor="end">{escape(show(tick))}</text>')
    x_ticks = [tick for tick in nice_ticks(first, last, 5, whole=True) if x_low <= tick <= x_high]
    for tick in x_ticks:
        parts.append(f'<text x="{px(tick):.1f}" y="{height - 6}" text-anchor="middle">{tick:g}</text>')
    if rule is not None:
        y = py(rule)
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts += [_draw(curve, px, py) for curve in curves]

    data = {
        "x": [LEFT, WIDTH - RIGHT, x_low, x_high],
        "curves": [
            {
                "name": curve.name,
                "color": curve.color,
                "x": [round(x, 2) for x in curve.x],
                "label": [show(y) for y in curve.y],
                "top": [round(py(y), 1) for y in _tops(curve)],
            }
            for curve in curves
        ],
    }
    summary = "; ".join(
        f"{curve.name} from {show(curve.y[0])} to {show(curve.y[-1])}"
        for curve in curves
        if curve.style != "faint"
    )
    legend = "".join(
        f'<li><i class="key {curve.style}" style="--c:var(--s{curve.color})"></i>{escape(curve.name)}'
        f"{_last_value(curve, show)}</li>"
        for curve in curves
    )
    return (
        f"<figure class=\"chart\" data-chart='{_attribute(json.dumps(data, separators=(',', ':')))}'>"
        f"<figcaption><h4>{escape(title)}</h4>{f'<p>{escape(note)}</p>' if note else ''}"
        f'<ul class="legend">{legend}</ul></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" tabindex="0" '
        f'aria-label="{escape(title)} over iterations {first:g} to {last:g}: {escape(summary)}">'
        f'{"".join(parts)}<g class="cursor"></g></svg></figure>'
    )


def sparkline(y: Sequence[float], *, color: int = 1, width: int = 120, height: int = 28) -> str:
    """A line without axes, its last point marked; '' for fewer than two values."""
    if len(y) < 2:
        return ""
    y = _thin(Series("", range(len(y)), y)).y
    low, high = min(y), max(y)
    span = (high - low) or 1.0
    points = [
        (3 + (width - 6) * i / (len(y) - 1), height - 4 - (height - 8) * (value - low) / span)
        for i, value in enumerate(y)
    ]
    end = points[-1]
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" style="--c:var(--s{color})" aria-hidden="true">'
        f'<path class="line" d="{_path(points)}"/><circle cx="{end[0]:.1f}" cy="{end[1]:.1f}" r="2.4"/></svg>'
    )


def nice_ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[float]:
    """About `count` numbers, 1, 2 or 5 times a power of ten apart, that cover `low` to `high`."""
    rough = max((high - low) / count, 1e-12)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if rough <= m * power * (1 + 1e-9))
    if whole:
        step = max(1.0, step)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _ratio(value: float) -> str:
    if 0 < value < 1 and abs(1 / value - round(1 / value)) < 1e-9:
        return f"1/{round(1 / value)}"
    return f"{value:.3g}"


FORMATS: dict[str, Callable[[float], str]] = {
    "percent": lambda v: f"{100 * v:.1f}".removesuffix(".0") + "%",
    "number": lambda v: f"{v:.3f}".rstrip("0").rstrip(".") if abs(v) >= 0.001 else f"{v:.2g}",
    "count": lambda v: f"{v:.1f}".removesuffix(".0"),
    "seconds": lambda v: f"{v:.3g} s" if v < 1000 else f"{v:.0f} s",
    "ratio": _ratio,
    "small": lambda v: f"{v:.2g}" if v else "0",
}


def _log_position(y: float) -> float:
    return math.log2(max(y, 2.0**-10))


def _tops(curve: Series) -> list[float]:
    return [y + b for y, b in zip(curve.y, curve.base or [0.0] * len(curve.y), strict=True)]


def _attribute(text: str) -> str:
    """Escaped for single quotes: JSON is full of double ones, which would be six characters each."""
    return escape(text, quote=False).replace("'", "&#x27;")


def _last_value(curve: Series, show: Callable[[float], str]) -> str:
    """For the legend; the last value of a noisy curve or of a bar says little."""
    return "" if curve.style in ("faint", "bars") else f" <b>{escape(show(curve.y[-1]))}</b>"


def _thin(curve: Series) -> Series:
    group = math.ceil(len(curve.x) / POINTS)
    if group <= 1:
        return curve

    def mean(values: Sequence[float]) -> list[float]:
        return [
            sum(part) / len(part) for i in range(0, len(values), group) for part in [values[i : i + group]]
        ]

    return replace(
        curve, x=mean(curve.x), y=mean(curve.y), base=mean(curve.base) if curve.base is not None else None
    )


def _y_ticks(
    curves: Sequence[Series],
    y_range: tuple[float | None, float | None],
    log: bool,
    band: tuple[float, float] | None,
    rule: float | None,
    count: int,
    whole: bool,
) -> list[float]:
    values = [y for curve in curves for y in _tops(curve)]
    values += list(band or ()) + ([rule] if rule is not None else [])
    low = min(values) if y_range[0] is None else y_range[0]
    high = max(values) if y_range[1] is None else y_range[1]
    if log:
        first = math.floor(_log_position(low) / 2 + 1e-9)  # powers of four
        last = max(math.ceil(_log_position(high) / 2 - 1e-9), first + 1)
        return [4.0**power for power in range(first, last + 1)]
    if low == high:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    return nice_ticks(low, high, count, whole=whole)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _draw(curve: Series, px: Callable[[float], float], py: Callable[[float], float]) -> str:
    points = [(px(x), py(y)) for x, y in zip(curve.x, _tops(curve), strict=True)]
    style = f'style="--c:var(--s{curve.color})"'
    if curve.style == "bars":
        width = max(0.8, 0.72 * (WIDTH - LEFT - RIGHT) / max(len(points), 1))
        floor = py(0)
        bars = "".join(
            f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{floor - y:.1f}"/>'
            for x, y in points
        )
        return f'<g class="bars" {style}>{bars}</g>'
    if curve.style == "area":
        lower = [(px(x), py(b)) for x, b in zip(curve.x, curve.base or (), strict=True)]
        return f'<path class="area" {style} d="{_path(points + lower[::-1])}Z"/>'
    marks = ""
    if curve.style == "marked" or len(points) == 1:
        radius = 2.6 if len(points) <= 40 else 1.4
        marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {style}/>' for x, y in points)
    return f'<path class="line {curve.style}" {style} d="{_path(points)}"/>{marks}'
