"""Action masks and previous actions stay with their observation when it is stored, replayed and bootstrapped."""

import numpy as np
import pytest
import torch

from holdfast.config import plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.errors import HoldfastError
from holdfast.policies import BoxPolicy
from holdfast.ppo import Experience
from holdfast.rollout import Collector, check_experience_spec
from holdfast.spec import keys
from holdfast.trainer.learner import Learner
from support.policies import MASKED, VECTOR, make, score
from support.worlds import ScriptedWorld


def set_up(policy, num_slots=4, end_rate=0.3, world=ScriptedWorld, **options):
    trainer = TrainerSettings(**{"horizon": 5, "batch_size": 60, "minibatch_size": 20, "update_epochs": 1, **options})
    plan = plan_batches(trainer, num_slots)
    actions = policy.spec.actions
    experience = Experience(
        {**policy.get_agent_experience_spec(), keys.ACTIONS: (actions.shape, actions.dtype)},
        num_slots,
        plan.horizon,
        plan.segments_per_slot,
        policy.state_shapes,
        burn_in=trainer.burn_in,
        poison=True,
    )
    made = world(policy.spec, num_slots, end_rate)
    collector = Collector(made, policy, experience)
    collector.start(0)
    return collector, experience, made, Learner(policy, trainer, plan, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["box-masked", "new-lstm-policy-masked"])
def test_each_row_stores_the_mask_its_action_was_sampled_with(name):
    policy = make(name)
    collector, experience, world, _ = set_up(policy)
    for rollout in range(3):
        collector.collect()
        R = experience.num_rows
        shown = [torch.from_numpy(mask) for mask in world.masks[rollout * R : (rollout + 1) * R]]
        whole = experience.whole()
        masks = whole.inputs[keys.ACTION_MASK]
        assert masks.dtype == torch.bool
        assert torch.equal(masks, torch.stack(shown))
        chosen = whole.actions.reshape(R, 4, -1)
        for i, part in enumerate(masks.split(list(policy.spec.actions.mask_sizes), -1)):
            assert part.gather(-1, chosen[..., i, None]).all()


@pytest.mark.parametrize("wrong", ["all legal", "one step late", "other slot"])
def test_parity_detects_a_wrong_mask(wrong):
    policy = make("box-masked")
    collector, experience, _, _ = set_up(policy)
    collector.collect()
    whole = experience.whole()
    right = whole.inputs[keys.ACTION_MASK]
    mask = {
        "all legal": torch.ones_like(right),
        "one step late": right.roll(1, 0),
        "other slot": right.roll(1, 1),
    }[wrong]

    def worst(mask):
        scored = score(policy, {**whole.inputs, keys.ACTION_MASK: mask}, whole.start_state, whole.actions)
        return float((scored[keys.LOG_PROB] - whole.log_prob).abs().max().detach())

    assert worst(right) <= 1e-5
    assert worst(mask) > 0.1


class ReadsMasks(BoxPolicy):
    """Its value encodes the mask it was given."""

    def unroll(self, inputs, first, start):
        params, values, final = super().unroll(inputs, first, start)
        weights = 2.0 ** torch.arange(self.spec.mask_size)
        return params, (inputs[keys.ACTION_MASK].float() * weights).sum(-1) + 0 * values, final


def test_a_truncated_episode_bootstraps_with_the_mask_of_its_last_observation():
    torch.manual_seed(0)
    policy = ReadsMasks(MASKED)
    collector, experience, world, _ = set_up(policy, end_rate=0.6)
    step, expected = world.step, {}

    def recording_step(actions):
        out = step(actions)
        weights = 2.0 ** torch.arange(7)
        finals = (torch.from_numpy(out[4]["final_action_mask"].copy()).float() * weights).sum(-1)
        for slot in range(4):
            if out[3][slot] and not out[2][slot]:
                expected[world.steps, slot] = float(finals[slot])
        return out

    world.step = recording_step
    collector.collect()
    values = experience.outcomes()["final_values"]
    assert len(expected) > 3
    assert {place: float(values[place[0] - 1, place[1]]) for place in expected} == expected
    bootstrap = experience.outcomes()["values"][-1]
    last = policy.predict_values(experience.inputs[experience.num_rows], policy.memory.read(torch.arange(4)))[0]
    assert torch.equal(bootstrap, last)
    weights = 2.0 ** torch.arange(7)
    assert torch.equal(bootstrap, (torch.from_numpy(world.masks[-1]).float() * weights).sum(-1))


@pytest.mark.parametrize(
    "options",
    [{}, {"burn_in": 3}, {"burn_in": 8}, {"start_states": "refreshed"}, {"start_states": "zeros"}],
    ids=str,
)
@pytest.mark.parametrize("name", ["box-masked", "new-lstm-policy-masked"])
def test_learning_from_masked_actions(name, options):
    policy = make(name)
    collector, experience, _, learner = set_up(policy, update_epochs=3, **options)
    for _ in range(2):
        collector.collect()
        learned = learner.update(experience, progress=0.0)
        assert all(value == value for value in learned.metrics.values())
        if options.get("start_states") != "zeros":
            assert learned.parity.max_log_ratio <= 1e-5
        assert (
            0 < learned.metrics["entropy"] < 1.6
        )  # half of the choices are illegal; with all legal it would be log 12


