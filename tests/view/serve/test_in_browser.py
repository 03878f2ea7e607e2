"""The site in a real browser: list, curves, settings. The fixture `tab` also checks the console and all requests."""

import os

import pytest

from holdfast.view.serve import watching
from support.shown_runs import make_run, row


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path, "slow", updates=20, began=1e9)
    make_run(
        tmp_path,
        "fast",
        updates=30,
        settings={"trainer.lr": 0.004, "policy.core": "gru"},
        checkpoint="00000030",
        began=2e9,
    )
    make_run(tmp_path, "other", updates=5, settings={"env.name": "gym:Acrobot-v1", "audit": "off"}, began=3e9)
    bad = [row(i, parity_max_abs_logratio=0.25) for i in range(1, 9)]
    failed = make_run(tmp_path, "failed", rows=bad, summary=False, began=4e9)
    (failed / "failed.json").write_text('{"error": "the world broke at mine.py:31"}')
    return tmp_path


def cells(tab, name):
    row_ = tab.page.locator("#list tbody tr").filter(has=tab.page.locator(".name", has_text=name))
    return {cell.get_attribute("data-column"): cell.inner_text() for cell in row_.locator("td[data-column]").all()}


def choose(tab, *names):
    tab.page.click("#none")
    for name in names:
        tab.page.get_by_label(f"Compare {name}", exact=True).check()


def traces(tab, metric):
    """Return the values of what a panel has drawn."""
    return tab.page.evaluate(f"document.querySelector('[data-metric=\"{metric}\"] .plot').data.map(t => t.y)")


def test_the_list(tab, runs):
    tab = tab(runs)
    assert tab.names() == ["failed", "other", "fast", "slow"], "newest first"
    fast, failed = cells(tab, "fast"), cells(tab, "failed")
    assert (fast["world"], fast["agent"], fast["state"]) == ("gym:CartPole-v1", "box · gru", "finished")
    assert (fast["steps"], fast["audit"]) == ("1,920", "built in")
    assert float(fast["best"]) >= float(fast["return"]) > 30
    assert failed["state"] == "failed"
    assert "the world broke at mine.py:31" in failed["name"]
    assert tab.page.locator("td.alarm").all_inner_texts() == ["0.25"], "parity above 1e-5 is an alarm"
    assert cells(tab, "other")["audit"] == "off"
    assert tab.page.locator(".go a:visible").count() == 1, "only a run with a checkpoint can be watched"


def test_sorting_and_filtering(tab, runs):
    tab = tab(runs)
    page = tab.page
    page.click("[data-sort=steps]")
    assert tab.names() == ["fast", "slow", "failed", "other"]
    page.click("[data-sort=steps]")
    assert tab.names() == ["other", "failed", "slow", "fast"]
    assert page.locator("[aria-sort=ascending]").inner_text().startswith("Steps")
    page.fill("#find", "CARTPOLE fin")
    tab.wait("document.querySelectorAll('#list tbody tr').length === 2")
    assert tab.names() == ["slow", "fast"]
    assert "2 of 4" in page.inner_text("#count")
    tab.wait("location.hash.includes('find=CARTPOLE+fin')")
    page.reload()
    tab.wait("document.querySelectorAll('#list tbody tr').length === 2")
    assert page.input_value("#find") == "CARTPOLE fin"
    assert tab.names() == ["slow", "fast"]


def test_sorting_on_a_phone(tab, runs):
    tab = tab(runs)
    page = tab.page
    assert not page.get_by_label("Sort by").is_visible(), "a wide list is sorted by its head"
    page.set_viewport_size({"width": 390, "height": 844})
    assert not page.locator("#list thead").is_visible()
    assert page.get_by_label("Sort by").input_value() == "began"
    page.get_by_label("Sort by").select_option(label="Steps")
    assert tab.names() == ["fast", "slow", "failed", "other"]
    page.get_by_label("Sort order: descending").click()
    assert tab.names() == ["other", "failed", "slow", "fast"]
    assert page.get_by_label("Sort order: ascending").inner_text() == "↑"
    tab.wait("location.hash.includes('sort=steps')")
    page.reload()
    tab.wait("document.querySelectorAll('#list tbody tr').length === 4")
    assert page.get_by_label("Sort by").input_value() == "steps"
    assert tab.names() == ["other", "failed", "slow", "fast"]


