"""`holdfast runs`, `compare` and `sweep`: what they print, how they end, and what they leave on disk."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.cli import main
from holdfast.config import load_settings
from holdfast.runs import RunFolder
from holdfast.sweeps import sweep as sweep_module
from holdfast.sweeps.plan import make_plan
from holdfast.sweeps.store import open_sweep

ODD = "a\x1b[2J\u202eb"


def run(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert (caught.value.code or 0) == code


def begin(folder: Path, name: str, *words: str, returns: tuple[float, ...] = (1.0, 2.0)) -> Path:
    given = load_settings(["env=gym:CartPole-v1", f"runs_dir={folder}", f"run={name}", *words])
    with RunFolder.create(given) as made:
        for i, value in enumerate(returns, start=1):
            made.log_metrics({"update": i, "agent_steps": 100 * i, "episode_return": value})
        made.write_summary({"episode_return_mean": returns[-1]})
    return made.path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    begin(tmp_path / "runs", "first", returns=(1.0, 7.0, 2.0))
    begin(tmp_path / "runs", "second", "policy.core=gru")
    os.utime(tmp_path / "runs" / "first" / "run-id", (1, 1))
    return tmp_path


# -------------------- runs


def test_runs_prints_a_table_and_writes_nothing(folder, capsys):
    broken = RunFolder.create(load_settings(["run=broken"]))
    broken.log_metrics({"agent_steps": 5})
    with pytest.raises(ZeroDivisionError), broken:
        raise ZeroDivisionError(ODD)
    os.utime(folder / "runs" / "broken" / "run-id", (2**32, 2**32))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    run("runs")
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [
        ["run", "world", "agent", "steps", "return", "best", "state"],
        ["first", "gym:CartPole-v1", "box", "300", "2", "7", "finished"],
        ["second", "gym:CartPole-v1", "box", "200", "2", "2", "finished"],
        ["broken", "memory", "fast", "5", "-", "-", "failed"],
    ]
    assert "broken failed: ZeroDivisionError: a" in err
    assert err.replace("\n", "").isprintable()
    run("runs", "--json", "policy.core=gru")
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {
        "run": "second",
        "world": "gym:CartPole-v1",
        "agent": "box",
        "steps": 200,
        "return": 2.0,
        "best": 2.0,
        "state": "finished",
        "error": "",
    }
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_runs_without_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("runs")
    assert capsys.readouterr().out == "There are no runs in runs.\n"
    run("runs", "--json")
    assert capsys.readouterr().out == "[]\n"
    run("runs", "nothing", code=2)
    (tmp_path / "file").write_text("")
    run("runs", "--runs-dir", "file", code=2)
    assert "file: cannot be read: not a directory." in capsys.readouterr().err


def test_names_and_worlds_of_strangers_are_printed_without_control_characters(folder, capsys):
    (folder / "runs" / "first").rename(folder / "runs" / ODD)
    config = folder / "runs" / ODD / "config.yaml"
    config.write_text(config.read_text().replace("gym:CartPole-v1", '"gym:\\e]0;x\\a' + "y" * 5000 + '"'))
    (folder / "runs" / "link").mkdir()
    (folder / "runs" / "link" / "config.yaml").symlink_to("/etc/passwd")
    for words in (["runs"], ["runs", "state=finished"]):
        run(*words)
        out, err = capsys.readouterr()
        assert "a\\x1b[2J\\u202eb" in out
        assert err == "link: skipped: runs/link/config.yaml: not a regular file.\n"
        assert all(line.isprintable() and len(line) < 400 for line in (out + err).splitlines())
    run("compare", ODD, "second", code=2)  # the world has a name that is refused
    assert all(line.isprintable() and len(line) < 400 for line in capsys.readouterr().err.splitlines())


def test_of_many_damaged_runs_only_a_few_are_named(folder, capsys):
    for i in range(20):
        (folder / "runs" / f"bad{i}").mkdir()
        (folder / "runs" / f"bad{i}" / "config.yaml").write_text("a: [")
    run("runs")
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert len(err.splitlines()) == 4
    assert "and 17 more" in err


# -------------------- compare


def test_compare_prints_what_differs_and_draws_a_picture(folder, capsys):
    run("compare", "first", "runs/second")
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [
        ["setting", "first", "runs/second"],
        ["policy.core", "own", "gru"],
        [],
        ["episode_return", "after", "equal", "numbers", "of", "agent", "steps:"],
        ["run", "at", "50", "at", "100", "at", "150", "at", "200", "last", "state"],
        ["first", "-", "1", "1", "7", "2", "finished"],
        ["runs/second", "-", "1", "1", "2", "2", "finished"],
        [],
        ["The", "picture", "is", "in", "runs/compare.svg."],
    ]
    assert err == ""
    assert "first" in ET.parse("runs/compare.svg").getroot().itertext()
    run("compare", "first", "second", "--svg", "mine.svg", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == {"policy.core": {"first": "own", "second": "gru"}}
    assert found["runs"]["first"] == {"values": [None, 1.0, 1.0, 7.0], "steps": 300, "last": 2.0, "state": "finished"}
    assert found["picture"] == "mine.svg"
    assert sorted(path.name for path in folder.iterdir()) == ["mine.svg", "runs"]


def test_equal_runs(folder, capsys):
    begin(folder / "runs", "again", returns=(1.0,))
    run("compare", "first", "again")
    assert capsys.readouterr().out.startswith("The settings do not differ.\n")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["first"], "two runs or more"),
        ([], "Missing argument"),
        (["first", "first"], "two runs or more"),
        (["first", "./runs/first"], "the same run"),
        (["first", "secondd"], "no such run"),
        (["first", "x" * 5000], "no such run"),
        (["first", "second", "--metric", "episode_retrun"], "Did you mean episode_return?"),
        (["first", "second", "--metric", ODD], "no such metric"),
        (["first", "second", "--svg", "nowhere/x.svg"], "--svg"),
        (["first", "second", "--svg", "."], "--svg"),
        (["fir*"], "two runs or more"),
    ],
)
def test_compare_refuses_in_a_line(folder, capsys, words, part):
    run("compare", *words, code=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err
    assert len(err.splitlines()) <= 2
    assert [path.name for path in folder.iterdir()] == ["runs"]
    assert sorted(path.name for path in (folder / "runs").iterdir()) == ["first", "second"]


def test_a_picture_never_goes_through_a_link(folder, capsys):
    (folder / "precious.txt").write_text("mine")
    (folder / "runs" / "compare.svg").symlink_to(folder / "precious.txt")
    run("compare", "first", "second")
    assert (folder / "precious.txt").read_text() == "mine"
    assert not (folder / "runs" / "compare.svg").is_symlink()
    (folder / "runs" / "compare.svg").unlink()
    (folder / "runs" / "compare.svg").mkdir()
    (folder / "runs" / "compare.svg" / "full").write_text("")
    run("compare", "first", "second")
    assert "could not be written" in capsys.readouterr().err


# -------------------- sweep


@pytest.fixture
def no_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing is built or started; the names of the runs that would have been, each of which finishes."""
    started: list[str] = []

    def start(run_, words, sweep):
        started.append(run_.name)
        begin(Path(sweep.path), run_.name, returns=(float(len(started)),))
        return SimpleNamespace(run=run_, ended=True, seconds=2.0, close=lambda: None, why_unfinished=lambda: "")

    monkeypatch.setattr(sweep_module, "first_refusal", lambda runs: None)
    monkeypatch.setattr(sweep_module, "start", start)
    monkeypatch.setattr(sweep_module, "POLL_S", 0.0)
    return started


