"""Run the Python blocks of README and docs, and check their commands and settings."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_group

from holdfast.cli.app import app
from holdfast.config import load_settings
from holdfast.sweeps.plan import check_plan, make_plan

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[list[str]]:
    lines = [line.split("#")[0].strip() for text in blocks(page, "bash") for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "tutorial.md"], ids=lambda p: p.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """Those of the tutorial need the runs of its commands: test_tutorial.py runs both."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "docs"}
    for text in blocks(page, "python"):
        exec(compile(text, page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_exist_and_their_settings_load(page, tmp_path, monkeypatch):
    verbs = set(get_group(app).commands)
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        program = Path(words[0]).name
        if program == "make":
            assert words[1] in MAKE_TARGETS
        elif program == "holdfast":
            assert words[1] in verbs
        if program == "train.py" or (words[1:2] == ["train"] and program == "holdfast"):
            given = [word for word in words[1:] if "=" in word]
            if not any("runs/" in word for word in given):  # names a run, which does not exist here
                load_settings(given)
        elif words[1:2] == ["sweep"]:
            trials = int(words[words.index("--trials") + 1]) if "--trials" in words else 0
            check_plan(make_plan([word for word in words[2:] if "=" in word], None, trials, "episodes", False))
        elif words[1:2] == ["evaluate"]:
            load_settings([word for word in words[2:] if word.startswith("env")])
