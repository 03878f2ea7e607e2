"""Draw the world as it is at one step: tiles of a grid, a rendered frame, or the observation."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from holdfast.view.drawing.canvas import BLUE, CARD, GRID, LINE, MUTED, ORANGE, PAPER, Canvas, diverging
from holdfast.view.drawing.glyphs import draw_agent, draw_object, draw_vibe
from holdfast.view.selection import Episode, Selection

Box = tuple[float, float, float, float]  # x, y, width, height
Part = tuple[int, int, int, int]  # of a grid: first row, last row + 1, first column, last column + 1

WALL_EDGE = "#6b7682"
SMALL = 14  # tiles; larger grids are drawn in part
WIDE = 1.9  # width of that part, divided by its height, if the grid is wide enough
MAX_BARS = 24


def draw_world(canvas: Canvas, shown: Selection, episode: Episode, step: int, box: Box) -> Box:
    """Draw the world at a step of an episode into a box, and return the part of the box that it fills."""
    draw = {"grid": _draw_grid, "frames": _draw_frame, "observation": _draw_observation}[shown.data["scene"]["kind"]]
    return draw(canvas, shown, episode, step, box)


def aspect_of(shown: Selection) -> float:
    """Return the width of the world divided by its height, the largest of all episodes."""
    scene = shown.data["scene"]
    if scene["kind"] == "frames":
        return scene["width"] / scene["height"]
    if scene["kind"] == "observation":
        image = _as_image(shown.episodes[0].track["scene"]["values"][0, shown.agent])
        return image.width / image.height if image else 1.3
    parts = [visible_part(shown, episode, 0) for episode in shown.episodes]
    return max((right - left) / (bottom - top) for top, bottom, left, right in parts)


def _fitted(box: Box, width: float, height: float) -> Box:
    """Return the largest box with these proportions in the corner of `box`."""
    x, y, most_width, most_height = box
    scale = min(most_width / width, most_height / height)
    return x, y, width * scale, height * scale


# ------------------------------------------------------------------------------------------------ grids


def objects_at(episode: Episode, step: int) -> dict[int, list[Any]]:
    """Return the objects of a grid at a step of an episode, by id."""
    objects: dict[int, list[Any]] = {}
    for move in episode.track["scene"]["moves"][episode.start : episode.start + step + 1]:
        if move.get("full"):
            objects = {}
        objects.update({entry[0]: entry for entry in move["objects"]})
        for number in move.get("gone", ()):
            objects.pop(number, None)
    return objects


def inventory_at(shown: Selection, position: int) -> str:
    """Return what the agent carries, in words; "" if nothing or not in a grid."""
    if shown.data["scene"]["kind"] != "grid":
        return ""
    episode, step = shown.at(position)
    carried = [entry[5] for entry in objects_at(episode, step).values() if entry[4] == shown.agent]
    names = shown.data["scene"]["resources"]
    return ", ".join(f"{names[int(key)]} {amount}" for key, amount in (carried[0] if carried else {}).items())


def visible_part(shown: Selection, episode: Episode, step: int) -> Part:
    """Return the rows and columns to draw, as many at all steps.

    Of a large grid, that is all that the agent comes to see in the episode, or if this is still large, a part around it.
    """
    scene = episode.track["scene"]
    height, width, window = scene["height"], scene["width"], shown.data["scene"]["window"]
    path = _path(episode, shown.agent)
    if (height <= SMALL and width <= SMALL) or not all(window) or not path:
        return 0, height, 0, width
    rows, columns = [row for row, _ in path], [column for _, column in path]
    if max(rows) - min(rows) + window[0] > SMALL:
        rows, columns = [rows[min(step, len(rows) - 1)]], [columns[min(step, len(rows) - 1)]]
        tall = min(height, max(window[0], SMALL))
    else:
        tall = min(height, max(rows) - min(rows) + 2 * (window[0] // 2) + 1)
    wide = min(width, max(round(tall * WIDE), max(columns) - min(columns) + 2 * (window[1] // 2) + 1))
    top, left = _start(rows, tall, height), _start(columns, wide, width)
    return top, top + tall, left, left + wide


def _path(episode: Episode, agent: int) -> list[tuple[int, int]]:
    """Return the row and column of an agent at each step of an episode, from the first one at which it is there."""
    path: list[tuple[int, int]] = []
    for move in episode.track["scene"]["moves"][episode.start : episode.start + episode.length]:
        moved = [(entry[2], entry[3]) for entry in move["objects"] if entry[4] == agent]
        path += moved or path[-1:]
    return path


def _start(places: list[int], length: int, size: int) -> int:
    """Return where `length` of `size` rows start if these places are in the middle."""
    return min(max((min(places) + max(places) + 1 - length) // 2, 0), size - length)


def _draw_grid(canvas: Canvas, shown: Selection, episode: Episode, step: int, box: Box) -> Box:
    scene, objects = shown.data["scene"], objects_at(episode, step)
    part = top, bottom, left, right = visible_part(shown, episode, step)
    x, y, width, height = _fitted(box, right - left, bottom - top)
    size = width / (right - left)
    canvas.box(x, y, width, height, CARD)
    for row in range(1, bottom - top):
        canvas.line([(x, y + row * size), (x + width, y + row * size)], GRID, 0.75)
    for column in range(1, right - left):
        canvas.line([(x + column * size, y), (x + column * size, y + height)], GRID, 0.75)
    here = None
    for _, kind, row, column, agent, _, vibe in sorted(objects.values(), key=lambda entry: entry[4]):
        if agent == shown.agent:
            here = row, column
        if not (top <= row < bottom and left <= column < right):
            continue
        tile_x, tile_y = x + (column - left) * size, y + (row - top) * size
        look = scene["types"][kind]
        if agent >= 0 or look["glyph"] == "agent":
            color = shown.data["agent_colors"][max(agent, 0) % len(shown.data["agent_colors"])]
            draw_agent(canvas, tile_x, tile_y, size, max(agent, 0), color, agent == shown.agent)
        elif look["glyph"] == "wall":
            canvas.box(tile_x, tile_y, size, size, look["color"])
            canvas.box(tile_x, tile_y + size * 0.88, size, size * 0.12, WALL_EDGE)
        else:
            draw_object(canvas, tile_x, tile_y, size, look)
        if vibe:
            draw_vibe(canvas, tile_x, tile_y, size, scene["vibes"][vibe]["mark"], look)
    if here and all(scene["window"]):
        seen = _window(here, scene["window"], part)
        _dim_around(canvas, (x, y, width, height), size, seen)
    canvas.box(x, y, width, height, None, LINE)
    return x, y, width, height


def _window(here: tuple[int, int], window: list[int], part: Part) -> Part:
    """Return the rows and columns that the agent sees, counted from the corner of the drawn part."""
    row, column = here
    top, bottom, left, right = part
    up, side = window[0] // 2, window[1] // 2
    return (
        max(top, row - up) - top,
        min(bottom, row - up + window[0]) - top,
        max(left, column - side) - left,
        min(right, column - side + window[1]) - left,
    )


def _dim_around(canvas: Canvas, box: Box, size: float, seen: Part) -> None:
    x, y, width, height = box
    top, bottom, left, right = (edge * size for edge in seen)
    for veil in (
        (x, y, width, top),
        (x, y + bottom, width, height - bottom),
        (x, y + top, left, bottom - top),
        (x + right, y + top, width - right, bottom - top),
    ):
        canvas.veil(*veil, 0.62)
    canvas.box(x + left, y + top, right - left, bottom - top, None, BLUE, radius=1, line=max(1.25, size * 0.035))


# ------------------------------------------------------------------------------------------------ frames and observations


def _draw_frame(canvas: Canvas, shown: Selection, episode: Episode, step: int, box: Box) -> Box:
    number = episode.track["scene"]["index"][episode.start + step]
    image = Image.open(io.BytesIO(base64.b64decode(shown.data["scene"]["images"][number])))
    x, y, width, height = _fitted(box, *image.size)
    canvas.picture(image.convert("RGB"), x, y, width, height)
    canvas.box(x, y, width, height, None, LINE)
    return x, y, width, height


def _draw_observation(canvas: Canvas, shown: Selection, episode: Episode, step: int, box: Box) -> Box:
    values = episode.track["scene"]["values"]
    now = values[episode.start + step, shown.agent]
    if (image := _as_image(now)) is not None:
        x, y, width, height = _fitted(box, *image.size)
        canvas.picture(image, x, y, width, height, smooth=False)
    else:
        rows = values[:, shown.agent].reshape(len(values), -1).astype(np.float64)
        largest = np.maximum(np.abs(rows).max(0), 1e-9)
        x, y, width, height = box
        _draw_bars(canvas, now.reshape(-1).astype(np.float64), largest, box)
    canvas.box(x, y, width, height, None, LINE)
    return x, y, width, height


def _as_image(values: np.ndarray) -> Image.Image | None:
    """Return an observation as an image if it has the shape and type of one."""
    if values.ndim < 2 or min(values.shape[-2:]) < 1 or max(values.shape) < 5:
        return None
    if values.ndim == 3 and values.dtype == np.uint8:
        if values.shape[-1] in (3, 4):
            return Image.fromarray(values[..., :3])
        if values.shape[0] in (3, 4):
            return Image.fromarray(np.moveaxis(values[:3], 0, -1).copy())
    flat = values if values.ndim == 2 else values[-1] if values.shape[0] <= values.shape[-1] else values[..., 0]
    if flat.ndim != 2:
        return None
    flat = flat.astype(np.float64)
    if values.dtype == np.uint8 and flat.max() > 16:
        return Image.fromarray(flat.astype(np.uint8)).convert("RGB")
    return diverging(flat / max(np.abs(flat).max(), 1e-9))


def _draw_bars(canvas: Canvas, values: np.ndarray, largest: np.ndarray, box: Box) -> None:
    """Draw numbers as bars to the left and right of zero, relative to the largest of each."""
    x, y, width, height = box
    canvas.box(x, y, width, height, PAPER)
    if len(values) > MAX_BARS:
        side = int(np.ceil(np.sqrt(len(values) * width / height)))
        tiles = np.zeros(-(-len(values) // side) * side)
        tiles[: len(values)] = values / largest
        canvas.picture(diverging(tiles.reshape(-1, side)), x, y, width, height, smooth=False)
        return
    pitch, middle, reach = height / len(values), x + width / 2 + 8, width / 2 - 18
    canvas.line([(middle, y), (middle, y + height)], LINE)
    for number, (value, most) in enumerate(zip(values, largest, strict=True)):
        top, length = y + pitch * (number + 0.18), reach * abs(value) / most
        canvas.box(middle - length * (value < 0), top, length, pitch * 0.64, ORANGE if value >= 0 else BLUE)
        canvas.text(x + 6, y + pitch * (number + 0.5), str(number), min(10, pitch * 0.7), MUTED, "lm")
