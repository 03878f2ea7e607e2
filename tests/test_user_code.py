"""Python files of the user: executed once, with modules beside them, and named in errors."""

import pickle
import sys

import pytest

from holdfast.errors import SettingsError
from holdfast.user_code import load_file, load_name


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def refused(file: str, name: str = "Env") -> str:
    with pytest.raises(SettingsError) as caught:
        load_name(file, name, f"env={file}:{name}", callable, "Environments")
    return str(caught.value)


def test_modules_beside_the_file_are_found(tmp_path):
    (tmp_path / "first_helper.py").write_text("x = 1\n")
    (tmp_path / "second_helper.py").write_text("from .first_helper import x\nfrom . import mine\ny = x + 1\n")
    (tmp_path / "mine.py").write_text(
        "import first_helper\nfrom .second_helper import y\ndef late(): import first_helper"
    )
    module = load_file("./mine.py", "test")
    assert (module.first_helper.x, module.y) == (1, 2)
    module.late()
    assert sys.modules[f"{module.__package__}.second_helper"].mine is module


def test_files_of_the_same_name_are_separate(tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helper.py").write_text(f"where = '{folder}'\n")
        (tmp_path / folder / "mine.py").write_text("from .helper import where\nclass Env: ...\n")
    a, b = (load_file(f"{folder}/mine.py", "test") for folder in "ab")
    assert (a.where, b.where) == ("a", "b")
    assert type(pickle.loads(pickle.dumps(a.Env()))) is a.Env


def test_a_file_is_executed_once_until_it_changes(tmp_path):
    (tmp_path / "mine.py").write_text("class Env: ...\n")
    first = load_file("mine.py", "test")
    assert load_file(f"{tmp_path}/mine.py", "test") is first
    (tmp_path / "mine.py").write_text("class Other: ...\n")
    assert hasattr(load_file("mine.py", "test"), "Other")


def test_a_dot_in_the_name_of_the_file(tmp_path):
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "mine.v2.py").write_text("from .helper import x\n")
    assert load_file("mine.v2.py", "test").x == 1


def test_errors_name_the_file_and_what_is_there(tmp_path):
    (tmp_path / "mine.py").write_text("from pathlib import Path\nclass Maze: ...\nclass Room: ...\nlength = 3\n")
    assert "env=mien.py:Env: no such file: mien.py. Did you mean mine.py?" in refused("mien.py")
    assert "no such file" in refused("nowhere/mine.py")
    assert refused("mine.py", "Rom") == "env=mine.py:Rom: the file has no Rom. Environments in the file: Room, Maze."


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero at mine.py:2"),
        ("x = 1\nx x", "SyntaxError: invalid syntax (mine.py, line 2)"),
        ("import nothing_of_the_kind", "No module named 'nothing_of_the_kind' at mine.py:1"),
        ("from .nothing import x", "at mine.py:1"),
        ("raise SystemExit(0)", "SystemExit: 0 at mine.py:1"),
    ],
)
def test_a_file_that_raises(tmp_path, source, said):
    (tmp_path / "mine.py").write_text(source)
    before = set(sys.modules)
    assert said in refused("mine.py")
    assert not any(name.endswith(".mine") for name in set(sys.modules) - before)
    (tmp_path / "mine.py").write_text("fixed = True")
    assert load_file("mine.py", "test").fixed
