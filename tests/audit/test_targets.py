"""What a user names is found, or the message says what is wrong with it and what to give instead."""

import re

import pytest

from holdfast.audit import assert_sound
from holdfast.audit.target import find_subject
from holdfast.errors import SettingsError

CARTPOLE = "env=gym:CartPole-v1"
FILE = """
from torch import nn
from holdfast.audit.adapters import BareRecurrent
from holdfast.config import load_settings
from holdfast.policies import LSTMWrapper, Policy

def gives_module():
    return nn.LSTM(3, 4)

def gives_none():
    return None

def gives_adapter():
    return BareRecurrent(nn.LSTMCell(3, 4))

def gives_policy():
    return NoMethods(load_settings(["env=gym:CartPole-v1"]).env.describe())

class Agent(nn.Module):
    def get_states(self, x, lstm_state, done): ...
    def get_value(self, x, lstm_state, done): ...
    def get_action_and_value(self, x, lstm_state, done, action=None): ...

def gives_agent():
    return Agent()

module = nn.LSTM(3, 4)
nothing = None
gives = [1]

class NoMethods(Policy):
    pass

class NoUnroll(Policy):
    state_shapes = ()

    def __init__(self, spec):
        super().__init__(spec)
        self.critic = nn.Linear(4, 1)

class NoWeights(Policy):
    state_shapes = ((1, 4),)

class NoEncoder(LSTMWrapper):
    def __init__(self, spec):
        super().__init__(spec, input_size=4, hidden_size=4, num_layers=1)

class NoDecoder(NoEncoder):
    def encode_observations(self, observations):
        return observations

class OneTensor(NoDecoder):
    def decode_actions(self, hidden):
        return hidden[:, :2]

class ThreeTensors(NoDecoder):
    def decode_actions(self, hidden):
        return hidden[:, :2], hidden[:, 2], hidden
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def refused(target, *words):
    """What is said of it, in at most two lines."""
    with pytest.raises(SettingsError) as caught:
        assert_sound(str(target), *words, checks=["slots_are_independent"])
    assert len(str(caught.value).splitlines()) <= 2
    return str(caught.value)


def test_another_name_is_suggested_only_where_there_is_nothing_of_that_name(file):
    assert "no such name in the file. Did you mean gives_none?" in refused(f"{file}:give_none")
    for name, kind in (("gives_none", "None"), ("nothing", "None"), ("gives", "list")):
        said = refused(f"{file}:{name}")
        assert f"{name}: cannot audit {kind}. Give a Policy, a Subject, or " in said
        assert "Did you mean" not in said


def test_a_function_that_returns_a_bare_module_is_told_of_the_adapters_as_the_module_is(file):
    hint = "is an nn.Module, which needs an adapter. Write a function that returns it inside a BareRecurrent\nor StepFunction"
    assert f"module: {hint}" in refused(f"{file}:module")
    assert f"gives_module: returns LSTM, which {hint}" in refused(f"{file}:gives_module")


@pytest.mark.parametrize("name", ["Agent", "gives_agent"])
def test_an_agent_in_cleanrls_style_is_told_of_its_adapter(name, file):
    said = refused(f"{file}:{name}")
    assert "CleanRLAgent(Agent(...), obs_shape=...)" in said
    assert "BareRecurrent" not in said


def test_a_policy_without_its_world_is_to_be_named_by_its_class(file):
    said = refused(f"{file}:gives_policy")
    assert (
        "is a policy, which is audited in a world. Give its class and a world instead: FILE.py:NoMethods env=NAME."
        in said
    )


def test_an_adapter_s_refusal_is_in_its_own_words(file):
    assert re.search(
        r"gives_adapter: cannot be created at \S*mine.py:\d+: BareRecurrent needs", refused(f"{file}:gives_adapter")
    )


@pytest.mark.parametrize("ending", ["", ":"])
def test_a_file_without_a_name_in_it(ending, file):
    assert f"{file}:NAME" in refused(f"{file}{ending}")


@pytest.mark.parametrize("ending", ["", ":", ":P"])
def test_a_folder_that_is_named_like_a_file(ending, tmp_path):
    folder = tmp_path / "folder.py"
    folder.mkdir()
    assert refused(f"{folder}{ending}") == f"{folder}: is a folder, not a Python file. Name a file in it."


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("NoMethods", "state_shapes"),
        ("NoUnroll", "unroll"),
        ("NoEncoder", "encode_observations"),
        ("NoDecoder", "decode_actions"),
    ],
)
def test_a_policy_is_told_which_method_it_lacks(name, missing, file):
    said = refused(f"{file}:{name}", CARTPOLE)
    assert f"{name} does not define {missing}." in said
    assert all(method in said for method in ("state_shapes", "unroll", "encode_observations", "decode_actions"))


def test_a_policy_without_weights(file):
    assert "NoWeights has no parameters" in refused(f"{file}:NoWeights", CARTPOLE)


@pytest.mark.parametrize(("name", "given"), [("OneTensor", "a Tensor"), ("ThreeTensors", "3 values")])
def test_what_decode_actions_has_to_return(name, given, file):
    said = refused(f"{file}:{name}", CARTPOLE)
    assert f"{name}.decode_actions must return (scores, values)" in said
    assert f"returned {given}." in said


def test_what_is_neither_words_nor_in_a_python_file_may_be_a_run():
    assert find_subject("first", [], seed=0) is None
    assert find_subject("runs/first:2", [], seed=0) is None
