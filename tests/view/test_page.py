"""The page of `holdfast view` in a real browser: facts of its elements and of window.holdfast.state()."""

from __future__ import annotations

from typing import Any

import pytest

from . import synthetic
from .opened import Show, colors, pixels, seek, state, wait_until
from .synthetic import CHOICE, EPISODE

KINDS = {
    "maze": synthetic.maze,
    "large_grid": synthetic.large_grid,
    "frames": synthetic.frames,
    "observation": synthetic.observation,
    "without_memory": synthetic.without_memory,
}


@pytest.mark.parametrize("kind", KINDS)
def test_opens_and_draws_every_step(show: Show, kind: str) -> None:
    page = show(KINDS[kind]())
    now = state(page)
    assert page.evaluate("window.holdfast.ready") is True
    assert (now["track"], now["step"], now["agent"], now["playing"]) == (0, 0, 0, False)
    pictures = set()
    for step in range(now["steps"]):
        seek(page, 0, step, 0)
        assert state(page)["step"] == step
        if step < 6:
            wait_until(page, "document.getElementById('world').width > 0")
            pictures.add(pixels(page, "#world"))
    assert colors(page, "#world") > 2
    assert len(pictures) > 1
    assert page.locator("#failure").is_hidden()


def test_the_policy_of_the_page_allows_only_its_own_code(show: Show) -> None:
    page = show(synthetic.maze())
    content = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert "default-src 'none'" in content
    assert "unsafe" not in content
    assert "blob:" not in content
    page.evaluate("document.head.append(Object.assign(document.createElement('script'), {text: 'window.foreign = 1'}))")
    assert page.evaluate("window.foreign") is None
    assert any("Content Security Policy" in complaint for complaint in page.complaints)
    page.complaints.clear()


def test_play_advances_and_stops_at_the_end(show: Show) -> None:
    page = show(synthetic.maze())
    page.select_option("#speed", "1")  # 48 s for all steps
    page.click("#play")
    assert state(page)["playing"]
    page.select_option("#speed", "60")
    wait_until(page, "!window.holdfast.state().playing")
    assert state(page)["step"] == state(page)["steps"] - 1
    page.select_option("#speed", "1")
    page.click("#play")
    assert state(page)["step"] < state(page)["steps"] - 1, "starts again"
    wait_until(page, "window.holdfast.state().step > 0")
    page.click("#play")
    assert not state(page)["playing"]


def test_one_frame_at_most_is_awaited(show: Show) -> None:
    page = show(synthetic.maze())
    page.evaluate("""() => {
        window.awaited = new Set();
        let next = 1e6;
        window.requestAnimationFrame = () => { window.awaited.add(++next); return next; };
        window.cancelAnimationFrame = (handle) => window.awaited.delete(handle);
    }""")
    for presses in range(1, 6):
        page.keyboard.press(" ")
        assert state(page)["playing"] == (presses % 2 == 1)
        assert page.evaluate("window.awaited.size") == presses % 2


def test_scrubs_by_click_and_drag(show: Show) -> None:
    page = show(synthetic.maze())
    steps = state(page)["steps"]
    for canvas in page.locator("#timeline .lane canvas").all():
        box = canvas.bounding_box()
        canvas.click(position={"x": box["width"] * 10.5 / steps, "y": box["height"] / 2})
        assert state(page)["step"] == 10
        canvas.click(position={"x": 1, "y": box["height"] / 2})
        assert state(page)["step"] == 0
    page.evaluate("window.scrollTo(0, 0)")
    box = page.locator("#timeline .lane canvas").first.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 5)
    page.mouse.down()
    for step in (3, 7, 20):
        page.mouse.move(box["x"] + box["width"] * (step + 0.5) / steps, box["y"] + 5)
        assert state(page)["step"] == step
    page.mouse.up()
    page.mouse.move(box["x"] + 2, box["y"] + 5)
    assert state(page)["step"] == 20


