"""Whatever is typed, or found in a file: settings, or a SettingsError of at most three printable lines."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.config import Settings, describe_keys, load_settings
from holdfast.errors import SettingsError

NAMES = sorted({key.name for key in describe_keys()})
GROUPS = [
    "env",
    "policy",
    "py_agent",
    "trainer",
    "trainer.schedule",
    "settings",
    "env.kwargs.a",
    "env.kwargs.a.b",
]
SCRAPS = [
    "memory",
    "gym:X",
    "fast",
    "box",
    "none",
    "1e6",
    "-1",
    "0.5",
    "on",
    "null",
    "[1, 2]",
    "{a: 1}",
    "{name: 3}",
]
SCRAPS += [
    "${x}",
    "*a",
    "!!int 3",
    "'",
    "[",
    "{",
    ":",
    "a: b",
    "- 1",
    "\x00",
    "\n",
    "",
    " ",
    "quickstart",
    ".yaml",
]

keys = st.sampled_from(NAMES + GROUPS) | st.text(max_size=8)
texts = st.sampled_from(SCRAPS) | st.text(max_size=8) | st.lists(st.sampled_from(SCRAPS), max_size=3).map("".join)
words = st.builds("{}={}".format, keys, texts) | st.text(max_size=8)
calm = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(given: list[str]) -> None:
    try:
        assert isinstance(load_settings(given), Settings)
    except SettingsError as error:
        lines = str(error).split("\n")
        assert len(lines) <= 3
        assert all(line.isprintable() and len(line) < 500 for line in lines), lines


@calm
@given(st.lists(words, max_size=5))
def test_any_words(tmp_path, given):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        check(given)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts
trees = st.recursive(leaves, lambda below: st.lists(below, max_size=2) | st.dictionaries(keys, below, max_size=3))


@calm
@given(st.dictionaries(keys, trees, max_size=4), st.lists(words, max_size=2))
def test_any_tree_in_a_file(tmp_path, tree, given):
    import yaml

    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    check([f"settings={path}", *given])


@calm
@given(st.lists(texts | st.sampled_from(["\n", ": ", "seed: 1", "env: ", "trainer:\n  lr: "]), max_size=8).map("".join))
def test_any_text_in_a_file(tmp_path, text):
    path = tmp_path / "any.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    check([f"settings={path}"])
