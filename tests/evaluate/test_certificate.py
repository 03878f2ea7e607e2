"""The memory certificate of policies whose memory is known exactly."""

import json

import numpy as np
import pytest
import torch

from holdfast.cli.app import main
from holdfast.config import load_settings
from holdfast.envs import python_env
from holdfast.errors import SettingsError
from holdfast.evaluate import Estimate, certify, memoryless
from holdfast.evaluate.certificate import Certificate, estimate
from holdfast.evaluate.memoryless import Memoryless, imitate_without_memory
from holdfast.policies import make_policy
from holdfast.rollout import Episode
from holdfast.spec import keys
from holdfast.trainer import train
from support.echo import Count, Counts, Echo, First, Paid, Same, Shifts


@pytest.mark.parametrize(("delay", "remembers"), [(1, 1), (3, 3), (3, 8), (5, 6)])
def test_the_steps_that_are_needed_are_found(delay, remembers):
    env = python_env(Echo, kwargs={"delay": delay})
    found = certify(Shifts(env.describe(), delay, remembers), env, episodes=60)
    assert found.intact == Estimate(1.0, 1.0, 1.0)
    assert found.needs_memory
    assert found.needs_steps == delay
    too_short = [point for point in found.steps_back if point.steps < delay]
    for guess in (found.wiped, found.swapped, found.averaged, *too_short):
        assert guess.mean == pytest.approx(0.5, abs=0.15)
    assert next(point.steps for point in found.steps_back if point.mean == 1.0) == delay
    assert f"Needs at least {delay} step" in found.sentence
    assert "first observation" not in found.sentence


def test_memory_that_is_not_needed():
    env = python_env(Echo, kwargs={"delay": 0})
    found = certify(Shifts(env.describe(), 0, 4), env, episodes=10)
    assert (found.needs_memory, found.needs_steps) == (False, 0)
    assert found.swapped.mean == found.wiped.mean == found.intact.mean == 1.0
    assert found.sentence.startswith("Memory is not needed")


def test_what_is_remembered_of_the_first_observation_is_enough():
    env = python_env(Echo, kwargs={"delay": 0, "cue_at_start": True})
    found = certify(First(env.describe(), 0, 1), env, episodes=60)
    assert found.frozen.mean == 1.0
    assert max(found.wiped.mean, found.swapped.mean) < 0.7
    assert found.needs_steps == 7  # an agent acts on 8 observations
    assert "the first observation of an episode is enough" in found.sentence


def test_more_steps_than_are_tried(monkeypatch):
    monkeypatch.setattr("holdfast.evaluate.certificate.MAX_STEPS_BACK", 2)
    env = python_env(Echo, kwargs={"delay": 5})
    found = certify(Shifts(env.describe(), 5, 5), env, episodes=20)
    assert found.needs_steps is None
    assert "more than 2 steps" in found.sentence


class Trusts(Shifts):
    """Says the observation, plus what it remembers of the last one twice; with an empty memory, it says the contrary."""

    def unroll(self, inputs, first, start):
        (memory,), said = start, []
        for obs, begins in zip(inputs["env_obs"], first, strict=True):
            memory = torch.where(begins.view(1, -1, 1), torch.zeros_like(memory), memory)
            now = 2.0 * obs.view(1, -1, 1).float() - 1
            says = torch.where(memory == 0, -now, now + 2 * memory)
            said.append(torch.stack([torch.zeros_like(says[0, :, 0]), says[0, :, 0]], -1))
            memory = now + 0.1
        return torch.stack(said), torch.zeros(first.shape), (memory,)


def test_memory_that_is_used_but_not_needed():
    """Wiped or swapped memory misleads this agent, but with the usual memory the observation is enough."""
    env = python_env(Same, kwargs={"delay": 0})
    found = certify(Trusts(env.describe(), 0, 1), env, episodes=60)
    assert found.intact.mean == 7 / 8  # the memory is empty at the first step
    assert found.wiped.mean == 0.0
    assert found.swapped.mean < 0.7
    assert found.averaged.mean == found.intact.mean
    assert (found.needs_memory, found.needs_steps) == (False, 0)