def test_the_name_of_a_run_is_the_label_of_its_box(tab, runs):
    tab = tab(runs)
    choose(tab, "slow")
    tab.page.locator("#list .name", has_text="fast").click()
    assert tab.page.get_by_label("Compare fast", exact=True).is_checked()
    controls = "[...document.querySelectorAll('#list .name')].map(name => name.control.getAttribute('aria-label'))"
    assert tab.page.evaluate(controls) == [f"Compare {name}" for name in tab.names()]


def test_runs_that_are_left_out_are_counted(tab, runs, monkeypatch):
    monkeypatch.setattr(watching, "MAX_RUNS", 3)
    tab = tab(runs)
    assert sorted(tab.names()) == ["failed", "fast", "other"]
    assert tab.page.locator("#left-out").is_visible()
    text = tab.page.inner_text("#left-out")
    assert text.startswith("3 of 4 runs")
    assert "holdfast view --runs-dir" in text
    monkeypatch.setattr(watching, "MAX_RUNS", 4)
    tab.wait("document.querySelectorAll('#list tbody tr').length === 4")
    assert not tab.page.locator("#left-out").is_visible()


def test_durations(tab, runs):
    seconds = [0, 59.4, 59.7, 60, 89, 3569, 3570, 3599, 3600, 7169, 7199, 86_400]
    shown = tab(runs).page.evaluate(
        "async (all) => { const { duration } = await import('/dom.js'); return all.map(duration); }", seconds
    )
    expected = (
        "0 s, 59 s, 1 min, 1 min, 1 min, 59 min, 1 h 0 min, 1 h 0 min, 1 h 0 min, 1 h 59 min, 2 h 0 min, 24 h 0 min"
    )
    assert shown == expected.split(", ")


def test_the_address_is_written_once_after_many_changes(tab, runs):
    tab = tab(runs)
    choose(tab, "slow")
    tab.wait("location.hash.includes('runs=')")
    tab.page.evaluate(
        """() => {
            window.written = 0;
            history.replaceState = () => { window.written += 1; throw new DOMException("too often", "SecurityError"); };
            const slider = document.querySelector("#smooth");
            for (const value of [0.9, 0.8, 0.7, 0.5, 0.3, 0]) {
                slider.value = value;
                slider.dispatchEvent(new Event("input"));
            }
        }"""
    )
    tab.wait("window.written === 1")
    assert tab.page.inner_text("#smooth-value") == "0.00"
    tab.wait_for_lines("episode_return", 1)
    assert tab.page.evaluate("window.written") == 1


@pytest.mark.parametrize(("newest", "compared"), [("failed", ["failed", "fast", "slow"]), ("other", ["other"])])
def test_at_first_runs_of_the_newest_runs_world_are_compared(tab, runs, newest, compared):
    os.utime(runs / newest / "run-id", (5e9, 5e9))
    tab = tab(runs)
    assert tab.page.locator("#list tbody tr.selected .name").all_text_contents() == compared


def test_two_runs_are_compared(tab, runs):
    tab = tab(runs)
    choose(tab, "slow", "fast")
    tab.page.locator("#smooth").fill("0")
    tab.wait_for_lines("episode_return", 2)
    assert [len(values) for values in traces(tab, "episode_return")] == [20, 30]
    panels = tab.page.locator(".panel h3").all_text_contents()
    assert panels[0] == "Return"
    assert {"Gradient norm", "Memory norm", "Explained variance"} <= set(panels)
    assert tab.page.locator("#legend .name").all_text_contents() == ["slow", "fast"]
    area = tab.page.locator("[data-metric=episode_return] .area")
    area.hover(position={"x": 230, "y": 90})
    readout = tab.page.locator("[data-metric=episode_return] .readout")
    assert readout.locator("tr").count() == 2
    assert "steps" in readout.inner_text()
    assert tab.page.locator(".cursor:visible").count() == len(panels), "the same place is marked in all panels"
    tab.page.mouse.move(5, 5)
    assert tab.page.locator(".cursor:visible").count() == 0
    tab.page.locator("#legend .close").first.click()
    tab.wait_for_lines("episode_return", 1)
    assert not tab.page.get_by_label("Compare slow", exact=True).is_checked()


