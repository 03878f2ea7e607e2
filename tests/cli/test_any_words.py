"""Any words for any command: exit code 0 or 2, at most three lines of 200 characters, no traceback, and nothing on disk.

The words are random, from a fixed seed: keys and options that exist, values that people and other programs write, and rubbish.
What takes long is replaced: training returns after its settings are checked, episodes are not played, and checks are not run.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import holdfast.audit  # noqa: F401  (to be replaced in)
from holdfast.cli import main
from holdfast.config import describe_keys, load_settings
from holdfast.errors import SettingsError
from holdfast.evaluate import EvaluationResult, evaluation
from holdfast.export import files as exporting
from holdfast.runs import find_resumable
from holdfast.trainer import train
from support.runs import CARTPOLE

NUM_WORDS = 2000
KEYS = [
    *sorted({key.name for key in describe_keys()}),
    "env",
    "agent",
    "py_agent",
    "settings",
    "trainer",
    "policy",
    "zzz",
    "",
]
NUMBERS = (
    "0 -1 +1 1 007 1e6 1_000 1__0 _1 1_e3 0x10 1e400 -0.0 nan inf 1,5 1.5 1:30 65536 2147483648 1e18 \u0661 \uff11 \xbd"
)
NAMES = "true on off None null ~ memory collect gym:CartPole-v1 gym: gym:x:y gymvec:CartPole-v1 pettingzoo: fast box best cpu mps"
PATHS = "./mine.py:Mine mine.yaml /dev/null / . .. ../.. ~nobody/x runs demo /proc/self/mem --help -h -- - % %s %n {0} \\ cuda:99 meta"
YAML = [
    "{}",
    "[]",
    "{",
    "]",
    "{a: 1}",
    "[1, 3]",
    "[" * 30,
    "{a: {b: {c: 1}}}",
    "*a",
    "&a [*a]",
    "!!python/object:os.system {}",
]
ODD = [
    "",
    " ",
    "=",
    "==",
    "a=b=c",
    "${HOME}",
    "$(ls)",
    "é",
    "日本",
    "\u202e",
    "\x00",
    "\x1b[31m",
    "\n",
    "a\nb",
    "\t",
    "\ud800",
]
LONG = ["1" * 50, "9" * 400, "a" * 400, "a/" * 300, "-" * 300, "🙂" * 100]
VALUES = [*NUMBERS.split(), *NAMES.split(), *PATHS.split(), *YAML, *ODD, *LONG]
OPTIONS = {
    "train": ["--trainer.lr", "--seed", "-x", "--resume"],
    "settings": ["--list", "--nonsense", "-l"],
    "evaluate": [
        "--episodes",
        "--seed",
        "--checkpoint",
        "--max-steps",
        "--py-agent",
        "--runs-dir",
        "--json",
        "--sample",
        "--zzz",
    ],
    "export": ["--onnx", "--torch", "--check", "--checkpoint", "--seed", "--py-agent", "--runs-dir", "--zzz"],
    "audit": [
        "--only",
        "--declare",
        "--seed",
        "--time-limit",
        "--py-agent",
        "--runs-dir",
        "--quick",
        "--all",
        "--json",
        "--zzz",
    ],
}
TARGETS = {
    "evaluate": ["demo", "runs/demo"],
    "export": ["demo", "runs/demo", "demo --onnx a.onnx", "demo --torch a.pt2"],
    "audit": ["demo", "py_agent=fast", "agent=fast", "mine.py:nothing"],
}


def draw(rng: random.Random, verb: str) -> list[str]:
    """One to four words, of which the first is usually a good one where the command needs one."""
    words = rng.choice(TARGETS[verb]).split() if verb in TARGETS and rng.random() < 0.7 else []
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.random()
        if kind < 0.3:
            key = rng.choice(describe_keys())
            words.append(
                f"{key.name}={key.default}"
            )  # nothing is wrong with it, if the world or the agent has this key
        elif kind < 0.6:
            words.append(f"{rng.choice(KEYS)}={rng.choice(VALUES)}")
        elif kind < 0.8:
            words.append(rng.choice(VALUES))
        else:
            words += [rng.choice(OPTIONS[verb]), rng.choice(VALUES)][: rng.choice([1, 2, 2])]
    if rng.random() < 0.1:
        words = ["".join(rng.choice([c, c, c, chr(rng.randrange(1, 0x3000))]) for c in word) for word in words]
    return words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run."""
    folder = tmp_path_factory.mktemp("words")
    train(load_settings([*CARTPOLE, f"runs_dir={folder / 'runs'}", "run=demo"]))
    return folder


