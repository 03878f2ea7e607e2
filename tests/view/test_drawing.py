"""Pictures of one step: what is drawn, and where."""

import numpy as np
import pytest

from holdfast.errors import SettingsError
from holdfast.view.content import grid_scene
from holdfast.view.drawing import INFLUENCE, MEMORY, RIGHT, STRIPS_X, draw_step
from holdfast.view.drawing.canvas import ACCENT, BLUE, CARD, INK, Canvas, diverging
from holdfast.view.drawing.strips import MOST_STEPS, axis_of, memory_shown, shown_past
from holdfast.view.drawing.world import objects_at, visible_part
from holdfast.view.selection import Selection, check_step, select

from .made_pages import page_data


def rgb(color: str) -> tuple[int, ...]:
    return tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))


def drawn(shown: Selection, position: int) -> np.ndarray:
    return np.asarray(draw_step(shown, position))


def columns_of(picture: np.ndarray, color: str, top: float, bottom: float) -> np.ndarray:
    """Return the columns, from the start of the strips on, that contain this colour between two heights."""
    part = picture[round(top) : round(bottom), round(STRIPS_X) :]
    return np.flatnonzero((part == rgb(color)).all(-1).any(0)) + round(STRIPS_X)


def test_the_memory_grows_with_the_step():
    shown = select(page_data())
    y, height = MEMORY
    width = (RIGHT - STRIPS_X) / shown.steps
    for position in (0, 5, shown.steps - 1):
        picture = drawn(shown, position)
        middle = round(y + height / 2)
        empty = (picture[middle] == rgb(CARD)).all(-1)
        for step in range(shown.steps):
            assert empty[round(STRIPS_X + (step + 0.5) * width)] == (step > position)


def test_the_memory_is_blue_where_negative_and_orange_where_positive():
    image = np.asarray(diverging(np.array([[-1.0, 0.0, 1.0]])))[0].astype(int)
    assert image[0][2] > image[0][0] + 100
    assert image[2][0] > image[2][2] + 100
    assert image[1].min() > 230


def test_the_most_influential_step_is_marked_where_it_is():
    shown = select(page_data(lengths=(8, 8), cue_back=4))
    assert shown.decisive == [5, 13]
    y, height = INFLUENCE
    for decisive in shown.decisive:
        axis = axis_of(shown, decisive, STRIPS_X, RIGHT - STRIPS_X)
        marked = columns_of(drawn(shown, decisive), ACCENT, y + height / 2, y + height - 1)
        assert axis.left(decisive - 4) <= marked.min() < axis.left(decisive - 4) + 5
        assert axis.left(decisive - 3) - 5 < marked.max() <= axis.left(decisive - 3)
        bar = drawn(shown, decisive)[round(y) : round(y + height), round(axis.middle(decisive - 4))]
        assert (bar == rgb(ACCENT)).all(-1).sum() == pytest.approx(0.8 * height, abs=4)
    assert not columns_of(drawn(shown, 6), ACCENT, 60, 450).size


def test_the_present_step_is_outlined():
    shown = select(page_data())
    y, height = INFLUENCE
    for position in (0, 6, 15):
        axis = axis_of(shown, position, STRIPS_X, RIGHT - STRIPS_X)
        ink = columns_of(drawn(shown, position), INK, y + 3, y + height - 3)
        assert ink.min() == pytest.approx(axis.left(position), abs=1.5)
        assert ink.max() == pytest.approx(axis.left(position + 1), abs=1.5)


def test_the_past_frame_is_shown_beside_the_present_one():
    shown = select(page_data(kind="frames"))
    picture = drawn(shown, 5)
    for step in (1, 5):
        assert (abs(picture.astype(int) - (200, 5 * step, 0)).max(-1) <= 1).sum() > 5_000
    assert not (abs(picture.astype(int) - (200, 5 * 2, 0)).max(-1) <= 1).any()


def test_the_chosen_action_has_the_strong_colour():
    shown = select(page_data(units=0))
    first, second = (drawn(shown, position) for position in shown.decisive)
    rows = [np.flatnonzero((picture[70:190, 640:740] == rgb(BLUE)).all(-1).sum(1) > 50) for picture in (first, second)]
    assert rows[0].size
    assert rows[0].max() < rows[1].min()


def test_no_memory_is_said():
    with_memory, without = (drawn(select(page_data(units=units)), 15) for units in (40, 0))
    y, height = (round(x) for x in MEMORY)
    card = [(picture[y : y + height] == rgb(CARD)).all(-1).mean() for picture in (with_memory, without)]
    assert card[0] < 0.05
    assert card[1] > 0.6


