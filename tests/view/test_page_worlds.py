"""How the page draws worlds: grids with a close-up, vibes, frames, observations."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.view.content import grid_scene

from . import synthetic
from .opened import Show, pixels, seek, state, wait_until
from .synthetic import EPISODE


def test_a_damaged_frame_does_not_stop_the_page(show: Show) -> None:
    data = synthetic.frames()
    data["scene"]["images"][1] = "AAAA"
    page = show(data)
    alarm = """() => {
        const canvas = document.getElementById('world');
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 4) if (data[i] > 180 && data[i + 1] < 60 && data[i + 2] < 70) return true;
        return false;
    }"""
    for step in range(6):
        seek(page, 0, step, 0)
        wait_until(page, alarm if step in (2, 3) else f"() => !({alarm})()")  # two steps have the same frame
    assert state(page)["step"] == 5
    assert page.locator("#failure").is_hidden()


def test_an_agent_that_left_has_no_action(show: Show) -> None:
    data = synthetic.maze()
    data["tracks"][0]["valid"][4:EPISODE, 1] = 0
    page = show(data)
    seek(page, 0, 3, 1)
    assert page.locator(".absent").is_hidden()
    seek(page, 0, 4, 1)
    assert page.locator(".absent").is_visible()
    assert page.locator(".choices").is_hidden()


def test_an_observation_is_drawn_part_by_part(show: Show) -> None:
    data = synthetic.observation()
    page = show(data)
    values = data["tracks"][0]["scene"]["values"]
    values[1] = values[0]
    values[2] = values[0]
    values[2, 0, -1] += 1  # the last part only
    page = show(data)
    pictures = []
    for step in range(3):
        seek(page, 0, step, 0)
        pictures.append(pixels(page, "#world"))
    assert pictures[0] == pictures[1] != pictures[2]


def test_a_small_world_has_a_close_up_of_what_the_agent_observes(show: Show, page: Any) -> None:
    show(synthetic.maze(agents=4))
    assert page.locator("#near").is_visible()
    seek(page, 0, 2, 1)
    seen = pixels(page, "#near")
    seek(page, 0, 2, 0)
    assert pixels(page, "#near") != seen, "another agent observes another part"
    here = pixels(page, "#near")
    seek(page, 0, 4, 0)
    assert pixels(page, "#near") != here
    boxes = [page.locator(name).bounding_box() for name in ("#world", "#near")]
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    show(synthetic.maze(agents=2))
    assert page.locator("#near").is_hidden(), "tiles that are large need none"
    page.set_viewport_size({"width": 360, "height": 740})
    show(synthetic.maze(agents=4))
    assert page.locator("#near").is_hidden(), "no room beside the world"


@pytest.mark.parametrize("vibe", ["up", "heart", "constructor", "🙂🙂🙂"])
def test_vibes_are_drawn_and_described(show: Show, page: Any, vibe: str) -> None:
    data = synthetic.maze(agents=1)
    show(data)
    plain = pixels(page, "#world")
    first = data["tracks"][0]["scene"]["moves"][0]["objects"]
    data["scene"]["vibes"] = grid_scene([], [], ["", vibe], (0, 0))["vibes"]
    shown = first[-1]
    assert shown[4] == 0, "the agent"
    shown.append(1)
    show(data)
    assert pixels(page, "#world") != plain
    box = page.locator("#world").bounding_box()
    rows, columns = data["tracks"][0]["scene"]["height"], data["tracks"][0]["scene"]["width"]
    place = {"x": box["width"] * (shown[3] + 0.5) / columns, "y": box["height"] * (shown[2] + 0.5) / rows}
    page.hover("#world", position=place)
    assert page.locator(".status").inner_text().endswith(f"agent 0, showing {vibe}")
