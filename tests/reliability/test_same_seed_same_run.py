"""Same seed, same run, to the last bit: in fresh processes, with any number of workers, on a busy machine."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.runs import read_metrics
from support.commands import holdfast_process

pytestmark = pytest.mark.slow

TIMING = ("wall_s", "sps", "rss_mb", "share_world", "share_inference", "share_learning")
WORDS = ["env=gym:CartPole-v1", "env.num_envs=4", "policy.hidden=16", "trainer.total_timesteps=512"]
WORDS += ["trainer.update_epochs=2", "progress=off"]


def trained(folder: Path, **runs: list[str]) -> dict[str, tuple[dict[str, str], list[str]]]:
    """What each of these runs came to: a hash of every part of its last checkpoint, and its metrics. At most two at a time."""
    names = list(runs)
    for pair in (names[i : i + 2] for i in range(0, len(names), 2)):
        started = [
            holdfast_process("train", *WORDS, *runs[name], f"run={name}", f"runs_dir={folder}", cwd=folder)
            for name in pair
        ]
        for process in started:
            _, err = process.communicate(timeout=200)
            assert process.returncode == 0, err
    return {name: outcome(folder / name) for name in names}


def outcome(run: Path) -> tuple[dict[str, str], list[str]]:
    saved = load_checkpoint(list_checkpoints(run / "checkpoints")[-1])
    parts = {
        f"{group} {key}": hashlib.sha256(x.numpy().tobytes()).hexdigest()
        for group, members in saved.tensors.items()
        for key, x in members.items()
    }
    rows = [{key: value for key, value in row.items() if key not in TIMING} for row in read_metrics(run)]
    return parts, [json.dumps(row) for row in rows]


def test_fresh_processes_agree_and_another_seed_differs(tmp_path):
    found = trained(tmp_path, a=["seed=5"], b=["seed=5"], other=["seed=6"])
    assert found["a"] == found["b"]
    parts, rows = found["a"]
    assert len(rows) == 8
    weights = [key for key in parts if key.startswith("policy ") and ("weight" in key or "_l0" in key)]
    assert len(weights) > 4
    others, other_rows = found["other"]
    assert all(parts[key] != others[key] for key in weights if "bias" not in key)
    assert not set(rows) & set(other_rows)


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_run(tmp_path):
    counts = (0, 1, 2, 4)
    found = trained(tmp_path, **{f"workers{n}": ["seed=5", f"trainer.num_workers={n}"] for n in counts})
    assert all(found[f"workers{n}"] == found["workers0"] for n in counts)


@pytest.mark.slow
def test_a_busy_machine_gives_the_same_run(tmp_path):
    """Three busy loops beside it: whatever depends on who comes first would show."""
    words = ["seed=5", "trainer.num_workers=2"]
    quiet = trained(tmp_path, quiet=words)["quiet"]
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        assert trained(tmp_path, busy=words)["busy"] == quiet
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
