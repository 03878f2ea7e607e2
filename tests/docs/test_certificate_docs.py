"""The docs show the lines that `holdfast evaluate --certificate` prints."""

from pathlib import Path

import pytest

from holdfast.evaluate.certificate import MEANINGS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["tutorial.md", "memory-certificate.md"])
def test_every_figure_is_shown_with_its_meaning(page):
    lines = (DOCS / page).read_text().splitlines()
    shown = {line.split()[0]: line for line in lines if line.split() and line.split()[0] in MEANINGS}
    assert list(shown) == list(MEANINGS)
    for name, meaning in MEANINGS.items():
        assert shown[name].endswith(meaning)