def test_sweep_prints_progress_a_table_and_what_to_paste(folder, capsys, no_runs):
    words = ["env=gym:CartPole-v1", "trainer.lr=1e-3,1e-4", "policy.core=own"]
    run("sweep", *words, "--name", "demo")
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Sweep demo in runs/demo: 2 combinations, 1 at a time."
    assert out[1:3] == [
        "[0/2] started 001-lr_1e-3",
        "[1/2] finished 001-lr_1e-3: episode_return_mean 1, 0:00:02, about 0:00:02 left",
    ]
    assert [line.split() for line in out[6:9]] == [
        ["trainer.lr", "episode_return_mean", "finished"],
        ["1e-4", "2", "1", "of", "1"],
        ["1e-3", "1", "1", "of", "1"],
    ]
    best = "Best: holdfast train env=gym:CartPole-v1 policy.core=own trainer.lr=1e-4"
    assert out[10:] == [best, "The picture is in runs/demo/curves.svg."]
    load_settings(best.split()[3:])
    run("sweep", *words, "--name", "demo", "--json")
    shown, err = capsys.readouterr()
    assert "2 of 2 runs are finished already." in err
    assert json.loads(shown)["best"] == best.split()[3:]
    run("sweep", "--show", "demo")
    again = capsys.readouterr().out.splitlines()
    assert again[1:7] == out[6:12]
    assert again[-1] == f"The sweep: holdfast sweep {words[0]} {words[2]} {words[1]} --name demo"
    assert len(no_runs) == 2
    run("runs", "demo")
    assert len(capsys.readouterr().out.splitlines()) == 3
    run("compare", "demo")
    assert "demo/002-lr_1e-4" in capsys.readouterr().out


