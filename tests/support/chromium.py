"""Debian's Chromium, or Google's Chrome, without a window."""

from __future__ import annotations

import os
import shutil
from typing import Any

PLACES = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


def find_chromium() -> str | None:
    return next((path for path in PLACES if os.path.exists(path)), None) or shutil.which("chromium")


def launch(playwright: Any, path: str | None) -> Any:
    """Start the browser; root can only start it without its sandbox."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if root else [])
