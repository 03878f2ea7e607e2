"""The script of `make bench`, with the measurements replaced."""

import json
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def run() -> ModuleType:
    import run

    return run


@pytest.fixture
def measured(run, monkeypatch) -> list[bool]:
    """Only one part, which returns two rows. Holds the value of `quick` of each call."""
    calls: list[bool] = []

    def measure(quick):
        calls.append(quick)
        return [{"what": "learning", "speedup": 1.23456}, {"what": "acting", "speedup": 2.0}]

    monkeypatch.setattr(run, "PARTS", {"fast": run.Part("Fast against the first version", measure)})
    monkeypatch.setattr(run, "keep_freed_memory", lambda: None)
    return calls


@pytest.mark.parametrize(("args", "quick"), [([], False), (["fast", "--quick"], True)])
def test_prints_and_writes(args, quick, run, measured, capsys, tmp_path):
    path = tmp_path / "figures.json"
    run.main([*args, "--json", str(path)])
    assert measured == [quick]
    title, header, learning, *_ = capsys.readouterr().out.splitlines()
    assert title == "Fast against the first version"
    assert header.split() == ["what", "speedup"]
    assert learning.split() == ["learning", "1.235"]
    assert json.loads(path.read_text())["parts"]["fast"][1]["speedup"] == 2.0


@pytest.mark.parametrize(("args", "said"), [(["--json", "no/figures.json"], "existing folder"), (["slow"], "fast")])
def test_bad_arguments_are_refused_before_measuring(args, said, run, measured, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        run.main(args)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
    assert measured == []


def test_the_docs_name_parts_that_exist(run):
    named = {name for page in DOCS.glob("*.md") for name in re.findall(r"holdfast bench ([\w-]+)", page.read_text())}
    assert named == set(run.PARTS)