@pytest.mark.parametrize("name", ["box+sees", "box-symbols+sees", "box-reals+sees"])
def test_each_row_stores_the_action_of_the_row_before(name):
    collector, experience, _, _ = set_up(make(name))
    expected = torch.full_like(experience.inputs[0][keys.LAST_ACTIONS], 0 if name == "box-reals+sees" else -1)
    for _ in range(3):
        collector.collect()
        actions, last = experience.whole().actions, experience.whole().inputs[keys.LAST_ACTIONS]
        assert last.dtype == actions.dtype
        assert torch.equal(last, torch.cat([expected, actions[:-1]]))
        expected = actions[-1:].clone()


class Losing(ScriptedWorld):
    """Loses the episode of slot 0 in step 3 and does not use the actions of slot 1 in steps 2 to 4."""

    def _step(self, envs):
        super()._step(envs)
        b, step = self.buffers, self.steps
        b.terminated[:2] = b.truncated[:2] = False
        b.valid[1] = step not in (2, 3, 4)
        b.truncated[1] = step == 4  # the first observation after the absence
        b.valid[0], b.truncated[0] = step != 3, step == 3
        self.lost = np.arange(self.num_slots) == 0 if step == 3 else None


@pytest.mark.parametrize("scope", ["episode", "lifetime"])
def test_what_was_lost_or_ignored_is_not_a_previous_action(scope):
    policy = make("box+sees", memory_scope=scope)
    collector, experience, _, learner = set_up(policy, world=Losing)
    collector.collect()
    last = experience.whole().inputs[keys.LAST_ACTIONS]
    beginning, lost, ignored = [[0, slot] for slot in range(4)], [3, 0], [[2, 1], [3, 1], [4, 1]]
    assert (last < 0).nonzero().tolist() == sorted([*beginning, lost, *ignored])
    assert learner.update(experience, progress=0.0).parity.max_log_ratio <= 1e-5


class ShowsPrevious(BoxPolicy):
    """Its value is what it sees of the previous step, as one number."""

    def unroll(self, inputs, first, start):
        params, values, final = super().unroll(inputs, first, start)
        assert self.previous_step is not None
        seen = self.previous_step(inputs, first)
        return params, seen @ torch.tensor([10.0, 20.0, 1.0]) + 0 * values, final


def test_a_truncated_episode_bootstraps_with_its_last_action_and_reward():
    torch.manual_seed(0)
    collector, experience, _, _ = set_up(ShowsPrevious(VECTOR, sees=["action", "reward"]), end_rate=0.6)
    collector.collect()
    outcomes, actions = experience.outcomes(), experience.whole().actions
    rewards = outcomes["rewards"][1:]
    expected = 10.0 + 10.0 * actions + rewards.sign() * rewards.abs().log1p()
    cut = outcomes["truncateds"][1:] & ~outcomes["dones"][1:]
    assert cut.sum() > 3
    torch.testing.assert_close(outcomes["final_values"][cut], expected[cut])
    first = outcomes["truncateds"] | outcomes["dones"]
    torch.testing.assert_close(outcomes["values"][1:], expected.masked_fill(first[1:], 0.0))


@pytest.mark.parametrize(
    "options",
    [
        {"burn_in": 3},
        {"burn_in": 8},
        {"start_states": "refreshed"},
        {"advantage": "vtrace"},
        {"prioritized": {"alpha": 0.8}},
    ],
    ids=str,
)
def test_learning_with_the_previous_step(options):
    collector, experience, _, learner = set_up(make("box+sees"), update_epochs=3, **options)
    for _ in range(2):
        collector.collect()
        assert learner.update(experience, progress=0.0).parity.max_log_ratio <= 1e-5


@pytest.mark.parametrize("wrong", ["one step late", "other slot", "rewards late"])
def test_parity_detects_a_wrong_previous_step(wrong):
    policy = make("box+sees")
    collector, experience, _, _ = set_up(policy, end_rate=0.0)
    collector.collect()
    whole = experience.whole()
    key = keys.REWARDS if wrong == "rewards late" else keys.LAST_ACTIONS
    moved = whole.inputs[key].roll(1, 1 if wrong == "other slot" else 0)
    scored = score(policy, {**whole.inputs, key: moved}, whole.start_state, whole.actions)
    assert float((scored[keys.LOG_PROB] - whole.log_prob).abs().max().detach()) > 1e-3


class Wants(BoxPolicy):
    def get_agent_experience_spec(self):
        return {**super().get_agent_experience_spec(), "last_teammate": ((2,), "float32")}


def test_a_policy_that_needs_an_unknown_key_is_refused():
    with pytest.raises(HoldfastError) as caught:
        check_experience_spec(Wants(VECTOR))
    facts = ("Wants", "last_teammate", "vector", "env_obs", "rewards", "dones", "truncateds", "action_mask")
    assert all(fact in str(caught.value) for fact in facts)
    check_experience_spec(make("box"))
    check_experience_spec(make("box-masked"))
