"""The rows of `holdfast runs`: every state a run can be in, what is read, and folders that are damaged or hostile."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config import load_settings
from holdfast.errors import HoldfastError, SettingsError
from holdfast.files import Folder
from holdfast.runs import RunFolder, lock
from holdfast.runs.folder import find_run, size_of_metrics
from holdfast.runs.listing import best_return, find_runs, last_metrics, name_runs, read_row, select_runs, state_of
from holdfast.runs.lock import LOCK, RunLock, is_in_use

ROW = {"update": 1, "agent_steps": 64, "episode_return": 1.5, "info/episode_return": 99.0}
HOLD = """
import sys, time
from pathlib import Path
from holdfast.files import Folder
from holdfast.runs.lock import RunLock
lock = RunLock.take(Folder.open(Path(sys.argv[1])))
print("held", flush=True)
time.sleep(60)
"""


def settings(runs, *words):
    return load_settings([f"runs_dir={runs}", "env=gym:CartPole-v1", *words])


def begin(runs, name, *words, rows=(ROW,)):
    run = RunFolder.create(settings(runs, f"run={name}", *words))
    for row in rows:
        run.log_metrics(row)
    return run


def rows_of(runs):
    found, problems = find_runs(runs)
    rows = {}
    for run in found:
        row, more = read_row(run)
        rows[row.run] = row
        problems += more
    return rows, problems


def test_every_state(tmp_path):
    with begin(tmp_path, "finished") as run:
        run.write_summary({})
    with begin(tmp_path, "stopped"):
        pass
    with pytest.raises(KeyboardInterrupt), begin(tmp_path, "interrupted"):
        raise KeyboardInterrupt
    for error in (ZeroDivisionError("no\nzero"), HoldfastError("the world broke")):
        with pytest.raises(type(error)), begin(tmp_path, type(error).__name__):
            raise error
    with begin(tmp_path, "running"):
        rows, problems = rows_of(tmp_path)
    assert {name: row.state for name, row in rows.items()} == {
        "finished": "finished",
        "stopped": "stopped",
        "interrupted": "stopped",
        "ZeroDivisionError": "failed",
        "HoldfastError": "failed",
        "running": "running",
    }
    assert rows["ZeroDivisionError"].error == "ZeroDivisionError: no zero"
    assert rows["HoldfastError"].error == "the world broke"
    assert problems == []
    row = rows["finished"]
    assert (row.world, row.agent, row.steps, row.mean_return, row.best) == ("gym:CartPole-v1", "box", 64, 1.5, 1.5)


def test_a_failed_run_that_is_resumed_has_not_failed_any_more(tmp_path):
    with pytest.raises(ZeroDivisionError), begin(tmp_path, "demo"):
        raise ZeroDivisionError
    path = tmp_path / "demo"
    assert (path / "failed.json").exists()
    with RunFolder.reopen(path, settings(tmp_path, "run=demo"), 1, size_of_metrics(path)):
        assert not (path / "failed.json").exists()
    assert rows_of(tmp_path)[0]["demo"].state == "stopped"


def test_a_killed_run_is_stopped_and_one_with_a_live_lock_is_running(tmp_path):
    with begin(tmp_path, "demo"):
        pass
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "demo")], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert rows_of(tmp_path)[0]["demo"].state == "running"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "demo").iterdir()}
    assert LOCK in before
    assert rows_of(tmp_path)[0]["demo"].state == "stopped"
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "demo").iterdir()} == before, "looking writes nothing"


def test_looking_at_a_lock_does_not_refuse_a_run_that_starts(tmp_path, monkeypatch):
    """`is_in_use` holds the lock for a moment; a run that starts at that moment tries again."""
    looking = Folder.open(tmp_path)
    (tmp_path / LOCK).write_text("1\n")
    pauses = []
    with looking.open_file(LOCK) as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_SH)

        def release(seconds):
            pauses.append(seconds)
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)

        monkeypatch.setattr(lock.time, "sleep", release)
        RunLock.take(Folder.open(tmp_path)).release()
    assert len(pauses) == 1
    assert not is_in_use(looking)


def test_the_best_return_and_the_last_line(tmp_path):
    returns = [None, -3.0, 7.25, 1e-7, 2.0]
    lines = [{"update": i, "agent_steps": 10 * i, "episode_return": x} for i, x in enumerate(returns, start=1)]
    with begin(tmp_path, "demo", rows=lines) as run, (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 6, "agent_steps": 60, "episode_return": 1e9')  # being written
    with Folder.open(tmp_path / "demo") as folder:
        assert best_return(folder) == 7.25
        assert last_metrics(folder)["agent_steps"] == 50
    with begin(tmp_path, "long", rows=[{**ROW, "text": "x" * 50_000}] * 3), Folder.open(tmp_path / "long") as folder:
        assert last_metrics(folder)["agent_steps"] == 64
    with begin(tmp_path, "new", rows=[]), Folder.open(tmp_path / "new") as folder:
        assert (last_metrics(folder), best_return(folder)) == ({}, None)


def test_runs_of_a_sweep_and_of_other_versions_are_listed_newest_last(tmp_path):
    for time_, name in ((3, "c"), (1, "a"), (2, "sweep/001-seed_0")):
        with begin((tmp_path / name).parent, Path(name).name):
            pass
        os.utime(tmp_path / name / "run-id", (time_, time_))
    config = tmp_path / "a" / "config.yaml"
    config.write_text(config.read_text() + "a_key_of_the_future: 1\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    found, problems = find_runs(tmp_path)
    assert [run.name for run in found] == ["a", "sweep/001-seed_0", "c"]
    assert problems == []
    assert find_run("sweep/001-seed_0", tmp_path) == tmp_path / "sweep" / "001-seed_0"
    assert find_runs(tmp_path / "nowhere") == ([], [])


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("config.yaml", b"a: [", "config.yaml"),
        ("config.yaml", b"\xff", "not a UTF-8"),
        ("config.yaml", b"!!python/object:os.system {}", "tags"),
        ("config.yaml", None, "not a regular file"),
        ("metrics.jsonl", b"nonsense\n", "the last line is damaged"),
        ("metrics.jsonl", b"x" * 3_000_000, "the last line is damaged"),
        ("metrics.jsonl", None, "not a regular file"),
        ("failed.json", b"[1]", "damaged"),
        ("failed.json", b"[" * 50_000, "damaged"),
        ("failed.json", b"x" * 200_000, "too large"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_damaged_file_is_named_and_the_other_runs_are_listed(tmp_path, name, content, part):
    for run in ("good", "bad"):
        with begin(tmp_path, run):
            pass
    file = tmp_path / "bad" / name
    file.unlink(missing_ok=True)
    if content is None:
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    rows, problems = rows_of(tmp_path)
    assert rows["good"].steps == 64
    assert ("bad" in rows) == (name != "config.yaml")
    (problem,) = problems
    assert problem.startswith("bad: ")
    assert part in problem


def test_odd_numbers_are_no_numbers(tmp_path):
    odd = '{"agent_steps": "64", "episode_return": [1]}\n{"agent_steps": true, "episode_return": 1e999}\n'
    with begin(tmp_path, "demo", rows=[]) as run:
        (run.path / "metrics.jsonl").write_text(odd)
    row = rows_of(tmp_path)[0]["demo"]
    assert (row.steps, row.mean_return, row.best) == (None, None, None)


def test_selecting(tmp_path):
    for name, *words in (("lr-1", "seed=1"), ("lr-2", "policy.core=gru"), ("s/001", "seed=1"), ("s/002",)):
        with begin((tmp_path / name).parent, Path(name).name, *words):
            pass
    with begin(tmp_path, "done") as run:
        run.write_summary({})
    found, _ = find_runs(tmp_path)

    def names(*words):
        return sorted(run.name for run in select_runs(found, list(words), tmp_path))

    assert names("lr-*") == ["lr-1", "lr-2"]
    assert names("s") == names("s/") == ["s/001", "s/002"]
    assert names("s", "lr-1", "seed=1") == ["lr-1", "s/001"]
    assert names("state=finished") == [*names(f"{tmp_path}/done")] == ["done"]
    assert names("policy.core=gru") == ["lr-2"]
    assert names("seed=1.0", "env=gym:CartPole-v1") == ["lr-1", "s/001"]
    assert names("trainer.normalize_advantage=on", "wandb=off", "lr-1") == ["lr-1"]
    for word, part in (("lr-3", "no such run"), ("x*", "no run in"), ("state=dead", "running"), ("seeed=1", "no run")):
        with pytest.raises(SettingsError, match=part):
            names(word)
    assert list(name_runs(["lr-1", "s"], tmp_path)) == ["lr-1", "s/001", "s/002"]
    assert name_runs([f"{tmp_path}/lr-1/"], Path("elsewhere")) == {f"{tmp_path}/lr-1": tmp_path / "lr-1"}
    with pytest.raises(SettingsError, match="the same run"):
        name_runs(["lr-1", f"{tmp_path}/lr-1"], tmp_path)


def test_of_long_runs_only_some_lines_are_parsed(tmp_path, monkeypatch):
    with begin(tmp_path, "000", rows=[]) as run:
        line = json.dumps({**ROW, **{f"metric_{i}": i / 7 for i in range(25)}}) + "\n"
        (run.path / "metrics.jsonl").write_text(line * 10_000)
    for i in range(1, 50):
        (tmp_path / f"{i:03}").mkdir()
        for file in ("config.yaml", "metrics.jsonl", "run-id"):
            os.link(tmp_path / "000" / file, tmp_path / f"{i:03}" / file)
    parsed, parse = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text: parsed.append(text) or parse(text))
    rows, _ = rows_of(tmp_path)
    assert len(rows) == 50
    assert 50 <= len(parsed) <= 100, "one of the 10,000 lines of each run, not all"


def test_the_state_of_a_stranger_is_read_without_waiting(tmp_path):
    os.mkfifo(tmp_path / LOCK)
    with Folder.open(tmp_path) as folder:
        assert state_of(folder) == "stopped"
