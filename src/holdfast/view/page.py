"""Write recorded episodes as one self-contained HTML page that plays them back."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast.look import LOOK_CSS

ASSETS = Path(__file__).parent / "assets"
# Names come from other people's worlds and runs, so everything is escaped.
TEMPLATES = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
SCRIPTS = (
    "data.js",
    "draw.js",
    "glyphs.js",
    "grid.js",
    "observation.js",
    "scene.js",
    "lanes.js",
    "strips.js",
    "charts.js",
    "panels.js",
    "controls.js",
    "player.js",
)
TYPES = {
    np.dtype(np.bool_): ("u8", "<u1"),
    np.dtype(np.uint8): ("u8", "<u1"),
    np.dtype(np.int8): ("i8", "<i1"),
    np.dtype(np.int16): ("i16", "<i2"),
    np.dtype(np.int32): ("i32", "<i4"),
    np.dtype(np.float32): ("f32", "<f4"),
}


def render_page(data: Mapping[str, Any]) -> str:
    """Return the page of `holdfast view` for `data`, whose arrays are NumPy arrays."""
    style = LOOK_CSS.read_text("utf-8") + _asset("player.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();\n"
    packed = json.dumps(_plain(data), separators=(",", ":"), allow_nan=False).encode()
    return TEMPLATES.get_template("page.html.j2").render(
        title=str(data["run"]["name"]),
        policy=(
            f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        style=style,
        script=script,
        data=base64.b64encode(gzip.compress(packed, mtime=0)).decode(),
    )


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """Return `array` as the page reads it: type, shape, and base64 of its little-endian bytes."""
    if array.dtype not in TYPES:
        allowed = ", ".join(sorted(str(dtype) for dtype in TYPES))
        raise TypeError(f"An array of the page has the type {array.dtype}; convert it to one of {allowed}.")
    name, layout = TYPES[array.dtype]
    values = np.ascontiguousarray(array).astype(layout, copy=False)
    return {"type": name, "shape": list(array.shape), "data": base64.b64encode(values.tobytes()).decode()}


def _plain(value: Any) -> Any:
    """Return `value` with arrays encoded and everything else as JSON knows it; NaN and infinity are null."""
    if isinstance(value, np.ndarray):
        return encode_array(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _digest(text: str) -> str:
    """Return the hash by which the page's content security policy allows `text` inline."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
