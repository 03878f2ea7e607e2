"""Whole runs through the front door: run folder, determinism, workers, and what goes wrong in a world."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from holdfast.checkpoint import load_checkpoint, newest_first
from holdfast.config import load_run_settings, load_settings
from holdfast.config.ranks import plan_ranks
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.evaluate import evaluate_run
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train
from support.runs import figures

SMALL = ["env.num_envs=2", "env.rooms=2", "trainer.horizon=8", "trainer.total_timesteps=128", "progress=off"]
KEYS = (
    *("agent_steps", "wall_s", "sps", "episode_return", "episode_length", "episodes", "policy_loss", "value_loss"),
    *("entropy", "approx_kl", "clip_fraction", "explained_variance", "grad_norm", "parity_max_abs_logratio"),
    *("memory_norm", "lr", "rss_mb"),
)
SUMMARY = ("agent_steps", "wall_s", "sps", "episode_return_mean", "episodes", "parity_max_abs_logratio")


def weights(run: Path) -> dict:
    return {k: v.numpy() for k, v in load_checkpoint(newest_first(run / "checkpoints")[0]).tensors["policy"].items()}


def test_a_run_leaves_a_full_folder(tmp_path):
    settings = load_settings([*SMALL, f"runs_dir={tmp_path}", "run=demo"])
    result = train(settings)
    assert result.run == tmp_path / "demo"
    rows = read_metrics(result.run)
    assert [row["agent_steps"] for row in rows] == [32, 64, 96, 128]
    assert all(set(KEYS) <= set(row) for row in rows)
    assert all(row["parity_max_abs_logratio"] <= 1e-5 for row in rows)
    assert all(abs(row["share_world"] + row["share_inference"] + row["share_learning"] - 1) < 1e-6 for row in rows)
    assert set(SUMMARY) <= set(json.loads((result.run / "summary.json").read_text()))
    assert load_run_settings(result.run / "config.yaml") == plan_ranks(settings, 1)
    assert evaluate_run(result.run, episodes=4).episodes >= 4


def test_the_same_seed_is_the_same_run_and_another_is_not(tmp_path):
    def run(name, *words):
        return train(load_settings([*SMALL, f"runs_dir={tmp_path}", f"run={name}", *words])).run

    one, two, other = run("one"), run("two"), run("other", "seed=1")
    assert figures(one) == figures(two)
    first, second = weights(one), weights(two)
    assert all(np.array_equal(first[name], second[name]) for name in first | second)
    assert figures(one) != figures(other)


def test_a_run_does_not_depend_on_the_threads_it_finds(tmp_path):
    before = torch.get_num_threads()
    words = [*SMALL, f"runs_dir={tmp_path}", "trainer.threads=1"]
    try:
        runs = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            runs.append(train(load_settings([*words, f"run=t{threads}"])).run)
    finally:
        torch.set_num_threads(before)
    assert figures(runs[0]) == figures(runs[1])
    first, second = weights(runs[0]), weights(runs[1])
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_finished_run_is_left_as_it_is(tmp_path, caplog):
    words = [*SMALL, f"runs_dir={tmp_path}", "run=demo"]
    run = train(load_settings(words)).run
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for more in ([], ["trainer.lr=1e-4"]):
        train(load_settings([*words, *more]))
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert "already finished at 128 steps; raise trainer.total_timesteps" in caplog.text


def test_a_finished_run_can_be_made_longer(tmp_path):
    words = [word for word in SMALL if "total_timesteps" not in word] + [f"runs_dir={tmp_path}"]
    words += ["trainer.schedule.lr.kind=constant"]  # a schedule would follow the new length
    short, long = "trainer.total_timesteps=128", "trainer.total_timesteps=256"
    once = train(load_settings([*words, "run=once", short])).run
    before = figures(once)
    train(load_settings([f"runs_dir={tmp_path}", "run=once", long]))
    assert figures(once)[: len(before)] == before
    assert figures(once) == figures(train(load_settings([*words, "run=whole", long])).run)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["trainer.batch_size=1000"], "trainer.batch_size"),
        (["env=gym:NoSuchEnv-v0"], "NoSuchEnv"),
        (["env=gym:CartPole-v1", "py_agent=fast"], "py_agent"),
        (["env=gym:CartPole-v1", "env.hide=[9]"], "env.hide"),
        (["device=cuda:99"], "device"),
        (["device=gpu"], r"device=gpu is not available: torch has no device of this name"),
        (["env=gym:CartPole-v1", "policy.log_std=1"], "policy.log_std"),
        (["trainer.num_workers=9"], "trainer.num_workers"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_exists(words, named, tmp_path):
    with pytest.raises(SettingsError, match=named) as caught:
        train(load_settings([*words, f"runs_dir={tmp_path / 'runs'}", "run=demo", "progress=off"]))
    assert len(str(caught.value).splitlines()) <= 3
    assert not (tmp_path / "runs").exists()


class Breaks(gymnasium.Env):
    """After a few steps, something no learner should ever see."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str):
        self.how = how

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        late = self.t == 5
        obs = np.full(2, np.nan if late and self.how == "observation" else 0.1, np.float32)
        if late and self.how == "raises":
            raise ZeroDivisionError("the pole fell into the code")
        return obs, float("inf") if late and self.how == "reward" else 1.0, False, False, {}


@pytest.fixture
def breaks():
    gymnasium.register("Breaks-v0", lambda **kwargs: Breaks(**kwargs))
    yield
    gymnasium.registry.pop("Breaks-v0")


@pytest.mark.parametrize("how", ["observation", "reward", "raises"])
def test_a_broken_world_is_named(how, breaks, tmp_path):
    words = ["env=gym:Breaks-v0", f"env.kwargs.how={how}", "env.num_envs=2", "trainer.horizon=8", "progress=off"]
    kind = HoldfastError if how == "raises" else NonFiniteError
    with pytest.raises(kind) as caught:
        train(load_settings([*words, f"runs_dir={tmp_path}", "run=broken"]))
    message = str(caught.value)
    assert "Breaks-v0" in message
    assert "slot 0" in message or "environment 0" in message
    assert how in message or "pole fell" in message


def last_return(*words):
    return train(load_settings(["progress=off", *words])).summary["episode_return_mean"]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["py_agent=fast", "agent=fast"])
def test_the_quick_start_is_learned_with_memory(agent, tmp_path):
    """In a quarter of its steps; `make learn` and `make learn-agents` train to the end."""
    words = [agent, "run=with", "trainer.total_timesteps=60000", f"runs_dir={tmp_path}"]
    assert last_return(*words) >= 0.9


@pytest.mark.slow
def test_the_quick_start_is_not_learned_without(tmp_path):
    """The same agent without memory stays near chance."""
    words = ["run=without", "policy.core=none", "trainer.total_timesteps=60000", f"runs_dir={tmp_path}"]
    assert last_return(*words) < 0.65
