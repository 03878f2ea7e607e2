"""Correct policies with unusual inputs, heads and ways to learn, and the list of all without a memory table."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from holdfast.audit.adapters import ContractPolicy
from holdfast.policies import LSTMWrapper
from holdfast.spec import keys
from support.policies import VECTOR, random_obs
from support.unusual_memories import CHOICES, HIDDEN, OBS, GatesByMultiplying, Plain, keep


class ReadsFeaturesBothWays(Plain):
    """A bidirectional LSTM over the numbers of one observation, not over time."""

    inputs = 6

    def more(self):
        return {"reader": nn.LSTM(1, 3, batch_first=True, bidirectional=True)}

    def encode(self, obs, first):
        return self.module["reader"](obs[..., None])[0].mean(1)


class MixesHeads(Plain):
    """The logits are a mixture of two heads, weighted by a softmax."""

    def more(self):
        return {"other": nn.Linear(HIDDEN, CHOICES), "weigh": nn.Linear(HIDDEN, 2)}

    def outputs(self, y):
        weights = self.module["weigh"](y).softmax(-1)
        heads = torch.stack([self.module["actor"](y).softmax(-1), self.module["other"](y).softmax(-1)], -1)
        return {**super().outputs(y), "logits": (heads * weights[..., None, :]).sum(-1).log()}


class HasTwoMemories(Plain):
    """An LSTM for the actor and another for the critic."""

    slot_axis = 1

    def network(self):
        cells = {name: nn.LSTMCell(OBS, HIDDEN) for name in ("for_actor", "for_critic")}
        return nn.ModuleDict({**cells, "actor": nn.Linear(HIDDEN, CHOICES), "critic": nn.Linear(HIDDEN, 1)})

    def initial_state(self, B):
        return tuple(torch.zeros(1, B, HIDDEN) for _ in range(4))

    def advance(self, obs, state, first):
        h, c, other_h, other_c = (keep(leaf[0], first) for leaf in state)
        one, two = self.module["for_actor"](obs, (h, c)), self.module["for_critic"](obs, (other_h, other_c))
        return torch.cat([one[0], two[0]], -1), tuple(leaf[None] for leaf in (*one, *two))

    def outputs(self, y):
        return {
            "logits": self.module["actor"](y[..., :HIDDEN]),
            "value": self.module["critic"](y[..., HIDDEN:]).squeeze(-1),
        }


class ChoosesInParts(Plain):
    """An action has two parts, and the second depends on the first."""

    def more(self):
        return {"second": nn.Linear(HIDDEN + CHOICES, 2)}

    def parts(self, y, first_part):
        after = torch.cat([y, F.one_hot(first_part, CHOICES).float()], -1)
        return self.module["actor"](y).log_softmax(-1), self.module["second"](after).log_softmax(-1)

    def score_parts(self, y, actions):
        value = self.module["critic"](y).squeeze(-1)
        chosen = zip(self.parts(y, actions[..., 0]), actions.unbind(-1), strict=True)
        return {"log_prob": sum(p.gather(-1, a[..., None]).squeeze(-1) for p, a in chosen), "value": value}

    def step(self, obs, state, first):
        y, state = self.advance(obs, state, first)
        one = torch.multinomial(self.module["actor"](y).softmax(-1), 1).squeeze(-1)
        two = torch.multinomial(self.parts(y, one)[1].exp(), 1).squeeze(-1)
        actions = torch.stack([one, two], -1)
        return {"actions": actions, **self.score_parts(y, actions)}, state

    def sequence(self, obs, state, first, actions):
        ys, state = self.features(obs, state, first)
        return self.score_parts(ys, actions), state


class SeesImages(Plain):
    inputs = 8

    def more(self):
        return {"eye": nn.Conv2d(1, 2, 3)}

    def observations(self, N, generator):
        return torch.randint(256, (N, 1, 4, 4), generator=generator, dtype=torch.uint8)

    def encode(self, obs, first):
        return torch.tanh(self.module["eye"](obs / 128 - 1)).flatten(1)


class RunsSpans(Plain):
    """Learning splits sequences where any episode starts and runs a fused GRU over each part."""

    slot_axis = 1

    def network(self):
        gru, heads = nn.GRU(OBS, HIDDEN, 2), (nn.Linear(HIDDEN, CHOICES), nn.Linear(HIDDEN, 1))
        return nn.ModuleDict({"gru": gru, "actor": heads[0], "critic": heads[1]})

    def initial_state(self, B):
        return (torch.zeros(2, B, HIDDEN),)

    def advance(self, obs, state, first):
        y, h = self.module["gru"](obs[None], state[0] * (first == 0).float()[None, :, None])
        return y[0], (h,)

    def sequence(self, obs, state, first, actions):
        starts = sorted({0, *(first != 0).any(1).nonzero().flatten().tolist()})
        ys, h = [], state[0]
        for begin, end in zip(starts, [*starts[1:], len(obs)], strict=True):
            y, h = self.module["gru"](obs[begin:end], h * (first[begin] == 0).float()[None, :, None])
            ys.append(y)
        return self.outputs(torch.cat(ys)), (h,)


class ScalesByFixedStatistics(Plain):
    """Statistics that were fixed before; the critic reads memory detached."""

    def network(self):
        network = super().network()
        network.register_buffer("mean", torch.full((OBS,), 0.3))
        network.register_buffer("scale", torch.full((OBS,), 1.7))
        return network

    def encode(self, obs, first):
        return ((obs - self.module.get_buffer("mean")) / self.module.get_buffer("scale")).clamp(-5, 5)

    def outputs(self, y):
        return {**super().outputs(y), "value": self.module["critic"](y.detach()).squeeze(-1)}


class HasGaussianActions(Plain):
    """A squashed Gaussian with a learned deviation. Actions before the tanh are what is stored."""

    def more(self):
        return {"deviation": nn.Linear(HIDDEN, CHOICES)}

    def scores(self, y, actions):
        normal = torch.distributions.Normal(self.module["actor"](y), F.softplus(self.module["deviation"](y)) + 0.1)
        squash = 2 * (math.log(2) - actions - F.softplus(-2 * actions))
        return {
            "log_prob": (normal.log_prob(actions) - squash).sum(-1),
            "value": self.module["critic"](y).squeeze(-1),
            "entropy": normal.entropy().sum(-1),
        }, normal

    def step(self, obs, state, first):
        y, state = self.advance(obs, state, first)
        actions = self.scores(y, torch.zeros(len(obs), CHOICES))[1].sample()
        return {"actions": actions, **self.scores(y, actions)[0]}, state

    def sequence(self, obs, state, first, actions):
        ys, state = self.features(obs, state, first)
        return self.scores(ys, actions)[0], state


class RewardedPolicy(LSTMWrapper):
    """Reads the last reward, but not at an episode start, where it belongs to the episode before."""

    def __init__(self, spec):
        super().__init__(spec, input_size=5, hidden_size=HIDDEN, num_layers=1)
        self.encoder = nn.Linear(4, 5)
        self.actor, self.critic = nn.Linear(HIDDEN, 2), nn.Linear(HIDDEN, 1)

    def unroll(self, inputs, first, start):
        reward = inputs[keys.REWARDS].float().masked_fill(first, 0.0).unsqueeze(-1)
        x = torch.tanh(self.encoder(torch.cat([inputs[keys.OBS], reward], -1)))
        y, final = self.core(x, start, first)
        return self.actor(y), self.critic(y).squeeze(-1), final


def masks_the_last_reward_in_the_contract(seed=0):
    torch.manual_seed(seed)
    policy = RewardedPolicy(VECTOR)
    return ContractPolicy(policy, lambda n, generator: random_obs(VECTOR, (n,), generator))


UNUSUAL_WITHOUT_TABLE = [
    *Plain.__subclasses__(),
    *GatesByMultiplying.__subclasses__(),
    masks_the_last_reward_in_the_contract,
]
