"""A run that goes on from an older checkpoint comes by the name of the damaged one again, and replaces it."""

import pytest

from holdfast.checkpoint import list_checkpoints, verify_checkpoint
from holdfast.config import load_settings
from holdfast.trainer import train

WORDS = ["env=gym:CartPole-v1", "env.num_envs=2", "policy.hidden=8", "trainer.horizon=8", "trainer.keep.best=off"]
WORDS += ["trainer.checkpoint_interval=2", "run=r", "progress=off"]


def go(folder, updates: int) -> None:
    train(load_settings([*WORDS, f"runs_dir={folder}", f"trainer.total_timesteps={updates * 16}"]))


@pytest.mark.parametrize("damage", ["flipped", "deleted file", "deleted manifest"])
def test_it_is_replaced_when_the_run_comes_by_again(tmp_path, damage, capsys):
    checkpoints = tmp_path / "r" / "checkpoints"
    go(tmp_path, 4)
    newest = checkpoints / "00000004"
    if damage == "flipped":
        data = bytearray((newest / "policy.safetensors").read_bytes())
        data[-1] ^= 1
        (newest / "policy.safetensors").write_bytes(data)
    else:
        (newest / ("policy.safetensors" if damage == "deleted file" else "manifest.json")).unlink()
    go(tmp_path, 4)
    assert "NOT SAVED" not in capsys.readouterr().err
    assert [path.name for path in list_checkpoints(checkpoints)] == ["00000002", "00000004"]
    for path in list_checkpoints(checkpoints):
        verify_checkpoint(path)
