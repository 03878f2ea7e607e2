"""MettaAgent: other worlds, weights of either family, and user code."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
# torch types every attribute of a module as `Tensor | Module`.

import sys
from dataclasses import asdict, replace

import pytest
import torch
from tensordict import TensorDict

from holdfast.config import load_settings
from holdfast.errors import SettingsError
from holdfast.policies import GRID_AGENTS, ComponentPolicy, MettaAgent, Sampling, shared_name
from holdfast.policies.actions import TypeAndArgument
from holdfast.policies.registry import read_graph
from holdfast.policies.vocabulary import Vocabulary
from holdfast.spec import DiscreteActions, Feature, MultiDiscreteActions, keys
from support.policies import FEATURES, GRAPHS, MOVES, TOKENS, VECTOR, random_arrivals, step_td

ALL = (*(f"py_agent={name}" for name in GRID_AGENTS), *GRAPHS)


def make_agent(word, spec=TOKENS):
    torch.manual_seed(0)
    agent = MettaAgent(load_settings([word, "policy.hidden=16"]).policy, spec)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.normal_(0.0, 2.0 * parameter.shape[-1] ** -0.5)
    agent.policy.sampling = Sampling(greedy=True)
    return agent


# Another world: other ids, other order, categories in another order, two features and three actions more.
ELSEWHERE = replace(
    TOKENS,
    name="elsewhere",
    obs=replace(
        TOKENS.obs,
        num_tokens=10,
        features=(
            Feature(9, "inv:heart", 1.0),
            Feature(3, "tag", 10.0, ("mine", "altar", "agent", "wall")),
            Feature(7, "weather", 5.0),
            Feature(0, "vibe", 255.0, ("odd", "default", "down", "up")),
            Feature(1, "last_action", 10.0, ("jump", "move_east", "noop", "move_west", "move_south", "move_north")),
            Feature(4, "agent:group", 10.0),
            Feature(2, "episode_completion_pct", 255.0),
        ),
    ),
    actions=DiscreteActions(("jump", "move_east", "move_west", "swim", "noop", "move_south", "move_north", "fly")),
)


def translate(tokens):
    """The same observations as the other world encodes them, plus tokens of features that only it has."""
    there = {feature.name: feature for feature in ELSEWHERE.obs.features}
    out = torch.full((*tokens.shape[:-2], 10, 3), 0xFF, dtype=torch.uint8)
    out[..., 0, :] = torch.tensor([0x22, 7, 3])  # the weather
    out[..., 1, :] = torch.tensor([0x23, 3, 1])  # an altar
    out[..., 2:, :] = tokens
    flat = out[..., 2:, :].reshape(-1, 3)
    for row, (coordinate, attribute, value) in enumerate(tokens.reshape(-1, 3).tolist()):
        if coordinate == 0xFF:
            continue
        feature = FEATURES[attribute]
        other = there[feature.name]
        number = other.categories.index(feature.categories[value]) if feature.categories else value
        flat[row] = torch.tensor([coordinate, other.id, number])
    out[..., 2:, :] = flat.view(*tokens.shape[:-2], 8, 3)
    return out


@pytest.mark.parametrize("word", ALL)
def test_another_order_and_a_longer_list_give_the_same_actions(word):
    home, away = make_agent(word), make_agent(word)
    new = away.initialize_to_world(ELSEWHERE, learn=False)
    assert set(new) == {"tag=altar", "weather", "last_action=jump", "action jump", "action swim", "action fly"}
    arrivals = random_arrivals(TOKENS, 12, 6, seed=3)
    translated = {**arrivals, keys.OBS: translate(arrivals[keys.OBS])}
    for t in range(12):
        here, there = home(step_td(arrivals, t)), away(step_td(translated, t))
        names = [MOVES.names[a] for a in here[keys.ACTIONS].tolist()]
        assert names == [ELSEWHERE.actions.names[a] for a in there[keys.ACTIONS].tolist()]
        torch.testing.assert_close(here[keys.VALUES], there[keys.VALUES], rtol=1e-5, atol=1e-5)
        order = [ELSEWHERE.actions.names.index(name) for name in MOVES.names]
        scores, scores_there = here[keys.FULL_LOG_PROBS], there[keys.FULL_LOG_PROBS][:, order]
        torch.testing.assert_close(scores, scores_there, rtol=1e-4, atol=1e-5)
        assert scores.std(0).min() > 1e-6, "scores depend on the observation"


@pytest.mark.parametrize("word", ALL)
def test_an_unlearned_action_is_never_drawn(word):
    agent = make_agent(word)
    agent.initialize_to_world(ELSEWHERE, learn=False)
    agent.policy.sampling = Sampling(generator=torch.Generator().manual_seed(0))
    arrivals = random_arrivals(TOKENS, 40, 16, seed=3)
    arrivals[keys.OBS] = translate(arrivals[keys.OBS])
    unlearned = {0, 3, 7}
    for t in range(40):
        out = agent(step_td(arrivals, t))
        assert not unlearned & set(out[keys.ACTIONS].tolist())
        assert out[keys.LOG_PROB].isfinite().all()


@pytest.mark.parametrize("word", ALL)
def test_new_names_are_learned_and_known_weights_stay(word):
    agent = make_agent(word)
    before = {name: p.detach().clone() for name, p in agent.policy.named_parameters()}
    arrivals = random_arrivals(TOKENS, 3, 4, seed=5)
    old = [agent(step_td(arrivals, t))[keys.VALUES] for t in range(3)]
    agent.initialize_to_world(ELSEWHERE, learn=True)
    for name, p in agent.policy.named_parameters():
        kept = p[tuple(slice(n) for n in before[name].shape)]
        assert torch.equal(kept, before[name]), name

    translated = {**arrivals, keys.OBS: translate(arrivals[keys.OBS])}
    for key, x in translated.items():
        translated[key] = x.transpose(0, 1)
    action = torch.full((4, 3), ELSEWHERE.actions.names.index("swim"))
    td = TensorDict(translated, batch_size=[4, 3])
    out = agent(td, state=agent.initial_state(4), action=action)
    out[keys.LOG_PROB].sum().backward()
    grown = [p for name, p in agent.policy.named_parameters() if p.shape != before[name].shape]
    assert grown
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in grown)
    # and home again, where nothing has changed
    agent.initialize_to_world(TOKENS, learn=True)
    for t in range(3):
        torch.testing.assert_close(agent(step_td(arrivals, t))[keys.VALUES], old[t], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("word", ALL)
def test_an_agent_that_grew_is_restored(word):
    agent = make_agent(word)
    agent.initialize_to_world(ELSEWHERE, learn=True)
    settings = agent.settings
    back = MettaAgent.restore(settings, ELSEWHERE, agent.facts(), agent.policy.state_dict())
    assert back.vocabulary == agent.vocabulary
    for (name, one), (_, two) in zip(agent.policy.named_parameters(), back.policy.named_parameters(), strict=True):
        assert torch.equal(one, two), name
    assert Vocabulary.from_json(asdict(agent.vocabulary)) == agent.vocabulary


@pytest.mark.parametrize("word", ALL)
def test_an_agent_from_a_larger_window_is_restored(word):
    """Layer sizes are those of the world it was built for, even after it moved."""
    wide = replace(TOKENS, name="wide", obs=replace(TOKENS.obs, window=(13, 13)))
    agent = make_agent(word, wide)
    agent.initialize_to_world(TOKENS, learn=True)
    back = MettaAgent.restore(agent.settings, agent.built_for, agent.facts(), agent.policy.state_dict())
    back.initialize_to_world(TOKENS, learn=False)
    back.policy.sampling = Sampling(greedy=True)
    arrivals = random_arrivals(TOKENS, 1, 4, seed=5)
    assert torch.equal(agent(step_td(arrivals, 0))[keys.VALUES], back(step_td(arrivals, 0))[keys.VALUES])


def test_a_refused_world_leaves_the_agent_unchanged():
    agent = make_agent("py_agent=fast")
    before = agent.policy.obs.channel.clone()
    many = DiscreteActions(tuple(f"action {i}" for i in range(96)))
    with pytest.raises(SettingsError, match="embeddings for 100 actions"):
        agent.initialize_to_world(replace(ELSEWHERE, actions=many))
    assert torch.equal(agent.policy.obs.channel, before)
    assert agent.spec == TOKENS


def test_shared_name_changes_component_names_only():
    for name in ("components.0.weight", "components.weight", "core.components.layer.bias"):
        assert shared_name(name) == name
    assert shared_name("components._core_.layer.bias_l0") == "core.bias_l0"


def test_weights_of_another_agent_are_refused():
    fast, tiny = make_agent("py_agent=fast"), make_agent("py_agent=latent_attn_tiny")
    with pytest.raises(SettingsError, match=r"another agent.*cnn1"):
        tiny.take(fast.facts(), fast.policy.state_dict())
    wide = MettaAgent(load_settings(["py_agent=fast", "policy.hidden=17"]).policy, TOKENS)
    with pytest.raises(SettingsError, match=r"core.weight_ih_l0 has shape \[64, 128\] in the weights, \[68, 128\]"):
        wide.take(fast.facts(), fast.policy.state_dict())


def test_worlds_that_are_refused():
    agent = make_agent("py_agent=fast")
    with pytest.raises(SettingsError, match="cannot run in vector"):
        agent.initialize_to_world(VECTOR)
    with pytest.raises(SettingsError, match=r"none of the actions of tokens \(swim, fly\)"):
        agent.initialize_to_world(replace(TOKENS, actions=DiscreteActions(("swim", "fly"))), learn=False)
    with pytest.raises(SettingsError, match="window of 15 cells"):
        agent.initialize_to_world(replace(TOKENS, obs=replace(TOKENS.obs, window=(15, 15))))
    many = DiscreteActions(tuple(f"action {i}" for i in range(96)))
    with pytest.raises(SettingsError, match=r"embeddings for 100 actions.* 101"):
        agent.initialize_to_world(replace(TOKENS, actions=many))


def test_a_head_without_names_refuses_other_action_lists():
    graph = read_graph("fast")
    del graph["components"]["_action_embeds_"]
    graph["components"]["_action_"] = {"type": "Linear", "sources": ["actor_1"], "nn_params": {"out_features": 5}}
    policy = ComponentPolicy(TOKENS, graph)
    policy.initialize_to_world(replace(TOKENS, name="the same"))
    shuffled = replace(TOKENS, name="away", actions=DiscreteActions(tuple(reversed(MOVES.names))))
    with pytest.raises(
        SettingsError, match="away has other actions than the same, and ComponentPolicy does not look up actions"
    ):
        policy.initialize_to_world(shuffled)


# --------------------------------------------------------------------------------------- type and argument

ARGUMENTS = (1, 4, 2, 3)


def test_type_and_argument_to_a_flat_list_and_back_for_every_index():
    pairs = TypeAndArgument(ARGUMENTS)
    assert pairs.num_params == 10
    expected = [(kind, argument) for kind, count in enumerate(ARGUMENTS) for argument in range(count)]
    for flat, pair in enumerate(expected):
        assert pairs.to_pair(torch.tensor(flat)).tolist() == list(pair)
        assert int(pairs.to_flat(torch.tensor(pair))) == flat
    every = torch.arange(10)
    assert torch.equal(pairs.to_flat(pairs.to_pair(every)), every)


@pytest.mark.parametrize("word", ["py_agent=fast", "agent=fast", "py_agent=example"])
def test_agents_in_a_world_of_types_and_arguments(word):
    spec = replace(TOKENS, actions=MultiDiscreteActions((4, 4), ARGUMENTS))
    agent = make_agent(word, spec)
    agent.policy.sampling = Sampling(generator=torch.Generator().manual_seed(0))
    arrivals = random_arrivals(TOKENS, 30, 8, seed=1)
    legal = {(kind, argument) for kind, count in enumerate(ARGUMENTS) for argument in range(count)}
    for t in range(30):
        out = agent(step_td(arrivals, t))
        assert {tuple(pair) for pair in out[keys.ACTIONS].tolist()} <= legal
        flat = agent.policy.distribution.to_flat(out[keys.ACTIONS])
        chosen = out[keys.FULL_LOG_PROBS].gather(1, flat[:, None]).squeeze(1)
        torch.testing.assert_close(out[keys.LOG_PROB], chosen)


# --------------------------------------------------------------------------------- calling, wrapping, user code


def test_the_agent_forwards_calls_and_attributes_to_its_policy():
    agent = make_agent("agent=fast")
    arrivals = random_arrivals(TOKENS, 1, 3, seed=1)
    agent(step_td(arrivals, 0))
    assert agent.has_memory()
    assert torch.equal(agent.get_memory()[0], agent.policy.get_memory()[0])
    agent.reset_memory()
    assert not agent.policy.get_memory()[0].any()
    assert agent.get_agent_experience_spec() == agent.policy.get_agent_experience_spec()
    with pytest.raises(AttributeError):
        agent.nothing_of_this_name  # noqa: B018


def test_distributed_data_parallel_can_wrap_it(tmp_path):
    import torch.distributed as dist

    agent, alone = make_agent("py_agent=fast"), make_agent("py_agent=fast")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(agent)
        arrivals = {key: x.transpose(0, 1) for key, x in random_arrivals(TOKENS, 3, 4, seed=2).items()}
        action = torch.zeros(4, 3, dtype=torch.long)
        for module in (wrapped, alone):
            td = TensorDict(arrivals, batch_size=[4, 3])
            out = module(td, agent.initial_state(4), action)
            (out[keys.LOG_PROB].sum() + out[keys.VALUES].sum()).backward()
    finally:
        dist.destroy_process_group()
    for (name, one), (_, two) in zip(agent.named_parameters(), alone.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, msg=name)


MINE = """
import torch
from torch import nn
from holdfast.policies import LSTMWrapper


