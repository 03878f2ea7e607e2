"""The contents of a page: names with markup, damaged data, arrays."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.view.content import grid_scene
from holdfast.view.page import encode_array, render_page

from . import synthetic
from .opened import Show, seek
from .synthetic import CHOICE

HOSTILE = [
    "<img src=x onerror=window.hit=1>",
    "</script><script>window.hit=1</script>",
    '"><script>window.hit=1</script>',
    "{{ 7 * 7 }}</style><svg onload=window.hit=1>",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_with_markup_are_shown_as_text(show: Show, name: str) -> None:
    data = synthetic.maze()
    data["run"] = {**data["run"], **dict.fromkeys(("name", "world", "agent", "checkpoint", "how", "version"), name)}
    data["settings"] = {name: name}
    data["notes"] = [name]
    data["choices"] = [{"name": name, "options": [name] * 5}]
    types = ["wall", "agent", *[f"{name}{i}" for i in range(4)]]
    data["scene"] = grid_scene(types, [name, name], ["", name], (3, 5))
    data["memory"][0]["name"] = name
    data["certificate"]["sentence"] = f"{name}: {name}"
    data["tracks"][0]["episodes"][0]["ended"] = name
    page = show(data)
    seek(page, 0, CHOICE, 0)
    assert page.evaluate("window.hit") is None
    assert name in page.title()
    page.click("summary")
    shown = page.locator("main").inner_text()
    assert shown.count(name) >= 15
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0
    assert page.locator("#settings code").all_inner_texts() == [name, name]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_with_markup_of_numbers_and_parts(show: Show, name: str) -> None:
    data = synthetic.frames()
    data["numbers"][0]["name"] = name
    assert name in show(data).locator("main").inner_text()
    data = synthetic.observation()
    data["scene"]["parts"][0]["name"] = name
    page = show(data)
    assert page.evaluate("window.hit") is None


def replace_data(text: str, packed: str) -> str:
    return re.sub(r'(id="data">)[^<]*', lambda found: found[1] + packed, text)


def pack(data: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(data).encode())).decode()


def unpack(text: str) -> Any:
    found = re.search(r'id="data">([^<]*)', text)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def broken(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    """Return a function that applies `change` to the data in the text of a page."""

    def apply(text: str) -> str:
        data = unpack(text)
        change(data)
        return replace_data(text, pack(data))

    return apply


DAMAGE = {
    "truncated": lambda text: replace_data(text, unpacked(text)[: len(unpacked(text)) // 2]),
    "empty": lambda text: replace_data(text, ""),
    "no base64": lambda text: replace_data(text, "%%%%"),
    "no gzip": lambda text: replace_data(text, base64.b64encode(b"hello").decode()),
    "another format": broken(lambda data: data.update(format=2)),
    "no tracks": broken(lambda data: data.update(tracks=[])),
    "nothing": lambda text: replace_data(text, pack({})),
    "null": lambda text: replace_data(text, pack(None)),
    "short array": broken(lambda data: data["tracks"][0]["value"].update(data="AAAA")),
    "wrong shape": broken(lambda data: data["tracks"][0]["chosen"].update(shape=[3, 1])),
    "unknown type": broken(lambda data: data["tracks"][1]["reward"].update(type="f128")),
    "missing memory": broken(lambda data: data["tracks"][0]["memory"].pop()),
    "missing steps of the world": broken(lambda data: data["tracks"][0]["scene"]["moves"].pop()),
    "uncovered steps": broken(lambda data: data["tracks"][0]["episodes"].pop()),
    "unknown scene": broken(lambda data: data["scene"].update(kind="hologram")),
    "choices missing": broken(lambda data: data.pop("choices")),
    "types of objects missing": broken(lambda data: data["scene"].pop("types")),
}


def unpacked(text: str) -> str:
    found = re.search(r'id="data">([^<]*)', text)
    assert found
    return found[1]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_data_gives_a_message(page: Any, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(DAMAGE[damage](render_page(synthetic.maze())), "utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("#failure:visible")
    assert page.locator("#failure").inner_text().startswith("The data of this page is damaged")
    assert page.evaluate("document.documentElement.dataset.ready") is None
    assert page.evaluate("window.holdfast.ready") is False


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("delete window.DecompressionStream", "This browser is too old"),
        ("window.ResizeObserver = undefined", "This page failed"),
    ],
)
def test_other_failures_are_not_blamed_on_the_data(page: Any, tmp_path: Path, script: str, message: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_page(synthetic.maze()), "utf-8")
    page.add_init_script(script)
    page.goto(path.as_uri())
    page.wait_for_selector("#failure:visible")
    assert page.locator("#failure").inner_text().startswith(message)
    assert "damaged" not in page.locator("#failure").inner_text()


def test_what_cannot_be_a_number_in_json() -> None:
    data = synthetic.maze()
    data["tracks"][0]["episodes"][0]["returns"] = [float("nan"), np.float32("inf")]
    assert unpack(render_page(data))["tracks"][0]["episodes"][0]["returns"] == [None, None]


def test_arrays_are_little_endian_in_c_order() -> None:
    array = np.asfortranarray(np.array([[1, 2], [3, 4]], dtype=">i2"))
    encoded = encode_array(array.astype(np.int16))
    assert encoded["type"] == "i16"
    assert encoded["shape"] == [2, 2]
    assert base64.b64decode(encoded["data"]) == b"\1\0\2\0\3\0\4\0"
    assert encode_array(np.array([True]))["type"] == "u8"
    with pytest.raises(TypeError, match="complex128"):
        encode_array(np.array([1j]))


def test_the_same_data_gives_the_same_page() -> None:
    assert render_page(synthetic.maze()) == render_page(synthetic.maze())
