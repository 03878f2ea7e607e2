"""What is malformed is said in a line, at once or where it turns up: types, names and shapes of states, outputs and observations."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from audit.mutants import ReferencePolicy
from holdfast.audit import UnusableError, Verdict, audit
from holdfast.audit.adapters import StepFunction
from support.findings import only


class MemoryIsADict(ReferencePolicy):
    def get_memory(self):
        return {"h": self.memory[0]}


class StateIsNested(ReferencePolicy):
    def initial_state(self, B):
        h, c = super().initial_state(B)
        return (h,), (c,)


class HandsBackNoState(ReferencePolicy):
    def step(self, obs, state, first):
        return super().step(obs, state, first)[0]


class PutsOutAFloat(ReferencePolicy):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return outputs | {"temperature": 1.0}, state


class SequenceHandsBackATensor(ReferencePolicy):
    def sequence(self, obs, state, first, actions):
        outputs, state = super().sequence(obs, state, first, actions)
        return outputs, state[0]


class ObservesArrays(ReferencePolicy):
    def observations(self, N, generator):
        return np.zeros((N, 5))


class SeesOneThing(ReferencePolicy):
    def observations(self, N, generator):
        return torch.zeros(N, 5)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (MemoryIsADict, "get_memory returned a state of type dict"),
        (SequenceHandsBackATensor, "sequence returned a state of type Tensor"),
        (StateIsNested, "initial_state: entry 0 of the state is a tuple: return a flat tuple of tensors"),
        (HandsBackNoState, r"step returned dict: it has to return \(outputs, state\)"),
        (PutsOutAFloat, "a step returned temperature of type float"),
        (ObservesArrays, "observations returned ndarray"),
        (SeesOneThing, r"observations\(48\) are all equal"),
    ],
)
def test_what_is_malformed_is_said_in_a_line(kind, said):
    with pytest.raises(UnusableError, match=said):
        audit(kind())


def test_learning_that_names_its_outputs_otherwise_is_not_called_sound():
    class Misspelt(ReferencePolicy):
        def sequence(self, obs, state, first, actions):
            outputs, final = super().sequence(obs, state, first, actions)
            return {f"{name}s": y for name, y in outputs.items()}, final

    class HalfMisspelt(Misspelt):
        def sequence(self, obs, state, first, actions):
            outputs, final = super().sequence(obs, state, first, actions)
            return outputs | {"value": outputs["values"]}, final

    with pytest.raises(UnusableError, match="use the same names in both"):
        audit(Misspelt())
    remarks = audit(HalfMisspelt(), checks=["values_replay"]).remarks
    assert "Not compared with acting (sequence does not return it): log_prob, entropy, full_log_probs." in remarks


def test_a_state_is_read_by_the_names_of_a_dict_whatever_their_order():
    cell = nn.LSTMCell(3, 4)

    def step(obs, state, first):
        kept = (first == 0).float()[:, None]
        h, c = cell(obs, (state["h"][0] * kept, state["c"][0] * kept))
        return {"logits": h}, {"c": c[None], "h": h[None]}

    def other_names(obs, state, first):
        outputs, state = step(obs, state, first)
        return outputs, {"h": state["h"], "cell": state["c"]}

    def subject(code):
        return StepFunction(
            code, lambda B: {"h": torch.zeros(1, B, 4), "c": torch.zeros(1, B, 4)}, obs_shape=(3,), module=cell
        )

    assert audit(subject(step)).sound
    with pytest.raises(UnusableError, match="different names in different calls: h, c and h, cell"):
        audit(subject(other_names))


class OtherNamesLater(ReferencePolicy):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return (outputs | {"extra": outputs["value"]} if first.any() else outputs), state


def test_outputs_that_come_and_go_are_a_finding():
    finding = only(OtherNamesLater(), "slots_are_independent")
    assert finding.verdict == Verdict.FAIL
    assert "the same names at every step" in finding.evidence


class OtherShapesLater(ReferencePolicy):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return (outputs | {"value": outputs["value"].unsqueeze(-1)} if first.any() else outputs), state


class EntropyOfAnotherShape(ReferencePolicy):
    def scores(self, log_probs, value, actions):
        scores = super().scores(log_probs, value, actions)
        return scores | {"entropy": scores["entropy"].unsqueeze(-1)}


class ScoresATensor(ReferencePolicy):
    def score(self, obs, terminated, truncated, state, actions):
        return super().score(obs, terminated, truncated, state, actions)["value"]


class RebuildsWithoutAModule(ReferencePolicy):
    def rebuild(self):
        other = super().rebuild()
        other.module = None  # pyright: ignore[reportAttributeAccessIssue]
        return other


@pytest.mark.parametrize(
    ("kind", "check", "said"),
    [
        (
            OtherShapesLater,
            "slots_are_independent",
            r"output value has shape \[4, 1\] at one step and \[4\] at another",
        ),
        (EntropyOfAnotherShape, "entropy_matches_policy", r"output entropy has shape .* in another"),
        (ScoresATensor, "score_equals_sequence", "score returned outputs of type Tensor"),
        (RebuildsWithoutAModule, "weights_load_with_other_slots", "rebuild returned a subject without a module"),
    ],
)
def test_what_turns_out_malformed_later_is_a_finding(kind, check, said):
    finding = only(kind(), check)
    assert finding.verdict == Verdict.FAIL
    assert re.search(said, finding.evidence)
