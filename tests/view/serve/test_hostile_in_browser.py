"""Names, settings and files from strangers in a real browser: shown as text or named as damaged, never executed."""

import json
import os

import pytest

from support.shown_runs import METRICS, append, lines, make_run, row

SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
NAMES = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)<\u2044script>",
    "javascript:alert(3)",
    "\"quotes' & <b>bold<\u2044b>",
    "`${alert(4)}`",
    "a b?c=d&e#f%2e%2e",
    "ünï-코드-🙂",
    "\u202egnp.evil",
    "new\nline",
    "dots..",
    "__proto__",
    "constructor",
]
HARM = "document.querySelectorAll('#list img, #list script, #panels image, #own img, a[href^=javascript], b').length"


@pytest.fixture
def hostile(tmp_path):
    for i, name in enumerate(NAMES):
        settings = {
            "env.name": SCRIPT,
            "policy.core": '"><script>alert(5)</script>',
            "env.kwargs": {"</script><script>alert(6)</script>": "javascript:alert(7)", "i": i},
            "<b>key</b>": "<a href='javascript:alert(8)'>x</a>",
            "__proto__": {"polluted": str(i)},
            "wandb.tags": [SCRIPT],
        }
        names = {
            "</script><script>alert(9)</script>": 1.0,
            '<a href="javascript:alert(10)">m</a>': 2.0,
            "__proto__": 3.0,
            "constructor": float(i),
        }
        make_run(tmp_path, name, rows=[row(k, **names) for k in range(1, 6)], settings=settings, checkpoint="00000005")
    failed = make_run(tmp_path, "failed", summary=False)
    (failed / "failed.json").write_text(json.dumps({"error": SCRIPT}))
    return tmp_path


def test_markup_is_text_everywhere(tab, hostile):
    tab = tab(hostile)
    page = tab.page
    page.click("#all")
    for metric in (
        "</script><script>alert(9)</script>",
        '<a href="javascript:alert(10)">m</a>',
        "__proto__",
        "constructor",
    ):
        page.select_option("#add", metric)
    tab.wait("document.querySelectorAll('.panel').length === 10")
    tab.wait("document.querySelectorAll('#own details').length === 13")
    tab.wait("[...document.querySelectorAll('.panel')].slice(-4).every(p => p.querySelectorAll('.trace').length >= 12)")
    for details in page.locator("#own summary").all():
        details.click()
    page.locator("[data-metric=episode_return] .area").hover(position={"x": 200, "y": 90})
    assert page.locator(".readout tr:visible").count() == 12
    names = tab.names()
    assert len(names) == len(NAMES) + 1
    assert {NAMES[0], NAMES[2], NAMES[4], "__proto__", "ünï-코드-🙂"} <= set(names)
    assert not any("\u202e" in name or "\n" in name for name in names), "what cannot be seen is escaped"
    assert page.locator("#list td[data-column=world]").last.inner_text() == SCRIPT
    assert page.evaluate(HARM) == 0
    assert page.evaluate("({}).polluted") is None
    tab.wait("location.hash.includes('metric=constructor')")
    page.reload()
    tab.wait("document.querySelectorAll('.panel').length === 10")
    assert page.evaluate(HARM) == 0


@pytest.mark.parametrize(
    "words",
    [
        "#runs=../../x.0-<script>.1-0123456789abcdef.0",
        "#metric=<img src=x onerror=alert(1)>&log=x&x=<b>&smooth=1e9&sort=__proto__&find=<script>",
        "#smooth=NaN&sort=-&metric=&runs=",
        "#%%%",
        "#runs=" + "-".join(f"{i:016x}.{i}" for i in range(500)),
    ],
)
def test_an_address_from_a_stranger_is_only_a_choice(tab, tmp_path, words):
    make_run(tmp_path, "demo")
    tab = tab(tmp_path, words)
    tab.wait("document.querySelectorAll('#panels').length === 1")
    tab.page.fill("#find", "")
    tab.wait("document.querySelectorAll('#list tbody tr').length === 1")
    if not tab.page.get_by_label("Compare demo").is_checked():
        tab.page.get_by_label("Compare demo").check()
    tab.wait("document.querySelectorAll('#legend li').length === 1")
    assert tab.page.evaluate("document.querySelectorAll('img').length") == 0


