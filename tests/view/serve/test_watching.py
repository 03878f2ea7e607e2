"""What is listed of every run, and how often files are read for it."""

import errno
import json
import os
from unittest.mock import Mock

import pytest

from holdfast.errors import CheckpointError
from holdfast.runs import RunFolder
from holdfast.view.serve import watching
from holdfast.view.serve.watching import Runs, audit_verdict, key_of
from support.shown_runs import METRICS, append, lines, make_run, row


def look(runs):
    runs.refresh()
    listed = runs.listed()
    return {run["name"]: run for run in listed["runs"]}, {run["name"]: run["reason"] for run in listed["unreadable"]}


def test_a_row_has_what_a_run_is_and_how_far_it_is(tmp_path):
    run = make_run(tmp_path, "sweep/001", updates=10, checkpoint="00000010", settings={"policy.core": "gru"})
    (run / "checkpoints" / "00000009").mkdir()
    (run / "checkpoints" / "99999999").mkdir()  # without a manifest: being written
    (run / "checkpoints" / "0000001x").mkdir()
    rows, problems = look(Runs(tmp_path))
    found = rows["sweep/001"]
    expected = {
        "key": key_of("sweep/001"),
        "world": "gym:CartPole-v1",
        "core": "gru",
        "state": "finished",
        "steps": 640,
        "total": 1280,
        "sps": 128.0,
        "checkpoint": "00000010",
        "audit": "built in",
        "error": "",
    }
    assert {key: found[key] for key in expected} == expected
    assert found["best"] == max(row(i)["episode_return"] for i in range(1, 11))
    assert found["parity"] == max(row(i)["parity_max_abs_logratio"] for i in range(1, 11))
    assert problems == {}


def test_states_and_errors(tmp_path):
    make_run(tmp_path, "finished")
    make_run(tmp_path, "stopped", summary=False)
    failed = make_run(tmp_path, "failed", summary=False)
    (failed / "failed.json").write_text(json.dumps({"error": "the world broke"}))
    from holdfast.config import load_settings

    settings = load_settings([f"runs_dir={tmp_path}", "run=running", "env=gym:CartPole-v1"])
    runs = Runs(tmp_path)
    with RunFolder.create(settings):
        rows, _ = look(runs)
        assert {name: run["state"] for name, run in rows.items()} == {
            n: n for n in ("finished", "stopped", "failed", "running")
        }
        assert rows["failed"]["error"] == "the world broke"
        assert rows["running"]["steps"] is None
    assert look(runs)[0]["running"]["state"] == "stopped", "the state is looked up each time"


def test_files_that_have_not_changed_are_not_read_again(tmp_path, monkeypatch):
    for i in range(5):
        make_run(tmp_path, f"run-{i}")
    read = []
    for name in ("read_run_config", "last_metrics"):
        original = getattr(watching, name)
        monkeypatch.setattr(watching, name, lambda at, name=name, original=original: read.append(name) or original(at))
    runs = Runs(tmp_path)
    first = look(runs)
    assert (read.count("read_run_config"), read.count("last_metrics")) == (5, 5)
    assert look(runs) == first
    assert len(read) == 10
    append(tmp_path / "run-3", lines([row(21, episode_return=500.0)]))
    rows, _ = look(runs)
    assert (read.count("read_run_config"), read.count("last_metrics")) == (5, 6)
    assert (rows["run-3"]["steps"], rows["run-3"]["best"]) == (21 * 64, 500.0)
    (tmp_path / "run-1" / "config.yaml").write_text("env: {name: gym:Acrobot-v1}\n")
    assert look(runs)[0]["run-1"]["world"] == "gym:Acrobot-v1"
    assert read.count("read_run_config") == 6


def test_large_folders_are_searched_over_several_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "MAX_BYTES", 1)
    for i in range(3):
        make_run(tmp_path, f"run-{i}")
    runs = Runs(tmp_path)
    runs.refresh()
    assert runs.listed()["pending"]
    found = [run["best"] for run in runs.listed()["runs"]]
    assert found[0] is not None
    assert found[1:] == [None, None]
    runs.refresh()
    runs.refresh()
    assert not runs.listed()["pending"]
    assert all(run["best"] for run in runs.listed()["runs"])


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("config.yaml", b"a: [", "config.yaml"),
        ("config.yaml", b"\xff", "UTF-8"),
        ("config.yaml", b"!!python/object:os.system {}", "tags"),
        ("config.yaml", None, "not a regular file"),
    ],
    ids=["text", "bytes", "tag", "pipe"],
)
def test_damaged_settings_are_named(tmp_path, name, content, part):
    for run in ("good", "bad"):
        make_run(tmp_path, run)
    (tmp_path / "bad" / name).unlink()
    (tmp_path / "bad" / name).write_bytes(content) if content else os.mkfifo(tmp_path / "bad" / name)
    rows, problems = look(Runs(tmp_path))
    assert list(rows) == ["good"]
    assert part in problems["bad"]


