"""`make bugs ARGS=NAME` measures one policy again and keeps the results of the others."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.user_code import load_file

BENCHMARK = Path(__file__).parents[2] / "proofs" / "bugs.py"


@pytest.fixture
def bugs(monkeypatch, tmp_path):
    """proofs/bugs.py with a folder of its own, and runs that are made up: new, with the seed they got."""
    module = load_file(str(BENCHMARK), "bugs")
    monkeypatch.setattr(module, "PICTURES", tmp_path / "bugs")
    monkeypatch.setattr(module, "CURVES", tmp_path / "bugs" / "curves.json")
    monkeypatch.setattr(module, "ProcessPoolExecutor", lambda processes, context: ThreadPoolExecutor(processes))
    monkeypatch.setattr(module, "learn", lambda study, name, seed, folder: run("new", seed))
    return module


def run(age, seed):
    return {"age": age, "seed": seed, "steps_to_goal": None, "return_last": 0.5}


def test_what_is_measured_replaces_its_own_runs_and_no_others(bugs):
    old, new = [run("old", seed) for seed in range(3)], [run("new", seed) for seed in range(2)]
    bugs.PICTURES.mkdir()
    bugs.CURVES.write_text(json.dumps({study: {"Fast": old, "A": old, "B": old} for study in bugs.STUDIES}))
    bugs.measure(["Fast", "B", "C"], 2, 1)
    assert json.loads(bugs.CURVES.read_text()) == {
        study: {"Fast": new, "A": old, "B": new, "C": new} for study in bugs.STUDIES
    }


def test_the_first_measurement_makes_the_file(bugs):
    bugs.measure(["Fast", "A"], 1, 1)
    new = [run("new", 0)]
    assert json.loads(bugs.CURVES.read_text()) == {study: {"Fast": new, "A": new} for study in bugs.STUDIES}
