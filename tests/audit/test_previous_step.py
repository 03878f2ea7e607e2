"""The auditor finds a policy whose last action of an episode enters the next one."""

import pytest
import torch

from holdfast.audit import Verdict, audit
from holdfast.audit.adapters import ContractPolicy
from holdfast.policies.parts.previous import PreviousStep
from support.policies import make, random_obs

CHECK = "last_reward_stays_in_its_episode"


class Leaks(PreviousStep):
    """Shows the last action of an episode, but not its last reward, to the next episode."""

    def forward(self, inputs, first):
        seen, leaked = super().forward(inputs, first), super().forward(inputs, torch.zeros_like(first))
        return torch.cat([leaked[..., :-1], seen[..., -1:]], -1)


def verdict(policy):
    subject = ContractPolicy(policy, lambda n, generator: random_obs(policy.spec, (n,), generator))
    (finding,) = audit(subject, checks=[CHECK]).findings
    return finding.verdict


@pytest.mark.parametrize("name", ["box+sees", "box-symbols+sees", "box-reals+sees", "agent=fast+sees"])
def test_a_last_action_in_the_next_episode_is_found(name):
    policy = make(name)
    assert verdict(policy) == Verdict.PASS
    policy.previous_step = Leaks(policy.spec, policy.vocabulary, ["action", "reward"], across_episodes=False)
    assert verdict(policy) == Verdict.FAIL


def test_memory_for_life_declares_it():
    assert verdict(make("box+sees", memory_scope="lifetime")) == Verdict.DECLARED
