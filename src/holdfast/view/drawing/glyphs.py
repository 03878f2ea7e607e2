"""What an object of a grid world looks like: a drawing by its name, with a colour of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from holdfast.view.drawing.canvas import INK, Canvas, Point

AGENTS = ["#17689c", "#d9730d", "#2a9d6f", "#8a5bc7", "#c9a000", "#c2569b", "#4a90b8", "#7a5c3d"]
COLORS = ["#d9a400", "#2aa198", "#6c8f1f", "#8a6fd1", "#d2603a", "#3f8fd6", "#9c7a52", "#5f7f8c", "#b3486a"]
ARROWS = {"up": 0, "north": 0, "right": 1, "east": 1, "down": 2, "south": 2, "left": 3, "west": 3}  # quarter turns
HEART = "#d8425a"
LIGHT = "#fff6d6"
WOOD = "#9c7a52"

Draw = Callable[[Canvas, float, float, float, str], None]


def draw_agent(canvas: Canvas, x: float, y: float, size: float, number: int, selected: bool) -> None:
    """Draw an agent as a disc with its number, in a tile whose corner is (x, y)."""
    cx, cy = x + size / 2, y + size / 2
    if selected:
        canvas.disc(cx, cy, size * 0.44, "#ffffff", INK, max(1, size * 0.045))
    canvas.disc(cx, cy, size * 0.34, AGENTS[number % len(AGENTS)])
    if size >= 10:
        canvas.text(cx, cy + size * 0.01, str(number), size * 0.42, "#ffffff", "mm", bold=True)


def draw_object(canvas: Canvas, x: float, y: float, size: float, kinds: list[str], kind: int) -> None:
    """Draw an object of the kind with this index."""
    name = kinds[kind].lower()
    color = COLORS[kind % len(COLORS)]
    for pattern, draw in GLYPHS:
        if pattern.search(name):
            draw(canvas, x, y, size, color)
            break
    else:
        canvas.box(x + size * 0.12, y + size * 0.12, size * 0.76, size * 0.76, color, radius=size * 0.16)
        canvas.text(x + size / 2, y + size / 2, kinds[kind][:2], size * 0.36, "#ffffff", "mm", bold=True)
    if (turns := ARROWS.get(re.split(r"[._\- ]", name)[-1])) is not None:
        draw_arrow(canvas, x + size / 2, y + size / 2, size * 0.4, turns, "#ffffff")


def draw_vibe(canvas: Canvas, x: float, y: float, size: float, vibe: str, of_agent: bool) -> None:
    """Draw what an object shows: an arrow for a direction, otherwise its first letters."""
    cx, cy, length = (
        (x + size * 0.8, y + size * 0.2, size * 0.3) if of_agent else (x + size / 2, y + size * 0.37, size * 0.46)
    )
    if of_agent:
        canvas.disc(cx, cy, size * 0.22, "#ffffff", INK, max(0.5, size * 0.03))
    if (turns := ARROWS.get(vibe.lower())) is not None:
        draw_arrow(canvas, cx, cy, length, turns, INK)
    else:
        canvas.text(cx, cy, vibe[:2], length * 0.8, INK, "mm", bold=True)


def draw_arrow(canvas: Canvas, cx: float, cy: float, length: float, quarter_turns: int, color: str) -> None:
    """Draw an arrow around (cx, cy) that points up, turned clockwise."""
    shape = [(0, -0.5), (0.42, -0.02), (0.15, -0.02), (0.15, 0.5), (-0.15, 0.5), (-0.15, -0.02), (-0.42, -0.02)]
    angle = quarter_turns * math.pi / 2
    sin, cos = round(math.sin(angle)), round(math.cos(angle))
    canvas.polygon([(cx + length * (x * cos - y * sin), cy + length * (x * sin + y * cos)) for x, y in shape], color)


def _points(x: float, y: float, size: float, *points: Point) -> list[Point]:
    return [(x + size * px, y + size * py) for px, py in points]


def _door(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.disc(x + s * 0.5, y + s * 0.42, s * 0.3, color)
    canvas.box(x + s * 0.2, y + s * 0.42, s * 0.6, s * 0.5, color)
    canvas.disc(x + s * 0.5, y + s * 0.44, s * 0.2, LIGHT)
    canvas.box(x + s * 0.3, y + s * 0.44, s * 0.4, s * 0.48, LIGHT)
    canvas.disc(x + s * 0.61, y + s * 0.67, s * 0.05, color)


def _sign(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.45, y + s * 0.5, s * 0.1, s * 0.42, WOOD)
    canvas.box(x + s * 0.12, y + s * 0.08, s * 0.76, s * 0.58, "#f2c230", radius=s * 0.09)


def _chest(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.12, y + s * 0.2, s * 0.76, s * 0.62, color, radius=s * 0.1)
    canvas.box(x + s * 0.12, y + s * 0.44, s * 0.76, s * 0.05, LIGHT)
    canvas.box(x + s * 0.41, y + s * 0.37, s * 0.18, s * 0.19, LIGHT, radius=s * 0.04)


def _gem(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.polygon(_points(x, y, s, (0.3, 0.18), (0.7, 0.18), (0.9, 0.42), (0.5, 0.88), (0.1, 0.42)), color)
    canvas.polygon(_points(x, y, s, (0.38, 0.42), (0.62, 0.42), (0.5, 0.78)), LIGHT)


def _bolt(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.12, y + s * 0.12, s * 0.76, s * 0.76, color, radius=s * 0.16)
    bolt = (0.57, 0.18), (0.28, 0.56), (0.47, 0.56), (0.42, 0.84), (0.72, 0.43), (0.54, 0.43)
    canvas.polygon(_points(x, y, s, *bolt), LIGHT)


def _heart(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.box(x + s * 0.14, y + s * 0.62, s * 0.72, s * 0.26, color, radius=s * 0.05)
    canvas.disc(x + s * 0.38, y + s * 0.26, s * 0.145, HEART)
    canvas.disc(x + s * 0.62, y + s * 0.26, s * 0.145, HEART)
    canvas.polygon(_points(x, y, s, (0.252, 0.33), (0.5, 0.58), (0.748, 0.33), (0.5, 0.22)), HEART)


def _star(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    turns = [(0.46 if i % 2 == 0 else 0.2, math.pi * (i / 5 - 0.5)) for i in range(10)]
    canvas.polygon(_points(x, y, s, *((0.5 + r * math.cos(a), 0.52 + r * math.sin(a)) for r, a in turns)), color)


def _warning(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.polygon(_points(x, y, s, (0.5, 0.1), (0.92, 0.86), (0.08, 0.86)), "#c8202c")
    canvas.text(x + s * 0.5, y + s * 0.63, "!", s * 0.42, "#ffffff", "mm", bold=True)


def _fruit(canvas: Canvas, x: float, y: float, s: float, color: str) -> None:
    canvas.disc(x + s * 0.5, y + s * 0.56, s * 0.32, color)
    canvas.polygon(_points(x, y, s, (0.5, 0.26), (0.6, 0.1), (0.76, 0.1), (0.66, 0.24)), "#6c8f1f")


GLYPHS: list[tuple[re.Pattern[str], Draw]] = [
    (re.compile("door|gate|portal|exit"), _door),
    (re.compile("cue|sign|hint|signal|flag|marker"), _sign),
    (re.compile("altar|shrine|heart"), _heart),
    (re.compile("generator|converter|charger|battery|power"), _bolt),
    (re.compile("mine|extractor|ore|deposit|crystal|gem|carbon|oxygen|germanium|silicon"), _gem),
    (re.compile("chest|box|crate|storage|store|hub|depot"), _chest),
    (re.compile("goal|target|finish|reward|star"), _star),
    (re.compile("lava|hazard|trap|fire|danger"), _warning),
    (re.compile("food|apple|berry|fruit|water|plant"), _fruit),
]
