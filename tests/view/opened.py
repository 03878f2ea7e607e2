"""An opened page of `holdfast view`: what the tests do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Show = Callable[..., Any]  # opens data as a page and waits for its first frame


def state(page: Any) -> dict[str, Any]:
    return page.evaluate("window.holdfast.state()")


def wait_until(page: Any, expression: str, arg: Any = None) -> None:
    """Wait until the expression, or a function of `arg`, is true. A function needs no eval, which the page does not allow."""
    page.wait_for_function(expression if "=>" in expression else f"() => {expression}", arg=arg)


def seek(page: Any, *place: int) -> None:
    page.evaluate("place => window.holdfast.seek(...place)", list(place))


def pixels(page: Any, selector: str) -> str:
    """The content of a canvas, to compare with another."""
    return page.evaluate("selector => document.querySelector(selector).toDataURL()", selector)


def colors(page: Any, selector: str) -> int:
    """How many different colours a canvas contains."""
    return page.evaluate(
        """selector => {
            const canvas = document.querySelector(selector);
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(data.buffer)).size;
        }""",
        selector,
    )