def test_the_cursor_line_is_at_the_step(show: Show) -> None:
    page = show(synthetic.maze())
    box = page.locator("#timeline .lane canvas").first.bounding_box()
    for step in (0, 17, 47):
        seek(page, 0, step, 0)
        cursor = page.locator(".cursor").bounding_box()
        assert cursor["x"] + cursor["width"] / 2 == pytest.approx(box["x"] + box["width"] * (step + 0.5) / 48, abs=2)


def test_a_long_track_shows_a_window_that_follows(show: Show) -> None:
    page = show(synthetic.long(steps=500, units=16))
    for step in (0, 130, 499, 250):
        seek(page, 0, step, 0)
        shown = state(page)["shown"]
        assert shown["count"] < 500
        assert shown["first"] <= step < shown["first"] + shown["count"]
    box = page.locator("canvas.overview").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + 5)
    assert state(page)["step"] == pytest.approx(450, abs=2)


def test_keyboard(show: Show) -> None:
    page = show(synthetic.maze())

    def after(*keys: str) -> tuple[int, int, int]:
        for key in keys:
            page.keyboard.press(key)
        now = state(page)
        return now["track"], now["step"], now["agent"]

    assert after("ArrowRight", "ArrowRight") == (0, 2, 0)
    assert after("ArrowLeft") == (0, 1, 0)
    assert after("Shift+ArrowRight") == (0, EPISODE, 0)
    assert after("ArrowRight", "End") == (0, 2 * EPISODE - 1, 0)
    assert after("m") == (0, EPISODE, 0)
    assert after("b") == (0, 2 * EPISODE - 1, 0)
    assert after("Home") == (0, EPISODE, 0)
    assert after("n") == (0, 2 * EPISODE - 1, 0)
    assert after("Shift+ArrowLeft") == (0, 0, 0)
    assert after("2") == (0, 0, 1)
    assert after("9") == (0, 0, 1)
    speed = state(page)["speed"]
    page.keyboard.press("+")
    assert state(page)["speed"] > speed
    page.keyboard.press("-")
    assert state(page)["speed"] == speed
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()
    page.keyboard.press(" ")
    assert state(page)["playing"]
    page.keyboard.press(" ")
    assert not state(page)["playing"]


def test_keys_work_after_a_click_on_a_button(show: Show) -> None:
    page = show(synthetic.maze())
    page.click("#next-episode")
    page.keyboard.press(" ")
    assert state(page)["playing"]
    assert state(page)["episode"] == 1


def test_focus_stays_in_the_dialog_that_a_click_opened(show: Show) -> None:
    page = show(synthetic.maze())
    page.click("#help")
    assert page.evaluate("document.getElementById('keys').contains(document.activeElement)")
    page.keyboard.press("Enter")
    assert page.locator("dialog").is_hidden()


def test_episodes(show: Show) -> None:
    page = show(synthetic.maze())
    assert page.locator("#episodes option").count() == 12
    page.select_option("#episodes", "1 2")
    assert (state(page)["track"], state(page)["episode"], state(page)["stepOfEpisode"]) == (1, 2, 0)
    page.click("#step-forward")
    page.click("#to-reset")
    assert state(page)["step"] == 2 * EPISODE
    page.click("#previous-episode")
    assert state(page)["episode"] == 1
    seek(page, 1, 0, 0)
    page.click("#previous-episode")
    assert (state(page)["track"], state(page)["episode"]) == (0, 5)
    page.click("#next-episode")
    assert (state(page)["track"], state(page)["episode"]) == (1, 0)
    assert page.locator("#episodes").input_value() == "1 0"


def test_agents(show: Show) -> None:
    page = show(synthetic.maze())
    before = pixels(page, "#world")
    page.click("[data-agent='1']")
    assert state(page)["agent"] == 1
    assert page.locator("[data-agent='1']").get_attribute("aria-pressed") == "true"
    assert page.locator("[data-agent='0']").get_attribute("aria-pressed") == "false"
    assert pixels(page, "#world") != before


