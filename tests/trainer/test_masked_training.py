"""Whole runs in a world that masks: Taxi says in its info which of its six actions do something."""

from pathlib import Path

import pytest
import torch

from holdfast.config import load_settings
from holdfast.envs import GymEnv, make_world
from holdfast.errors import HoldfastError, SettingsError
from holdfast.evaluate import evaluate_run
from holdfast.policies import BoxPolicy
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train
from support.runs import figures

TAXI = [
    "env=gym:Taxi-v4",
    "env.action_mask=true",
    "env.num_envs=4",
    "env.kwargs={max_episode_steps: 20}",
    "trainer.horizon=8",
    "trainer.batch_size=64",
    "trainer.minibatch_size=32",
    "trainer.update_epochs=2",
    "trainer.total_timesteps=640",
    "policy.hidden=16",
    "progress=off",
]


def run(folder: Path, name: str, *words: str) -> Path:
    given = {word.split("=")[0] for word in words}
    base = [word for word in TAXI if word.split("=")[0] not in given]
    return train(load_settings([*base, *words, f"runs_dir={folder}", f"run={name}"])).run


def test_taxi_end_to_end(tmp_path, monkeypatch):
    """Training and evaluation, greedy and not: parity holds, and no illegal action reaches an environment."""
    from holdfast.envs.gymnasium_world import GymWorld

    steps, illegal = 0, 0
    step = GymWorld._step

    def watched(self, envs):
        nonlocal steps, illegal
        steps += self.num_slots
        illegal += int((~self.buffers.action_mask[range(self.num_slots), self.buffers.actions]).sum())
        step(self, envs)

    monkeypatch.setattr(GymWorld, "_step", watched)
    here = run(tmp_path, "here", "debug.poison=true", "trainer.burn_in=4")
    rows = read_metrics(here)
    assert len(rows) == 10
    assert max(row["parity_max_abs_logratio"] for row in rows) <= 1e-5
    assert all(evaluate_run(here, episodes=8, greedy=greedy).episodes == 8 for greedy in (True, False))
    assert steps >= 640 + 2 * 160
    assert illegal == 0


def test_any_number_of_workers_is_the_same_masked_run(tmp_path):
    here, there = run(tmp_path, "here"), run(tmp_path, "there", "trainer.num_workers=2")
    assert figures(here) == figures(there)
    assert figures(here) != figures(run(tmp_path, "open", "env.action_mask=false"))


def test_debug_shapes_lists_the_mask(tmp_path, caplog):
    run(tmp_path, "shapes", "debug.shapes=true", "progress=lines", "trainer.total_timesteps=64")
    assert "experience action_mask [R, S]: [16, 4, 6] bool" in caplog.text
    assert "minibatch action_mask [T, M]: [8, 4, 6] bool" in caplog.text


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["env=gym:CartPole-v1"], r"no info\['action_mask'\]"),
        (["env=gym:Pendulum-v1"], "real numbers"),
    ],
)
def test_worlds_without_masks_are_refused_before_anything_exists(words, named, tmp_path):
    with pytest.raises(SettingsError, match=named) as caught:
        train(load_settings([*words, "env.action_mask=true", f"runs_dir={tmp_path / 'runs'}", "run=demo"]))
    assert len(str(caught.value).splitlines()) <= 3
    assert not (tmp_path / "runs").exists()


def test_a_policy_that_wants_what_no_world_supplies_is_refused_before_anything_exists(tmp_path, monkeypatch):
    supplied = BoxPolicy.get_agent_experience_spec
    wanted = {"last_teammate": ((2,), "float32")}
    monkeypatch.setattr(BoxPolicy, "get_agent_experience_spec", lambda policy: {**supplied(policy), **wanted})
    with pytest.raises(HoldfastError, match=r"'last_teammate'.*\n.*env_obs, rewards, .*action_mask"):
        run(tmp_path / "runs", "wants")
    assert not (tmp_path / "runs").exists()


def test_a_masked_taxi_wastes_no_step():
    """What the mask is good for: every legal action changes something, as Taxi's documentation says."""
    with make_world(GymEnv(name="gym:Taxi-v4", num_envs=8, action_mask=True)) as world:
        obs, info = world.reset(seed=0)
        generator = torch.Generator().manual_seed(0)
        for _ in range(100):
            before = obs.copy()
            mask = torch.from_numpy(info["action_mask"]).float()
            actions = torch.multinomial(mask, 1, generator=generator).squeeze(1).numpy()
            obs, rewards, terminated, truncated, info = world.step(actions)
            moved = (obs != before) | terminated | truncated
            assert moved.all()
            assert (rewards > -10).all()