class Mine(LSTMWrapper):
    def __init__(self, spec, width=4, **memory):
        super().__init__(spec, input_size=width, **memory)
        self.encoder = nn.Linear(spec.obs.shape[0], width)
        self.actor = nn.Linear(self.core.hidden_size, len(spec.actions.names))
        self.critic = nn.Linear(self.core.hidden_size, 1)

    def encode_observations(self, observations):
        return torch.tanh(self.encoder(observations))

    def decode_actions(self, hidden):
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


class NotAPolicy:
    pass
"""


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def test_a_users_class(mine):
    words = [f"py_agent={mine}:Mine", "policy.kwargs.width=7", "policy.hidden=5", "policy.core=gru"]
    agent = MettaAgent(load_settings(words).policy, VECTOR)
    assert agent.policy.encoder.out_features == 7
    assert agent.state_shapes == ((2, 5),)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("Mine2", "Mine2 is not a policy class. Policies in the file: Mine."),
        ("NotAPolicy", "NotAPolicy is not a policy class"),
    ],
)
def test_a_missing_class_is_refused(mine, name, part):
    with pytest.raises(SettingsError, match=part):
        MettaAgent(load_settings([f"py_agent={mine}:{name}"]).policy, VECTOR)


def test_a_file_that_fails_to_import_is_refused(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("import nothing_of_this_name\n")
    with pytest.raises(SettingsError, match="cannot be run: ModuleNotFoundError"):
        MettaAgent(load_settings([f"py_agent={file}:Mine"]).policy, VECTOR)
    with pytest.raises(SettingsError, match="no such file"):
        MettaAgent(load_settings([f"py_agent={tmp_path}/none.py:Mine"]).policy, VECTOR)


def test_a_users_class_may_import_files_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_mine.py").write_text(MINE)
    file = tmp_path / "importing_mine.py"
    file.write_text("from beside_mine import Mine\n")
    assert MettaAgent(load_settings([f"py_agent={file}:Mine"]).policy, VECTOR).policy.encoder.out_features == 4


def test_wrong_arguments_of_a_users_class(mine):
    with pytest.raises(SettingsError, match=r"py_agent=.*: .*unexpected keyword argument 'wdth'"):
        MettaAgent(load_settings([f"py_agent={mine}:Mine", "policy.kwargs.wdth=7"]).policy, VECTOR)


PLAIN = """
from torch import nn
from holdfast.policies import LSTMWrapper
from holdfast.recurrence import Core

