"""A browser that watches while files grow: written line by line here, and by a real training process."""

import json
import signal
import subprocess
import sys

import pytest

from holdfast.config import load_settings
from holdfast.runs import RunFolder
from holdfast.view.serve.metrics import Columns
from support.runs import SMALL_NET
from support.shown_runs import append, lines, make_run, row
from support.tabs import Tab

LAST = "document.querySelector('[data-metric=episode_return] .plot').data.at(-1).y.length"


def test_lines_that_are_added_appear(tab, tmp_path):
    settings = load_settings([f"runs_dir={tmp_path}", "run=demo", "env=gym:CartPole-v1", "trainer.total_timesteps=640"])
    with RunFolder.create(settings) as run:
        tab = tab(tmp_path)
        assert tab.page.locator(".state").inner_text() == "running"
        for i in range(1, 4):
            run.log_metrics(row(i))
        tab.wait(f"{LAST} === 3")
        assert tab.page.inner_text(".pace").startswith("30%")
        assert "live" in tab.page.inner_text("#connection")
        half = json.dumps(row(4))
        append(run.path, half[:40])
        append(make_run(tmp_path, "later"), "")
        tab.wait("document.querySelectorAll('#list tbody tr').length === 2")
        assert tab.page.evaluate(LAST.replace(".at(-1)", "[0]")) == 3, "half a line is no update"
        append(run.path, half[40:] + "\n" + lines([row(5)]))
        tab.wait(f"{LAST.replace('.at(-1)', '[0]')} === 5")
        assert tab.page.inner_text("#curve-notes") == ""
        run.write_summary({})
    tab.wait("[...document.querySelectorAll('.state')].every(s => s.textContent === 'finished')")
    assert tab.page.locator(".pace:visible").count() == 0


def test_a_resumed_run_that_cut_its_metrics_is_read_again(tab, tmp_path):
    run = make_run(tmp_path, "demo", updates=20)
    tab = tab(tmp_path)
    tab.wait(f"{LAST} === 20")
    (run / "metrics.jsonl").write_text(lines(row(i, episode_return=-5.0) for i in range(1, 8)))
    tab.wait(f"{LAST} === 7")


def test_what_is_chosen_while_runs_change_stays(tab, tmp_path):
    run = make_run(tmp_path, "demo", updates=3)
    tab = tab(tmp_path)
    tab.page.fill("#find", "de")
    tab.page.locator("#find").focus()
    tab.page.locator("#own summary").click()
    append(run, lines([row(4)]))
    tab.wait(f"{LAST} === 4")
    assert tab.page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert tab.page.locator("#own dl").is_visible()
    assert tab.page.input_value("#find") == "de"


def test_an_idle_site_sends_nothing_twice(tab, tmp_path):
    make_run(tmp_path, "demo")
    tab = tab(tmp_path)
    tab.wait_for_lines("episode_return", 2)
    seen = []
    tab.page.on(
        "response", lambda response: seen.append((response.url.split("?")[0].removeprefix(tab.url), response.status))
    )
    with tab.page.expect_response("**/data/runs"):
        pass
    with tab.page.expect_response("**/data/runs"):
        pass
    assert set(seen) == {("data/runs", 304)}


def test_a_server_that_ends_is_noticed(browser, serve, tmp_path):
    make_run(tmp_path, "demo")
    server = serve(tmp_path)
    tab = Tab(browser, server.url)
    tab.open()
    server.shutdown()
    server.server_close()
    tab.wait("document.querySelector('#connection').textContent.includes('has stopped')")
    tab.context.close()


def fail(route):
    route.fulfill(status=500, body="The disk is slow.")


def forget_failed_requests(tab):
    """Remove what the browser logs about failed requests, and nothing else."""
    tab.problems[:] = [text for text in tab.problems if not text.startswith("Failed to load resource")]


def test_an_update_that_failed_is_repeated(tab, tmp_path):
    make_run(tmp_path, "demo")
    tab = tab(tmp_path)
    tab.wait("document.querySelectorAll('#own details').length === 1")
    tab.page.route("**/data/settings*", fail)
    make_run(tmp_path, "later")
    tab.wait("document.querySelector('#connection').textContent === 'The disk is slow.'")
    tab.page.unroute("**/data/settings*")
    tab.wait("document.querySelectorAll('#own details').length === 2")
    tab.wait("document.querySelector('#connection').textContent === ''")
    forget_failed_requests(tab)


def test_a_curve_that_failed_is_asked_for_again(tab, tmp_path):
    run = make_run(tmp_path, "demo", updates=3)
    tab = tab(tmp_path)
    tab.wait(f"{LAST} === 3")
    tab.page.route("**/data/curves*", fail)
    append(run, lines([row(4)]))
    tab.wait("document.querySelector('#curve-notes').textContent.includes('The disk is slow.')")
    assert tab.page.evaluate(LAST) == 3, "the earlier curve stays"
    tab.page.unroute("**/data/curves*")
    tab.wait(f"{LAST} === 4 && document.querySelector('#curve-notes').textContent === ''")
    forget_failed_requests(tab)


def test_curves_that_the_server_could_not_read_are_asked_for_again(tab, tmp_path, monkeypatch):
    make_run(tmp_path, "demo", updates=3)
    read, calls = Columns._read, []

    def fail_once(columns, file):
        calls.append(file)
        if len(calls) == 1:
            raise OSError("Too many open files")
        read(columns, file)

    monkeypatch.setattr(Columns, "_read", fail_once)
    tab = tab(tmp_path)
    tab.wait(f"{LAST} === 3 && document.querySelector('#curve-notes').textContent === ''")
    assert len(calls) == 2


def test_a_click_while_the_server_does_not_answer_is_shown_later(tab, tmp_path):
    make_run(tmp_path, "demo")
    tab = tab(tmp_path)
    tab.wait_for_lines("episode_return", 2)
    tab.page.route("**/data/**", lambda route: route.abort())
    tab.page.select_option("#add", "entropy")
    tab.wait("document.querySelector('#connection').textContent.includes('has stopped')")
    tab.page.unroute("**/data/**")
    tab.wait_for_lines("entropy", 2)
    tab.wait("document.querySelector('#connection').textContent === ''")
    forget_failed_requests(tab)


@pytest.mark.slow
def test_a_real_training_is_seen_from_beginning_to_end(tab, tmp_path):
    tab = tab(tmp_path / "runs")
    words = [
        "run=live",
        f"runs_dir={tmp_path / 'runs'}",
        "env=gym:CartPole-v1",
        "env.hide=[1,3]",
        "trainer.checkpoint_interval=5",
    ]
    sizes = ["env.num_envs=4", "trainer.horizon=16", "trainer.total_timesteps=1e7", "progress=off", *SMALL_NET]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "train", *words, *sizes], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        tab.wait("document.querySelector('.state')?.textContent === 'running'")
        tab.wait(f"document.querySelector('[data-metric=episode_return] .plot')?.data.length && {LAST} >= 3")
        before = tab.page.evaluate(LAST)
        tab.wait(f"{LAST} > {before}")
        for metric in ("parity_max_abs_logratio", "grad_norm", "memory_norm"):
            tab.wait_for_lines(metric, 2)
        tab.wait("document.querySelector('.go a').checkVisibility()")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    tab.wait("document.querySelector('.state').textContent === 'stopped'")
    assert tab.page.locator("td.alarm").count() == 0
