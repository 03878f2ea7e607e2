"""Each kind of mistake in a graph file gives one message that names the component, the value and the fix."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
# torch types every attribute of a module as `Tensor | Module`.

import copy

import pytest
import torch

from holdfast.config import load_settings
from holdfast.errors import SettingsError
from holdfast.export.files import export
from holdfast.policies import ComponentPolicy, make_policy
from holdfast.policies.components.cores import component_types
from holdfast.policies.registry import read_graph
from holdfast.policies.settings import GRAPHS
from support.policies import REALS, TOKENS, VECTOR, two_memories
from support.scripted import ScriptedEnv


def change(**changes):
    """The graph of agent=fast with components replaced, changed in part, or (None) removed."""
    graph = copy.deepcopy(read_graph("fast"))
    for name, body in changes.items():
        if body is None:
            del graph["components"][name]
        else:
            graph["components"][name] = {**graph["components"].get(name, {}), **body}
    return graph


LINEAR = {"type": "Linear", "sources": ["fc1"], "nn_params": {"out_features": 4}}
MISTAKES = {
    "missing source": (change(fc1={"sources": ["flt"]}), ["fc1 reads 'flt'", "not exist", "Did you mean flat?"]),
    "cycle": (change(fc1={"sources": ["encoded_obs"]}), ["encoded_obs -> fc1 -> encoded_obs", "cycle"]),
    "cycle of one": (change(fc1={"sources": ["fc1"]}), ["fc1 -> fc1", "cycle"]),
    "unreachable": (change(extra=LINEAR), ["uses extra", "Remove it"]),
    "unreachable with a mistake": (change(extra={**LINEAR, "sources": ["nobody"]}), ["extra reads 'nobody'"]),
    "unknown type": (change(fc1={"type": "Linaer"}), ["fc1", "unknown type 'Linaer'", "Did you mean Linear?"]),
    "an import path": (change(fc1={"type": "torch.nn.Linear"}), ["fc1", "unknown type 'torch.nn.Linear'"]),
    "no type": (change(more={"sources": ["fc1"]}), ["more", "type is missing"]),
    "missing required": (change(_value_=None), ["_value_ is missing", "_obs_, _core_, _action_, _value_"]),
    "wrong width of the value": (
        change(_value_={"nn_params": {"out_features": 2}}),
        ["_value_ outputs vector [2]", "one number"],
    ),
    "wrong number of scores": (
        change(
            _action_={"type": "Linear", "sources": ["actor_1"], "nn_params": {"out_features": 4}}, _action_embeds_=None
        ),
        ["_action_ outputs vector [4]", "5 in tokens"],
    ),
    "unequal widths": (
        change(sum={"type": "Add", "sources": ["fc1", "flat"]}, encoded_obs={"sources": ["sum"]}),
        ["sum (Add)", "widths", "128, 64"],
    ),
    "wrong kind": (
        change(fc1={"sources": ["cnn2"]}, flat=None),
        ["fc1 (Linear)", "reads vector or vectors", "cnn2 outputs grid [64, 1, 1]"],
    ),
    "too many sources": (change(fc1={"sources": ["flat", "flat"]}), ["fc1", "Linear takes 1 source, not 2"]),
    "too few sources": (change(fc1={"sources": []}), ["fc1", "Linear takes 1 source, not 0"]),
    "sources where none are allowed": (
        change(_action_embeds_={"sources": ["fc1"]}),
        ["_action_embeds_", "takes 0 sources, not 1"],
    ),
    "kernel too large": (
        change(cnn2={"nn_params": {"out_channels": 8, "kernel_size": 4}}),
        ["cnn2 (Conv2d)", "kernel 4 does not fit", "3 x 3"],
    ),
    "skipped cells": (
        change(cnn1={"nn_params": {"out_channels": 8, "kernel_size": 2, "stride": 3}}),
        ["cnn1 (Conv2d)", "kernel 2, stride 3 would skip cells"],
    ),
    "missing parameter": (change(fc1={"nn_params": {}}), ["fc1: nn_params", "out_features is missing"]),
    "unknown parameter": (change(fc1={"nn_params": {"out_feature": 3}}), ["out_features is missing"]),
    "another unknown parameter": (
        change(flat={"nn_params": {"size": 3}}),
        ["flat", "unknown key 'size'", "Allowed: none"],
    ),
    "parameter of a wrong type": (
        change(fc1={"nn_params": {"out_features": "wide"}}),
        ["out_features='wide'", "integer"],
    ),
    "parameter out of range": (
        change(fc1={"nn_params": {"out_features": 0}}),
        ["out_features=0", "greater than or equal to 1"],
    ),
    "unknown key": (change(fc1={"source": ["flat"]}), ["fc1", "unknown key 'source'", "Did you mean sources?"]),
    "unknown nonlinearity": (
        change(fc1={"nonlinearity": "rellu"}),
        ["fc1: nonlinearity='rellu'", "'relu', 'tanh' or 'silu'"],
    ),
    "nonlinearity without effect": (change(flat={"nonlinearity": "relu"}), ["nonlinearity has no effect on Flatten"]),
    "a scale below zero": (change(fc1={"clip_scale": -1}), ["fc1: clip_scale=-1"]),
    "core without memory": (
        change(_core_={"type": "Linear", "nn_params": {"out_features": 9}}),
        ["_core_ is a Linear", "GRU, LSTM"],
    ),
    "heads that do not divide": (
        {
            "components": {
                **read_graph("latent_attn_tiny")["components"],
                "encoded_obs": {
                    "type": "ObsLatentAttn",
                    "sources": ["embed"],
                    "nn_params": {"query_dim": 30, "num_heads": 4, "out_features": 8, "num_queries": 1},
                },
            }
        },
        ["encoded_obs (ObsLatentAttn)", "num_heads=4 does not divide", "30"],
    ),
    "no components": ({"layers": {}}, ["one top-level key, `components`"]),
    "not a mapping": ([1, 2], ["one top-level key, `components`"]),
    "an attribute of every module": (
        {"components": {"training": {"type": "Linear"}}},
        ["'training'", "reserved by torch"],
    ),
    "a scale without weights": (change(flat={"clip_scale": 2}), ["flat (Flatten): clip_scale has no effect"]),
    "an infinite scale": (change(fc1={"l2_init_scale": float("inf")}), ["fc1: l2_init_scale=inf"]),
    "true is not a width": (change(fc1={"nn_params": {"out_features": True}}), ["out_features=True"]),
    "a method of torch's ModuleDict": (
        {"components": {"values": {"type": "Linear"}}},
        ["'values'", "reserved by torch"],
    ),
    "names that differ in underscores": (
        change(fc1_={"type": "Linear", "sources": ["fc1"], "nn_params": {"out_features": 4}}),
        ["fc1 and fc1_", "underscores"],
    ),
    "an invalid name": ({"components": {"a b": {"type": "Linear"}}}, ["'a b' is not a valid component name"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gives_one_message_with_the_facts(mistake):
    graph, parts = MISTAKES[mistake]
    with pytest.raises(SettingsError) as caught:
        ComponentPolicy(TOKENS, graph, "agent=mine.yaml")
    message = str(caught.value)
    assert message.startswith("agent=mine.yaml: ")
    assert len(message.split("\n")) <= 3
    for part in parts:
        assert part in message, message


def test_a_deep_graph_is_built_in_linear_time():
    """Sums of sums: visiting every path through the graph would take exponential time."""
    parts = read_graph("fast")["components"]
    last = "fc1"
    for i in range(40):
        parts[f"sum{i}"] = {"type": "Add", "sources": [last, last]}
        last = f"sum{i}"
    parts["encoded_obs"]["sources"] = [last]
    assert ComponentPolicy(TOKENS, {"components": parts}).part_of("components.fc1.layer.weight") == "encoder"


def test_a_component_is_not_suggested_as_its_own_source():
    with pytest.raises(SettingsError) as caught:
        ComponentPolicy(TOKENS, change(cnn2={"sources": ["cnn"]}))
    assert "Did you mean cnn1?" in str(caught.value)


@pytest.mark.parametrize("name", ["fc1", "cnn1", "cnn2", "own"])
def test_initialization_has_an_effect(name):
    sizes = set()
    for initialization in (None, "xavier", "small"):
        graph = two_memories()
        graph["components"][name]["initialization"] = initialization
        torch.manual_seed(0)
        weight = ComponentPolicy(TOKENS, graph).components[name].layer.weight
        sizes.add(round(float(weight.norm()), 4))
    assert len(sizes) == 3


def test_the_graph_without_mistakes_is_built():
    assert ComponentPolicy(TOKENS, change(), "mine").has_memory()


@pytest.mark.parametrize(("spec", "part"), [(VECTOR, "grid-world tokens"), (REALS, "grid-world tokens")])
def test_an_agent_for_another_kind_of_world(spec, part):
    with pytest.raises(SettingsError, match=part):
        ComponentPolicy(spec, change(), "agent=fast")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("components: {a: [}", "mine.yaml: "),
        ("components: !!python/object:os.system {}", "tags"),
        ("a: &x 1\nb: *x\n", "aliases"),
        ("\xff", "components"),
    ],
)
def test_a_file_that_is_not_an_agent_is_refused(text, part, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=part):
        make_policy(load_settings([f"agent={file}"]).policy, TOKENS)


def test_a_missing_file_is_refused():
    with pytest.raises(SettingsError, match=r"agent=nowhere/mine.yaml: cannot read the file: No such file"):
        make_policy(load_settings(["agent=nowhere/mine.yaml"]).policy, TOKENS)


def test_a_users_file_is_built(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text((GRAPHS / "fast.yaml").read_text())
    policy = make_policy(load_settings([f"agent={file}", "policy.hidden=8", "policy.core=gru"]).policy, TOKENS)
    assert policy.state_shapes == ((2, 8),)


EVERY_COMPONENT = {
    "components": {
        "_obs_": {"type": "ObsTokenToBoxShaper"},
        "norm": {"type": "ObservationNormalizer", "sources": ["_obs_"]},
        "conv": {
            "type": "Conv2d",
            "sources": ["norm"],
            "nn_params": {"out_channels": 4, "kernel_size": 5, "stride": 3},
            "initialization": "xavier",
        },
        "silu": {"type": "SiLU", "sources": ["conv"]},
        "flat": {"type": "Flatten", "sources": ["silu"]},
        "normed": {"type": "LayerNorm", "sources": ["flat"]},
        "linear": {"type": "Linear", "sources": ["normed"], "nn_params": {"out_features": 8}, "nonlinearity": "silu"},
        "relu": {"type": "ReLU", "sources": ["linear"]},
        "same": {"type": "Identity", "sources": ["relu"]},
        "residual": {"type": "ResidualMLP", "sources": ["same"], "nn_params": {"num_layers": 2, "hidden_features": 6}},
        "less": {"type": "Dropout", "sources": ["residual"], "nn_params": {"p": 0.5}},
        "own": {"type": "ObsOwnLinear", "sources": ["norm"], "nn_params": {"out_features": 8}},
        "tokens": {"type": "ObsTokenPadStrip"},
        "normalised": {"type": "ObsAttrValNorm", "sources": ["tokens"]},
        "fourier": {"type": "ObsAttrEmbedFourier", "sources": ["normalised"]},
        "places": {"type": "ObsAttrCoordEmbed", "sources": ["normalised"], "nn_params": {"attr_embed_dim": 7}},
        "latent": {
            "type": "ObsLatentAttn",
            "sources": ["fourier"],
            "nn_params": {"num_queries": 3, "query_dim": 8, "num_layers": 1, "num_heads": 2, "out_features": 8},
        },
        "summed": {
            "type": "ObsSelfAttn",
            "sources": ["latent"],
            "nn_params": {"num_layers": 1, "num_heads": 2, "out_features": 8},
        },
        "looked": {
            "type": "ObsSelfAttn",
            "sources": ["places"],
            "nn_params": {"num_layers": 1, "num_heads": 2, "out_features": 8},
        },
        "added": {"type": "Add", "sources": ["less", "own", "summed", "looked"]},
        "mean": {"type": "Mean", "sources": ["less", "own"]},
        "both": {"type": "Concat", "sources": ["added", "mean"]},
        "_core_": {"type": "LSTM", "sources": ["both"], "nn_params": {"hidden_size": 6, "num_layers": 1}},
        "second": {"type": "GRU", "sources": ["_core_"], "nn_params": {"hidden_size": 5, "num_layers": 1}},
        "third": {"type": "MinGRU", "sources": ["second"], "nn_params": {"hidden_size": 4, "num_layers": 1}},
        "none": {"type": "Memoryless", "sources": ["third"], "nn_params": {"hidden_size": 6, "num_layers": 1}},
        "tanh": {"type": "Tanh", "sources": ["none"]},
        "_value_": {"type": "Linear", "sources": ["tanh"], "nn_params": {"out_features": 1}, "initialization": "small"},
        "_action_embeds_": {"type": "ActionEmbedding"},
        "scores": {"type": "MettaActorSingleHead", "sources": ["tanh", "_action_embeds_"]},
        "head": {"type": "ActionHead", "sources": ["tanh"]},
        "_action_": {"type": "Add", "sources": ["scores", "head"]},
    }
}


def test_one_agent_with_every_component():
    used = {body["type"] for body in EVERY_COMPONENT["components"].values()}
    assert used == set(component_types()) - {"ObsVector"}
    torch.manual_seed(0)
    policy = ComponentPolicy(TOKENS, EVERY_COMPONENT)
    assert policy.state_shapes == ((1, 6), (1, 6), (1, 5), (1, 4))
    parts = {name: policy.part_of(f"components.{name}.layer.weight") for name in policy.order}
    assert parts["own"] == parts["fourier"] == "encoder"
    assert parts["_core_"] == parts["second"] == parts["none"] == "recurrence"
    assert parts["_value_"] == parts["_action_embeds_"] == "heads"


def test_every_component_can_be_exported(tmp_path):
    torch.manual_seed(0)
    policy = ComponentPolicy(TOKENS, EVERY_COMPONENT)
    env = ScriptedEnv(spec=TOKENS)
    for exported in export(policy, env, tmp_path / "a.onnx", tmp_path / "a.pt2", steps=20, slots=8):
        assert exported.proof.holds
        names = [port.name for port in exported.interface.state_outputs]
        assert names == ["h_out", "c_out", "state_2_out", "state_3_out"]


def test_dropout_is_the_same_for_a_batch_and_gone_in_evaluation():
    torch.manual_seed(0)
    policy = ComponentPolicy(TOKENS, EVERY_COMPONENT)
    dropout = policy.components["less"]
    x = torch.ones(3, 8)
    once, again = dropout(x), dropout(x)
    assert torch.equal(once, again)
    assert set(once.unique().tolist()) == {0.0, 2.0}
    for _ in range(20):
        policy.absorb(torch.zeros(1, 8, 3, dtype=torch.uint8))
        if not torch.equal(dropout(x), once):
            break
    assert not torch.equal(dropout(x), once), "another draw between batches"
    assert torch.equal(dropout.eval()(x), x)


def test_vectors_of_numbers():
    graph = {
        "components": {
            "_obs_": {"type": "ObsVector"},
            "_core_": {"type": "LSTM", "sources": ["_obs_"], "nn_params": {"hidden_size": 6}},
            "_value_": {"type": "Linear", "sources": ["_core_"], "nn_params": {"out_features": 1}},
            "_action_": {"type": "ActionHead", "sources": ["_core_"]},
        }
    }
    policy = ComponentPolicy(VECTOR, graph)
    norm = policy.components["_obs_"].layer
    policy.absorb(torch.full((4, 3), 5.0))
    assert norm.mean.tolist() == [5.0] * 3
    with pytest.raises(SettingsError, match="reads arrays of numbers"):
        ComponentPolicy(TOKENS, graph)
    with pytest.raises(SettingsError, match="real-valued actions"):
        ComponentPolicy(REALS, graph)