@pytest.mark.parametrize("content", [b"nonsense\n", b"x" * 3_000_000, None], ids=["text", "long", "pipe"])
def test_a_run_with_damaged_metrics_is_listed_with_the_reason(tmp_path, content):
    run = make_run(tmp_path, "bad")
    (run / METRICS).unlink()
    (run / METRICS).write_bytes(content) if content else os.mkfifo(run / METRICS)
    runs = Runs(tmp_path)
    for _ in range(2):
        rows, _ = look(runs)
        assert rows["bad"]["problem"]
        assert rows["bad"]["steps"] is None
    assert not runs.listed()["pending"]


@pytest.mark.parametrize("call", ["last_metrics", "Extremes.read"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "for a moment"), CheckpointError("for a moment")])
def test_metrics_that_cannot_be_read_for_a_moment_are_read_at_the_next_look(tmp_path, call, error):
    make_run(tmp_path, "demo")
    runs = Runs(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"holdfast.view.serve.watching.{call}", Mock(side_effect=error))
        assert "for a moment" in look(runs)[0]["demo"]["problem"].lower()
        assert not runs.listed()["pending"], "no reason to look again at once"
    found = look(runs)[0]["demo"]
    assert (found["problem"], found["steps"]) == ("", 20 * 64)
    assert found["best"] is not None


def test_a_line_that_is_too_long_stays_a_problem_until_the_file_changes(tmp_path):
    run = make_run(tmp_path, "demo")
    append(run, "x" * 3_000_000 + "\n" + lines([row(30)]))
    runs = Runs(tmp_path)
    for _ in range(3):
        assert "more than" in look(runs)[0]["demo"]["problem"]
    (run / METRICS).write_text(lines([row(1)]))
    assert look(runs)[0]["demo"]["problem"] == ""


def test_runs_beyond_the_limit_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "MAX_RUNS", 2)
    for name in ("a", "b", "sweep/1", "sweep/2", "sweep/3"):
        make_run(tmp_path, name)
    runs = Runs(tmp_path)
    assert list(look(runs)[0]) == ["a", "b"]
    assert runs.listed()["left_out"] == 3
    others = Runs(tmp_path / "sweep")
    monkeypatch.setattr(watching, "MAX_RUNS", 3)
    assert list(look(others)[0]) == ["1", "2", "3"]
    assert others.listed()["left_out"] == 0


def test_links_are_not_followed(tmp_path):
    outside, runs = tmp_path / "outside", tmp_path / "runs"
    make_run(outside, "secret")
    make_run(runs, "good")
    (runs / "link").symlink_to(outside / "secret")
    (runs / "sweep").symlink_to(outside)
    inner = make_run(runs, "inner")
    (inner / METRICS).unlink()
    (inner / METRICS).symlink_to(outside / "secret" / METRICS)
    (inner / "config.yaml").rename(inner / "real.yaml")
    (inner / "config.yaml").symlink_to("real.yaml")
    checkpoints = make_run(runs, "checkpoints", summary=False)
    (checkpoints / "checkpoints").symlink_to(outside)
    rows, problems = look(Runs(runs))
    assert sorted(rows) == ["checkpoints", "good"]
    assert rows["checkpoints"]["checkpoint"] == ""
    assert "link" in problems["link"]
    assert "regular file" in problems["inner"]


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({}, "built in"),
        ({"audit": "off"}, "off"),
        ({"audit": "False"}, "off"),
        ({"audit": "warn"}, "warn"),
        ({"audit": "on"}, "passed"),
        ({"audit": "auto", "policy.py_agent": "./mine.py:Mine"}, "passed"),
        ({"audit": "auto", "policy.agent": "./mine.yaml"}, "passed"),
        ({"audit": "auto", "policy.agent": "box"}, "built in"),
        ({"audit": "off", "policy.py_agent": "./mine.py:Mine"}, "off"),
    ],
)
def test_the_verdict_of_the_audit(settings, verdict):
    assert audit_verdict(settings) == verdict


def test_names_that_are_not_unicode_have_keys(tmp_path):
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    make_run(tmp_path, "caf\udce9")
    rows, _ = look(Runs(tmp_path))
    (found,) = rows.values()
    assert found["key"] == key_of(name)
    assert found["name"].isprintable()
    json.dumps(rows).encode()


def test_a_missing_folder_is_an_empty_one(tmp_path):
    assert look(Runs(tmp_path / "nowhere")) == ({}, {})


def test_a_deleted_run_is_gone(tmp_path):
    make_run(tmp_path, "kept")
    gone = make_run(tmp_path, "gone")
    runs = Runs(tmp_path)
    runs.refresh()
    run = runs.find(key_of("gone"))
    assert run is not None
    runs.columns(run)
    gone.rename(tmp_path / ".away")
    assert list(look(runs)[0]) == ["kept"]
    assert runs.find(key_of("gone")) is None
