"""Checkpoints of every format there has been: they load, play as they did, and their runs go on."""

import json
import shutil
from pathlib import Path

import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint, store
from holdfast.config import load_settings
from holdfast.evaluate import evaluate_run
from holdfast.runs import read_metrics
from holdfast.trainer import train

GOLDEN = Path(__file__).parents[1] / "golden"
RUNS = sorted(GOLDEN.glob("checkpoint-*"))


def formats_without_a_run() -> list[int]:
    return [number for number in range(1, store.FORMAT + 1) if not (GOLDEN / f"checkpoint-{number}").is_dir()]


def test_every_format_has_its_run():
    missing = formats_without_a_run()
    assert not missing, f"format {missing}: python tests/golden/make.py checkpoint, and keep it for good"


def test_a_new_format_is_noticed(monkeypatch):
    monkeypatch.setattr(store, "FORMAT", store.FORMAT + 1)
    assert formats_without_a_run() == [store.FORMAT]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_it_is_what_was_written_then(run):
    (newest,) = list_checkpoints(run / "checkpoints")
    assert load_checkpoint(newest).manifest["format"] == int(run.name.rpartition("-")[2])
    assert sum(file.stat().st_size for file in run.rglob("*") if file.is_file()) < 200_000


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_it_plays_as_it_did(run):
    wanted = json.loads((run / "returns.json").read_text())
    assert evaluate_run(run, episodes=len(wanted)).returns == wanted


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_its_run_goes_on(run, tmp_path, caplog):
    shutil.copytree(run, tmp_path / run.name)
    before = read_metrics(run)
    batch = before[0]["agent_steps"]
    words = [f"run={run.name}", f"runs_dir={tmp_path}", f"trainer.total_timesteps={(len(before) + 3) * batch}"]
    result = train(load_settings(words))
    assert f"resuming after {len(before) * batch:,} steps" in caplog.text
    rows = read_metrics(result.run)
    assert rows[: len(before)] == before
    assert [row["update"] for row in rows] == list(range(1, len(before) + 4))
    assert (result.summary["resumed"], result.summary["exact"]) == (1, True)
    facts = load_checkpoint(list_checkpoints(result.run / "checkpoints")[-1]).facts
    assert facts["episodes"] > load_checkpoint(list_checkpoints(run / "checkpoints")[-1]).facts["episodes"]