class Plain(LSTMWrapper):
    def __init__(self, spec):
        super().__init__(spec, 4, 8, 1)

class BadCore(LSTMWrapper):
    def __init__(self, spec):
        super().__init__(spec, 4, 8, 1, core=Core())
"""


@pytest.mark.parametrize(
    ("word", "unset"),
    [
        ("policy.hidden=8", "policy.hidden=None"),
        ("policy.layers=1", "policy.layers=None"),
        ("policy.core=gru", "policy.core=own"),
    ],
)
def test_a_class_that_does_not_take_a_common_setting_is_told_how_to_unset_it(tmp_path, word, unset):
    file = tmp_path / "plain.py"
    file.write_text(PLAIN)
    with pytest.raises(SettingsError, match="settings file") as error:
        MettaAgent(load_settings([f"py_agent={file}:Plain", word]).policy, VECTOR)
    assert unset in str(error.value)
    settings = tmp_path / "mine.yaml"
    settings.write_text(f"{word.replace('=', ': ')}\n")
    MettaAgent(load_settings([f"settings={settings}", f"py_agent={file}:Plain", unset]).policy, VECTOR)


def test_an_error_in_a_users_constructor_gives_file_and_line(tmp_path):
    file = tmp_path / "plain.py"
    file.write_text(PLAIN)
    with pytest.raises(SettingsError, match=r"plain\.py:12"):
        MettaAgent(load_settings([f"py_agent={file}:BadCore"]).policy, VECTOR)


def test_a_settings_file_cannot_name_code(mine, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(f"env: gym:CartPole-v1\npy_agent: {mine}:Mine\n")
    with pytest.raises(
        SettingsError, match=r"a settings file cannot name Python code\. .* on the command line: py_agent="
    ):
        load_settings([f"settings={file}"])
    assert load_settings([f"settings={file}", f"py_agent={mine}:Mine"]).policy.agent_name == "mine-Mine"
