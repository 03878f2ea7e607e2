"""The environment of docs/worlds.md: trained from its file, resumed after the file has moved, and evaluated."""

import re
import shlex
from pathlib import Path

import pytest

from holdfast.cli import main
from support.runs import SMALL_NET, TINY, figures, last_of_each

PAGE = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text()
SECTION = PAGE.partition("## Your own environment")[2]
FILE = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[0]
COMMANDS = re.findall(r"```bash\n(.*?)```", SECTION, re.DOTALL)[0]
TRAIN, EVALUATE = (shlex.split(line)[1:] for line in COMMANDS.splitlines())
POLICY = (Path(__file__).parents[2] / "examples" / "custom_policy.py").read_text()


def holdfast(words: list[str]) -> int | str:
    with pytest.raises(SystemExit) as caught:
        main(words)
    return caught.value.code or 0


def test_train_resume_and_evaluate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    tiny = [*TINY, *SMALL_NET]
    assert holdfast([*TRAIN, *tiny]) == 0
    assert f"view runs/recall {EVALUATE[2]}" in capsys.readouterr().out

    Path("other").mkdir()
    Path("mine.py").rename("other/mine.py")
    for words in (["train", "run=recall"], ["evaluate", "recall"], ["audit", "recall"]):
        assert holdfast(words) == 2
        assert EVALUATE[2] in capsys.readouterr().err

    moved = EVALUATE[2].replace("./mine.py", "other/mine.py")
    longer = "trainer.total_timesteps=512"
    assert holdfast(["train", "run=recall", moved, longer, "trainer.num_workers=2"]) == 0
    assert holdfast(["train", "run=whole", moved, *TRAIN[2:3], *last_of_each([*tiny, longer])]) == 0
    assert figures(Path("runs/recall")) == figures(Path("runs/whole"))
    capsys.readouterr()
    assert holdfast(["evaluate", "recall", moved]) == 0
    assert "length 8" in capsys.readouterr().out  # env.kwargs of the run are kept


def test_a_policy_and_a_world_in_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(f"print(end='executed ', file=open('count', 'a'))\n{FILE}\n{POLICY}")
    words = [word for word in TINY if not word.startswith("trainer.total")]
    agent = "py_agent=./mine.py:MyPolicy"
    assert holdfast([*TRAIN, agent, "trainer.total_timesteps=64", "audit=off", *words]) == 0
    assert holdfast(["evaluate", "recall", EVALUATE[2], "--py-agent", "./mine.py:MyPolicy"]) == 0
    assert Path("count").read_text() == "executed "


@pytest.mark.parametrize("source", ["raise ValueError", "class Recall: ..."])
def test_a_broken_file_writes_nothing(tmp_path, monkeypatch, capsys, source):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(source)
    assert holdfast(TRAIN) == 2
    assert capsys.readouterr().err.startswith(EVALUATE[2])
    assert not Path("runs").exists()
