"""`holdfast.load`: the agent of a run, without what trained it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import holdfast
from holdfast.config import load_settings
from holdfast.errors import CheckpointError, SettingsError
from holdfast.evaluate import evaluate_run
from holdfast.trainer import train
from support.checkpoints import reseal

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "checkpoint-1"
TINY = ["trainer.total_timesteps=512", "trainer.horizon=16", "env.num_envs=4", "policy.hidden=16", "progress=off"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    common = [*TINY, f"runs_dir={folder}", "trainer.checkpoint_interval=4", "trainer.keep.last=9"]
    train(load_settings([*common, "env=gym:CartPole-v1", "env.hide=[1,3]", "run=hidden"]))
    train(load_settings([*common, "env=gym:CartPole-v1", "policy.sees=[action,reward]", "run=sees"]))
    train(load_settings([*common, "env=gym:Pendulum-v1", "run=pendulum"]))
    return folder


def play(agent: holdfast.Agent, env_id: str, seed: int) -> float:
    """Play an episode in a loop as a user writes it."""
    env = gymnasium.make(env_id)
    obs, _ = env.reset(seed=seed)
    agent.reset()
    total, reward, ended = 0.0, None, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(agent.step(obs, reward))
        total, ended = total + float(reward), terminated or truncated
    return total


@pytest.mark.parametrize(
    ("run", "env_id"), [("hidden", "CartPole-v1"), ("sees", "CartPole-v1"), ("pendulum", "Pendulum-v1")]
)
def test_a_loop_of_the_users_own_has_the_returns_of_evaluate(runs, run, env_id):
    result = evaluate_run(runs / run, episodes=3)
    agent = holdfast.load(runs / run)
    assert len(set(result.seeds)) == 3
    assert [play(agent, env_id, seed) for seed in result.seeds] == pytest.approx(result.returns, rel=1e-5)


def test_evaluate_plays_both_ways(runs):
    both = evaluate_run(runs / "hidden", episodes=3, both=True)
    alone = evaluate_run(runs / "hidden", episodes=3, greedy=False)
    assert both.sampled is not None
    assert (both.sampled.returns, both.sampled.checkpoint) == (alone.returns, both.checkpoint)


def test_a_checkpoint_is_named_or_the_best_or_the_newest(runs):
    names = sorted(path.name for path in (runs / "hidden" / "checkpoints").iterdir())
    assert holdfast.load(runs / "hidden").checkpoint == names[-1]
    assert holdfast.load(str(runs / "hidden"), checkpoint=names[0]).checkpoint == names[0]
    assert holdfast.load("hidden", "best", runs_dir=runs).checkpoint in names


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("nothing",), "no such run"),
        (("pendulum", "best"), "no best checkpoint: no episode had ended when they were written. Checkpoints there"),
        (("hidden", "00000099"), "has no checkpoint 00000099"),
        (("hidden", None, "abacus"), "device=abacus is not available"),
    ],
)
def test_what_cannot_be_loaded_is_named(runs, arguments, part):
    run, *rest = arguments
    options = dict(zip(("checkpoint", "device"), rest, strict=False))
    with pytest.raises(SettingsError, match=part):
        holdfast.load(run, runs_dir=runs, **options)


def test_an_older_checkpoint_is_used_if_the_spaces_in_the_newest_are_damaged(runs, tmp_path, caplog):
    run = shutil.copytree(runs / "hidden", tmp_path / "copy")
    *_, older, newest = sorted((run / "checkpoints").iterdir())
    facts = json.loads((newest / "facts.json").read_text())
    facts["world"]["spaces"] = facts["world"]["spaces"].replace('"Discrete"', '"Continuous"')
    (newest / "facts.json").write_text(json.dumps(facts))
    reseal(newest)
    assert holdfast.load(run).checkpoint == older.name
    assert f"checkpoint {older.name} is used instead" in caplog.text
    with pytest.raises(CheckpointError, match="unknown kind 'Continuous'"):
        holdfast.load(run, newest.name)


def test_the_code_of_a_policy_is_named_again(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text((HERE.parents[1] / "examples" / "custom_policy.py").read_text())
    words = [f"py_agent={code}:MyPolicy", "env=gym:CartPole-v1", *TINY[:3], "run=own", f"runs_dir={tmp_path}"]
    run = train(load_settings([*words, "progress=off"])).run
    with pytest.raises(SettingsError, match=r"which is custom code. If you trust it"):
        holdfast.load(run)
    agent = holdfast.load(run, policy=f"{code}:MyPolicy")
    assert agent.step(np.zeros(4, np.float32)) in (0, 1)
    same = holdfast.load(run, policy=type(agent.policy))
    assert same.value(np.ones(4, np.float32)) == agent.value(np.ones(4, np.float32))
    with pytest.raises(SettingsError, match="policy=int: "):
        holdfast.load(run, policy=int)  # pyright: ignore[reportArgumentType]


def test_loading_imports_no_trainer_no_world_and_no_mettagrid(runs):
    code = (
        "import sys, numpy, holdfast\n"
        "holdfast.load(sys.argv[1]).act(numpy.zeros(2, 'float32'))\n"
        "print([m for m in sys.modules if m.startswith(('holdfast.trainer', 'holdfast.rollout', 'holdfast.ppo', "
        "'holdfast.envs.make', 'holdfast.envs.gymnasium_world', 'mettagrid', 'pettingzoo'))])"
    )
    # the observations of this run have 4 entries, of which it sees two
    code = code.replace("zeros(2", "zeros(4")
    done = subprocess.run([sys.executable, "-c", code, runs / "hidden"], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_an_agent_of_an_earlier_version_is_loaded():
    (run,) = GOLDEN.rglob("config.yaml")
    agent = holdfast.load(run.parent)
    assert agent.spec.spaces == ""
    action, _ = agent.act(np.zeros(agent.spec.obs.shape, agent.spec.obs.dtype))
    assert agent.action_space.contains(action)
