"""A checkpoint of another run or seed, put in place of a run's own, is named and skipped by every command."""

import shutil
from pathlib import Path

import pytest

from holdfast.checkpoint import load_checkpoint
from holdfast.errors import HoldfastError
from holdfast.evaluate import evaluate_run
from support.runs import CARTPOLE, digest, run, run_stopped


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `whole`, of four updates; `stopped`, the same run stopped after three; `other`, of another seed."""
    folder = tmp_path_factory.mktemp("runs")
    run(CARTPOLE, folder, "whole")
    run_stopped(CARTPOLE, folder, "stopped", after=3)
    run([*CARTPOLE, "seed=2"], folder, "other")
    return folder


@pytest.fixture
def mixed(runs: Path, tmp_path: Path) -> Path:
    """The stopped run, with the third checkpoint of the other run in place of its own."""
    shutil.copytree(runs / "stopped", tmp_path / "stopped")
    place = tmp_path / "stopped" / "checkpoints" / "00000003"
    shutil.rmtree(place)
    shutil.copytree(runs / "other" / "checkpoints" / "00000003", place)
    return tmp_path / "stopped"


def test_it_is_named_and_the_run_continues_from_its_own(runs, mixed, caplog):
    done = run(CARTPOLE, mixed.parent, "stopped")
    (told,) = [line for line in caplog.messages if "00000002 is used instead" in line]
    assert told.startswith(f"{mixed / 'checkpoints' / '00000003'}: a checkpoint of another run (its id is ")
    assert digest(done) == digest(runs / "whole")


def test_evaluation_skips_it_too(mixed, caplog):
    assert evaluate_run(mixed, episodes=1).checkpoint == "00000002"
    assert "a checkpoint of another run" in caplog.text
    with pytest.raises(HoldfastError, match="a checkpoint of another run"):
        evaluate_run(mixed, episodes=1, checkpoint="00000003")


def test_one_without_an_id_is_of_another_run_too(mixed):
    """As a run of an older version wrote it."""
    (older,) = (Path(__file__).parents[1] / "golden" / "checkpoint-1" / "checkpoints").iterdir()
    shutil.copytree(older, mixed / "checkpoints" / "00000050")
    with pytest.raises(HoldfastError, match="its id is missing"):
        load_checkpoint(mixed / "checkpoints" / "00000050")


def test_a_copied_run_keeps_its_id_and_a_checkpoint_can_leave_its_run(runs, tmp_path):
    shutil.copytree(runs / "stopped", tmp_path / "copy")
    load_checkpoint(tmp_path / "copy" / "checkpoints" / "00000003")
    shutil.copytree(runs / "other" / "checkpoints" / "00000003", tmp_path / "kept" / "best")
    load_checkpoint(tmp_path / "kept" / "best")


def test_a_checkpoint_is_loaded_by_its_name_inside_the_folder(runs, monkeypatch):
    monkeypatch.chdir(runs / "stopped" / "checkpoints")
    assert load_checkpoint(Path("00000003")).facts["update"] == 3
    monkeypatch.chdir("00000003")
    assert load_checkpoint(Path(".")).facts["update"] == 3


def test_a_copy_of_a_checkpoint_may_be_reached_through_a_link_and_one_in_a_run_may_not(runs, tmp_path):
    shutil.copytree(runs / "other" / "checkpoints" / "00000003", tmp_path / "disk" / "cp")
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    load_checkpoint(tmp_path / "data" / "cp")
    for marker in ("run-id", "config.yaml"):
        shutil.copytree(runs / "other", tmp_path / marker)
        shutil.move(tmp_path / marker / "checkpoints", tmp_path / marker / "moved")
        (tmp_path / marker / "checkpoints").symlink_to(tmp_path / marker / "moved")
        for name in {"run-id", "config.yaml"} - {marker}:
            (tmp_path / marker / name).unlink()
        with pytest.raises(HoldfastError, match="a link"):
            load_checkpoint(tmp_path / marker / "checkpoints" / "00000003")