def test_damaged_runs_are_named_beside_the_good_ones(tab, tmp_path):
    make_run(tmp_path, "good")
    for name, content in (
        ("text", b"a: ["),
        ("bytes", b"\xff\xfe"),
        ("tag", b"!!python/object:os.system {}"),
        ("pipe", None),
    ):
        config = make_run(tmp_path, f"bad-{name}") / "config.yaml"
        config.unlink()
        config.write_bytes(content) if content else os.mkfifo(config)
    append(make_run(tmp_path, "damaged-metrics"), "nonsense\n" + lines([row(30)]))
    (make_run(tmp_path, "folder") / METRICS).unlink()
    (tmp_path / "folder" / METRICS).mkdir()
    tab = tab(tmp_path)
    tab.page.click("#all")
    tab.wait_for_lines("episode_return", 4)
    assert sorted(tab.names()) == ["damaged-metrics", "folder", "good"]
    reasons = tab.page.locator("#unreadable li").all_inner_texts()
    assert len(reasons) == 4
    assert all(text.startswith("bad-") and len(text) > 20 for text in reasons)
    assert "last line" not in tab.page.inner_text("tr:has-text('good')")
    assert "line 21 is damaged" in tab.page.inner_text("#curve-notes")
    assert "not a regular file" in tab.page.inner_text("tr:has-text('folder')")


def test_links_out_of_the_folder_are_named_not_followed(tab, tmp_path):
    make_run(tmp_path / "outside", "secret", settings={"env.name": "gym:TOP-SECRET"})
    make_run(tmp_path / "runs", "good")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside" / "secret")
    metrics = make_run(tmp_path / "runs", "inner") / METRICS
    metrics.unlink()
    metrics.symlink_to(tmp_path / "outside" / "secret" / METRICS)
    tab = tab(tmp_path / "runs")
    tab.page.click("#all")
    tab.wait_for_lines("episode_return", 2)
    assert sorted(tab.names()) == ["good", "inner"]
    assert "link" in tab.page.inner_text("#unreadable")
    assert "TOP-SECRET" not in tab.page.content()


@pytest.mark.slow
def test_50_runs_with_10000_lines_each(tab, tmp_path):
    first = make_run(tmp_path, "run-00", updates=10_000)
    for i in range(1, 50):
        run = tmp_path / f"run-{i:02}"
        run.mkdir()
        for name in ("config.yaml", METRICS, "run-id", "summary.json"):
            os.link(first / name, run / name)
    tab = tab(tmp_path)
    tab.wait("document.querySelectorAll('#list tbody tr').length === 50")
    tab.page.click("#all")
    tab.wait_for_lines("episode_return", 48)
    assert tab.page.locator("#legend li").count() == 24, "more at once cannot be told apart"
    assert "At most 24" in tab.page.inner_text("#curve-notes")
    points = tab.page.evaluate("document.querySelector('[data-metric=episode_return] .plot').data[0].y.length")
    assert 500 <= points <= 2000
    tab.wait(
        "[...document.querySelectorAll('#list td[data-column=best]')].every(c => c.textContent.startsWith('10,0'))"
    )


@pytest.mark.parametrize("size", [1e20, 1e300, 1e-20, 1e15, 1e-15])
def test_numbers_of_any_size_are_drawn_without_a_complaint(tab, tmp_path, size):
    make_run(tmp_path, "far", rows=[row(i, episode_return=size * i, agent_steps=int(1e15) * i) for i in range(1, 9)])
    tab = tab(tmp_path)
    tab.wait_for_lines("episode_return", 2)
    tab.check()
