"""A real browser for the tests of pages. Without one they are skipped, or fail with HOLDFAST_REQUIRE_BROWSER=1."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from holdfast.view.page import render_page
from support.chromium import find_chromium, launch

from .opened import Show

LOCAL = ("file:", "data:", "blob:", "about:")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("the Python package playwright is missing: pip install playwright")
    if not (found := find_chromium()):
        _missing("Chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = launch(playwright, found)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A tab without network. The test fails on any console message, error, dialog or request for something not local.

    `page.complaints` are these, for a test that expects one and clears the list.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", offline=True)
    tab = context.new_page()
    complaints: list[str] = []
    tab.complaints = complaints
    tab.on("console", lambda message: complaints.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: complaints.append(f"error: {error}"))

    def dismiss(dialog: Any) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def route(route: Any) -> None:
        if route.request.url.startswith(LOCAL):
            route.continue_()
            return
        complaints.append(f"request: {route.request.url}")
        route.abort()

    tab.on("dialog", dismiss)
    context.route("**/*", route)
    yield tab
    context.close()
    assert complaints == []


@pytest.fixture
def show(page: Any, tmp_path: Path) -> Show:
    """Return a function that opens data as a page and waits for its first frame."""

    def open_page(data: dict[str, Any], place: str = "") -> Any:
        path = tmp_path / "page.html"
        path.write_text(render_page(data), "utf-8")
        page.goto(path.as_uri() + place)
        page.wait_for_selector("html[data-ready='1']", state="attached")
        return page

    return open_page


def _missing(what: str) -> NoReturn:
    if os.environ.get("HOLDFAST_REQUIRE_BROWSER") == "1":
        pytest.fail(what)
    pytest.skip(what)
