"""A server in this process, and a real browser: Debian's Chromium, driven by playwright."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.view.serve import RunServer
from holdfast.view.serve.pages import view_command

REQUIRED = os.environ.get("HOLDFAST_REQUIRE_BROWSER") == "1"
WAIT_MS = 60_000.0
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


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or chromium is None:
        missing = "the Python package playwright" if sync_playwright is None else "Debian's chromium"
        if REQUIRED:
            pytest.fail(f"needs {missing}")
        pytest.skip(f"needs {missing}")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


class Tab:
    """A tab that shows a server's site, and what went wrong in it."""

    def __init__(self, browser: Any, url: str, **options: Any):
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.context.set_default_timeout(WAIT_MS)
        self.page, self.url = self.context.new_page(), url
        self.problems: list[str] = []
        self.addresses: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.problems.append(dialog.message), dialog.dismiss()))
        self.context.on("request", lambda request: self.addresses.append(request.url))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(text)

    def open(self, words: str = "") -> Any:
        self.page.goto(f"{self.url}{words}")
        self.page.wait_for_function("document.querySelector('#folder').textContent !== ''")
        return self.page

    def wait(self, script: str) -> None:
        self.page.wait_for_function(script)

    def wait_for_lines(self, metric: str, count: int) -> None:
        """Wait until the panel of a metric has drawn so many curves."""
        self.wait(f"document.querySelectorAll('[data-metric=\"{metric}\"] .scatterlayer .trace').length === {count}")

    def names(self) -> list[str]:
        return self.page.locator("#list tbody .name").all_text_contents()

    def check(self) -> None:
        assert self.problems == []
        others = [address for address in self.addresses if not address.startswith(self.url)]
        assert others == [], "the page asks nobody but its server"


@pytest.fixture
def tab(browser: Any, serve: Serve) -> Iterator[Callable[..., Tab]]:
    """A function that opens the site of a runs folder in a new tab. At the end, nothing may have gone wrong in it."""
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
