"""Draw what runs along the steps: how much each observation moved the action, and the memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.view.drawing.canvas import ACCENT, CARD, GRID, INK, LINE, MUTED, PAPER, Canvas, diverging
from holdfast.view.selection import Selection

MOST_STEPS = 325  # on the time axis; longer episodes are shown in a part around the present step
BEHIND = 0.8  # of that part lies before the present step
MOST_PICTURES = 3  # of the memory
ROW = 3  # pixels per unit
GAP = 5
LABEL_GAP = 18
CONTRAST = 0.75  # exponent of the activity, so that small ones are seen, too
PAST_BAR, PRESENT_BAR = "#6fa3c4", "#c3cad2"


@dataclass(frozen=True)
class Axis:
    """Where positions `first` to `last` lie from left to right."""

    first: int
    last: int  # exclusive
    x: float
    width: float

    @property
    def step_width(self) -> float:
        return self.width / (self.last - self.first)

    def left(self, position: float) -> float:
        return self.x + (position - self.first) * self.step_width

    def middle(self, position: int) -> float:
        return self.left(position + 0.5)


def axis_of(shown: Selection, position: int, x: float, width: float) -> Axis:
    """Return the time axis: all episodes if they fit, otherwise the present one or a part of it."""
    if shown.steps <= MOST_STEPS:
        return Axis(0, shown.steps, x, width)
    episode, step = shown.at(position)
    start = position - step
    if episode.length <= MOST_STEPS:
        return Axis(start, start + episode.length, x, width)
    first = start + min(max(step - int(BEHIND * MOST_STEPS), 0), episode.length - MOST_STEPS)
    return Axis(first, first + MOST_STEPS, x, width)


def draw_influence(canvas: Canvas, shown: Selection, position: int, axis: Axis, y: float, height: float) -> None:
    """Draw how much each observation up to the present step moved the present action."""
    for part, label in ((0.0, "1"), (0.5, ""), (1.0, "0")):
        canvas.line(
            [(axis.x, y + part * height), (axis.x + axis.width, y + part * height)], LINE if part == 1 else GRID
        )
        canvas.text(axis.x - 5, y + part * height, label, 9, MUTED, "rm")
    past = shown.strongest_past(position)
    gap = min(2.0, axis.step_width * 0.12)
    for back, amount in enumerate(shown.influence(position)):
        if amount <= 0 or (at := shown.position_of(*shown.earlier(position, back))) is None or at < axis.first:
            continue
        color = ACCENT if past and back == past[0] else PAST_BAR if back else PRESENT_BAR
        tall = max(1.0, amount * height)
        canvas.box(axis.left(at) + gap, y + height - tall, axis.step_width - 2 * gap, tall, color)


def draw_memory(canvas: Canvas, shown: Selection, position: int, axis: Axis, y: float, height: float) -> None:
    """Draw the units of the memory from the first step to the present one. What is still to come stays empty."""
    pictures = memory_shown(shown.data["memory"])
    if not pictures:
        canvas.box(axis.x, y, axis.width, height, CARD)
        canvas.text(axis.x + axis.width / 4, y + height / 2, "This agent has no memory.", 12, MUTED, "mm")
        return
    each = (height - GAP * (len(pictures) - 1)) / len(pictures)
    for place, number in enumerate(pictures):
        entry, top = shown.data["memory"][number], y + place * (each + GAP)
        units = _units(shown, number, max(1, int(each / ROW)))
        canvas.box(axis.x, top, axis.width, each, CARD)
        drawn = range(axis.first, position + 1)
        rows = np.stack([_activity(shown, number, at)[units] for at in drawn], 1)
        until = axis.left(position + 1) - axis.x
        canvas.picture(
            diverging(np.sign(rows) * np.abs(rows) ** CONTRAST),
            axis.x,
            top,
            until,
            each,
            smooth=rows.shape[1] * 1.5 > until * canvas.scale,
        )
        canvas.text(axis.x - LABEL_GAP, top + each / 2 - 1, entry["name"], 11, INK, "rs", width=axis.x - LABEL_GAP - 20)
        counted = f"{len(units)} of {entry['units']} units" if len(units) < entry["units"] else f"{len(units)} units"
        canvas.text(axis.x - LABEL_GAP, top + each / 2 + 10, counted, 9, MUTED, "rs")


def draw_time(
    canvas: Canvas, shown: Selection, position: int, axis: Axis, top: float, memory: float, bottom: float
) -> None:
    """Draw what crosses all strips: the starts of episodes, the present step, the most influential one, and the steps below.

    top, memory, bottom: where the strips start, the memory starts and the memory ends.
    """
    for start, episode in zip(shown.starts, shown.episodes, strict=True):
        if axis.first < start < axis.last:
            canvas.line([(axis.left(start), top), (axis.left(start), bottom + 4)], PAPER, 3)
            canvas.line([(axis.left(start), top), (axis.left(start), bottom + 14)], MUTED, 1)
        _draw_ticks(canvas, axis, start, episode.length, bottom)
        if axis.first <= start < axis.last and len(shown.episodes) > 1:
            canvas.text(axis.left(start) + 4, bottom + 26, f"episode {episode.number}", 10, INK, "ls")
    near = False
    if (past := shown_past(shown, position, axis)) is not None:
        _frame(canvas, axis, past, memory, bottom, ACCENT)
        near = axis.middle(position) - axis.middle(past) < 16
    if not near:
        canvas.text(axis.middle(position), top - 4, "now", 9, INK, "ms")
    _frame(canvas, axis, position, top, bottom, INK)


def shown_past(shown: Selection, position: int, axis: Axis) -> int | None:
    """Return the position of the past observation that moved the action most; None if none did or the axis ends after it."""
    past = shown.strongest_past(position)
    at = shown.position_of(*shown.earlier(position, past[0])) if past else None
    return at if at is not None and at >= axis.first else None


def memory_shown(entries: list[dict]) -> list[int]:
    """Return which pictures of the memory are drawn: all of a few, otherwise those of the first state tensor."""
    if len(entries) <= MOST_PICTURES - 1:
        return [*range(len(entries))]
    first = entries[0]["name"].split(",")[0]
    return [number for number, entry in enumerate(entries) if entry["name"].split(",")[0] == first][-MOST_PICTURES:]


def _frame(canvas: Canvas, axis: Axis, position: int, top: float, bottom: float, color: str) -> None:
    """Outline a step of the strips; a line if steps are narrow."""
    if axis.step_width < 6:
        canvas.line([(axis.middle(position), top), (axis.middle(position), bottom)], color, 1.25)
    else:
        canvas.box(axis.left(position), top - 1, axis.step_width, bottom - top + 2, None, color, line=1.25)


def _draw_ticks(canvas: Canvas, axis: Axis, start: int, length: int, bottom: float) -> None:
    per_tick = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if size * axis.step_width >= 22)
    for step in range(0, length, per_tick):
        if axis.first <= start + step < axis.last:
            canvas.text(axis.middle(start + step), bottom + 7, str(step), 9, MUTED, "mm")


def _activity(shown: Selection, number: int, position: int) -> np.ndarray:
    episode, step = shown.at(position)
    return episode.track["memory"][number][episode.start + step, shown.agent] / 127.0


def _units(shown: Selection, number: int, most: int) -> np.ndarray:
    """Return the units to draw, in their order: those that vary most up to the decisive steps, or overall if these come early."""
    ends = [step - start + 1 for step, start in zip(shown.decisive, shown.starts, strict=True)]
    if min(ends) < 3:
        ends = [episode.length for episode in shown.episodes]
    rows = np.concatenate(
        [
            e.track["memory"][number][e.start : e.start + end, shown.agent]
            for e, end in zip(shown.episodes, ends, strict=True)
        ]
    ).astype(np.float64)
    return np.sort(np.argsort(-rows.std(0), kind="stable")[:most])
