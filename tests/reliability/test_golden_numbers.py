"""An alarm for changes of numbers: two short runs have to give the metrics in tests/golden/numbers.json.

Everywhere to a relative 1e-3; on a machine whose fingerprint is in the file, the weights to the last bit. If a change of numbers is
meant: `python tests/golden/make.py numbers`, and a line under "Changes to numbers" in CHANGELOG.md.
"""

import importlib.util
import json
from pathlib import Path

import pytest

from support.runs import last_of_each

MAKE = Path(__file__).parents[1] / "golden" / "make.py"
spec = importlib.util.spec_from_file_location("golden_make", MAKE)
assert spec is not None
assert spec.loader is not None
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

AGAIN = "If this is meant: python tests/golden/make.py numbers, and a line under 'Changes to numbers' in CHANGELOG.md."
ROUNDING = 1e-5  # of figures near 0, which are differences of larger ones


def different(found: list[dict], wanted: list[dict]) -> list[str]:
    if [row.keys() for row in found] != [row.keys() for row in wanted]:
        return ["other figures than before, or another number of updates"]
    return [
        f"{key} of update {row['update']} is {row[key]}, was {value}"
        for row, old in zip(found, wanted, strict=True)
        for key, value in old.items()
        if row[key] != (value if value is None else pytest.approx(value, rel=1e-3, abs=ROUNDING))
    ]


@pytest.mark.parametrize("name", make.RUNS)
def test_the_numbers_are_those_that_are_kept(name, tmp_path):
    kept = json.loads(make.NUMBERS.read_text())[name]
    rows, weights = make.run_numbers(name, tmp_path)
    found = different(rows, kept["metrics"])
    assert not found, f"{found[0]} (and {len(found) - 1} more). {AGAIN}"
    known = kept["weights"].get(make.fingerprint())
    assert known in (None, weights), f"the metrics agree, the weights differ in their last digits. {AGAIN}"


def test_the_alarm_hears_a_change_of_one_percent(tmp_path, monkeypatch):
    kept = json.loads(make.NUMBERS.read_text())["cartpole"]["metrics"]
    monkeypatch.setitem(make.RUNS, "cartpole", last_of_each([*make.RUNS["cartpole"], "trainer.gamma=0.967"]))
    rows, _ = make.run_numbers("cartpole", tmp_path)
    assert different(rows, kept)
    assert different(kept[:-1], kept)
    assert not different(kept, kept)


def test_every_figure_is_kept_but_those_of_the_clock():
    kept = json.loads(make.NUMBERS.read_text())
    assert kept.keys() == make.RUNS.keys()
    for run in kept.values():
        assert {"episode_return", "policy_loss", "value_loss", "grad_norm_recurrence"} <= run["metrics"][-1].keys()
        assert run["metrics"][-1]["episodes"] > 0
