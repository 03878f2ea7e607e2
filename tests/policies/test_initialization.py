"""policy.init=seeds: the initial weights of the first version of these agents, in numbers."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
# torch types every attribute of a module as `Tensor | Module`.

import math
import re

import pytest
import torch

from holdfast.config import load_settings
from holdfast.errors import SettingsError
from holdfast.policies import GRID_AGENTS, ComponentPolicy, make_policy, shared_name
from holdfast.policies.initialization import initialize_like_seeds
from holdfast.policies.registry import read_graph
from support.policies import MASKED, TOKENS

FAMILIES = ("py_agent", "agent")
SQRT_2 = math.sqrt(2.0)
W_BOUND = 1.0 / math.sqrt(512)
# Parameters the first version's numbers say nothing about; both settings leave them alike.
UNSPECIFIED = re.compile(r"\.(queries|cls_token|attribute\.weight|norm\w*\.(weight|bias))$")


def initial_weights(*words, seed=0, spec=TOKENS):
    torch.manual_seed(seed)
    policy = make_policy(load_settings(list(words)).policy, spec)
    return {shared_name(name): p.detach() for name, p in policy.named_parameters()}


def assert_orthogonal(weight, gain=1.0):
    """W W^T = gain^2 I over the whole matrix (W^T W where it has more rows than columns)."""
    matrix = weight.flatten(1).double()
    matrix = matrix if len(matrix) <= matrix.shape[1] else matrix.T
    expected = gain**2 * torch.eye(len(matrix), dtype=torch.float64)
    torch.testing.assert_close(matrix @ matrix.T, expected, rtol=0, atol=1e-5)


def assert_like_seeds(name, parameter):
    """One parameter, by the name both families have for it."""
    if name.startswith("core.weight"):
        assert_orthogonal(parameter)
    elif name.startswith("core.bias"):
        assert (parameter == 1.0).all()
    elif name == "action_embeds.weight":
        assert parameter.shape == (100, 16)
        assert parameter.abs().max().item() == pytest.approx(0.1)
        assert_orthogonal(parameter / parameter[:, 0].norm())
    elif name == "action.W":
        assert len(parameter) == 512
        assert parameter.abs().max() <= W_BOUND
        assert parameter.max() > 0.99 * W_BOUND
        assert parameter.min() < -0.99 * W_BOUND
        assert parameter.std().item() == pytest.approx(W_BOUND / math.sqrt(3.0), rel=0.02)
    elif name == "action.bias" and len(parameter) == 1:  # of the bilinear head
        assert parameter.abs() <= W_BOUND
    elif name.endswith("key_value.weight"):  # two Linear layers in one matrix
        for half in parameter.chunk(2):
            assert_orthogonal(half)
    elif name.endswith("weight"):
        assert_orthogonal(parameter, SQRT_2 if name == "critic_1.weight" else 1.0)
    else:
        assert name.endswith("bias")
        assert not parameter.any()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", GRID_AGENTS)
def test_every_shipped_agent_has_the_reference_numbers(name, family):
    weights = initial_weights(f"{family}={name}", "policy.init=seeds")
    checked = {key: parameter for key, parameter in weights.items() if not UNSPECIFIED.search(key)}
    for key, parameter in checked.items():
        try:
            assert_like_seeds(key, parameter)
        except AssertionError as error:
            raise AssertionError(f"{family}={name}: {key}: {error}") from error
    assert checked.keys() == weights.keys() or name.startswith("latent_attn")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", GRID_AGENTS)
def test_only_what_differs_is_changed(name, family):
    own, seeds = (initial_weights(f"{family}={name}", f"policy.init={init}") for init in ("own", "seeds"))
    assert own.keys() == seeds.keys()
    changed = {key for key in own if not torch.equal(own[key], seeds[key])}
    core = {key for key in own if key.startswith("core.")}
    assert changed == core | ({"action.weight"} if name == "example" else {"action_embeds.weight"})


def test_own_is_the_default():
    default, own, seeds = (
        initial_weights("py_agent=fast", *words) for words in ([], ["policy.init=own"], ["policy.init=seeds"])
    )
    assert all(torch.equal(default[key], own[key]) for key in own)
    assert any(not torch.equal(default[key], seeds[key]) for key in seeds)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cell", ["gru", "mingru"])
def test_other_cells_have_whole_orthogonal_matrices_and_their_own_biases(cell, family):
    words = (f"{family}=fast", f"policy.core={cell}", "policy.hidden=16")
    own, seeds = initial_weights(*words), initial_weights(*words, "policy.init=seeds")
    for key in (key for key in seeds if key.startswith("core.")):
        if seeds[key].dim() == 2:
            assert_orthogonal(seeds[key])
        else:
            assert torch.equal(seeds[key], own[key])


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_without_memory_are_linear_layers_before_a_tanh(family):
    weights = initial_weights(f"{family}=fast", "policy.core=none", "policy.init=seeds")
    for layer in range(2):
        assert_orthogonal(weights[f"core.layers.{layer}.weight"], SQRT_2)
        assert not weights[f"core.layers.{layer}.bias"].any()


def test_a_graph_with_its_own_wiring():
    """A tanh behind a convolution counts; an initialization that the file names wins; actions without names work."""
    graph = read_graph("example")
    graph["components"]["cnn1"]["nonlinearity"] = "tanh"
    graph["components"]["cnn2"] |= {"nonlinearity": "tanh", "initialization": "small"}
    graph["components"]["own"]["nonlinearity"] = "tanh"
    policy = ComponentPolicy(TOKENS, graph)
    initialize_like_seeds(policy)
    for name, gain in (("cnn1", SQRT_2), ("cnn2", 0.01), ("own", SQRT_2)):
        assert_orthogonal(policy.component(name).layer.weight.detach(), gain)
    numbers = {
        "_obs_": {"type": "ObsVector"},
        "_core_": {"type": "LSTM", "sources": ["_obs_"]},
        "_value_": {"type": "Linear", "sources": ["_core_"], "nn_params": {"out_features": 1}},
        "_action_": {"type": "ActionHead", "sources": ["_core_"]},
    }
    policy = ComponentPolicy(MASKED, {"components": numbers})
    initialize_like_seeds(policy)
    assert_orthogonal(policy.component("_action_").layer.weight.detach())


@pytest.mark.parametrize(
    "words", [["env=gym:CartPole-v1", "py_agent=box"], ["env=gym:CartPole-v1", "py_agent=./mine.py:Mine"]]
)
def test_agents_that_the_first_version_did_not_have_refuse_it(words):
    for init in ("own", "seeds"):
        with pytest.raises(SettingsError, match=r"^policy\.init belongs to .*py_agent=fast"):
            load_settings([*words, f"policy.init={init}"])