def test_the_action_is_marked_and_its_figures_are_shown(show: Show) -> None:
    data = synthetic.maze()
    track = data["tracks"][0]
    track["probabilities"][CHOICE, 0] = [0, 0, 255, 0, 0]
    track["chosen"][CHOICE, 0] = 2
    track["value"][CHOICE, 0] = 0.25
    track["reward"][:EPISODE, 0] = [0.5, 0, 0, 0, 0, 0, 0, 1]
    page = show(data)
    seek(page, 0, CHOICE, 0)
    assert page.locator(".option.chosen .option-name").all_inner_texts() == ["move_south"]
    assert page.locator(".option.chosen .percent").inner_text() == "100%"
    figures = [page.locator(f"#{name}").inner_text() for name in ("value", "reward", "so-far")]
    assert [float(figure) for figure in figures] == [0.25, 1, 1.5]


def test_the_most_influential_observation(show: Show) -> None:
    data = synthetic.maze()
    data["tracks"][0]["influence"][CHOICE, 0, :] = 0
    data["tracks"][0]["influence"][CHOICE, 0, 5] = 204
    data["tracks"][0]["influence"][CHOICE, 1, :] = 12  # below 0.05
    page = show(data)
    seek(page, 0, CHOICE, 0)
    assert state(page)["strongestPast"] == {"back": 5, "step": CHOICE - 5, "influence": pytest.approx(0.8)}
    assert page.locator(".influence").inner_text() == "0.8"
    assert colors(page, "#past-world") > 2
    page.click("#jump-past")
    assert state(page)["step"] == CHOICE - 5
    page.click("#back")
    assert state(page)["step"] == CHOICE
    seek(page, 0, CHOICE, 1)
    assert state(page)["strongestPast"] is None
    assert page.locator("#no-past").is_visible()
    assert page.locator("#past-world").is_hidden()
    page.keyboard.press("m")
    assert state(page)["step"] == CHOICE
    data["smallest_influence"] = 0.01
    page = show(data)
    seek(page, 0, CHOICE, 1)
    assert state(page)["strongestPast"] is not None


def with_influence(back: int, scope: str) -> dict[str, Any]:
    """The only influence is of the observation `back` steps before step 2 of the second episode."""
    data = synthetic.maze()
    data["memory_scope"] = scope
    for track in data["tracks"]:
        track["influence"][:] = 0
    data["tracks"][0]["influence"][EPISODE + 2, 0, back] = 255
    return data


def test_influence_does_not_reach_into_the_episode_before(show: Show) -> None:
    page = show(with_influence(5, "episode"))
    seek(page, 0, EPISODE + 2, 0)
    assert state(page)["strongestPast"] is None
    seek(page, 0, 0, 0)
    page.keyboard.press("n")
    assert state(page)["step"] == 0, "no use of memory to go to"
    page = show(with_influence(2, "episode"))
    page.keyboard.press("n")
    assert state(page)["step"] == EPISODE + 2
    assert state(page)["strongestPast"]["step"] == EPISODE


def test_influence_with_lifetime_memory_reaches_into_earlier_episodes(show: Show) -> None:
    page = show(with_influence(5, "lifetime"))
    page.keyboard.press("n")
    assert state(page)["step"] == EPISODE + 2
    assert state(page)["strongestPast"]["step"] == EPISODE - 3
    assert page.locator("#jump-past").inner_text() == f"Go to episode 0, step {EPISODE - 3}"
    assert page.locator(".past-line").is_visible()
    world = pixels(page, "#world")
    page.keyboard.press("m")
    assert (state(page)["episode"], state(page)["stepOfEpisode"]) == (0, EPISODE - 3)
    page = show(with_influence(5, "episode"))
    seek(page, 0, EPISODE + 2, 0)
    assert pixels(page, "#world") == world, "the place of an earlier episode is not marked in this one"


def test_the_number_of_a_unit_is_that_of_the_agent(show: Show) -> None:
    data = synthetic.maze()
    data["memory"][0]["order"] = [500, *range(1, 64)]
    data["tracks"][0]["memory"][0][10, 0, 0] = 127
    page = show(data)
    canvas = page.locator(".lane.memory canvas").first
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 10.5 / state(page)["steps"], "y": 0.5})
    assert page.locator(".lane.memory .note").first.inner_text() == "step 2: unit 500 1"


