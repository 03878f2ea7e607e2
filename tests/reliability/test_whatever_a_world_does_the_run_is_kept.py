"""Whatever a world does to the process, the run is kept: it ends in its folder, with its files whole, as if the world had behaved."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.config import load_settings
from holdfast.envs import closing
from holdfast.trainer import train
from support.runs import SMALL_NET, TINY, digest

ROWDY = ["env=gym:support.rowdy:Rowdy-v0", *TINY, *SMALL_NET]


def rowdy(**deeds: str) -> list[str]:
    return [*ROWDY, *(f"env.kwargs.{when}={deed}" for when, deed in deeds.items())]


def results(run: Path) -> dict[str, str]:
    """Everything that a run computed; the states of the global random generators belong to the world."""
    return {part: found for part, found in digest(run).items() if part != "rng"}


def assert_whole(run: Path) -> None:
    """All four updates are in the folder, readable for everybody, and nothing else."""
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "metrics.jsonl",
        "run-id",
        "summary.json",
    ]
    assert [load_checkpoint(path).facts["update"] for path in list_checkpoints(run / "checkpoints")] == [1, 2, 3, 4]
    for path in (run, *run.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


@pytest.fixture(scope="module")
def behaved(tmp_path_factory) -> dict[str, str]:
    """The results of a run whose world does nothing unusual."""
    runs = tmp_path_factory.mktemp("behaved")
    return results(train(load_settings([*ROWDY, "run=behaved", f"runs_dir={runs}"])).run)


@pytest.fixture(autouse=True)
def undone(tmp_path, monkeypatch):
    """Start in an empty folder, with a common umask, and with no world that is known to fail in close()."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(closing, "_known", set())
    umask = os.umask(0o022)
    yield
    os.umask(umask)


@pytest.mark.parametrize("when", ["init", "reset", "step", "close"])
@pytest.mark.parametrize("deed", ["change_folder", "change_umask", "change_seeds"])
def test_a_changed_process(when, deed, behaved, tmp_path):
    result = train(load_settings([*rowdy(**{when: deed}), "run=demo"]))
    assert result.run == tmp_path / "runs" / "demo"
    assert_whole(result.run)
    assert results(result.run) == behaved
    assert "runs_dir: runs\n" in (result.run / "config.yaml").read_text()
    assert Path.cwd() == tmp_path
    assert os.umask(0o022) == 0o022


@pytest.mark.parametrize(
    ("deed", "what"), [("fail", "raised ValueError: rowdy in close()"), ("sleep", "has not returned")]
)
def test_a_close_that_fails(deed, what, behaved, caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(closing, "CLOSE_SECONDS", 0.2)
    assert results(train(load_settings([*rowdy(close=deed), "run=demo"])).run) == behaved
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"env=gym:support.rowdy:Rowdy-v0: environment 0 {what}")
    assert_whole(tmp_path / "runs" / "demo")
