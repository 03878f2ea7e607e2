"""Draw what an agent could do and what it did: probabilities and numbers, value and reward."""

from __future__ import annotations

import numpy as np

from holdfast.view.drawing.canvas import BLUE, GRID, INK, MUTED, PALE_BLUE, Canvas
from holdfast.view.selection import Selection

MOST_ROWS = 8
ROW = 19.0
LABELS = 74.0  # width


def draw_actions(
    canvas: Canvas, shown: Selection, position: int, x: float, y: float, width: float, height: float
) -> None:
    """Draw a bar for each option and each number of the action, in at most `height`."""
    rows = _rows(shown)
    row_height = min(ROW, height / max(1, sum(len(options) for options in rows) + len(shown.data["numbers"])))
    offset = 0
    for choice, (entry, options) in enumerate(zip(shown.data["choices"], rows, strict=True)):
        chosen = int(shown.of_step("chosen", position)[choice])
        probabilities = shown.of_step("probabilities", position) / 255
        for option in options if chosen in options else [*options[:-1], chosen]:
            name = _readable(entry["options"][option])
            several = f"{entry['name']}: {name}" if len(rows) > 1 else name
            probability = float(probabilities[offset + option]) if probabilities.size else float(option == chosen)
            _draw_option(canvas, several, probability, option == chosen, x, y, width, row_height)
            y += row_height
        offset += len(entry["options"])
    for number, entry in enumerate(shown.data["numbers"]):
        _draw_number(canvas, shown, position, number, entry["name"], x, y, width, row_height)
        y += row_height


def draw_figures(canvas: Canvas, shown: Selection, position: int, x: float, y: float, width: float) -> None:
    """Write the value, the reward and the return so far."""
    episode, step = shown.at(position)
    rows = slice(episode.start, episode.start + step + 1)
    so_far = (episode.track["reward"][rows, shown.agent] * (episode.track["valid"][rows, shown.agent] > 0)).sum()
    figures = {
        "value": shown.of_step("value", position),
        "reward": shown.of_step("reward", position),
        "return so far": so_far,
    }
    for place, (name, figure) in enumerate(figures.items()):
        left = x + width * place / len(figures)
        canvas.text(left, y, name, 10, MUTED)
        canvas.text(left, y + 19, _short(float(figure)), 16, INK, bold=True)


def _draw_option(
    canvas: Canvas, name: str, probability: float, chosen: bool, x: float, y: float, width: float, height: float
) -> None:
    size, middle = min(11.0, height * 0.7), y + height / 2
    if chosen:
        canvas.polygon([(x - 9, middle - 4), (x - 3, middle), (x - 9, middle + 4)], BLUE)
    canvas.text(x, middle, name, size, INK if chosen else MUTED, "lm", bold=chosen, width=LABELS - 4)
    bar = width - LABELS - 30
    canvas.box(x + LABELS, y + height * 0.2, bar, height * 0.6, GRID, radius=1.5)
    if probability * bar >= 0.5:
        canvas.box(
            x + LABELS, y + height * 0.2, bar * probability, height * 0.6, BLUE if chosen else PALE_BLUE, radius=1.5
        )
    canvas.text(x + width, middle, f"{probability:.0%}", size, INK if chosen else MUTED, "rm", bold=chosen)


def _draw_number(
    canvas: Canvas,
    shown: Selection,
    position: int,
    number: int,
    name: str,
    x: float,
    y: float,
    width: float,
    height: float,
) -> None:
    """Draw a real number of the action on a scale: a dot, and the mean with one standard deviation."""
    size, middle = min(11.0, height * 0.7), y + height / 2
    low, high = _limits(shown, number)
    bar = width - LABELS - 40

    def place(value: float) -> float:
        return x + LABELS + bar * min(max((value - low) / (high - low), 0.0), 1.0)

    value = float(shown.of_step("number", position)[number])
    canvas.text(x, middle, name, size, MUTED, "lm", width=LABELS - 4)
    canvas.box(x + LABELS, middle - 1, bar, 2, GRID)
    if shown.of_step("mean", position).size:
        mean, std = (float(shown.of_step(key, position)[number]) for key in ("mean", "std"))
        left, right = place(mean - std), place(mean + std)
        canvas.box(left, middle - height * 0.22, right - left, height * 0.44, PALE_BLUE, radius=1.5)
    canvas.disc(place(value), middle, min(4.5, height * 0.3), BLUE)
    canvas.text(x + width, middle, _short(value), size, INK, "rm", bold=True)


def _limits(shown: Selection, number: int) -> tuple[float, float]:
    """Return the ends of the scale: of the action, or of what was done if it has none."""
    entry = shown.data["numbers"][number]
    done = np.concatenate(
        [e.track["number"][e.start : e.start + e.length, shown.agent, number] for e in shown.episodes]
    )
    low, high = (
        float(limit if limit is not None and np.isfinite(limit) and abs(limit) < 1e6 else reached)
        for limit, reached in ((entry["low"], done.min()), (entry["high"], done.max()))
    )
    return (low, high) if high > low else (low - 1, low + 1)


def _rows(shown: Selection) -> list[list[int]]:
    """Return which options of each choice are drawn, the same at all steps: those that are most likely somewhere."""
    room = max(2, (MOST_ROWS - len(shown.data["numbers"])) // max(1, len(shown.data["choices"])))
    found, offset = [], 0
    for choice, entry in enumerate(shown.data["choices"]):
        count = len(entry["options"])
        score = np.zeros(count)
        for e in shown.episodes:
            rows = slice(e.start, e.start + e.length)
            np.add.at(score, e.track["chosen"][rows, shown.agent, choice], 1.0)
            if e.track["probabilities"].shape[-1]:
                score += e.track["probabilities"][rows, shown.agent, offset : offset + count].max(0) / 255
        found.append(sorted(np.argsort(-score, kind="stable")[:room].tolist()))
        offset += count
    return found


def _readable(name: str) -> str:
    return name.replace("_", " ")


def _short(number: float) -> str:
    """Return a number with about three digits."""
    text = f"{number:.0f}" if abs(number) >= 100 or number == int(number) else f"{number:.2f}"
    return "0" if text in ("-0", "-0.00", "0.00") else text