def test_settings_that_differ(tab, runs):
    tab = tab(runs)
    choose(tab, "slow", "fast")
    tab.wait("document.querySelectorAll('#differing tbody tr').length === 2")
    table = [row_.locator("th, td").all_text_contents() for row_ in tab.page.locator("#differing tr").all()]
    assert table == [["Setting", "slow", "fast"], ["policy.core", "own", "gru"], ["trainer.lr", "0.001", "0.004"]]
    own = tab.page.locator("#own details").nth(1)
    assert not own.locator("dl").is_visible()
    own.locator("summary").click()
    assert "trainer.total_timesteps" in own.inner_text()
    choose(tab, "slow")
    tab.wait("!document.querySelector('#differing').checkVisibility()")
    assert "two or more runs" in tab.page.inner_text("#settings-note")


def test_metrics_are_added_and_removed_and_survive_a_reload(tab, runs):
    tab = tab(runs)
    choose(tab, "slow", "fast")
    tab.page.select_option("#add", "entropy")
    tab.wait_for_lines("entropy", 4)  # raw and smooth
    tab.page.locator("[data-metric=memory_norm] .close").click()
    tab.wait("!document.querySelector('[data-metric=memory_norm]')")
    tab.page.locator("[data-metric=entropy] .toggle").click()
    tab.page.check("input[value=seconds]", force=True)
    tab.page.locator("#smooth").fill("0")
    tab.wait_for_lines("entropy", 2)
    tab.wait("location.hash.includes('smooth=0')")
    address = tab.page.url
    tab.page.reload()
    tab.wait_for_lines("entropy", 2)
    assert tab.page.url == address
    assert tab.page.locator("[data-metric=memory_norm]").count() == 0
    assert tab.page.locator("[data-metric=entropy] .toggle").get_attribute("aria-pressed") == "true"
    assert tab.page.input_value("#smooth") == "0"
    assert tab.page.is_checked("input[value=seconds]")
    assert tab.page.locator("#legend .name").all_text_contents() == ["slow", "fast"]
    assert tab.page.evaluate("document.querySelector('[data-metric=entropy] .plot').data[0].x[0]") == 0.5


def test_a_log_axis(tab, tmp_path):
    make_run(tmp_path, "demo", rows=[row(i, memory_norm=10.0 ** (i % 5), grad_norm=-1.0) for i in range(1, 20)])
    tab = tab(tmp_path)
    tab.wait_for_lines("grad_norm", 2)
    kind = "document.querySelector('[data-metric={}] .plot')._fullLayout.yaxis.type"
    assert tab.page.evaluate(kind.format("parity_max_abs_logratio")) == "log"
    for metric in ("memory_norm", "grad_norm"):
        assert tab.page.evaluate(kind.format(metric)) == "linear"
        tab.page.locator(f"[data-metric={metric}] .toggle").click()
        tab.wait(kind.format(metric) + " === 'log'")
    assert "0 or below" in tab.page.inner_text("[data-metric=grad_norm] .note")
    tab.page.locator("[data-metric=memory_norm] .toggle").click()
    tab.wait(kind.format("memory_norm") + " === 'linear'")


def test_smoothing_shows_the_average_over_the_raw_curve(tab, tmp_path):
    make_run(tmp_path, "demo", rows=[row(i, episode_return=float(i % 2)) for i in range(1, 41)])
    tab = tab(tmp_path)
    tab.page.locator("#smooth").fill("0.9")
    tab.wait_for_lines("episode_return", 2)
    raw, smooth = traces(tab, "episode_return")
    assert raw == [1, 0] * 20
    average = total = 0.0
    for i, value in enumerate(raw):
        average, total = 0.9 * average + 0.1 * value, 0.9 * total + 0.1
        assert smooth[i] == pytest.approx(average / total)
    tab.page.locator("#smooth").fill("0")
    tab.wait_for_lines("episode_return", 1)
    assert traces(tab, "episode_return") == [raw]


