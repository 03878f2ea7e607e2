"""Every key of the schema through the real entry point: refused with code 2 in at most three lines, and nothing is on disk.

What the lines say is tried in tests/config. Here it is that no key is left out, in any of the four ways to get one wrong, and that
no folder, no file and no process is made on the way: not in the working folder, not in the home, not where temporary files go.
"""

import json
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config import Key, describe_keys
from holdfast.config.conflicts import NEEDS
from holdfast.config.describe import Limits, keys_by_name
from holdfast.config.sections import EnvSection, PolicySection, Section
from holdfast.config.settings import Settings

KEYS = describe_keys()
PICKS = {"env.name": "env", "policy.py_agent": "py_agent", "policy.agent": "agent"}
WRONG = {
    "int": "many",
    "float": "much",
    "bool": "perhaps",
    "choice": "zzz",
    "list": "{a: 1}",
    "mapping": "[1]",
    "text": "\x07",
}
# Words that cannot stand together, by the key that is told; what cannot conflict is every other key.
CONFLICTS = {
    **{key: None for rule in NEEDS for key in rule.keys},  # no effect without another: made from the schema
    "trainer.batch_size": ["trainer.batch_size=100", "trainer.horizon=16"],
    "trainer.minibatch_size": ["trainer.horizon=16", "trainer.batch_size=64", "trainer.minibatch_size=48"],
    "trainer.num_workers": ["env.num_envs=2", "trainer.num_workers=3"],
    "trainer.burn_in": ["trainer.burn_in=4", "trainer.start_states=zeros"],
    "trainer.advantage": ["trainer.advantage=vtrace", "trainer.update_epochs=1"],
    "trainer.start_states": ["trainer.start_states=refreshed", "trainer.update_epochs=1"],
    "run": ["run=a", "run=b"],
    "policy.agent": ["agent=fast", "py_agent=fast"],
}
# As a user has it: every command in one process, so that two hundred of them take seconds, each in folders of its own.
SERVER = """
import contextlib, io, json, os, sys
from holdfast.cli import main
for line in sys.stdin:
    folder, words = json.loads(line)
    os.chdir(folder)
    os.environ["HOME"] = os.environ["TMPDIR"] = folder
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(["train", *words])
    except SystemExit as stop:
        code = stop.code
    found = [os.path.join(at, name) for at, folders, files in os.walk(folder) for name in (*folders, *files)]
    print(json.dumps([code, out.getvalue(), err.getvalue(), found, "torch" in sys.modules]), flush=True)
"""


class Entry:
    """`holdfast train WORDS` again and again; `told` is what it printed."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.count = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def refuses(self, words: list[str]) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        self.process.stdin.write(json.dumps([str(folder), words]) + "\n")
        self.process.stdin.flush()
        code, out, err, found, heavy = json.loads(self.process.stdout.readline())
        assert code == 2, (words, code, err)
        assert out == "", words
        assert 1 <= err.count("\n") <= 3, (words, err)
        assert "Traceback" not in err, words
        assert found == [], words
        assert not heavy, f"{words}: torch was imported to say no"
        return err


@pytest.fixture(scope="module")
def entry(tmp_path_factory):
    started = Entry(tmp_path_factory.mktemp("entry"))
    yield started
    assert started.process.stdin is not None
    started.process.stdin.close()
    started.process.wait(30)


def each(keys: list[Key]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("key", keys, ids=lambda key: f"{key.owner} {key.name}".strip())


def context(key: Key) -> list[str]:
    """What brings the key: its world or its agent."""
    if key.name in PICKS:
        return []
    word = key.owner.replace("NAME", "X-v0").replace("MODULE", "some.module").replace("FILE.py:CLASS", "./mine.py:Mine")
    return [word] if word else []


@each(KEYS)
def test_unknown(entry, key):
    """One letter wrong, at three places; the nearest name is told, if it is not that of another key by chance."""
    group, _, last = key.name.rpartition(".")
    for place in {0, len(last) // 2, len(last) - 1}:
        other = next(c for c in string.ascii_lowercase if c not in last)
        wrong = f"{group}.{last[:place]}{other}{last[place + 1 :]}".lstrip(".")
        if wrong in keys_by_name() or len(last) < 4:
            wrong = f"{key.name}{other}"
        told = entry.refuses([*context(key), f"{wrong}=1"])
        assert f"unknown key {wrong}." in told
        assert "Did you mean" in told, told
        if key.name not in PICKS and len(last) > 4:
            assert f"Did you mean {key.name}?" in told, told


@each(KEYS)
def test_wrong_type(entry, key):
    assert key.name in entry.refuses([*context(key), f"{key.name}={WRONG[key.kind]}"])


@each([key for key in KEYS if key.limits != Limits()])
def test_out_of_range(entry, key):
    low, high = key.limits.low, key.limits.high
    beyond = [low if key.limits.low_is_open else low - 1] if low is not None else []
    beyond += [high * 2 + 1] if high is not None else []
    assert beyond
    for value in beyond:
        text = f"[{value}]" if key.kind == "list" else f"{value}"
        assert f"{key.name}={text}" in entry.refuses([*context(key), f"{key.name}={text}"])


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflicting(entry, name):
    words = CONFLICTS[name]
    if words is None:
        rule = next(rule for rule in NEEDS if name in rule.keys)
        default = keys_by_name()[name][0].default
        needs = {"policy.core": "none"} if "policy.core" in rule.wanted else {}
        needs |= {"trainer.value_coef": "0"} if "value_coef" in rule.wanted else {}
        needs |= {"trainer.update_epochs": "1"} if "update_epochs" in rule.wanted else {}
        needs |= {"trainer.schedule.lr.kind": "constant"} if "schedule.lr." in rule.wanted else {}
        words = [*(f"{key}={value}" for key, value in needs.items()), f"{name}={default}"]
    assert name.rpartition(".")[2] in entry.refuses(["env=gym:CartPole-v1", *words])


def test_no_key_is_left_out():
    """The list that these tests walk has every field of every section, however deep."""

    def leaves(section: type[Section], prefix: str = "") -> set[str]:
        found = set()
        for name, field in section.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, Section):
                found |= leaves(inner, f"{prefix}{name}.")
            else:
                found.add(prefix + name)
        return found

    def subclasses(section: type) -> set[type]:
        return {section}.union(*(subclasses(sub) for sub in section.__subclasses__()))

    wanted = leaves(Settings) - {"env", "policy"}
    for base, prefix in ((EnvSection, "env."), (PolicySection, "policy.")):
        for section in subclasses(base) - {base}:
            if section.__module__.startswith("holdfast."):  # not a world that another test has defined
                wanted |= leaves(section, prefix)
    assert {key.name for key in KEYS} == wanted
    assert all(key.kind in WRONG for key in KEYS)
    assert set(CONFLICTS) <= wanted


@pytest.mark.parametrize("words", [["trainer.lrr=1"], ["trainer.num_workers=99"]])
def test_in_a_process_of_its_own(tmp_path, words):
    there = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "train", *words], cwd=tmp_path, env=there, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert 1 <= done.stderr.count("\n") <= 3
    assert list(tmp_path.iterdir()) == []
