"""Learning beside acting: what begins late, rounding, complex numbers, entropy and gradients."""

import pytest
import torch
from torch import nn

from audit.mutants import ReferencePolicy
from holdfast.audit import Subject, Verdict, audit
from support.findings import only


def test_entropy_is_compared_with_that_of_acting():
    class Doubles(ReferencePolicy):
        def step(self, obs, state, first):
            outputs, state = super().step(obs, state, first)
            return {**outputs, "entropy": 2 * outputs["entropy"]}, state

    assert "away from that of acting" in only(Doubles(), "entropy_matches_policy").evidence


class WipesAtForty(ReferencePolicy):
    """Its window of forty steps runs over while it learns."""

    def sequence(self, obs, state, first, actions):
        wiped = first.clone()
        wiped[40:41] = True
        return super().sequence(obs, state, wiped, actions)


class WhispersAndWipes(WipesAtForty):
    """Loud enough to be heard, too quiet for a limit that is meant for others."""

    def heads(self, y):
        log_probs, value = super().heads(y)
        return log_probs, 0.02 * value

    def scores(self, log_probs, value, actions):
        return {"value": value}


@pytest.mark.parametrize("kind", [WipesAtForty, WhispersAndWipes])
def test_what_begins_after_many_steps_is_seen(kind):
    assert only(kind(), "steps_equal_sequence").verdict == Verdict.FAIL


def test_a_policy_that_blows_up_rounding_is_not_accused_of_it():
    class Wild(ReferencePolicy):
        """A chaotic memory: differences double at every step. Learning rounds otherwise than acting."""

        def cell(self, x, state):
            h = (1 - 1.9 * state[0] ** 2 + 0.01 * x).clamp(-1, 1)
            return h[0], (h, state[1])

        def sequence(self, obs, state, first, actions):
            return super().sequence(obs, tuple(leaf + 1e-8 for leaf in state), first, actions)

    finding = only(Wild(), "steps_equal_sequence")
    assert finding.verdict == Verdict.PASS
    assert "70 steps could not be compared, because rounding errors grow to" in finding.evidence


def test_both_parts_of_complex_numbers_count():
    class Turns(Subject):
        """A linear recurrence whose state turns in the complex plane. Learning hands it back conjugated, if it is told to."""

        name, module = "turns", nn.Linear(3, 3)

        def __init__(self, conjugated):
            self.conjugated = conjugated

        def observations(self, N, generator):
            return torch.randn(N, 3, generator=generator)

        def initial_state(self, B):
            return (torch.zeros(1, B, 3, dtype=torch.complex64),)

        def step(self, obs, state, first):
            h = state[0][0] * (first == 0)[:, None] * 0.8j + torch.tanh(self.module(obs))
            return {"logits": h.real + h.imag}, (h.unsqueeze(0),)

        def sequence(self, obs, state, first, actions):
            logits = []
            for x, now in zip(obs, first, strict=True):
                outputs, state = self.step(x, state, now)
                logits.append(outputs["logits"])
            return {"logits": torch.stack(logits)}, tuple(x.conj() for x in state) if self.conjugated else state

    assert audit(Turns(conjugated=False)).sound
    assert [finding.check.name for finding in audit(Turns(conjugated=True)).failures] == ["final_state_is_correct"]


def test_frozen_weights_need_no_gradient():
    class Frozen(ReferencePolicy):
        def network(self):
            network = super().network()
            network.encoder.requires_grad_(False)
            return network

    class SeesCodes(ReferencePolicy):
        """Whole numbers, so only weights can say that the encoder is cut off."""

        def observations(self, N, generator):
            return torch.randint(5, (N,), generator=generator)

        def encode(self, obs):
            return super().encode(nn.functional.one_hot(obs, 5).float())

    class CutOff(SeesCodes):
        def encode(self, obs):
            return super().encode(obs).detach()

    assert only(Frozen(), "learning_has_gradients").verdict == Verdict.PASS
    assert only(SeesCodes(), "learning_has_gradients").verdict == Verdict.PASS
    assert "log_prob depends on encoder.weight, encoder.bias" in only(CutOff(), "learning_has_gradients").evidence


def test_scoring_without_a_graph_is_no_scoring():
    class ScoresUnderNoGrad(ReferencePolicy):
        def score(self, obs, terminated, truncated, state, actions):
            with torch.no_grad():
                return super().score(obs, terminated, truncated, state, actions)

    assert (
        "gradients of the start state differ from those of sequence by 1 of the largest"
        in only(ScoresUnderNoGrad(), "score_equals_sequence").evidence
    )
