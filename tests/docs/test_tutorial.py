"""The tutorial's commands and programs run in their order, with a smaller agent."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from holdfast.cli import main
from support.runs import TINY, last_of_each

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```(bash|python)\n(.*?)^```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL | re.MULTILINE
)
SMALLER = [
    *TINY,
    "env.num_envs=2",
    "env.rooms=2",
    "trainer.batch_size=32",
    "trainer.minibatch_size=16",
    "policy.hidden=8",
]


def holdfast(words: list[str]) -> int | str:
    if words[0] == "train" and not Path("runs", words[1].removeprefix("run=")).exists():
        words = last_of_each([*words, *SMALLER])
    elif words[0] == "train":
        words = [re.sub(r"^(trainer.total_timesteps)=.*", r"\1=512", word) for word in words]
    elif words[0] == "evaluate":
        words = [*words, "--episodes", "4"]
    with pytest.raises(SystemExit) as caught:
        main(words)
    return caught.value.code or 0


@pytest.mark.slow
def test_every_step_of_the_tutorial(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mettagrid")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    done: list[str] = []
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "tutorial.md", "exec"), {"__name__": "tutorial"})
            done.append("python")
            continue
        for words in map(shlex.split, text.splitlines()):
            if words[0] == "holdfast":
                expected = 1 if words[1] == "audit" else 0  # what it audits is broken
                assert holdfast(words[1:]) == expected, (words, capsys.readouterr())
                done.append(words[1])
    assert done == [
        "train",
        "evaluate",
        "evaluate",
        "evaluate",
        "train",
        "compare",
        "audit",
        "train",
        "train",
        "python",
        *["export"] * 2,
    ]
    assert "reset_inside_sequence" in capsys.readouterr().out