class Habit(Shifts):
    """Trusts what it remembers of the last observation; without memory, it says what `without` makes of the present one."""

    def __init__(self, spec):
        super().__init__(spec, 0, 1)
        self.without = torch.nn.Parameter(torch.tensor(-0.2))

    def unroll(self, inputs, first, start):
        (memory,), said = start, []
        for obs, begins in zip(inputs["env_obs"], first, strict=True):
            memory = torch.where(begins.view(1, -1, 1), torch.zeros_like(memory), memory)
            now = 2.0 * obs.view(1, -1, 1).float() - 1
            says = torch.where(memory.abs() < 0.5, self.without * now, now + 2 * memory)[0, :, 0]
            said.append(torch.stack([torch.zeros_like(says), says], -1))
            memory = now
        return torch.stack(said), torch.zeros(first.shape), (memory,)


def test_a_copy_that_imitates_without_memory_shows_that_it_is_not_needed():
    env = python_env(Same, kwargs={"delay": 0})
    policy = Habit(env.describe())
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    found = certify(policy, env, episodes=60)
    assert found.intact.mean == 7 / 8  # the memory is empty at the first step
    assert max(found.wiped.mean, found.swapped.mean, found.averaged.mean) < 0.7
    assert found.imitation.mean == 1.0
    assert (found.needs_memory, found.needs_steps) == (False, 0)
    assert "imitate" in found.sentence
    assert all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())


def test_the_copy_finds_the_best_action_without_memory():
    """Half of the observations are wrong to repeat, so the copy has the return of a guess."""
    env = python_env(Echo, kwargs={"delay": 2})
    found = certify(Shifts(env.describe(), 2, 2), env, episodes=60)
    assert found.imitation.mean == pytest.approx(0.5, abs=0.15)


def test_a_policy_without_trainable_weights_is_its_own_copy():
    env = python_env(Echo, kwargs={"delay": 1})
    policy = Shifts(env.describe(), 1, 1)
    policy.requires_grad_(False)
    copied = imitate_without_memory(policy, env, 10, 0, True, 1000)
    assert torch.equal(copied.state_dict()["weight"], policy.state_dict()["weight"])


def test_long_episodes_of_many_observations_fit_into_memory(monkeypatch):
    monkeypatch.setattr(memoryless, "MAX_DEMONSTRATIONS", 40)
    env = python_env(Echo, kwargs={"delay": 1})
    shown = memoryless._Demonstrations(Shifts(env.describe(), 1, 1))
    for step in range(103):
        shown._keep({"env_obs": torch.full((1, 4), step)}, torch.zeros(1, 4))
        assert len(shown.actions) == len(shown.inputs) <= 10
    kept = [int(each["env_obs"][0, 0]) for each in shown.inputs]
    assert kept == list(range(0, 103, 16))


def test_sampling_and_seeds():
    env = python_env(Echo, kwargs={"delay": 1})
    policy = Shifts(env.describe(), 1, 1)
    greedy, again = (certify(policy, env, episodes=8, seed=7) for _ in range(2))
    assert greedy == again
    assert greedy.episodes == 8
    assert certify(policy, env, episodes=8, seed=7, greedy=False).intact.mean < 1.0


