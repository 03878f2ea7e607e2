"""`holdfast audit --github`: failures as annotations for GitHub Actions."""

import re
import subprocess
import sys

import pytest

from holdfast.cli import main

OWN_LEAK = """
import torch
from holdfast.audit import Subject

class Leaks(Subject):
    name = "100% mine\\nor yours"

    def observations(self, N, generator):
        return torch.randn(N, 3, generator=generator)

    def initial_state(self, B):
        return (torch.zeros(1, B, 3),)

    def step(self, obs, state, first):
        h = torch.tanh(obs + state[0][0])
        return {"logits": h}, (h.unsqueeze(0),)
"""
LEAVES = """
import os

def subject():
    os._exit(0)
"""


def run(*args: str, code: int) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["audit", *args, "--github"])
    assert caught.value.code == code


def test_failures_as_annotations_for_github(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN_LEAK)
    run("mine.py:Leaks", code=1)
    table, *annotations = capsys.readouterr().out.split("::error ")
    assert "NOT SOUND" in table
    assert len(annotations) == 3
    line = 1 + OWN_LEAK.splitlines().index("    def step(self, obs, state, first):")
    place, _, message = annotations[0].partition("::")
    assert re.fullmatch(rf"file=mine\.py,line={line},title=holdfast audit%3A \w+", place)
    assert message.startswith("100%25 mine%0Aor yours: ")
    assert message.endswith(".\n")
    assert message.count("\n") == 1
    run("mine.py:Leaks", "--all", "--only", "reset_inside_sequence", code=1)
    assert capsys.readouterr().out.count("\n::error ") == 1


def test_what_cannot_be_audited_is_an_annotation_too(tmp_path, capsys):
    run("py_agent=fats", code=2)
    assert re.match(r"::error title=holdfast audit::.*no such agent", capsys.readouterr().out)
    (tmp_path / "leaves.py").write_text(LEAVES)
    command = [sys.executable, "-m", "holdfast", "audit", "--github", f"{tmp_path / 'leaves.py'}:subject"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300)
    assert ended.stdout.startswith("::error title=holdfast audit::the policy ended the process")
