"""Exported steps compute what the policy computes: names, shapes, every kind of inputs, outputs and core, any batch."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import holdfast.export
from holdfast.errors import SettingsError
from holdfast.export.files import export
from holdfast.export.interface import Interface, greedy_actions
from holdfast.export.onnx import OnnxModel
from holdfast.export.program import Program
from holdfast.policies import LSTMWrapper, Policy, Sampling
from holdfast.spec import DiscreteActions, Feature, MultiDiscreteActions, TokenObs, WorldSpec, keys
from support.policies import FEATURES, MASKED, MOVES, TOKENS, VECTOR, make, random_arrivals
from support.scripted import ScriptedEnv

FEW: dict[str, Any] = {"steps": 30, "slots": 8}
POLICIES = [
    # policy, core, memory scope, inputs besides obs and state, outputs before the state
    ("fast", "lstm", "episode", ["first"], ["logits", "value"]),
    ("agent=latent_attn_tiny", "gru", "episode", ["first"], ["logits", "value"]),
    ("example", "none", "episode", ["first"], ["logits", "value"]),
    ("box-nested", "lstm", "episode", ["first", "action_mask"], ["logits", "mean", "log_std", "value"]),
    ("box-reals+sees", "mingru", "lifetime", ["first", "last_action", "last_reward"], ["mean", "log_std", "value"]),
]
STATES = {
    ("fast", "lstm"): ["h", "c"],
    ("example", "none"): [],
    ("box-nested", "lstm"): ["h", "c"],
}


@pytest.mark.parametrize(
    ("name", "core", "scope", "more", "scores"), POLICIES, ids=lambda x: x if x in POLICIES else None
)
def test_both_kinds_compute_what_the_policy_computes(name, core, scope, more, scores, tmp_path):
    policy = make(name, core, memory_scope=scope)
    weights = {key: tensor.clone() for key, tensor in policy.state_dict().items()}
    files = export(policy, ScriptedEnv(spec=policy.spec), tmp_path / "a.onnx", tmp_path / "a.pt2", **FEW)
    state = STATES.get((name, core), ["h"])
    inputs = ["obs", *(f"{leaf}_in" for leaf in state), *more]
    outputs = [*scores, *(f"{leaf}_out" for leaf in state)]
    for exported in files:
        proof = exported.proof
        assert proof.actions_equal
        assert proof.largest_difference <= 1e-5
        assert (proof.steps, proof.slots, proof.batches) == (30, 8, (8, 7, 1))
        assert proof.episodes > proof.slots  # every slot begins one; more began later
        assert [port.name for port in exported.interface.inputs] == inputs
        assert [port.name for port in exported.interface.outputs] == outputs
        assert exported.bytes == exported.path.stat().st_size
    onnx, program = OnnxModel((tmp_path / "a.onnx").read_bytes()), Program((tmp_path / "a.pt2").read_bytes())
    assert onnx.metadata == program.metadata
    assert Interface.from_metadata(onnx.metadata) == files[0].interface
    assert [i.name for i in onnx.session.get_inputs()] == inputs
    assert [o.name for o in onnx.session.get_outputs()] == outputs
    assert all("batch" in i.shape for i in (*onnx.session.get_inputs(), *onnx.session.get_outputs()))
    # the policy is as before
    assert all(torch.equal(weights[key], tensor) for key, tensor in policy.state_dict().items())
    assert all(parameter.requires_grad for parameter in policy.parameters())
    assert policy.training


def test_one_step_by_hand(tmp_path):
    """A program is called with tensors by name; a state of an ended episode is not used, whatever it is."""
    policy = make("box-masked")
    [exported] = export(policy, ScriptedEnv(spec=MASKED), torch_file=tmp_path / "a.pt2", **FEW)
    module = torch.export.load(exported.path).module()
    inputs = random_arrivals(MASKED, 1, 5, seed=3)
    first = inputs[keys.DONES] | inputs[keys.TRUNCATEDS]
    h, c = (torch.randn(2, 5, 12) for _ in range(2))
    acted = policy.eval().act(inputs, (h, c))
    h[:, first[0]], c[:, first[0]] = torch.nan, torch.inf
    outputs = module(obs=inputs[keys.OBS][0], h_in=h, c_in=c, first=first[0], action_mask=inputs[keys.ACTION_MASK][0])
    assert list(outputs) == ["logits", "value", "h_out", "c_out"]
    torch.testing.assert_close(outputs["logits"], acted.params[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(outputs["value"], acted.values[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(outputs["h_out"], acted.state[0], atol=1e-5, rtol=0)
    assert (outputs["logits"][~inputs[keys.ACTION_MASK][0]] == -1e9).all()


def test_tokens_that_a_window_does_not_have_are_ignored_as_in_the_policy():
    """All tokens invalid, none at all, and a global one: what the exported tokens do is what the policy does."""
    for name in ("fast", "latent_attn_tiny", "example"):
        policy = make(name).eval()
        obs = torch.full((1, 4, *TOKENS.obs.shape), 0xFF, dtype=torch.uint8)
        obs[0, 1, 0] = torch.tensor([0xFE, 5, 7])
        obs[0, 2, :] = torch.tensor([0xE0, 5, 7])  # row 14: outside the window
        obs[0, 3, 0], obs[0, 3, 4] = torch.tensor([0x00, 200, 1]), torch.tensor([0x22, 4, 1])
        inputs = {keys.OBS: obs, keys.DONES: torch.ones(1, 4, dtype=torch.bool), keys.TRUNCATEDS: torch.zeros(1, 4)}
        vars(policy.obs)["_warned"] = True
        with policy.set_aside(Sampling(greedy=True)), torch.no_grad():
            expected = policy.act(inputs, policy.initial_state(4))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch.compiler, "is_exporting", lambda: True)
                found = policy.act(inputs, policy.initial_state(4))
        torch.testing.assert_close(found.params, expected.params, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.values, expected.values, atol=1e-5, rtol=0)


def test_unlearned_actions_and_features_stay_ignored(tmp_path):
    """In a world with an action that the policy was not trained on, its score says never."""
    policy = make("fast")
    features, actions = (*FEATURES, Feature(6, "inv:gold", 100.0)), DiscreteActions((*MOVES.names, "fly"))
    spec = WorldSpec("more", TokenObs(8, (5, 5), features), actions, 1)
    assert policy.initialize_to_world(spec, learn=False) == ["inv:gold", "action fly"]
    [exported] = export(policy, ScriptedEnv(spec=spec), torch_file=tmp_path / "a.pt2", **FEW)
    program = Program(exported.path.read_bytes())
    assert json.loads(program.metadata["action_names"])[-1] == "fly"
    inputs = {"obs": np.zeros((2, 8, 3), np.uint8), "first": np.ones(2, bool)}
    state = {port.name: np.zeros(port.full_shape(2), port.dtype) for port in exported.interface.state_inputs}
    assert (program.run(inputs | state)["logits"][:, -1] == -1e9).all()


@pytest.mark.parametrize(
    ("actions", "outputs", "expected"),
    [
        ({"kind": "DiscreteActions", "names": ["a", "b"]}, {"logits": [[0.0, 1.0]]}, [1]),
        ({"kind": "MultiDiscreteActions", "sizes": [2, 3], "arguments": []}, {"logits": [[1, 0, 0, 0, 2]]}, [[0, 2]]),
        ({"kind": "MultiDiscreteActions", "sizes": [2, 3], "arguments": [1, 3]}, {"logits": [[0, 0, 0, 5]]}, [[1, 2]]),
        ({"kind": "BoxActions"}, {"mean": [[0.5, -2.0]], "log_std": [[9.0, 9.0]]}, [[0.5, -2.0]]),
        (
            {"kind": "MixedActions", "sizes": [2, 2]},
            {"logits": [[0, 1, 3, 2]], "mean": [[0.5]], "log_std": [[9.0]]},
            [[1, 0, 0.5]],
        ),
    ],
)
def test_actions_by_hand(actions, outputs, expected):
    arrays = {name: np.array(values, np.float32) for name, values in outputs.items()}
    assert greedy_actions(actions, arrays).tolist() == expected


def test_pairs_of_type_and_argument_are_the_policys():
    from holdfast.policies.actions import TypeAndArgument

    params = torch.randn(50, 6)
    policy, _ = TypeAndArgument((1, 3, 2)).draw(params, Sampling(greedy=True))
    spec = WorldSpec("pairs", VECTOR.obs, MultiDiscreteActions((3, 3), (1, 3, 2)), 1).to_json()["actions"]
    assert greedy_actions(json.loads(json.dumps(spec)), {"logits": params.numpy()}).tolist() == policy.tolist()


# ------------------------------------------------------------------------------------------ what cannot be exported


class Odd(LSTMWrapper):
    """A policy with one line that `how` selects."""

    def __init__(self, spec, how):
        super().__init__(spec, 8, 8, 1)
        self.how, self.calls = how, 0
        self.encoder, self.actor, self.critic = nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def encode_observations(self, observations):
        x = self.encoder(observations)
        match self.how:
            case "array":
                x = torch.from_numpy(x.detach().numpy() * 2)
            case "length":
                x = x.reshape(len(x), 8)
            case "condition":
                x = x * 2 if x.sum() > 0 else x
            case "rare operator":
                x = torch.special.bessel_j0(x)
            case "rows":  # rows depend on each other
                x = x - x.mean(0)
            case "calls":
                self.calls += 1
                x = x + self.calls % 2
        return torch.tanh(x)

    def decode_actions(self, hidden):
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("array", r"cannot be exported: RuntimeError at .*test_exported_step\.py:\d+: \.numpy\(\)"),
        ("length", r"fixes the number of rows.*\n.*x\.shape\[0\] instead of len\(x\)"),
        ("condition", r"at .*test_exported_step\.py:\d+"),
        ("rows", r"differs from the policy by .* at \w+, step \d+, slot \d+, batch of [17]"),
        ("calls", r"differs from the policy by"),
    ],
)
def test_a_policy_that_cannot_be_exported_writes_nothing(how, said, tmp_path, capfd):
    torch.manual_seed(0)
    path = tmp_path / "a.pt2"
    with pytest.raises(SettingsError, match=said) as caught:
        export(Odd(VECTOR, how), ScriptedEnv(spec=VECTOR), torch_file=path, **FEW)
    assert len(str(caught.value).splitlines()) <= 2
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_an_operator_that_onnx_does_not_have(tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(b"an older file")
    with pytest.raises(SettingsError, match=r"ONNX has no form of torch\.ops\.prims\.bessel_j0"):
        export(Odd(VECTOR, "rare operator"), ScriptedEnv(spec=VECTOR), path, tmp_path / "a.pt2", **FEW)
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]
    assert path.read_bytes() == b"an older file"


def test_a_custom_forward(tmp_path):
    policy = make("new-lstm-policy")
    assert type(policy).forward is not Policy.forward
    with pytest.raises(SettingsError, match="NewLSTMPolicy has a `forward` of its own"):
        export(policy, ScriptedEnv(spec=VECTOR), torch_file=tmp_path / "a.pt2")


def test_export_from_python_needs_the_policys_world(tmp_path):
    with pytest.raises(SettingsError, match="initialize_to_world"):
        holdfast.export.export_torch(make("box"), tmp_path / "a.pt2", ScriptedEnv(spec=TOKENS))
    assert list(tmp_path.iterdir()) == []


def test_paths_are_checked_first(tmp_path):
    policy, env = make("box"), ScriptedEnv(spec=VECTOR)
    for paths in (
        (None, None),
        (tmp_path / "a", tmp_path / "a"),
        (tmp_path / "a", tmp_path / "a.proof.npz"),
        (tmp_path / "none" / "a.onnx", None),
        (tmp_path, None),
    ):
        with pytest.raises(SettingsError):
            export(policy, env, *paths)
