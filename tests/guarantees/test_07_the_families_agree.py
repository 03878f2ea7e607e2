"""Guarantee 7: agent=X and py_agent=X with the same weights give the same outputs, gradients and training runs."""

import pytest
import torch
from tensordict import TensorDict

from holdfast.config import load_settings, registry
from holdfast.config.batches import plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.policies import GRID_AGENTS, MettaAgent, shared_name
from holdfast.ppo import Experience
from holdfast.rollout import Collector
from holdfast.spec import keys
from holdfast.trainer import train
from holdfast.trainer.learner import Learner
from support.policies import TOKENS, random_actions, random_arrivals, random_state, step_td
from support.runs import figures
from support.worlds import ScriptedWorld

LIMIT = 1e-6
CELLS = tuple(registry.CELLS)


def make_pair(name, core="lstm", spec=TOKENS, hidden=16, more=()):
    """Return the plain agent, and the component agent with the same weights."""
    words = [f"policy.core={core}", f"policy.hidden={hidden}", *more]
    torch.manual_seed(0)
    plain = MettaAgent(load_settings([f"py_agent={name}", *words]).policy, spec)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.normal_(0.0, min(0.3, parameter.shape[-1] ** -0.5))
    graph = MettaAgent(load_settings([f"agent={name}", *words]).policy, spec)
    graph.take(plain.facts(), plain.policy.state_dict())
    return plain.policy, graph.policy


def by_shared_name(policy, of=lambda parameter: parameter):
    return {shared_name(name): of(parameter) for name, parameter in policy.named_parameters()}


