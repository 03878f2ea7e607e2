"""Pages of runs, made by child processes: one at a time, with a limit, cached, cleaned up."""

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from holdfast.errors import CheckpointError
from holdfast.view.serve.pages import MAX_PAGES, Pages, view_command

CODE = "settings"  # a command of holdfast that prints something and ends


def until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def made(pages, run, checkpoint="1", again=False):
    key = (run.name, "id", checkpoint)
    pages.ask(key, run, checkpoint, again)
    until(lambda: pages.ask(key, run, checkpoint)[0].state in ("ready", "failed"))
    return pages.ask(key, run, checkpoint)[0], pages.read(key)


def test_the_command_names_run_file_and_checkpoint(tmp_path):
    words = view_command(Path("runs/demo"), tmp_path / "1.html", "00000020")
    assert words == [
        "view",
        str(Path.cwd() / "runs/demo"),
        "--html",
        str(tmp_path / "1.html"),
        "--checkpoint",
        "00000020",
    ]


def test_a_page_is_made_once_per_checkpoint(child):
    run = child("open(file, 'w').write(f'{run} {checkpoint} {time.time_ns()}')")
    with Pages() as pages:
        page, data = made(pages, run)
        assert page.state == "ready"
        assert data.startswith(f"{run} 1 ".encode())
        assert made(pages, run)[1] == data
        assert made(pages, run, "2")[1] != data
        folder = Path(pages._folder.name)
        assert sorted(os.listdir(folder)) == ["1.html", "2.html"]
    assert not folder.exists()


def test_an_error_is_shown_as_text_and_can_be_tried_again(child, tmp_path):
    marker = tmp_path / "repaired"
    run = child(
        f"if not os.path.exists({str(marker)!r}): sys.exit('the world needs <b>pygame</b>')\nopen(file, 'w').write('page')"
    )
    with Pages() as pages:
        page, data = made(pages, run)
        assert (page.state, page.text, data) == ("failed", "the world needs <b>pygame</b>", None)
        marker.touch()
        assert made(pages, run)[0].state == "failed", "asking again is not trying again"
        assert made(pages, run, again=True)[1] == b"page"


@pytest.mark.parametrize(
    ("code", "part"), [("sys.exit(3)", "exit code 3"), ("", "wrote no page"), ("print('odd')", "odd")]
)
def test_a_child_that_makes_no_page_has_failed(child, code, part):
    run = child(code)
    with Pages() as pages:
        page, _ = made(pages, run)
        assert page.state == "failed"
        assert part in page.text


def test_output_is_shown_while_a_page_is_made_and_one_is_made_at_a_time(child, tmp_path):
    go = str(tmp_path / "go")
    wait = f"while not os.path.exists({go!r}): time.sleep(0.02)"
    note = f"open({str(tmp_path / 'order')!r}, 'a').write(checkpoint)"
    run = child(f"print('episode 3 of 20\\x1b[31m', flush=True)\n{wait}\n{note}\nopen(file, 'w').write('page')")
    with Pages() as pages:
        keys = [(str(i),) for i in range(3)]
        for key in keys:
            pages.ask(key, run, key[0])
        until(lambda: "episode 3" in pages.ask(keys[0], run, "1")[0].text)
        assert "\x1b" not in pages.ask(keys[0], run, "1")[0].text
        found = [pages.ask(key, run, "1") for key in keys]
        assert [(page.state, before) for page, before in found] == [("making", 0), ("waiting", 1), ("waiting", 2)]
        (tmp_path / "go").touch()
        until(lambda: all(pages.ask(key, run, "1")[0].state == "ready" for key in keys))
        assert (tmp_path / "order").read_text() == "012"


def test_a_child_over_the_limit_is_ended_with_its_own_children(child, tmp_path):
    start = "import subprocess\nworker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    run = child(f"{start}\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(worker.pid))\ntime.sleep(600)")
    with Pages() as pages:
        pages.ask(("a",), run, "1")
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid)
        pages.limit_s = 0
        until(lambda: pages.ask(("a",), run, "1")[0].state == "failed")
        assert "Not finished after 0 s" in pages.ask(("a",), run, "1")[0].text
        until(lambda: not alive(pid))


def alive(pid):
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_closing_ends_the_child(child, tmp_path):
    run = child(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    with Pages() as pages:
        pages.ask(("a",), run, "1")
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid)
        folder = Path(pages._folder.name)
    assert not alive(pid)
    assert not folder.exists()


def test_old_pages_are_deleted(child):
    run = child("open(file, 'w').write('page')")
    with Pages() as pages:
        for i in range(MAX_PAGES + 2):
            made(pages, run, str(i))
        assert len(os.listdir(pages._folder.name)) == MAX_PAGES
        assert pages.read((run.name, "id", "0")) is None
        assert pages.read((run.name, "id", str(MAX_PAGES))) == b"page"


def test_a_link_as_the_page_is_not_followed(child, tmp_path):
    (tmp_path / "secret").write_text("secret")
    run = child(f"os.symlink({str(tmp_path / 'secret')!r}, file)")
    with Pages() as pages, pytest.raises(CheckpointError, match="regular file"):
        made(pages, run)


def test_words_of_the_real_command_reach_the_command_line(tmp_path):
    with Pages(lambda run, page, checkpoint: [CODE, "no-such-setting"]) as pages:
        page, _ = made(pages, tmp_path)
        assert page.state == "failed"
        assert "no-such-setting" in page.text