def test_sweep_without_a_name_is_resumed_by_the_same_command(folder, capsys, no_runs):
    for _ in range(2):
        run("sweep", "env=gym:CartPole-v1", "seed=0..1")
    assert len(no_runs) == 2
    assert len(list((folder / "runs").glob("sweep-seed-*"))) == 1


def test_a_search_says_its_scale(folder, capsys, no_runs):
    run("sweep", "env=gym:CartPole-v1", "trainer.lr=1e-5..1e-1", "trainer.gamma=0.9..0.99", "--trials", "3")
    out = capsys.readouterr().out
    assert ": 3 trials, 1 at a time." in out
    assert "trainer.lr from 1e-05 to 0.1, on a log scale" in out
    assert "trainer.gamma from 0.9 to 0.99, on a linear scale" in out
    assert len(no_runs) == 3


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["trainer.lr=1e-3,abc"], "trainer.lr=abc: needs a number"),
        (["trainer.lr=1e-3,1e-4", "env=memoryy"], "no such world"),
        (["trainer.lr=1e-5..1e-1"], "--trials"),
        (["trainer.lr=1e-3,1e-4", "--jobs", "0"], "--jobs"),
        (["trainer.lr=1e-3,1e-4", "--trials", "-1"], "--trials"),
        (["trainer.lr=1e-3,1e-4", "--metric", "x"], "no such metric"),
        (["trainer.lr=1e-3,1e-4", "--name", "first"], "is a run"),
        (["trainer.lr=1e-3,1e-4", "--name", "../up"], "--name"),
        (["trainer.lr=1e-3,1e-4", "--runs-dir", "${HOME}"], "runs_dir="),
        (["trainer.lr=1e-3,1e-4", "--runs-dir", "a\nb"], "runs_dir="),
        (["trainer.lr=1e-3,1e-4", "--runs-dir", "/dev/null"], "--runs-dir"),
        (["--show", "first"], "no such sweep"),
        (["--show", "x", "seed=0..1"], "leave out the other words"),
        ([ODD, "seed=0..1"], "not key=value"),
        (["seed=\x1b\u202e,1"], "seed=\\x1b\\u202e: needs"),
        ([], "nothing to sweep"),
        (["--nonsense"], "No such option"),
    ],
)
def test_a_sweep_is_refused_in_one_line_and_writes_nothing(folder, capsys, no_runs, words, part):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    run("sweep", *words, code=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err
    assert len(err.splitlines()) == 1
    assert err[:-1].isprintable()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert no_runs == []


def test_what_training_would_refuse_is_refused_with_its_combination(folder, capsys, monkeypatch):
    monkeypatch.setattr(sweep_module, "first_refusal", lambda runs: (len(runs) - 1, "policy.hidden: does not\nfit."))
    run("sweep", "env=gym:CartPole-v1", "policy.hidden=8,16", "policy.layers=1,2", code=2)
    err = capsys.readouterr().err
    assert err == "policy.hidden: does not fit. (With policy.hidden=16 policy.layers=2.)\n"
    assert [path.name for path in (folder / "runs").iterdir() if path.name not in ("first", "second")] == []


def test_a_missing_optuna_is_one_line(folder, capsys, monkeypatch, no_runs):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    run("sweep", "env=gym:CartPole-v1", "trainer.lr=1e-5..1e-1", "--trials", "3", code=2)
    assert "pip install optuna" in capsys.readouterr().err
    assert sorted(path.name for path in (folder / "runs").iterdir()) == ["first", "second"]


def test_the_words_of_a_strangers_sweep_are_shown_not_used(folder, capsys):
    plan = make_plan(["env=gym:CartPole-v1", "seed=0..1"], "demo", 0, "episodes", False)
    with open_sweep(plan, folder / "runs"):
        pass
    file = folder / "runs" / "demo" / "sweep.json"
    tree = json.loads(file.read_text())
    tree["fixed"] = [f"env=./evil.py:{ODD}", "x; rm -rf /"]
    file.write_text(json.dumps(tree))
    (folder / "evil.py").write_text("open('marker', 'w')")
    run("sweep", "--show", "demo")
    out = capsys.readouterr().out
    assert "'x; rm -rf /'" in out
    assert out.replace("\n", "").isprintable()
    run("sweep", "env=gym:CartPole-v1", "seed=0..1", "--name", "demo", code=2)
    assert not (folder / "marker").exists()