def test_the_address_keeps_the_place(show: Show) -> None:
    page = show(synthetic.maze(), "#track=1&step=12&agent=1")
    assert (state(page)["track"], state(page)["step"], state(page)["agent"]) == (1, 12, 1)
    page.click("#step-forward")
    wait_until(page, "location.hash === '#track=1&step=13&agent=1'")
    page.reload()
    page.wait_for_selector("html[data-ready='1']", state="attached")
    assert (state(page)["track"], state(page)["step"], state(page)["agent"]) == (1, 13, 1)
    page.evaluate("location.hash = '#track=0&step=3&agent=0'")
    wait_until(page, "window.holdfast.state().step === 3")


@pytest.mark.parametrize("place", ["#track=99&step=-5&agent=77", "#step=1e99&track=x", "#%E0%A4%A", "#step=<b>"])
def test_an_impossible_address_opens_the_nearest_place(show: Show, place: str) -> None:
    now = state(show(synthetic.maze(), place))
    assert 0 <= now["track"] < now["tracks"]
    assert 0 <= now["step"] < now["steps"]
    assert 0 <= now["agent"] < now["agents"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [360, 700])
def test_fits_narrow_screens(show: Show, page: Any, kind: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    show(KINDS[kind]())
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    for canvas in page.locator("canvas:visible").all():
        box = canvas.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width + 1


def test_follows_a_change_of_the_width(show: Show) -> None:
    page = show(synthetic.maze())
    seek(page, 0, 20, 0)
    page.set_viewport_size({"width": 360, "height": 740})
    wait_until(page, "document.scrollingElement.scrollWidth <= 360")
    wait_until(page, "document.querySelector('#timeline canvas').getBoundingClientRect().right <= 361")
    assert state(page)["step"] == 20


@pytest.mark.parametrize("kind", KINDS)
def test_dark(show: Show, page: Any, kind: str) -> None:
    show(KINDS[kind](), "#step=7")
    light = [pixels(page, f"#timeline .lane:nth-child({n}) canvas") for n in (1, 2)]
    page.emulate_media(color_scheme="dark")
    wait_until(page, "getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)'")
    wait_until(page, "light => document.querySelector('#timeline canvas').toDataURL() !== light", arg=light[0])
    assert pixels(page, "#timeline .lane:nth-child(2) canvas") != light[1]


def test_without_memory_there_is_a_note_and_no_picture(show: Show) -> None:
    page = show(synthetic.without_memory())
    assert page.locator("#no-memory").is_visible()
    assert page.locator(".lane.memory").count() == 0
    assert page.locator("#past-world").is_hidden()
    assert page.locator("#decided").is_hidden()
    assert page.locator("#timeline .lane-name b").all_inner_texts() == ["Step", "Value"]
    page = show(synthetic.maze())
    assert page.locator(".lane.memory").count() == 2
    assert page.locator("#decided").is_visible()
    assert "From the past" in page.locator("#timeline .lane-name b").all_inner_texts()


def test_certificate_and_training(show: Show) -> None:
    page = show(synthetic.maze())
    assert page.locator("#headline").inner_text() == "Needs at least 3 steps of memory"
    assert page.locator(".ways tr").count() == 5
    assert page.locator("#certificate circle").count() == 5
    assert page.locator("#certificate circle.enough").count() == 2
    assert page.locator("#training polyline").count() == 1
    page = show(synthetic.without_memory())
    assert page.locator("#certificate, #training").count() == 0


def test_a_page_opens_where_its_data_says_unless_the_address_does(show: Show) -> None:
    data = synthetic.maze() | {"start": {"track": 1, "step": CHOICE, "agent": 1}}
    page = show(data)
    now = state(page)
    assert (now["track"], now["step"], now["agent"]) == (1, CHOICE, 1)
    page = show(data, "#step=2")
    now = state(page)
    assert (now["track"], now["step"], now["agent"]) == (0, 2, 0)
