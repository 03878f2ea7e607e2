"""docs/api.md says what the docstrings say."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import api_reference  # pyright: ignore[reportMissingImports]

    yield api_reference
    sys.modules.pop("api_reference")


def test_the_page_is_what_make_api_writes(reference):
    assert reference.PAGE.read_text() == reference.page(), "docstrings have changed: run `make api`"


def test_arguments_become_a_list(reference):
    def example():
        """Do it.

        a, b: two numbers
            on two lines.
        more: with parts.
            part: the first.
        """

    assert reference.markdown(example) == (
        "Do it.\n\n- `a, b`: two numbers on two lines.\n- `more`: with parts.\n  - `part`: the first.\n"
    )


def test_signatures_have_defaults_and_stars(reference):
    def example(self, a: int, *rest: str, b: float = 0.5, **more):
        pass

    assert reference.signature(example) == "(a: int, *rest: str, b: float = 0.5, **more)"
