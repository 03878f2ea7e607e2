import errno
import json
import os
import re
import resource
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.checkpoint import save_checkpoint
from holdfast.config import load_run_settings, load_settings
from holdfast.custom_code import FORKED
from holdfast.errors import HoldfastError, SettingsError
from holdfast.runs import RunFolder, find_resumable, read_metrics
from holdfast.runs.folder import size_of_metrics
from holdfast.runs.lock import RunLock


def settings(tmp_path, *words):
    return load_settings([f"runs_dir={tmp_path / 'runs'}", *words])


def test_a_named_run_has_its_settings_in_it(tmp_path):
    given = settings(tmp_path, "run=demo", "seed=3", "trainer.lr=0.002", "env.corridor=5")
    with RunFolder.create(given) as run:
        assert run.path == tmp_path / "runs" / "demo"
        assert run.checkpoints == run.path / "checkpoints"
        assert load_run_settings(run.path / "config.yaml") == given
    assert sorted(p.name for p in run.path.iterdir()) == ["config.yaml", "metrics.jsonl", "run-id"]


def test_a_run_without_a_name_gets_a_readable_one_of_its_own(tmp_path):
    given = settings(tmp_path, "seed=3")
    names = [RunFolder.create(given).path.name for _ in range(3)]
    assert len(set(names)) == 3
    for name in names:
        assert re.fullmatch(r"memory-fast-s3-[0-9]{8}-[0-9]{6}(-[23])?", name)
    written = load_run_settings(tmp_path / "runs" / names[1] / "config.yaml")
    assert written == given.model_copy(update={"run": names[1]})


def test_a_world_with_odd_letters_gives_a_plain_name(tmp_path):
    given = settings(tmp_path, "env=gym:some.module:Öd/Env-v0", "py_agent=box")
    name = RunFolder.create(given).path.name
    assert re.fullmatch(r"gym-some.module-d-Env-v0-box-s0-[0-9]{8}-[0-9]{6}", name)


@pytest.mark.parametrize("left", ["metrics.jsonl", "checkpoints"])
def test_an_existing_run_is_refused_and_untouched(tmp_path, left):
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    if left == "metrics.jsonl":
        (folder / left).write_text('{"agent_steps": 1}\n')
    else:
        save_checkpoint(folder / left, "1", {}, {})
    with pytest.raises(SettingsError) as error:
        RunFolder.create(settings(tmp_path, "run=demo"))
    message = str(error.value)
    assert "run=demo" in message
    assert str(folder) in message
    assert "another run=NAME, or delete" in message
    assert [p.name for p in folder.iterdir()] == [left]


def test_an_empty_folder_may_become_a_run(tmp_path):
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        assert (run.path / "config.yaml").is_file()


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").write_text("x")
    with pytest.raises(SettingsError, match="is a file"):
        find_resumable(settings(tmp_path, "run=demo"))


@pytest.mark.parametrize("word", ["run=demo", "seed=1"])
def test_a_runs_dir_that_cannot_be_written_is_named(tmp_path, word):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(SettingsError) as error:
        RunFolder.create(settings(tmp_path, word))
    assert f"runs_dir={tmp_path / 'runs'}: cannot write there" in str(error.value)
    assert "runs_dir=PATH" in str(error.value)


def test_a_disk_full_at_the_start_leaves_nothing(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        with pytest.raises(SettingsError, match="cannot write there: file too large"):
            RunFolder.create(settings(tmp_path, "run=demo"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "runs").iterdir()) == []


def test_of_two_runs_started_together_one_wins(tmp_path):
    given = settings(tmp_path, "run=demo")
    outcomes, barrier = [], threading.Barrier(8)

    def start():
        barrier.wait()
        try:
            outcomes.append(RunFolder.create(given))
        except SettingsError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(outcome, RunFolder) for outcome in outcomes) == 1
    assert all("is in use by process" in str(o) for o in outcomes if isinstance(o, SettingsError))
    assert load_run_settings(tmp_path / "runs" / "demo" / "config.yaml") == given


