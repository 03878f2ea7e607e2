"""A server in this process, and tabs of the browser in which its site is open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.view.serve import RunServer
from holdfast.view.serve.pages import view_command

Serve = Callable[..., RunServer]


@contextmanager
def running(server: RunServer) -> Iterator[RunServer]:
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05))
    thread.start()
    try:
        with server:
            yield server
            server.shutdown()
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that serves a runs folder until the test ends."""
    with ExitStack() as stack:
        yield lambda runs, command=view_command: stack.enter_context(running(RunServer(runs, 0, command)))


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A function that replaces the program which makes pages by code, and returns a run's path to pass to it.

    The code has the variables `run`, `file` (to write) and `checkpoint`.
    """

    def use(code: str) -> Path:
        package = tmp_path / "fake" / "holdfast" / "cli"
        package.mkdir(parents=True)
        for init in (package.parent, package):
            (init / "__init__.py").write_text("")
        (package / "child.py").write_text(
            f"import os, sys, time\npipe, _, run, _, file, _, checkpoint = sys.argv[1:]\n{code}\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
        return tmp_path / "run"

    return use


@pytest.fixture
def tab(browser: Any, serve: Serve) -> Iterator[Callable[..., Any]]:
    """A function that opens the site of a runs folder in a new tab. At the end, nothing may have gone wrong in it."""
    from support.tabs import Tab  # needs playwright

    tabs = []

    def make(runs: Path, words: str = "", server: RunServer | None = None, **options: Any) -> Tab:
        tabs.append(Tab(browser, (server or serve(runs)).url, **options))
        tabs[-1].open(words)
        return tabs[-1]

    yield make
    for each in tabs:
        each.context.close()
    for each in tabs:
        each.check()