@pytest.mark.parametrize("kind", ["grid", "frames", "observation"])
def test_every_kind_of_world_changes_with_the_step(kind):
    shown = select(page_data(kind=kind))
    world = [drawn(shown, position)[60:230, 24:330] for position in (0, 1, 3)]
    assert all((world[0] != other).any() for other in world[1:])
    assert drawn(shown, 0).shape == (450, 800, 3)
    assert draw_step(shown, 0, zoom=2).size == (1600, 900)


def test_objects_of_a_grid_move_and_disappear():
    data = page_data()
    data["tracks"][0]["scene"]["moves"][3]["gone"] = [102]
    episode = select(data).episodes[0]
    assert set(objects_at(episode, 2)) == {1, 100, 101, 102}
    assert set(objects_at(episode, 3)) == {1, 100, 101}
    assert [objects_at(episode, step)[1][3] for step in range(4)] == [0, 1, 2, 3]


def test_of_a_large_grid_the_part_around_the_agent_is_drawn():
    data = page_data()
    scene = data["tracks"][0]["scene"]
    shown = select(data)
    episode = shown.episodes[0]
    assert visible_part(shown, episode, 0) == (0, 5, 0, 5)
    scene.update(height=40, width=30)  # the agent stays in row 0, and goes from column 0 to 4
    assert {visible_part(shown, episode, step) for step in range(8)} == {(0, 3, 0, 7)}
    scene.update(width=6)
    assert visible_part(shown, episode, 0) == (0, 3, 0, 6)
    for step, move in enumerate(scene["moves"][:8]):
        move["objects"][0][2] = 5 * step
    assert [visible_part(shown, episode, step)[:2] for step in (0, 2, 4, 7)] == [(0, 14), (3, 17), (13, 27), (26, 40)]


def test_what_the_agent_does_not_see_is_pale():
    shown = select(page_data())
    wall = rgb("#7d8894")
    assert not (drawn(shown, 0) == wall).all(-1).any()
    data = page_data(scene={**page_data()["scene"], "window": [11, 11]})
    assert (drawn(select(data), 0) == wall).all(-1).sum() > 200


@pytest.mark.parametrize("name", ["<b>\n\x1b[31m", "Übung 迷路", "x" * 500, ""])
def test_names_of_strangers(name):
    data = page_data(run={"name": name, "world": name, "agent": name})
    data["choices"][0]["options"] = [name] * 3
    data["scene"] = grid_scene(["wall", "agent", name, name], [name], ["", name], (3, 3))
    assert draw_step(select(data), 5).size == (800, 450)


def test_letters_that_the_font_lacks():
    canvases = [Canvas(200, 20), Canvas(200, 20)]
    for canvas, text in zip(canvases, ("Übung 迷\n", "Ubung ??"), strict=True):
        canvas.text(0, 15, text, 10)
    assert canvases[0].finished() == canvases[1].finished()
    assert canvases[0].text_width("迷", 10) == canvases[0].text_width("?", 10) > 0


def test_long_text_is_cut():
    canvas = Canvas(200, 20)
    canvas.text(0, 15, "w" * 100, 10, width=100)
    assert (np.asarray(canvas.finished())[:, 101:] == 255).all()


def test_numbers_and_several_choices():
    data = page_data(numbers=[{"name": "torque", "low": -2.0, "high": None}])
    track = data["tracks"][0]
    track.update({key: np.ones((16, 1, 1), np.float32) for key in ("number", "mean", "std")})
    data["choices"] *= 2
    track["chosen"] = np.repeat(track["chosen"], 2, -1)
    track["probabilities"] = np.concatenate([track["probabilities"]] * 2, -1)
    shown = select(data)
    before = drawn(shown, 3)
    track["number"][3] = 2
    track["number"][9] = 3
    assert (before[70:200, 556:] != drawn(shown, 3)[70:200, 556:]).any()


def test_of_many_options_the_chosen_one_is_drawn():
    data = page_data()
    track = data["tracks"][0]
    data["choices"][0]["options"] = [f"option {i}" for i in range(60)]
    track["probabilities"] = np.zeros((16, 1, 60), np.uint8)
    track["chosen"][:, 0, 0] = np.arange(16) * 3
    for position in (0, 15):
        marks = (drawn(select(data), position)[70:190, 450:476] == rgb(BLUE)).all(-1)
        assert marks.any()


