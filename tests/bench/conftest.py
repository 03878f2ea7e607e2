from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _import_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests import the modules of `make bench`, as its script does."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "proofs" / "bench")