def test_metrics_are_valid_json_whatever_the_numbers(tmp_path):
    row = {
        "agent_steps": 2**60,
        "episode_return": float("nan"),
        "kl": np.float32("inf"),
        "entropy": np.float32(0.5),
        "count": np.int64(3),
        "norm": torch.tensor(0.25),
        "none": None,
        "flag": True,
        "text": "a\nb",
        "many": [1, float("-inf")],
    }
    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        run.log_metrics(row)
        run.log_metrics({"agent_steps": 2})
        text = (run.path / "metrics.jsonl").read_text()  # before the run is closed

    def refuse(name):
        raise AssertionError(name)

    first, second = (json.loads(line, parse_constant=refuse) for line in text.splitlines())
    assert first == {
        "agent_steps": 2**60,
        "episode_return": None,
        "kl": None,
        "entropy": 0.5,
        "count": 3,
        "norm": 0.25,
        "none": None,
        "flag": True,
        "text": "a\nb",
        "many": [1, None],
    }
    assert type(first["count"]) is int
    assert list(first) == list(row)
    assert read_metrics(run.path) == read_metrics(run.path / "metrics.jsonl") == [first, second]


def test_a_disk_full_while_logging_leaves_whole_lines(tmp_path):
    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        run.log_metrics({"agent_steps": 1})
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
            with pytest.raises(HoldfastError, match=r"metrics.jsonl: cannot be written"):
                run.log_metrics({"agent_steps": 2, "text": "x" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert read_metrics(run.path) == [{"agent_steps": 1}]
        run.log_metrics({"agent_steps": 3})
    assert [row["agent_steps"] for row in read_metrics(run.path)] == [1, 2, 3]


def test_a_line_cut_by_a_crash_is_left_out_and_a_broken_one_is_named(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}\n{"a": ')
    assert read_metrics(tmp_path) == [{"a": 1}, {"a": 2}]
    for line in ("nonsense", "3", "[" * 100_000, ""):
        file.write_text(f'{{"a": 1}}\n{line}\n{{"a": 3}}\n')
        with pytest.raises(HoldfastError, match=r"metrics.jsonl: line 2 is damaged"):
            read_metrics(tmp_path)
    with pytest.raises(HoldfastError, match=r"metrics.jsonl: missing|none: missing"):
        read_metrics(tmp_path / "none")


def test_the_summary_is_replaced_whole(tmp_path, monkeypatch):
    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        run.write_summary({"episode_return": 0.5, "parity": float("nan"), "steps": 3})
        assert json.loads((run.path / "summary.json").read_text()) == {
            "episode_return": 0.5,
            "parity": None,
            "steps": 3,
        }
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
            with pytest.raises(HoldfastError, match=r"summary.json: cannot be written"):
                run.write_summary({"text": "x" * 1000})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert json.loads((run.path / "summary.json").read_text())["steps"] == 3
        run.write_summary({"steps": 4})
    assert json.loads((run.path / "summary.json").read_text()) == {"steps": 4}
    assert sorted(p.name for p in run.path.iterdir()) == ["config.yaml", "metrics.jsonl", "run-id", "summary.json"]


def test_a_run_that_fails_before_its_first_row_frees_its_name(tmp_path):
    given = settings(tmp_path, "run=demo")
    with pytest.raises(ZeroDivisionError), RunFolder.create(given):
        raise ZeroDivisionError
    assert not (tmp_path / "runs" / "demo").exists()
    run = RunFolder.create(given)
    save_checkpoint(run.checkpoints, "1", {}, {})
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError
    assert (run.path / "config.yaml").exists()
    run = RunFolder.create(given.model_copy(update={"run": "other"}))
    run.log_metrics({"agent_steps": 1})
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError
    assert read_metrics(run.path) == [{"agent_steps": 1}]


def test_files_of_others_are_never_removed(tmp_path):
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    for _ in range(2):  # the name is free all the same
        with pytest.raises(ZeroDivisionError), RunFolder.create(settings(tmp_path, "run=demo")):
            raise ZeroDivisionError
    assert [p.name for p in folder.iterdir()] == ["notes.txt"]


def open_files():
    handles = [f"/proc/self/fd/{handle}" for handle in os.listdir("/proc/self/fd")]
    return [os.readlink(handle) for handle in handles if os.path.lexists(handle)]


def reopened(tmp_path, updates):
    given, path = settings(tmp_path, "run=demo"), tmp_path / "runs" / "demo"
    return RunFolder.reopen(path, given, updates, size_of_metrics(path))


def begun(tmp_path, rows=5):
    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        for update in range(1, rows + 1):
            run.log_metrics({"update": update})
        run.write_summary({"updates": rows})
    return run.path


@pytest.mark.parametrize("updates", [0, 1, 4, 5])
def test_a_run_that_goes_on_has_every_line_once(tmp_path, updates):
    path = begun(tmp_path)
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 6, "cut by a cr')
    with reopened(tmp_path, updates) as run:
        assert not (path / "summary.json").exists()  # of a run that was finished, and is not any more
        run.log_metrics({"update": updates + 1})
    assert [row["update"] for row in read_metrics(path)] == list(range(1, updates + 2))


def test_a_run_whose_metrics_are_gone_does_not_go_on(tmp_path):
    path = begun(tmp_path)
    for lines in ("", '{"update": 1}\n{"update": 3}\n'):
        (path / "metrics.jsonl").write_text(lines)
        with pytest.raises(HoldfastError, match="some lines of updates 1 to 3 are missing") as caught:
            reopened(tmp_path, 3)
        assert caught.traceback  # keeps the local variables alive
        assert not any(p.is_relative_to(path) for p in map(Path, open_files()))
        assert (path / "metrics.jsonl").read_text() == lines
    assert not (path / "lock").exists()


def test_lines_that_could_not_be_written_come_before_the_next(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        run.log_metrics({"update": 1})
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
            for update in (2, 3):
                with pytest.raises(HoldfastError, match=r"metrics.jsonl: cannot be written"):
                    run.log_metrics({"update": update})
            with pytest.raises(HoldfastError, match=r"metrics.jsonl: cannot be written"):
                run.sync_metrics()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert read_metrics(run.path) == [{"update": 1}]
        run.sync_metrics()  # a save is due, and there is room again
        run.log_metrics({"update": 4})
        assert [row["update"] for row in read_metrics(run.path)] == [1, 2, 3, 4]


def test_a_disk_that_cannot_keep_a_line_is_an_error_of_ours(tmp_path, monkeypatch):
    def failing(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        run.log_metrics({"update": 1})
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            with pytest.raises(HoldfastError, match=r"metrics.jsonl: cannot be written: input/output error"):
                run.sync_metrics()


def test_what_a_crash_left_after_the_last_checkpoint_does_not_matter(tmp_path):
    path = begun(tmp_path, rows=3)
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(bytes(4096) + b"\n")  # a block that the disk never got
    with reopened(tmp_path, 3):
        assert [row["update"] for row in read_metrics(path)] == [1, 2, 3]


def test_a_run_that_another_process_has_gone_on_with_is_left_alone(tmp_path):
    path = begun(tmp_path)
    seen = size_of_metrics(path)
    with reopened(tmp_path, 5) as run:
        run.log_metrics({"update": 6})
    with pytest.raises(SettingsError, match="another process has just resumed this run"):
        RunFolder.reopen(path, settings(tmp_path, "run=demo"), 5, seen)
    assert len(read_metrics(path)) == 6


def test_nothing_is_removed_once_the_lock_is_gone(tmp_path, monkeypatch):
    """Somebody else may have the folder then."""
    there: list[list[str]] = []
    release = RunLock.release
    monkeypatch.setattr(
        RunLock,
        "release",
        lambda lock: (
            there.append(sorted(p.name for p in run.path.iterdir()) if run.path.exists() else []),
            release(lock),
        ),
    )
    with pytest.raises(ZeroDivisionError), RunFolder.create(settings(tmp_path, "run=demo")) as run:
        raise ZeroDivisionError
    assert there[0] == ["lock"]
    assert not run.path.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.log_metrics({"update": 2}),
        lambda run: run.write_summary({}),
        lambda run: run.close(),
        lambda run: run.__exit__(ValueError),
    ],
)
def test_a_forked_child_ends_before_it_touches_the_run(call, tmp_path):
    with RunFolder.create(settings(tmp_path, "run=demo")) as run:
        run.log_metrics({"update": 1})
        child = os.fork()
        if child == 0:
            try:
                call(run)
            finally:
                os._exit(77)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == FORKED
        assert read_metrics(run.path) == [{"update": 1}]
        assert sorted(os.listdir(run.path)) == ["config.yaml", "lock", "metrics.jsonl", "run-id"]
