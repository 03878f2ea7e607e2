"""Same seed, same run, to the last bit: in fresh processes, with any number of workers, on a busy machine."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from holdfast.checkpoint import load_checkpoint, newest_first
from holdfast.config import load_settings
from holdfast.trainer import train
from support.commands import holdfast_process
from support.runs import digest, figures

pytestmark = pytest.mark.slow

WORDS = ["env=gym:CartPole-v1", "env.num_envs=4", "policy.hidden=16", "trainer.total_timesteps=512"]
WORDS += ["trainer.horizon=16", "trainer.update_epochs=2", "progress=off"]  # eight updates


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run with these words. Each is run once."""
    folder = tmp_path_factory.mktemp("runs")

    def run_of(name: str, *words: str, fresh: bool = False) -> Path:
        if not (folder / name).exists():
            given = [*WORDS, *words, f"run={name}", f"runs_dir={folder}"]
            if fresh:
                process = holdfast_process("train", *given, cwd=folder)
                _, err = process.communicate(timeout=200)
                assert process.returncode == 0, err
            else:
                train(load_settings(given))
        return folder / name

    return run_of


def test_fresh_processes_agree(trained):
    wanted = digest(trained("here", "seed=5"))
    assert digest(trained("one", "seed=5", fresh=True)) == digest(trained("two", "seed=5", fresh=True)) == wanted


def test_another_seed_differs_in_every_weight_and_every_update(trained):
    here, other = trained("here", "seed=5"), trained("other", "seed=6")
    weights, others = (load_checkpoint(newest_first(run / "checkpoints")[0]).tensors["policy"] for run in (here, other))
    assert len(weights) > 4
    same = [name for name, weight in weights.items() if torch.equal(weight, others[name])]
    assert same == ["norm.count"]  # of observations: as many in both
    assert len(figures(here)) == 8
    assert not [row for row in figures(here) if row in figures(other)]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_run(trained, workers):
    found = trained(f"workers{workers}", "seed=5", f"trainer.num_workers={workers}")
    assert digest(found) == digest(trained("here", "seed=5"))


def test_a_busy_machine_gives_the_same_run(trained):
    """Three busy loops beside it: whatever depends on who comes first would show."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        busy = trained("busy", "seed=5", "trainer.num_workers=2")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert digest(busy) == digest(trained("here", "seed=5"))
