"""The folder of a sweep: what may be resumed, and sweep.json in the hands of somebody else."""

import json
import os

import pytest

from holdfast.errors import SettingsError
from holdfast.files import Folder
from holdfast.runs.lock import RunLock
from holdfast.sweeps.plan import make_plan
from holdfast.sweeps.store import SWEEP, find_sweep, open_sweep, read_sweep

GRID = ["env=gym:CartPole-v1", "trainer.lr=1e-3,1e-4", "seed=0..1"]
SEARCH = ["trainer.lr=1e-5..1e-1", "policy.core=lstm,gru"]


def plan(words=GRID, name="demo", trials=0, metric="episodes"):
    return make_plan(words, name, trials, metric, False)


def opened(runs_dir, *args, **options):
    with open_sweep(plan(*args, **options), runs_dir) as sweep:
        return sweep.plan, sweep.proposed


def refusal(runs_dir, *args, **options):
    before = sorted(runs_dir.rglob("*"))
    with pytest.raises(SettingsError) as caught:
        opened(runs_dir, *args, **options)
    assert sorted(runs_dir.rglob("*")) == before
    return str(caught.value)


def test_a_sweep_is_written_before_it_begins_and_read_back(tmp_path):
    with open_sweep(plan(SEARCH, trials=4), tmp_path) as sweep:
        assert sorted(os.listdir(tmp_path / "demo")) == ["lock", SWEEP]
        sweep.propose({"trainer.lr": "0.001", "policy.core": "gru"})
    assert os.listdir(tmp_path / "demo") == [SWEEP]
    assert opened(tmp_path, SEARCH, trials=4) == (sweep.plan, [{"trainer.lr": "0.001", "policy.core": "gru"}])
    with find_sweep("demo", tmp_path) as folder:
        assert read_sweep(folder) == (sweep.plan, sweep.proposed)


@pytest.mark.parametrize(
    ("words", "before", "now"),
    [
        ([*GRID[:2], "seed=0..2"], "seed=0,1", "seed=0,1,2"),
        ([GRID[0], "trainer.lr=1e-3,1e-5", GRID[2]], "trainer.lr=1e-3,1e-4", "trainer.lr=1e-3,1e-5"),
        ([*GRID, "trainer.gamma=0.9"], "no trainer.gamma", "trainer.gamma=0.9"),
        (GRID[1:], "env=gym:CartPole-v1", "no env"),
    ],
)
def test_another_command_is_refused_with_the_difference(tmp_path, words, before, now):
    opened(tmp_path)
    assert f"was started with {before}, not with {now}." in refusal(tmp_path, words)


def test_what_may_change(tmp_path):
    opened(tmp_path)
    opened(tmp_path, [*GRID[::-1]])
    opened(tmp_path, metric="updates")
    assert "was started with no --trials, not with --trials." in refusal(tmp_path, trials=3)
    opened(tmp_path, SEARCH, "search", 4)
    assert opened(tmp_path, SEARCH, "search", 6)[0].trials == 6
    assert "was started with 6; this number may only grow" in refusal(tmp_path, SEARCH, "search", 5)
    assert "--metric episodes, not with --metric updates" in refusal(tmp_path, SEARCH, "search", 6, "updates")


def test_one_thread_stays_as_it_was(tmp_path):
    from dataclasses import replace

    with open_sweep(replace(plan(), one_thread=True), tmp_path):
        pass
    assert opened(tmp_path)[0].one_thread


def test_folders_that_hold_something_else(tmp_path):
    for name, file in (("run", "config.yaml"), ("mine", "notes.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("x")
    assert "is a run" in refusal(tmp_path, name="run")
    assert "notes.txt" in refusal(tmp_path, name="mine")
    (tmp_path / "killed").mkdir()  # between creating the folder and writing sweep.json
    for left in ("lock", f".{SWEEP}.partial"):
        (tmp_path / "killed" / left).write_text("")
    opened(tmp_path, name="killed")
    (tmp_path / "file").write_text("")
    assert "--runs-dir" in refusal(tmp_path, name="file")


def test_one_process_at_a_time(tmp_path):
    opened(tmp_path)
    lock = RunLock.take(Folder.open(tmp_path / "demo"))
    try:
        assert f"--name demo: {tmp_path}/demo is in use by process {os.getpid()}." in refusal(tmp_path)
    finally:
        lock.release()


def test_nothing_is_left_if_the_sweep_cannot_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "write", full)
    assert "no space left" in refusal(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_sweep(tmp_path):
    with pytest.raises(SettingsError, match="There are none in"):
        find_sweep("demo", tmp_path)
    opened(tmp_path)
    with pytest.raises(SettingsError, match=r"Sweeps in .*: demo"):
        find_sweep("x" * 5000, tmp_path)


CHANGES = {
    "no list": lambda tree: tree.update(axes=3),
    "a number as a word": lambda tree: tree.update(fixed=[3]),
    "no trials": lambda tree: tree.pop("trials"),
    "more trials than allowed": lambda tree: tree.update(trials=10**9),
    "a grid of 10^12 runs": lambda tree: tree.update(
        trials=0, axes=[{"key": f"k{i}", "values": [str(j) for j in range(1000)]} for i in range(4)]
    ),
    "a value outside of its range": lambda tree: tree["proposed"][0].update({"trainer.lr": "5"}),
    "NaN as a value": lambda tree: tree["proposed"][0].update({"trainer.lr": "nan"}),
    "code as a value": lambda tree: tree["proposed"][0].update({"policy.core": "__import__('os')"}),
    "a value is missing": lambda tree: tree["proposed"][0].pop("policy.core"),
    "an empty list of values": lambda tree: tree["axes"][1].update(values=[]),
    "an endless range": lambda tree: tree["axes"][0].update(low=-1e400),
    "a newer format": lambda tree: tree.update(format=2),
    "a format that is text": lambda tree: tree.update(format="x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_file_is_named(tmp_path, change):
    with open_sweep(plan(SEARCH, trials=4), tmp_path) as sweep:
        sweep.propose({"trainer.lr": "0.001", "policy.core": "gru"})
    file = tmp_path / "demo" / SWEEP
    tree = json.loads(file.read_text())
    CHANGES[change](tree)
    file.write_text(json.dumps(tree))
    assert SWEEP in refusal(tmp_path, SEARCH, trials=4)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"[" * 10_000, b"{}", None])
def test_rubbish_is_named(tmp_path, content):
    (tmp_path / "demo").mkdir()
    file = tmp_path / "demo" / SWEEP
    if content is None:
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    assert SWEEP in refusal(tmp_path)