def test_any_words(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    reached: Counter[str] = Counter()

    def stand_in(settings):
        find_resumable(settings)
        reached["train"] += 1
        numbers = {
            "agent_steps": 1,
            "wall_s": 1.0,
            "sps": 1.0,
            "episode_return_mean": None,
            "solved_at": None,
            "parity_max_abs_logratio": 0.0,
        }
        return SimpleNamespace(run=folder, summary=numbers)

    def evaluate(*_, **__):
        reached["evaluate"] += 1
        return EvaluationResult(1, 0.0, 0.0, 1.0, [0.0])

    def audit(*_, **__):
        reached["audit"] += 1
        raise SettingsError("not run")

    def export(*_, **__):
        reached["export"] += 1
        raise SettingsError("not run")

    monkeypatch.setattr(sys.modules["holdfast.trainer"], "train", stand_in)
    monkeypatch.setattr(exporting, "export", export)
    monkeypatch.setattr(sys.modules["holdfast.audit"], "audit", audit)
    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    rng = random.Random(0)
    wrong = []
    for _ in range(NUM_WORDS):
        verb = rng.choice(["train", "train", "settings", "evaluate", "export", "audit"])
        words = draw(rng, verb)
        code: object = None
        try:
            main([verb, *words])
        except SystemExit as end:
            code = end.code or 0
        except BaseException as error:
            code = repr(error)
        out, err = capfd.readouterr()
        lines = [line for line in err.splitlines() if line]
        reached[f"{verb} {code}"] += 1
        if (
            code not in (0, 2)
            or (code == 2 and out and "--json" not in words)
            or len(lines) > 3
            or max(map(len, lines), default=0) > 200
        ):
            wrong.append((verb, words, code, err[-400:]))
    print(dict(reached))
    assert min(reached[verb] for verb in ("train", "evaluate", "export", "audit")) > 0, "no words were good ones"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert wrong == [], len(wrong)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["train", "env={}"], "env={}: empty."),
        (["train", "seed=1__000"], "seed=1__000: needs a whole number"),
        (["train", "trainer.lr=1_e-3"], "trainer.lr=1_e-3: needs a number"),
        (["train", "seed=\uff11"], "needs a whole number"),
        (["train", "device=mps"], "device=mps is not available"),
        (["train", "env.num_envs=65536", "env.rooms=64", "trainer.horizon=65536"], "Use a smaller env.num_envs"),
        (["train", "policy.hidden=8192", "policy.layers=16"], "Use a smaller agent, policy.hidden or policy.layers."),
        (["audit", "agent=fast", "policy.hidden=8192", "policy.layers=16"], "need 124 GB of memory"),
        (["audit", "py_agent=fast", "--only", "a" * 400], "there is no check aaa"),
        (["audit", "py_agent=fast", "--declare", "a" * 400], "unknown deviation aaa"),
        (["evaluate", "demo", "--checkpoint", "a" * 400], "has no checkpoint aaa"),
        (["evaluate", "demo", "--runs-dir", "a" * 400], "no such run"),
        (["evaluate", "demo", "--py-agent", "x"], "--py-agent x: has no effect"),
        (["audit", "demo", "--py-agent", "x"], "--py-agent x: has no effect"),
        (["export", "demo", "--onnx", "a" * 3000], "file name too long"),
        (["export", "demo", "--onnx", "a" * 250], "file name too long"),
        (["export", "--check", "a" * 3000], "file name too long"),
        (["export", "--check", "\x00"], "null byte"),
        (["export", "--check", "/dev/zero"], "not a regular file"),
        (["audit", "demo", "--time-limit", "1e18"], "Invalid value for '--time-limit'"),
        (["evaluate", "demo", "--nonsense", "a" * 400], "No such option: --nonsense"),
        (["evaluate", "demo", "--non\n\nsense"], "No such option: --non"),
        (["train", "policy.weights=" + "a" * 900], "no checkpoint there"),
        (["train", "policy.weights=/dev/null"], "no checkpoint there"),
        (["train", "policy.weights=\x9b2J"], "policy.weights="),
        (["train", "py_agent=" + "a" * 4000 + ".py:X"], "no such file"),
        (["train", "run=demo", "runs_dir=/dev/null"], "runs_dir=/dev/null: cannot write there"),
        (["train", "env=gym:CartPole-v1", "env.kwargs.a\nb\nc=1"], "creating the environment failed"),
        (["train", "env=gym:CartPole-v1", 'env.kwargs={"a\\nb\\e[2J": 1}'], "creating the environment failed"),
        (["train", "env=gym:CartPole-v1", "env.hide=[0x" + "f" * 5000 + "]"], "env.hide="),
        (["train", "env=gym:CartPole-v1", "env.hide=[1" + ":59" * 900 + ".0]"], "env.hide="),
        (["train", "env=gym:\u202eX-v1"], "env=gym:"),
        (["train", "env=gym:" + "a" * 5000], "has no environment"),
        (["train", "env=pettingzoo:" + "a." * 2000], "cannot be imported"),
        (["audit", "a" * 4000 + ".py:X"], "no such file"),
        (["audit", "./x\u202e.py:X"], "no such file"),
        (["audit", "demo", "--html", "a" * 3000], "file name too long"),
        (["audit", "demo", "--html", "\x9b/x"], "needs a file path"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_these_words(words, part, folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**36))  # 64 GB
    with pytest.raises(SystemExit, match="2"):
        main(words)
    out, err = capfd.readouterr()
    assert out == ""
    assert part in err
    assert len(err.splitlines()) <= 3
    assert max(map(len, err.splitlines())) <= 330  # what another library says may be cut later
    assert all(line.isprintable() for line in err.split("\n"))
    assert [path.name for path in folder.iterdir()] == ["runs"]


def test_underscores_between_digits_are_those_of_python():
    settings = load_settings(["seed=1_000", "trainer.total_timesteps=1_000_000", "trainer.lr=0.000_5"])
    assert (settings.seed, settings.trainer.total_timesteps, settings.trainer.lr) == (1000, 10**6, 0.0005)


def test_sizes_of_a_stranger_cost_nothing(folder, tmp_path, monkeypatch, capfd):
    """A config.yaml that describes a policy of 33 GB, with a small checkpoint: refused by comparing shapes."""
    shutil.copytree(folder / "runs", tmp_path / "runs")
    config = tmp_path / "runs" / "demo" / "config.yaml"
    config.write_text(config.read_text().replace("hidden: 8", "hidden: 8192").replace("layers: null", "layers: 16"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["evaluate", "demo"])
    assert "these weights belong to another agent" in capfd.readouterr().err
