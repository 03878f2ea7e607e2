"""Drawings of objects and agents of a grid world. `grid_looks.py` says which one a type has, its colour and its mark."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from holdfast.view.drawing.canvas import INK, PAPER, Canvas, Point, readable_on

TURNS = {"↑": 0, "→": 1, "↓": 2, "←": 3}  # clockwise, in quarters
HEART = "#d8425a"
LIGHT = "#fff3b0"
WOOD = "#7a5c3d"
METAL = "#9aa4af"

Draw = Callable[[Canvas, float, float, float, str], None]


def draw_agent(canvas: Canvas, x: float, y: float, size: float, number: int, color: str, selected: bool) -> None:
    """Draw an agent as a disc with its number, in a tile whose corner is (x, y)."""
    cx, cy = x + size / 2, y + size / 2
    if selected:
        canvas.disc(cx, cy, size * 0.44, PAPER, INK, max(1, size * 0.045))
    canvas.disc(cx, cy, size * 0.34, color)
    if size >= 10:
        canvas.text(cx, cy + size * 0.01, str(number), size * 0.42, readable_on(color), "mm", bold=True)


def draw_object(canvas: Canvas, x: float, y: float, size: float, look: dict[str, Any]) -> None:
    """Draw an object of a type with this look."""
    draw, (mark_x, mark_y, mark_size) = GLYPHS[look["glyph"]]
    draw(canvas, x, y, size, look["color"])
    color = readable_on(look["color"])
    _draw_mark(canvas, x + mark_x * size, y + mark_y * size, mark_size * size, look["mark"], color)


def draw_vibe(canvas: Canvas, x: float, y: float, size: float, mark: str, look: dict[str, Any]) -> None:
    """Draw what an agent or an object of a type shows to others; an object shows it where its mark would be."""
    if look["glyph"] == "agent":
        canvas.disc(x + size * 0.8, y + size * 0.2, size * 0.22, PAPER, INK, max(0.5, size * 0.03))
        _draw_mark(canvas, x + size * 0.8, y + size * 0.2, size * 0.3, mark, INK)
    elif not look["mark"]:
        draw_object(canvas, x, y, size, {**look, "mark": mark})


def _draw_mark(canvas: Canvas, cx: float, cy: float, size: float, mark: str, color: str) -> None:
    if mark in TURNS:
        draw_arrow(canvas, cx, cy, size, TURNS[mark], color)
    elif mark:
        canvas.text(cx, cy, mark, size * (0.85 if len(mark) > 1 else 1), color, "mm", bold=True)


def draw_arrow(canvas: Canvas, cx: float, cy: float, length: float, quarter_turns: int, color: str) -> None:
    """Draw an arrow around (cx, cy) that points up, turned clockwise."""
    shape = [(0, -0.5), (0.42, -0.02), (0.15, -0.02), (0.15, 0.5), (-0.15, 0.5), (-0.15, -0.02), (-0.42, -0.02)]
    angle = quarter_turns * math.pi / 2
    sin, cos = round(math.sin(angle)), round(math.cos(angle))
    canvas.polygon([(cx + length * (x * cos - y * sin), cy + length * (x * sin + y * cos)) for x, y in shape], color)


def _points(x: float, y: float, size: float, *points: Point) -> list[Point]:
    return [(x + size * px, y + size * py) for px, py in points]


def _altar(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.18, y + s * 0.62, s * 0.64, s * 0.3, color, radius=s * 0.04)
    canvas.box(x + s * 0.1, y + s * 0.5, s * 0.8, s * 0.14, color, radius=s * 0.04)
    canvas.disc(x + s * 0.39, y + s * 0.18, s * 0.12, HEART)
    canvas.disc(x + s * 0.61, y + s * 0.18, s * 0.12, HEART)
    canvas.polygon(_points(x, y, s, (0.283, 0.235), (0.5, 0.48), (0.717, 0.235), (0.5, 0.15)), HEART)


def _mine(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.polygon(_points(x, y, s, (0.28, 0.16), (0.72, 0.16), (0.92, 0.42), (0.5, 0.9), (0.08, 0.42)), color)
    for line in (((0.08, 0.42), (0.92, 0.42)), ((0.28, 0.16), (0.38, 0.42), (0.5, 0.9), (0.62, 0.42), (0.72, 0.16))):
        canvas.line(_points(x, y, s, *line), INK, max(0.5, s * 0.02))


def _generator(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.1, y + s * 0.1, s * 0.8, s * 0.8, color, radius=s * 0.14)
    bolt = (0.56, 0.16), (0.26, 0.56), (0.46, 0.56), (0.4, 0.86), (0.74, 0.42), (0.53, 0.42)
    canvas.polygon(_points(x, y, s, *bolt), LIGHT)


def _chest(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.1, y + s * 0.2, s * 0.8, s * 0.64, color, radius=s * 0.1)
    canvas.line(_points(x, y, s, (0.1, 0.46), (0.9, 0.46)), INK, max(0.5, s * 0.02))
    canvas.box(x + s * 0.42, y + s * 0.38, s * 0.16, s * 0.18, LIGHT, radius=s * 0.03)


def _door(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.disc(x + s * 0.5, y + s * 0.38, s * 0.34, color)
    canvas.box(x + s * 0.16, y + s * 0.38, s * 0.68, s * 0.56, color)
    canvas.disc(x + s * 0.7, y + s * 0.66, s * 0.05, LIGHT)


def _cue(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.45, y + s * 0.5, s * 0.1, s * 0.44, WOOD)
    canvas.box(x + s * 0.08, y + s * 0.1, s * 0.84, s * 0.48, color, radius=s * 0.08)


def _goal(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    turns = [(0.47 if i % 2 == 0 else 0.21, math.pi * (i / 5 - 0.5)) for i in range(10)]
    canvas.polygon(_points(x, y, s, *((0.5 + r * math.cos(a), 0.53 + r * math.sin(a)) for r, a in turns)), color)


def _key(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    shaft = (0.42, 0.5), (0.5, 0.42), (0.9, 0.82), (0.82, 0.9), (0.74, 0.82), (0.67, 0.89), (0.59, 0.81), (0.66, 0.74)
    canvas.polygon(_points(x, y, s, *shaft), color)
    canvas.disc(x + s * 0.32, y + s * 0.34, s * 0.23, color)


def _factory(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    turns = [(0.45 if i % 4 < 2 else 0.34, math.pi * i / 12) for i in range(24)]
    canvas.polygon(_points(x, y, s, *((0.5 + r * math.cos(a), 0.5 + r * math.sin(a)) for r, a in turns)), color)
    canvas.disc(x + s * 0.5, y + s * 0.5, s * 0.17, LIGHT)


def _button(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.12, y + s * 0.12, s * 0.76, s * 0.76, METAL, radius=s * 0.16)
    canvas.disc(x + s * 0.5, y + s * 0.5, s * 0.27, color)


def _food(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.disc(x + s * 0.5, y + s * 0.56, s * 0.34, color)
    canvas.polygon(_points(x, y, s, (0.5, 0.24), (0.6, 0.08), (0.74, 0.08), (0.64, 0.22)), "#6c8f1f")


def _hazard(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.polygon(_points(x, y, s, (0.5, 0.1), (0.93, 0.88), (0.07, 0.88)), color)


def _other(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.1, y + s * 0.1, s * 0.8, s * 0.8, color, radius=s * 0.2)


# Each drawing fills a tile of the size s. The three numbers are where a mark is written: x, y, size.
GLYPHS: dict[str, tuple[Draw, tuple[float, float, float]]] = {
    "altar": (_altar, (0.5, 0.79, 0.26)),
    "mine": (_mine, (0.5, 0.56, 0.3)),
    "generator": (_generator, (0.8, 0.8, 0.3)),
    "chest": (_chest, (0.5, 0.74, 0.26)),
    "door": (_door, (0.5, 0.42, 0.36)),
    "cue": (_cue, (0.5, 0.34, 0.46)),
    "goal": (_goal, (0.5, 0.54, 0.28)),
    "key": (_key, (0.32, 0.34, 0.24)),
    "factory": (_factory, (0.5, 0.5, 0.3)),
    "button": (_button, (0.5, 0.5, 0.34)),
    "food": (_food, (0.5, 0.58, 0.34)),
    "hazard": (_hazard, (0.5, 0.68, 0.4)),
    "other": (_other, (0.5, 0.52, 0.42)),
}