def assert_same(one, two):
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(
            one[key], two[key], rtol=LIMIT, atol=LIMIT, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize("core", CELLS)
@pytest.mark.parametrize("name", GRID_AGENTS)
def test_acting_and_scoring_agree(name, core):
    pair = make_pair(name, core)
    assert by_shared_name(pair[0]).keys() == by_shared_name(pair[1]).keys()
    arrivals = random_arrivals(TOKENS, 6, 4, seed=1)
    outputs = []
    for policy in pair:
        policy.sampling.generator = torch.Generator().manual_seed(3)
        steps = [policy(step_td(arrivals, t)) for t in range(6)]
        outputs.append(
            {
                f"{key} {t}": step[key]
                for t, step in enumerate(steps)
                for key in (keys.ACTIONS, keys.LOG_PROB, keys.VALUES)
            }
            | {f"memory {i}": leaf for i, leaf in enumerate(policy.get_memory())}
        )
    assert_same(*outputs)


@pytest.mark.parametrize("core", CELLS)
@pytest.mark.parametrize("name", GRID_AGENTS)
def test_outputs_and_gradients_of_scoring_agree(name, core):
    pair = make_pair(name, core)
    arrivals = {key: x.transpose(0, 1) for key, x in random_arrivals(TOKENS, 5, 3, seed=2).items()}
    actions = random_actions(TOKENS, (3, 5), torch.Generator().manual_seed(4))
    start = random_state(pair[0], 3, seed=5)
    outputs, gradients = [], []
    for policy in pair:
        out = policy(TensorDict(arrivals, batch_size=[3, 5]), state=start, action=actions)
        wanted = (keys.LOG_PROB, keys.ENTROPY, keys.VALUES, keys.FULL_LOG_PROBS)
        outputs.append({key: out[key].detach() for key in wanted})
        (out[keys.LOG_PROB].sum() + out[keys.VALUES].square().sum() + out[keys.ENTROPY].sum()).backward()
        gradients.append(by_shared_name(policy, lambda parameter: parameter.grad))
    assert_same(*outputs)
    assert_same(*gradients)


def learn(policy, **trainer):
    """Return the weights and metrics after two updates on a scripted world."""
    settings = TrainerSettings(horizon=4, batch_size=32, minibatch_size=16, update_epochs=1, **trainer)
    plan = plan_batches(settings, 4)
    spec = {**policy.get_agent_experience_spec(), keys.ACTIONS: ((), "int64")}
    experience = Experience(spec, 4, plan.horizon, plan.segments_per_slot, policy.state_shapes)
    policy.sampling.generator = torch.Generator().manual_seed(0)
    collector = Collector(ScriptedWorld(policy.spec, 4, 0.2), policy, experience)
    learner = Learner(policy, settings, plan, torch.Generator().manual_seed(0))
    collector.start(seed=0)
    figures = {}
    for update in range(2):
        collector.collect()
        learned = learner.update(experience, progress=0.0)
        figures |= {f"{update} {key}": torch.tensor(value) for key, value in learned.metrics.items()}
    return by_shared_name(policy, lambda parameter: parameter.detach().clone()) | figures


@pytest.mark.parametrize("name", GRID_AGENTS)
@pytest.mark.parametrize(
    "trainer", [{}, {"l2_init": 0.1}, {"weight_clip": 1.0}], ids=["plain", "l2_init", "weight_clip"]
)
def test_learning_l2_to_init_and_weight_clipping_agree(name, trainer):
    one, two = (learn(policy, lr=1e-2, **trainer) for policy in make_pair(name))
    assert_same(one, two)
    if trainer:
        without = learn(make_pair(name)[0], lr=1e-2)
        assert any(not torch.equal(one[key], without[key]) for key in one), "the setting had no effect"


@pytest.mark.parametrize("scope", ["episode", "lifetime"])
@pytest.mark.parametrize("name", ["fast", "example"])
def test_both_see_the_previous_step_alike(name, scope):
    words = ["policy.sees=[action,reward]", f"policy.memory_scope={scope}"]
    one, two = (learn(policy, lr=1e-2) for policy in make_pair(name, more=words))
    assert_same(one, two)
    without = learn(make_pair(name, more=words[1:])[0], lr=1e-2)
    more = one["core.weight_ih_l0"].shape[1] - without["core.weight_ih_l0"].shape[1]
    assert more == sum(TOKENS.actions.sizes) + 1 + (scope == "lifetime")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fast", "latent_attn_small", "example"])
def test_the_same_run_in_both_families(name, tmp_path):
    """20 updates in the MettaGrid maze (5 for the other agents) from the same weights and seed give the same metrics."""
    size, updates = ([], 20) if name == "fast" else (["policy.hidden=32"], 5)
    words = [
        "env.num_envs=2",
        "env.rooms=4",
        f"trainer.total_timesteps={128 * updates}",
        "trainer.weight_metrics_interval=2",
        *size,
    ]
    words += [
        "trainer.l2_init=0.01",
        "trainer.weight_clip=3",
        f"runs_dir={tmp_path}",
        "progress=off",
        "settings=quickstart",
    ]
    first = train(
        load_settings([*words[:2], "trainer.total_timesteps=128", *size, *words[-3:], f"py_agent={name}", "run=first"])
    )
    rows = []
    for word in (f"py_agent={name}", f"agent={name}"):
        run = train(load_settings([*words, word, f"policy.weights={first.run}", f"run={word.replace('=', '-')}"])).run
        rows.append(figures(run))
    assert len(rows[0]) == updates
    assert rows[0] == rows[1]
    assert any(key.endswith("effective_rank") for key in rows[0][3])


def test_a_weight_that_differs_is_detected():
    plain, graph = make_pair("fast")
    with torch.no_grad():
        graph.get_parameter("components.cnn2.layer.bias")[0] += 1e-3
    arrivals = random_arrivals(TOKENS, 1, 4, seed=1)
    with pytest.raises(AssertionError):
        assert_same(*({keys.VALUES: policy(step_td(arrivals, 0))[keys.VALUES]} for policy in (plain, graph)))


def test_every_agent_is_built_for_a_real_world():
    spec = load_settings(["env=arena"]).env.describe()
    for name in GRID_AGENTS:
        plain, graph = make_pair(name, spec=spec)
        assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in graph.parameters())