def test_the_axis_follows_the_step_of_a_long_episode():
    shown = select(page_data(lengths=(MOST_STEPS * 2,)))
    first, middle, last = (axis_of(shown, at, 0, 650) for at in (0, MOST_STEPS, 2 * MOST_STEPS - 1))
    assert (first.first, first.last) == (0, MOST_STEPS)
    assert middle.first < MOST_STEPS < middle.last == middle.first + MOST_STEPS
    assert last.last == 2 * MOST_STEPS
    for position in (0, MOST_STEPS, 2 * MOST_STEPS - 1):
        assert draw_step(shown, position).size == (800, 450)


def test_few_pictures_of_the_memory():
    names = ["h, layer 1", "h, layer 2", "c, layer 1", "c, layer 2"]
    assert memory_shown([{"name": name} for name in names]) == [0, 1]
    assert memory_shown([{"name": "h"}, {"name": "c"}]) == [0, 1]
    assert memory_shown([{"name": f"h, layer {i}"} for i in range(6)]) == [3, 4, 5]


def test_two_episodes_with_different_decisions_are_chosen():
    data = page_data(lengths=(8, 8, 8))
    assert [episode.number for episode in select(data).episodes] == [0, 1]
    data["tracks"][0]["chosen"][13] = 0  # the second episode decides as the first one
    data["tracks"][0]["chosen"][21] = 1
    assert [episode.number for episode in select(data).episodes] == [0, 2]
    data["tracks"][0]["chosen"][21] = 0
    assert [episode.number for episode in select(data).episodes] == [0, 1]
    assert [episode.number for episode in select(data, episode=2).episodes] == [2]
    assert len(select(page_data(lengths=(400, 400))).episodes) == 1


def test_episodes_of_several_tracks_are_counted_on():
    data = page_data(lengths=(8, 8))
    data["tracks"].append(page_data(lengths=(9,))["tracks"][0])
    (episode,) = select(data, episode=2).episodes
    assert (episode.number, episode.start, episode.length) == (2, 0, 9)


def test_the_idle_end_of_an_episode_is_left_out():
    data = page_data(lengths=(12,))
    track = data["tracks"][0]
    assert select(data).steps == 12
    track["reward"][8:] = 0
    for move in track["scene"]["moves"][8:]:
        move["objects"] = []
    assert select(data).steps == 9
    assert select(data, whole=True).steps == 12
    track["influence"][10, 0, 4] = 255  # the decisive step is kept
    assert select(data).steps == 12


def with_influence(back: int, scope: str):
    """The only influence is of the observation `back` steps before step 2 of the second episode."""
    data = page_data(memory_scope=scope)
    data["tracks"][0]["influence"][:] = 0
    data["tracks"][0]["influence"][8 + 2, 0, back] = 255
    return select(data)


def test_influence_reaches_as_far_as_memory():
    for back, scope, found in [(2, "episode", (2, 1.0)), (3, "episode", None), (3, "lifetime", (3, 1.0))]:
        shown = with_influence(back, scope)
        assert shown.strongest_past(10) == found
        assert shown.decisive == [0, 10 if found else 8]
        assert bool(columns_of(drawn(shown, 10), ACCENT, 60, 450).size) == bool(found)


def test_a_past_step_of_an_earlier_episode():
    shown = with_influence(3, "lifetime")
    episode, step = shown.earlier(10, 3)
    assert (episode.number, step) == (0, 7)
    assert shown.position_of(episode, step) == 7
    second = select(shown.data, episode=1)
    assert second.decisive == [2]
    episode, step = second.earlier(2, 3)
    assert (episode.number, step) == (0, 7)
    assert second.position_of(episode, step) is None
    y, height = INFLUENCE
    assert not columns_of(drawn(second, 2), ACCENT, y, y + height).size, "its bar is not shown"
    assert (drawn(second, 2) == rgb(ACCENT)).all(-1).any(), "its world is"


def test_a_past_step_before_the_axis_is_not_marked():
    data = page_data(lengths=(180, 180), memory_scope="lifetime")
    data["tracks"][0]["influence"][182, 0, 3] = 255
    shown = select(data, whole=True)
    assert shown.steps == 180, "long episodes are shown alone"
    shown = Selection(data, [shown.episodes[0], select(data, episode=1, whole=True).episodes[0]], 0)
    assert shown.position_of(*shown.earlier(182, 3)) == 179
    axis = axis_of(shown, 182, 0, 650)
    assert axis.first == 180
    assert shown_past(shown, 182, axis) is None


def test_what_is_not_there():
    data = page_data(agents=2)
    with pytest.raises(SettingsError, match="--agent 2"):
        select(data, agent=2)
    with pytest.raises(SettingsError, match="--episode 2"):
        select(data, episode=2)
    with pytest.raises(SettingsError, match="8 steps"):
        check_step(select(data), 8)
    assert check_step(select(data), 7) == 7
