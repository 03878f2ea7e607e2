"""The button `Watch`: the page of a run in its own tab, which can read nothing from the server."""

import pytest

from holdfast.view.page import render_page
from support.shown_runs import make_run
from support.tabs import until

from ..opened import colors
from ..synthetic import frames

PAGE = """<!doctype html><title>page</title><style>p { color: red }</style><p id=out>-</p><script>
fetch('/data/runs').then(() => 'read', () => 'refused').then(async (text) => {
  let cookies = 'refused'; try { document.cookie; cookies = 'read' } catch {}
  let opener = window.opener ? 'read' : 'refused';
  document.querySelector('#out').textContent = [text, cookies, opener, origin].join(' ')
})</script>"""


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "runs", "<b>demo</b>".replace("/", "\u2044"), checkpoint="00000020")
    return tmp_path / "runs"


def watch(tab):
    with tab.context.expect_page() as opened:
        tab.page.click(".go a")
    return opened.value


def test_the_page_of_a_run_opens_in_its_own_tab_and_is_isolated(tab, runs, child, tmp_path):
    go = str(tmp_path / "go")
    wait = f"print('episode 1 <b>of</b> 20', flush=True)\nwhile not os.path.exists({go!r}): time.sleep(0.02)"
    child(f"{wait}\nopen(file, 'w').write({PAGE!r})")
    tab = tab(runs)
    page = watch(tab)
    until(page, "document.querySelector('#text').textContent.includes('<b>of</b>')")
    assert "00000020" in page.inner_text("#what")
    assert page.get_by_role("progressbar", name="Making the page").is_visible()
    (tmp_path / "go").touch()
    until(page, "document.querySelector('#out')?.textContent.includes(' ')")
    assert page.inner_text("#out") == "refused refused refused null"
    assert page.evaluate("getComputedStyle(document.querySelector('#out')).color") == "rgb(255, 0, 0)"
    assert tab.page.locator("#list").is_visible()


def test_a_page_with_images_is_shown_under_its_policy(tab, runs, child, tmp_path):
    made = tmp_path / "made.html"
    made.write_text(render_page(frames()))
    child(f"import shutil\nshutil.copy({str(made)!r}, file)")
    page = watch(tab(runs))
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    until(page, "window.holdfast.state()")
    page.reload()
    until(page, "window.holdfast.state()")
    page.evaluate("window.holdfast.seek(0, 3, 0)")
    until(page, "window.holdfast.state().step === 3")
    assert colors(page, "#world") >= 4, "the image is drawn"
    assert page.evaluate("origin") == "null"
    assert complaints == []


def test_an_error_is_shown_as_text_with_a_button_to_try_again(tab, runs, child, tmp_path):
    marker = str(tmp_path / "ok")
    child(
        f"if not os.path.exists({marker!r}): sys.exit('needs <img src=x onerror=alert(1)>')\nopen(file, 'w').write('<p id=out>made')"
    )
    page = watch(tab(runs))
    page.wait_for_selector("#again:visible")
    assert page.inner_text("#text") == "needs <img src=x onerror=alert(1)>"
    assert page.evaluate("document.images.length") == 0
    assert page.inner_text("#command") == f"holdfast view '<b>demo<\u2044b>' --runs-dir {runs}"
    assert page.get_by_role("progressbar").is_hidden()
    (tmp_path / "ok").touch()
    page.click("#again")
    page.wait_for_selector("#out")


def test_a_run_that_is_not_there_is_an_error_in_words(browser, serve, runs):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{serve(runs).url}watch?run=../secret")
    page.wait_for_selector("#again:visible")
    assert "not available" in page.inner_text("#what")
    context.close()
