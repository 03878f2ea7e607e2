"""The command `holdfast view`: what it refuses before any work, and how it opens what it wrote."""

from __future__ import annotations

import shutil
import webbrowser
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.config import load_run_world
from holdfast.view import run_page, serve
from support.runs import CARTPOLE
from support.runs import run as train


def view(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["view", *args])
    assert (caught.value.code or 0) == code


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train([*CARTPOLE, "trainer.total_timesteps=64"], tmp_path_factory.mktemp("runs"), "small")


@pytest.fixture
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("work was begun")

    monkeypatch.setattr(run_page, "see_run", refuse)
    monkeypatch.setattr(serve, "serve", refuse)


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(
    "words",
    [
        ["--html", "a.html"],
        ["--gif", "a.gif"],
        ["--episodes", "20"],
        ["--no-certificate"],
        ["--certificate"],
        ["--sample"],
        ["--seed", "1000000"],
        ["--checkpoint", "best"],
        ["--agent", "0"],
    ],
)
def test_the_server_takes_no_option_of_pages(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    view(*words, code=2)
    assert f"{words[0]}: needs a run" in capsys.readouterr().err


def test_the_server_takes_its_own_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served = []
    monkeypatch.setattr(serve, "serve", lambda runs_dir, port, ready: served.append((runs_dir, port)))
    view("--runs-dir", str(tmp_path), "--port", "8000")
    view()
    assert served == [(tmp_path, 8000), (Path("runs"), 6420)]


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--port", "8000"], "--port"),
        (["--html", "nowhere/page.html"], "--html nowhere/page.html: needs a file path in an existing folder"),
        (["--html", "."], "--html .: needs a file path"),
        (["--gif", "a.png"], ".gif"),
        (["env=nosuchworld"], "nosuchworld"),
    ],
)
def test_what_is_refused_before_the_work(
    cartpole: Path, words: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view(str(cartpole), *words, code=2)
    assert part in capsys.readouterr().err


@pytest.mark.parametrize("screen", [True, False])
def test_a_page_in_the_run_folder_is_opened_if_there_is_a_screen(
    cartpole: Path, screen: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    if screen:
        monkeypatch.setenv("DISPLAY", ":0")
    view(str(cartpole), "--episodes", "1", "--no-certificate", "--max-steps", "600")
    page = cartpole / "view.html"
    assert page.read_text().startswith("<!doctype html>")
    assert opened == ([page.as_uri()] if screen else [])
    assert ("opened" if screen else "open in a browser:") in capsys.readouterr().out
    page.unlink()
    view(str(cartpole), "--episodes", "1", "--no-certificate", "--html", str(cartpole.parent / "other.html"))
    assert len(opened) == int(screen)
    assert not page.exists()


def test_a_checkpoint_that_is_removed_while_it_is_played(cartpole: Path, tmp_path: Path) -> None:
    """As a run does that goes on training."""
    folder = shutil.copytree(cartpole, tmp_path / "live")

    def removing(doing: str) -> None:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)

    env = load_run_world(folder / "config.yaml")
    seen = run_page.see_run(folder, env, episodes=1, certificate=False, progress=removing)
    assert not (folder / "checkpoints").exists()
    assert seen.data["run"]["steps"] == 64