def test_a_zoom_is_shared_by_all_panels_and_reset(tab, runs):
    tab = tab(runs)
    choose(tab, "fast")
    tab.wait_for_lines("memory_norm", 2)
    box = tab.page.locator("[data-metric=episode_return] .area").bounding_box()
    tab.page.mouse.move(box["x"] + 120, box["y"] + 60)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 260, box["y"] + 62, steps=5)
    tab.page.mouse.up()
    ranges = "[...document.querySelectorAll('.plot')].map(p => p._fullLayout.xaxis.range.map(Math.round).join())"
    tab.wait(f"new Set({ranges}).size === 1 && document.querySelector('#unzoom').checkVisibility()")
    zoomed = tab.page.evaluate(ranges)[0]
    tab.page.click("#unzoom")
    tab.wait(f"{ranges}.every(range => range !== '{zoomed}')")
    tab.wait("!document.querySelector('#unzoom').checkVisibility()")


def test_values_far_off_do_not_flatten_a_panel_and_a_double_click_shows_them(tab, tmp_path):
    rows = [
        row(i, grad_norm=1e6 if i == 5 else 1 + i % 3, explained_variance=-30.0 if i < 5 else 0.5) for i in range(1, 50)
    ]
    make_run(tmp_path, "demo", rows=rows)
    tab = tab(tmp_path)
    tab.wait_for_lines("explained_variance", 2)
    limits = "document.querySelector('[data-metric={}] .plot')._fullLayout.yaxis.range"
    assert tab.page.evaluate(limits.format("grad_norm"))[1] < 10
    assert tab.page.evaluate(limits.format("explained_variance"))[0] == -1
    assert "double-click" in tab.page.inner_text("[data-metric=grad_norm] .note")
    tab.page.locator("[data-metric=grad_norm] .area").dblclick(position={"x": 200, "y": 100})
    tab.wait(limits.format("grad_norm") + "[1] > 1e6")


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_no_width_makes_the_body_scroll_sideways(tab, runs, width):
    make_run(runs, "n" * 120, settings={"env.name": "gym:" + "w" * 300, "env.kwargs": {"k" * 80: "v" * 500}})
    tab = tab(runs)
    tab.page.set_viewport_size({"width": width, "height": 844})
    tab.page.click("#all")
    tab.wait_for_lines("episode_return", 10)
    tab.page.locator("#own summary").first.click()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("#find", "#panels .panel >> nth=0", "#list tbody .name >> nth=0"):
        box = tab.page.locator(selector).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_everything_can_be_reached_with_the_keyboard(tab, runs):
    tab = tab(runs)
    choose(tab)
    tab.page.locator("#list tbody input").first.focus()
    tab.page.keyboard.press("Space")
    tab.wait("document.querySelectorAll('#legend li').length === 1")
    tab.page.locator("input[value=steps]").focus()
    tab.page.keyboard.press("ArrowRight")
    tab.wait("location.hash.includes('x=seconds')")


def test_an_empty_folder_says_how_to_begin_and_shows_the_first_run(tab, tmp_path):
    runs = tmp_path / "none"
    tab = tab(runs)
    assert f"holdfast train settings=cartpole_no_velocity run=first runs_dir={runs}" in tab.page.inner_text("#empty")
    assert not tab.page.locator("#curves").is_visible()
    assert not runs.exists(), "looking makes no folder"
    make_run(runs, "first")
    tab.wait_for_lines("episode_return", 2)
    assert not tab.page.locator("#empty").is_visible()


def test_dark_and_light(tab, runs):
    colors = []
    for scheme in ("light", "dark"):
        one = tab(runs, color_scheme=scheme)
        choose(one, "fast")
        one.wait_for_lines("episode_return", 2)
        colors.append(
            one.page.evaluate("document.querySelector('[data-metric=episode_return] .plot').data[1].line.color")
        )
    assert colors[0] != colors[1]
    one.page.emulate_media(color_scheme="light")
    one.wait(f"document.querySelector('[data-metric=episode_return] .plot').data[1].line.color === '{colors[0]}'")
