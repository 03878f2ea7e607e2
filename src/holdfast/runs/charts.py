"""Draw learning curves as SVG, without a plotting library. The picture is legible on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from holdfast.errors import printable
from holdfast.runs.curves import Curve

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b0459a", "#8a6d00", "#5b4fc4", "#c4314b", "#4d7080")
DARK = ("#56b4e9", "#ff9a4d", "#3fd0a0", "#e58fd0", "#e0c341", "#a79cff", "#ff7d8e", "#9fc0cf")
DASHES = ("", "7 4", "2 3")  # with the colours, 24 kinds of lines
WIDTH, LEFT, RIGHT, TOP, PLOT = 860, 76, 24, 44, 320
ROW, MAX_LABEL, CHARACTER = 21, 110, 7.2
POINTS, SEED_POINTS = 300, 150


@dataclass(frozen=True)
class Line:
    """A line of the picture: one run, or the mean of several, which are drawn thinly."""

    label: str
    curve: Curve
    parts: Sequence[Curve] = ()


def draw_curves(title: str, metric: str, lines: Sequence[Line]) -> str:
    """Return the picture. Lines that come first are drawn on top; of more than 24, the others are grey."""
    plot = _Plot.of([curve for line in lines for curve in (line.curve, *line.parts)])
    distinct = len(LIGHT) * len(DASHES)
    body = [*_axes(plot, metric)]
    for i, line in reversed([*enumerate(lines)]):
        kind = f'class="c{i % len(LIGHT)}"{_dash(i)}' if i < distinct else 'class="other"'
        body += [plot.polyline(part.thinned(SEED_POINTS), f'{kind} opacity="0.35"') for part in line.parts]
        body.append(plot.polyline(line.curve.thinned(POINTS), f'{kind} stroke-width="2.2"'))
    legend, rows = _legend([line.label for line in lines[:distinct]], len(lines) - distinct)
    height = TOP + PLOT + 58 + ROW * rows + 8
    shown = escape(printable(title, 100))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{shown}">'
    )
    heading = f'<text x="{LEFT}" y="26" class="title">{shown}</text>'
    page = f'<rect class="page" width="{WIDTH}" height="{height}"/>'
    return "\n".join([head, f"<style>{_style()}</style>", page, heading, *body, *legend, "</svg>", ""])


@dataclass(frozen=True)
class _Plot:
    """The area of the lines: from 0 to `most` steps, and from `low` to `high`."""

    most: int
    low: float
    high: float

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> _Plot:
        values = [value for curve in curves for value in curve.values]
        low, high = min(values, default=0.0), max(values, default=1.0)
        margin = (high - low) * 0.04 or max(abs(high) * 0.1, 0.5)
        return cls(max((curve.last_step for curve in curves), default=0) or 1, low - margin, high + margin)

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.most

    def y(self, value: float) -> float:
        return TOP + PLOT * (1 - (value - self.low) / (self.high - self.low))

    def polyline(self, curve: Curve, attributes: str) -> str:
        if len(curve.steps) == 1:
            x, y = self.x(curve.steps[0]), self.y(curve.values[0])
            return f'<circle {attributes} cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
        places = (f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(curve.steps, curve.values, strict=True))
        return f'<polyline {attributes} points="{" ".join(places)}"/>'


def _style() -> str:
    def colours(names: Sequence[str]) -> str:
        return " ".join(f".c{i} {{ stroke: {name} }}" for i, name in enumerate(names))

    return (
        ".page { fill: #fff } text { font: 13px system-ui, sans-serif; fill: #333 } .title { font-size: 15px; "
        "font-weight: 600 } .grid { stroke: #8884 } polyline, circle { fill: none; stroke-linejoin: round } "
        f".other {{ stroke: #999 }} {colours(LIGHT)} @media (prefers-color-scheme: dark) {{ .page {{ fill: #14171a }} "
        f"text {{ fill: #d5d9dd }} .other {{ stroke: #777 }} {colours(DARK)} }}"
    )


def _dash(i: int) -> str:
    dash = DASHES[i // len(LIGHT)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _axes(plot: _Plot, metric: str) -> list[str]:
    parts = []
    bottom, right = TOP + PLOT, WIDTH - RIGHT
    for value in ticks(plot.low, plot.high, 6):
        y = plot.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.6g}</text>')
    for step in ticks(0, plot.most, 6):
        x = plot.x(step)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{_steps(step)}</text>')
    across, down = (LEFT + right) / 2, TOP + PLOT / 2
    parts.append(f'<text x="{across}" y="{bottom + 40}" text-anchor="middle">agent steps</text>')
    shown = escape(printable(metric, 60))
    turned = f'transform="rotate(-90 16 {down})" text-anchor="middle"'
    return [*parts, f'<text x="16" y="{down}" {turned}>{shown}</text>']


def ticks(low: float, high: float, about: int) -> list[float]:
    """Return about this many round numbers (1, 2 or 5 times a power of ten apart) from low to high."""
    raw = (high - low) / about
    if not raw > 0 or not math.isfinite(raw):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= raw), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _steps(step: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if step >= size:
            return f"{step / size:.4g}{unit}"
    return f"{step:.4g}"


def _legend(labels: Sequence[str], others: int) -> tuple[list[str], int]:
    """Return the legend below the plot, and its number of rows: in as many columns as the labels allow."""
    shown = [printable(label, MAX_LABEL) for label in labels]
    entries = [(f'class="c{i % len(LIGHT)}"{_dash(i)}', label) for i, label in enumerate(shown)]
    if others > 0:
        entries.append(('class="other"', f"{others} more"))
    space = WIDTH - LEFT - RIGHT
    columns = max(1, int(space // (46 + CHARACTER * max((len(label) for _, label in entries), default=1))))
    rows = -(-len(entries) // columns)
    parts = []
    for i, (kind, label) in enumerate(entries):
        x, y = LEFT + space / columns * (i // max(rows, 1)), TOP + PLOT + 58 + ROW * (i % max(rows, 1))
        parts.append(f'<polyline {kind} stroke-width="2.6" points="{x:.0f},{y + 5:.0f} {x + 26:.0f},{y + 5:.0f}"/>')
        parts.append(f'<text x="{x + 34:.0f}" y="{y + 10:.0f}">{escape(label)}</text>')
    return parts, rows
