"""A tab of a real browser that shows the site of a runs folder."""

from __future__ import annotations

from typing import Any

WAIT_S = 60.0


def until(page: Any, script: str) -> None:
    """Wait until an expression is true, also while the page is loaded: elements that are missing then are no error."""
    page.wait_for_function(f"() => {{ try {{ return {script}; }} catch {{ return false; }} }}", timeout=1000 * WAIT_S)


class Tab:
    """A tab that shows a server's site, and what went wrong in it."""

    def __init__(self, browser: Any, url: str, **options: Any):
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.context.set_default_timeout(1000 * WAIT_S)
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
        self.wait("document.querySelector('#folder').textContent !== ''")
        return self.page

    def wait(self, script: str) -> None:
        until(self.page, script)

    def wait_for_lines(self, metric: str, count: int) -> None:
        """Wait until the panel of a metric has drawn so many curves."""
        self.wait(f"document.querySelectorAll('[data-metric=\"{metric}\"] .scatterlayer .trace').length === {count}")

    def names(self) -> list[str]:
        return self.page.locator("#list tbody .name").all_text_contents()

    def check(self) -> None:
        assert self.problems == []
        others = [address for address in self.addresses if not address.startswith(self.url)]
        assert others == [], "the page asks nobody but its server"
