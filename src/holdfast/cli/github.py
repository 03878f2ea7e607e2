"""Annotations: lines on stdout that GitHub Actions shows next to the code in a pull request."""

from __future__ import annotations


def annotation(message: str, title: str, where: str = "") -> str:
    """Return the line for an error. where: file:line, relative to the root of the repository; '' if unknown."""
    file, _, line = where.rpartition(":")
    properties = {"file": file, "line": line, "title": title} if where else {"title": title}
    shown = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items())
    return f"::error {shown}::{_escape(message)}"


def _escape(text: str, separators: str = "") -> str:
    """Escape as GitHub reads it: % and line breaks everywhere, and what separates properties from each other."""
    for character in "%\r\n" + separators:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
