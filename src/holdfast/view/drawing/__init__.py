"""Draw one step of an agent as a picture: the world, the action, what decided it, and the memory up to there."""

from __future__ import annotations

from PIL import Image

from holdfast.view.drawing.actions import draw_actions, draw_figures
from holdfast.view.drawing.canvas import ACCENT, CARD, INK, LINE, MUTED, Canvas
from holdfast.view.drawing.strips import LABEL_GAP, axis_of, draw_influence, draw_memory, draw_time, shown_past
from holdfast.view.drawing.world import Box, aspect_of, draw_world, inventory_at
from holdfast.view.selection import Selection

WIDTH, HEIGHT = 800, 450
LEFT, RIGHT = 24.0, 776.0
PANELS, PANEL_HEIGHT = 70.0, 156.0
PAST_HEIGHT, ACTIONS_HEIGHT = 126.0, 112.0
SPACING = 48.0  # at least, between panels with a wide action
WORLD_WIDTHS, PAST_WIDTHS, ACTION_WIDTHS = (130.0, 300.0), (126.0, 170.0), (220.0, 300.0)  # smallest and largest
STRIPS_X = 118.0
INFLUENCE: tuple[float, float] = (262, 44)  # y, height
MEMORY: tuple[float, float] = (314, 102)


def draw_step(shown: Selection, position: int, zoom: int = 1) -> Image.Image:
    """Return the picture of the step at a position, with zoom x 800 x 450 pixels."""
    canvas = Canvas(WIDTH, HEIGHT, zoom)
    _draw_title(canvas, shown, position)
    world, past_panel, actions = _panels(shown)
    _draw_world(canvas, shown, position, world)
    axis = axis_of(shown, position, STRIPS_X, RIGHT - STRIPS_X)
    past = _draw_past(canvas, shown, position, past_panel)
    _caption(canvas, actions[0], "Action")
    draw_actions(canvas, shown, position, *actions)
    draw_figures(canvas, shown, position, actions[0], PANELS + 136, actions[2])
    y, height = INFLUENCE
    canvas.text(STRIPS_X - LABEL_GAP, y + height / 2 - 1, "influence", 11, INK, "rs")
    canvas.text(STRIPS_X - LABEL_GAP, y + height / 2 + 10, "on this action", 9, MUTED, "rs")
    draw_influence(canvas, shown, position, axis, y, height)
    draw_memory(canvas, shown, position, axis, *MEMORY)
    draw_time(canvas, shown, position, axis, y, MEMORY[0], sum(MEMORY))
    if past and (at := shown_past(shown, position, axis)) is not None:
        panel, amount = past
        _connect(canvas, panel, axis.middle(at), y + height * (1 - amount))
    return canvas.finished()


def _panels(shown: Selection) -> tuple[Box, Box, Box]:
    """Return where the world, the past step and the action are drawn, the same at all steps."""
    aspect = aspect_of(shown)
    widths = [
        min(max(wanted, least), most)
        for wanted, (least, most) in (
            (PANEL_HEIGHT * aspect, WORLD_WIDTHS),
            (PAST_HEIGHT * aspect, PAST_WIDTHS),
            (RIGHT, ACTION_WIDTHS),
        )
    ]
    widths[2] = min(widths[2], max(ACTION_WIDTHS[0], RIGHT - LEFT - widths[0] - widths[1] - 2 * SPACING))
    gap = (RIGHT - LEFT - sum(widths)) / 2
    second = LEFT + widths[0] + gap
    return (
        (LEFT, PANELS, widths[0], PANEL_HEIGHT),
        (second, PANELS, widths[1], PAST_HEIGHT),
        (second + widths[1] + gap, PANELS, widths[2], ACTIONS_HEIGHT),
    )


def _draw_title(canvas: Canvas, shown: Selection, position: int) -> None:
    run = shown.data["run"]
    episode, step = shown.at(position)
    place = f"episode {episode.number}, step {step}"
    if episode.track["agents"] > 1:
        place = f"agent {shown.agent}, {place}"
    canvas.text(RIGHT, 32, place, 12, MUTED, "rs")
    room = RIGHT - LEFT - canvas.text_width(place, 12) - 24
    canvas.text(LEFT, 32, str(run["name"]), 16, INK, bold=True, width=room * 0.6)
    used = min(room * 0.6, canvas.text_width(str(run["name"]), 16)) + 10
    canvas.text(LEFT + used, 32, f"{run['world']}, {run['agent']}", 12, MUTED, width=room - used)
    canvas.line([(LEFT, 43), (RIGHT, 43)], LINE)


def _caption(canvas: Canvas, x: float, text: str, figure: str = "", right: float = 0) -> None:
    canvas.text(x, PANELS - 9, text, 11, INK, bold=True)
    if figure:
        canvas.text(right, PANELS - 9, figure, 11, MUTED, "rs")


def _draw_world(canvas: Canvas, shown: Selection, position: int, panel: Box) -> None:
    x, y, width, height = draw_world(canvas, shown, *shown.at(position), panel)
    _caption(canvas, x, "Now", f"step {shown.at(position)[1]}", x + width)
    below, carried = y + height + 15, inventory_at(shown, position)
    wide = width >= 250
    if all(shown.data["scene"].get("window", [0])) and (wide or not carried):
        canvas.text(x, below, "outlined: what the agent sees", 10, MUTED)
    if carried and wide:
        canvas.text(x + width, below, f"carries {carried}", 10, MUTED, "rs", width=width - 150)
    elif carried:
        canvas.text(x, below, f"carries {carried}", 10, MUTED, width=width)


def _draw_past(canvas: Canvas, shown: Selection, position: int, panel: Box) -> tuple[Box, float] | None:
    """Draw the world at the past step that moved the action most, and return where and its influence."""
    x, y, width, _ = panel
    past = shown.strongest_past(position)
    if past is None:
        _caption(canvas, x, "What decided it")
        canvas.box(x, y, width, 83, CARD, radius=3)
        for line, text in enumerate(("No earlier observation", "moved this action.")):
            canvas.text(x + width / 2, y + 38 + 15 * line, text, 11, MUTED, "ms")
        return None
    back, amount = past
    episode, step = shown.earlier(position, back)
    box = draw_world(canvas, shown, episode, step, panel)
    canvas.box(box[0] - 1, box[1] - 1, box[2] + 2, box[3] + 2, None, ACCENT, line=2)
    _caption(canvas, x, "What decided it")
    canvas.text(x, box[1] + box[3] + 17, f"step {step}, {back} step{'s' * (back > 1)} earlier", 11, ACCENT, bold=True)
    elsewhere = "" if episode.number == shown.at(position)[0].number else f"in episode {episode.number}, "
    canvas.text(x, box[1] + box[3] + 31, f"{elsewhere}influence {amount:.2f}", 11, MUTED)
    return box, amount


def _connect(canvas: Canvas, past: Box, x: float, y: float) -> None:
    """Draw a line from the picture of a past step to its bar."""
    start, turn = past[0] - 9, INFLUENCE[0] - 14
    middle = past[1] + past[3] / 2
    canvas.line([(past[0] - 1, middle), (start, middle), (start, turn), (x, turn), (x, y - 2)], ACCENT, 1.25)
    canvas.polygon([(x - 3.5, y - 6), (x + 3.5, y - 6), (x, y - 0.5)], ACCENT)
