"""What objects look like: decided by name, drawn the same way on pages and in pictures."""

from __future__ import annotations

import re

import numpy as np
import pytest

from holdfast.view.content import grid_scene
from holdfast.view.drawing import draw_step
from holdfast.view.drawing.glyphs import GLYPHS as DRAWINGS
from holdfast.view.grid_looks import AGENT_COLORS, GLYPHS, OBJECT_COLORS, OTHER, looks_of, mark_of_vibe
from holdfast.view.page import ASSETS
from holdfast.view.selection import select

from . import synthetic
from .made_pages import page_data
from .opened import Show, pixels

FLOORS = {"light": "#f3f4f6", "dark": "#39424d", "picture": "#f6f7f9"}  # player.css and drawing/canvas.py


@pytest.mark.parametrize(
    ("name", "glyph"),
    [
        ("carbon_extractor", "mine"),
        ("ore_red", "mine"),
        ("store", "chest"),
        ("RedDoor2", "door"),
        ("exit", "door"),
        ("monkey", OTHER),
        ("key.gold", "key"),
        ("design", OTHER),
        ("cog", "agent"),
        ("cogwheel", OTHER),
        ("stone_wall", "wall"),
        ("", OTHER),
        ("迷路", OTHER),
    ],
)
def test_the_glyph_follows_the_words_of_a_name(name: str, glyph: str) -> None:
    assert looks_of([name])[0].glyph == glyph


def test_marks_tell_types_with_the_same_glyph_apart() -> None:
    looks = looks_of(["door_good", "door_bad", "cue_up", "lava", "chest", "zq_x", "wall"])
    assert [look.mark for look in looks] == ["G", "B", "↑", "!", "", "zq", ""]
    assert [mark_of_vibe(vibe) for vibe in ("", "North", "heart")] == ["", "↑", "he"]


def test_types_have_different_colors_that_depend_on_their_names() -> None:
    names = [f"thing {number}" for number in range(len(OBJECT_COLORS))]
    assert len({look.color for look in looks_of(names)}) == len(names)
    assert looks_of([*names, "another"])[:-1] == looks_of(names)


def luminance(color: str) -> float:
    linear = [(int(color[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("floor", FLOORS)
def test_colors_are_visible_on_the_floor(floor: str) -> None:
    assert FLOORS["light"] in (ASSETS / "player.css").read_text()
    assert FLOORS["dark"] in (ASSETS / "player.css").read_text()
    for color in {*AGENT_COLORS, *OBJECT_COLORS}:
        bright, dim = sorted((luminance(color), luminance(FLOORS[floor])), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) > 1.7, color


def names_of_all() -> dict[str, str]:
    """A type for every glyph."""
    return {glyph: re.split(r"[|$]", pattern)[0] for glyph, pattern in GLYPHS.items()} | {OTHER: "zq"}


def test_every_glyph_has_a_drawing_of_its_own_on_the_page(show: Show) -> None:
    data = synthetic.maze(agents=1)
    names = [*names_of_all().values()]
    scene = grid_scene(names, ["heart", "ore"], [""], (3, 5))
    assert [look["glyph"] for look in scene["types"]] == [*names_of_all()]
    scene["types"] = [{**look, "color": OBJECT_COLORS[0], "mark": ""} for look in scene["types"]]
    data["scene"] = scene
    for number in range(len(names)):
        data["tracks"][0]["scene"]["moves"][0]["objects"].append([1000 + number, number, 0, number % 5, -1, {}, 0])
    page = show(data)
    assert page.locator(".legend li").count() == len(names)
    drawn = {pixels(page, f".legend li:nth-child({number + 1}) canvas") for number in range(len(names))}
    assert len(drawn) == len(names)


def test_every_glyph_has_a_drawing_of_its_own_in_pictures() -> None:
    assert DRAWINGS.keys() | {"wall", "agent"} == GLYPHS.keys() | {OTHER}
    drawn = set()
    for look in grid_scene(names_of_all().values(), [], [], (0, 0))["types"]:
        data = page_data()
        data["scene"]["types"][3] = {**look, "color": OBJECT_COLORS[0], "mark": ""}
        data["scene"]["window"] = [11, 11]
        drawn.add(np.asarray(draw_step(select(data), 0)).tobytes())
    assert len(drawn) == len(GLYPHS) + 1


def test_pages_and_pictures_have_the_same_colors(show: Show) -> None:
    data = page_data(agents=2)
    data["scene"]["window"] = [11, 11]
    data = {**synthetic.maze(), **data, "memory_scope": "episode"}
    picture = np.asarray(draw_step(select(data), 0)).reshape(-1, 3)
    page = show(data)
    on_page = page.evaluate("""() => {
        const canvas = document.getElementById('world');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return Array.from({ length: data.length / 4 }, (_, i) => (data[i * 4] << 16) | (data[i * 4 + 1] << 8) | data[i * 4 + 2]);
    }""")
    in_picture = {int(value) for value in picture.astype(int) @ [1 << 16, 1 << 8, 1]}
    colors = [look["color"] for look in data["scene"]["types"][2:]] + [*data["agent_colors"][:2]]
    for color in colors:
        assert int(color[1:], 16) in in_picture
        assert int(color[1:], 16) in on_page