def test_agents_of_one_environment_count_as_one():
    alike = [Episode(0, slot, float(slot // 8), 5) for slot in range(32)]
    apart = [Episode(0, slot * 8, episode.episode_return, 5) for slot, episode in enumerate(alike)]
    narrow, wide = estimate(apart, 8), estimate(alike, 8)
    assert narrow.mean == wide.mean == 1.5
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        returns = rng.normal(3.0, 1.0, 40)
        found = estimate([Episode(0, slot, float(x), 5) for slot, x in enumerate(returns)], 1)
        covered += found.low <= 3.0 <= found.high
    assert 180 <= covered <= 198


def test_a_wiped_memory_does_not_know_the_last_action():
    torch.manual_seed(0)
    settings = load_settings(["env=gym:CartPole-v1", "policy.hidden=8", "policy.sees=[action]"])
    policy = make_policy(settings.policy, settings.env.describe())
    none = torch.zeros(1, 2, dtype=torch.bool)
    inputs = {
        keys.OBS: torch.ones(1, 2, 4),
        keys.DONES: none,
        keys.TRUNCATEDS: none,
        keys.LAST_ACTIONS: torch.tensor([[0, 1]]),
    }
    for act, knows in ((policy.act, True), (Memoryless(policy), False)):
        values = act(inputs, policy.initial_state(2)).values[0]
        assert (float(abs(values[0] - values[1]).detach()) > 1e-5) == knows


def test_what_cannot_be_certified():
    env = python_env(Echo, kwargs={"delay": 1})
    settings = load_settings(["env=gym:CartPole-v1", "policy.core=none"])
    with pytest.raises(SettingsError, match="has no memory"):
        certify(make_policy(settings.policy, settings.env.describe()), settings.env)
    with pytest.raises(SettingsError, match="at least two episodes"):
        certify(Shifts(env.describe(), 1, 1), env, episodes=1)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["env.num_envs=2", "env.rooms=2", "trainer.horizon=8", "trainer.batch_size=32", "trainer.minibatch_size=32"]
    train(load_settings([*words, "trainer.total_timesteps=32", "policy.hidden=8", "progress=off", "run=small"]))
    capsys.readouterr()

    def output(*options: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            main(["evaluate", "small", "--certificate", "--episodes", "8", *options])
        assert not stopped.value.code
        return capsys.readouterr().out

    found = json.loads(output("--json"))
    for name in ("intact", "wiped", "frozen", "swapped", "averaged"):
        assert found[name].keys() == {"mean", "low", "high"}
        assert found[name]["low"] <= found[name]["mean"] <= found[name]["high"]
    assert found["steps_back"][0] == {**found["averaged"], "steps": 0}
    assert found["checkpoint"]
    header, *figures, sentence = output().splitlines()
    assert "at least 8 episodes" in header
    assert [line.split()[0] for line in figures[:5]] == ["intact", "wiped", "frozen", "swapped", "averaged"]
    assert sentence == found["sentence"]
    assert {"needs_memory", "needs_steps", "episodes"} <= found.keys()


@pytest.mark.parametrize(("without", "said"), [(477.0, True), (405.0, False), (404.0, False)])
def test_memory_that_misleads_is_said_to(without, said):
    intact, other, low = (Estimate(mean, mean, mean) for mean in (404.0, without, 0.0))
    assert ("misleads" in Certificate(intact, other, low, low, low).sentence) == said


def test_counting_needs_memory_although_all_slots_hold_the_same():
    env = python_env(Count)
    found = certify(Counts(env.describe()), env, episodes=20)
    assert found.intact.mean == found.swapped.mean == 8.0
    assert found.needs_memory
    assert found.imitation is not None
    assert found.imitation.mean == 7.0  # never saying 1 is the best without memory


@pytest.mark.parametrize("extra", [{"pay": 100.0}, {"pay": -100.0}, {"luck": 10.0}])
def test_what_no_action_changes_does_not_change_the_verdict(extra):
    env = python_env(Paid, kwargs={"delay": 3, **extra})
    found = certify(Shifts(env.describe(), 3, 3), env, episodes=60)
    assert (found.needs_memory, found.needs_steps) == (True, 3)


def test_what_chance_may_explain_is_not_called_certain():
    intact, other, low = Estimate(2.0, -8.0, 12.0), Estimate(1.0, -9.0, 11.0), Estimate(0.0, -10.0, 10.0)
    assert "not certain" in Certificate(intact, other, low, low, other).sentence
