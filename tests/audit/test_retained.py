"""What a policy keeps: whatever grows is seen, writing into what it is given is found out, an audit leaves its memory alone."""

from collections import deque
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from audit.mutants import ReferencePolicy
from holdfast.audit import Subject, Verdict, audit
from holdfast.audit.adapters import StepFunction
from support.findings import only


@pytest.mark.parametrize("kept", [lambda x: x.sum().item(), lambda x: np.zeros(4), lambda x: x])
def test_whatever_grows_is_seen_with_and_without_memory_of_its_own(kept):
    class Hoards(ReferencePolicy):
        def __init__(self, seed=0):
            super().__init__(seed)
            self.history = []

        def step(self, obs, state, first):
            self.history.append(kept(obs))
            return super().step(obs, state, first)

    class HoardsWithoutMemory(Hoards):
        act = Subject.act

    for kind in (Hoards, HoardsWithoutMemory):
        assert only(kind(), "memory_is_bounded").verdict == Verdict.FAIL


HISTORY = []


def keeps_globally(obs, state, first):
    HISTORY.append(1)
    return {"logits": obs + state[0][0] * (first == 0)[:, None]}, (obs.unsqueeze(0),)


class Plain:
    """An object that is no module, and keeps what it saw."""

    def __init__(self):
        self.history = []

    def step(self, obs, state, first):
        self.history.append(1)
        return {"logits": obs + state[0][0] * (first == 0)[:, None]}, (obs.unsqueeze(0),)


def keeping_in_a_closure():
    history = []

    def step(obs, state, first):
        history.append(1)
        return {"logits": obs + state[0][0] * (first == 0)[:, None]}, (obs.unsqueeze(0),)

    return step


@pytest.mark.parametrize(
    "step", [keeps_globally, Plain().step, keeping_in_a_closure(), partial(keeping_in_a_closure())]
)
def test_whatever_a_function_can_get_at_is_seen_to_grow(step):
    subject = StepFunction(step, lambda B: (torch.zeros(1, B, 3),), obs_shape=(3,))
    assert only(subject, "memory_is_bounded").verdict == Verdict.FAIL


def test_a_window_that_is_bounded_does_not_grow():
    class Remembers(ReferencePolicy):
        def __init__(self, seed=0):
            super().__init__(seed)
            self.last = deque(maxlen=100)

        def step(self, obs, state, first):
            self.last.append(1.0)
            return super().step(obs, state, first)

    assert only(Remembers(), "memory_is_bounded").verdict == Verdict.PASS


def test_weights_that_are_computed_in_every_call_are_no_memory():
    class Normed(ReferencePolicy):
        def network(self):
            network = super().network()
            nn.utils.spectral_norm(nn.utils.weight_norm(network.encoder), "weight_v")
            return network

    with pytest.warns(FutureWarning):
        subject = Normed()
    assert only(subject, "memory_is_detached").verdict == Verdict.PASS


def test_a_policy_that_writes_into_what_it_is_given_fails_that_check_and_no_dozen_others():
    class WritesInPlace(ReferencePolicy):
        def step(self, obs, state, first):
            outputs, after = super().step(obs, state, first)
            for leaf, new in zip(state, after, strict=True):
                leaf.copy_(new.detach())
            return outputs, after

    failed = [finding.check.name for finding in audit(WritesInPlace()).failures]
    assert failed[0] == "inputs_are_not_modified"
    assert len(failed) <= 3


def test_a_value_that_writes_into_the_state_is_found_out():
    class Writes(ReferencePolicy):
        def value(self, obs, state, first):
            outputs, after = self.step(obs, state, first)
            for leaf, new in zip(state, after, strict=True):
                leaf.copy_(new)
            return {"value": outputs["value"]}

    failures = [finding.check.name for finding in audit(Writes()).failures]
    assert failures == ["inputs_are_not_modified"]


def test_an_audit_leaves_the_memory_of_a_policy_alone():
    subject = ReferencePolicy()
    memory = torch.ones(2, 3, 6), torch.full((2, 3, 6), 2.0)
    subject.set_memory(memory)
    audit(subject)
    for is_now, was in zip(subject.get_memory(), memory, strict=True):
        assert torch.equal(is_now, was)


def test_a_memory_that_did_not_exist_before_an_audit_is_blank_after_it():
    class StartsWithNone(ReferencePolicy):
        memory = ()

        def get_memory(self):
            return super().get_memory() if self.acted else ()

        def act(self, obs, terminated, truncated, slots):
            self.acted = True
            return super().act(obs, terminated, truncated, slots)

        def set_memory(self, memory):
            self.acted = True
            super().set_memory(memory)

    subject = StartsWithNone()
    subject.acted = False
    audit(subject, checks=["slots_are_independent"])
    assert not any(leaf.any() for leaf in subject.get_memory())
