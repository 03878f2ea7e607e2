"""Correct policies with unusual memories, inputs and heads, without a memory table. No check may accuse them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from holdfast.audit import Subject
from holdfast.audit.adapters import ContractPolicy
from holdfast.policies import LSTMWrapper
from holdfast.spec import keys
from support.policies import VECTOR, random_obs

OBS, HIDDEN, CHOICES = 4, 6, 3


def keep(leaf, first):
    """Zero the slots [B, ...] in which an episode starts."""
    return leaf * (first == 0).to(leaf.dtype).view(-1, *[1] * (leaf.dim() - 1))


class Plain(Subject):
    """A GRU cell with a `step` and a `sequence` that runs the same cell. Others replace its parts."""

    slot_axis = 0
    inputs = OBS  # width of what enters the cell

    def __init__(self, seed=0):
        self.name = type(self).__name__
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = self.network()

    def network(self):
        return nn.ModuleDict(
            {
                "cell": nn.GRUCell(self.inputs, HIDDEN),
                "actor": nn.Linear(HIDDEN, CHOICES),
                "critic": nn.Linear(HIDDEN, 1),
                **self.more(),
            }
        )

    def more(self):
        return {}

    def observations(self, N, generator):
        return torch.randn(N, OBS, generator=generator)

    def initial_state(self, B):
        return (torch.zeros(B, HIDDEN),)

    def advance(self, obs, state, first):
        """One step: obs [B, ...] -> features [B, HIDDEN] and the next state."""
        h = self.module["cell"](self.encode(obs, first), keep(state[0], first))
        return h, (h,)

    def encode(self, obs, first):
        return obs

    def outputs(self, y):
        return {"logits": self.module["actor"](y), "value": self.module["critic"](y).squeeze(-1)}

    def step(self, obs, state, first):
        y, state = self.advance(obs, state, first)
        return self.outputs(y), state

    def features(self, obs, state, first):
        """Features [T, B, HIDDEN] of a sequence, and the state after it."""
        ys = []
        for x, flag in zip(obs, first, strict=True):
            y, state = self.advance(x, state, flag)
            ys.append(y)
        return torch.stack(ys), state

    def sequence(self, obs, state, first, actions):
        ys, state = self.features(obs, state, first)
        return self.outputs(ys), state


class FlagIsAnInput(Plain):
    """Whether an episode starts is a feature of the observation."""

    inputs = OBS + 1

    def encode(self, obs, first):
        return torch.cat([obs, (first != 0).float()[:, None]], -1)


class MasksTheLastReward(Plain):
    """The last column of an observation is the reward that came with it. At an episode start it belongs to another episode."""

    def encode(self, obs, first):
        return torch.cat([obs[:, :-1], keep(obs[:, -1:], first)], -1)


class EmbedsTheLastAction(Plain):
    """The state holds the last action as a code, and 0 at an episode start."""

    no_gradient, inputs = (1,), OBS + 2

    def more(self):
        return {"codes": nn.Embedding(1 + CHOICES, 2)}

    def initial_state(self, B):
        return torch.zeros(B, HIDDEN), torch.zeros(B, dtype=torch.long)

    def advance(self, obs, state, first):
        done = torch.where(first != 0, 0, state[1])
        h = self.module["cell"](torch.cat([obs, self.module["codes"](done)], -1), keep(state[0], first))
        return h, (h, 1 + self.module["actor"](h).argmax(-1))


class RepeatsTheFirstFrame(Plain):
    """A stack of three frames, which an episode start fills with its first frame."""

    layered = False

    def network(self):
        return nn.ModuleDict(
            {"mix": nn.Linear(3 * OBS, HIDDEN), "actor": nn.Linear(HIDDEN, CHOICES), "critic": nn.Linear(HIDDEN, 1)}
        )

    def initial_state(self, B):
        return (torch.zeros(B, 2, OBS),)

    def advance(self, obs, state, first):
        before = torch.where((first != 0)[:, None, None], obs[:, None].expand(-1, 2, -1), state[0])
        frames = torch.cat([before, obs[:, None]], 1)
        return torch.tanh(self.module["mix"](frames.flatten(1))), (frames[:, 1:],)


class StartsFromItsFirstObservation(Plain):
    """At an episode start, memory is computed from the observation."""

    def more(self):
        return {"opening": nn.Linear(OBS, HIDDEN)}

    def advance(self, obs, state, first):
        opening = torch.tanh(self.module["opening"](obs))
        h = self.module["cell"](obs, torch.where((first != 0)[:, None], opening, state[0]))
        return h, (h,)


class LearnsItsStart(Plain):
    """The initial state is a parameter, and the flag is an input as well."""

    inputs = OBS + 1
    encode = FlagIsAnInput.encode

    def more(self):
        return {"start": nn.ParameterDict({"h": nn.Parameter(torch.full((HIDDEN,), 0.4))})}

    def initial_state(self, B):
        return (self.module["start"]["h"].expand(B, HIDDEN),)

    def advance(self, obs, state, first):
        before = torch.where((first != 0)[:, None], self.initial_state(len(obs))[0], state[0])
        h = self.module["cell"](self.encode(obs, first), before)
        return h, (h,)


class NormalisesItsMemory(Plain):
    def more(self):
        return {"norm": nn.LayerNorm(HIDDEN)}

    def advance(self, obs, state, first):
        h = self.module["norm"](self.module["cell"](obs, keep(state[0], first)))
        return h, (h,)


class AddsItsInput(Plain):
    """A residual connection around the memory, with dropout that is always off."""

    def more(self):
        return {"encoder": nn.Linear(OBS, HIDDEN), "off": nn.Dropout(0.0)}

    def advance(self, obs, state, first):
        h, state = super().advance(obs, state, first)
        return self.module["off"](h + torch.tanh(self.module["encoder"](obs))), state


class GatesByMultiplying(Plain):
    def more(self):
        return {"gate": nn.Linear(OBS, HIDDEN), "write": nn.Linear(OBS, HIDDEN)}

    def network(self):
        network = super().network()
        del network["cell"]
        return network

    def advance(self, obs, state, first):
        gate = torch.sigmoid(self.module["gate"](obs))
        h = gate * keep(state[0], first) + (1 - gate) * torch.tanh(self.module["write"](obs))
        return h * torch.sigmoid(h), (h,)


class AttendsToARingBuffer(GatesByMultiplying):
    """A buffer of four steps, the place of the next one, and attention over the steps of this episode."""

    layered, no_gradient, SIZE = False, (1,), 4

    def initial_state(self, B):
        return torch.zeros(B, self.SIZE, HIDDEN), torch.zeros(B, dtype=torch.long)

    def advance(self, obs, state, first):
        step = torch.where(first != 0, 0, state[1])
        key, query = torch.tanh(self.module["write"](obs)), self.module["gate"](obs)
        place = F.one_hot(step % self.SIZE, self.SIZE)[..., None]
        buffer = torch.where(place > 0, key[:, None], keep(state[0], first))
        unused = torch.arange(self.SIZE) > step[:, None]
        weights = (buffer @ query[..., None]).squeeze(-1).masked_fill(unused, -math.inf).softmax(-1)
        return (weights[..., None] * buffer).sum(1), (buffer, step + 1)


class KeepsOtherTypes(Plain):
    """Its state is a double, a boolean and a float."""

    def initial_state(self, B):
        return torch.zeros(B, HIDDEN), torch.zeros(B, dtype=torch.bool), torch.zeros(B, 2, dtype=torch.float64)

    def advance(self, obs, state, first):
        kept, seen, total = keep(state[0], first), state[1] & (first == 0), keep(state[2], first)
        h = self.module["cell"](obs + total.sum(-1, keepdim=True).float() / 4, kept) + 0.2 * seen[:, None]
        return h, (h, seen | (obs[:, 0] > 1), 0.5 * total + torch.tanh(obs[:, :2]).double())


class HasLeavesOfManySizes(Plain):
    def initial_state(self, B):
        return torch.zeros(B, HIDDEN), torch.zeros(B), torch.zeros(B, 2, 3, 2)

    def advance(self, obs, state, first):
        h, mean, grid = (keep(leaf, first) for leaf in state)
        h = self.module["cell"](obs + mean[:, None] + grid.mean((1, 2, 3))[:, None], h)
        grid = 0.5 * grid + h.view(-1, 1, 3, 2)
        return h, (h, 0.9 * mean + 0.1 * obs.mean(-1), grid)


class KnowsTheTime(Plain):
    """The clock of the episode is a feature."""

    no_gradient, inputs = (1,), OBS + 2

    def initial_state(self, B):
        return torch.zeros(B, HIDDEN), torch.zeros(B)

    def advance(self, obs, state, first):
        clock = keep(state[1], first)
        waves = torch.stack([torch.sin(clock / 3), torch.cos(clock / 3)], -1)
        h = self.module["cell"](torch.cat([obs, waves], -1), keep(state[0], first))
        return h, (h, clock + 1)


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


class LearnsWithAScan(GatesByMultiplying):
    """A linear memory. Learning computes all steps at once, as products of what is kept; acting goes step by step."""

    def gates(self, obs, first):
        kept = torch.sigmoid(self.module["gate"](obs)) * (first == 0).float().unsqueeze(-1)
        return kept, (1 - torch.sigmoid(self.module["gate"](obs))) * torch.tanh(self.module["write"](obs))

    def advance(self, obs, state, first):
        kept, written = self.gates(obs, first)
        h = kept * state[0] + written
        return h, (h,)

    def sequence(self, obs, state, first, actions):
        kept, written = self.gates(obs, first)
        T = len(obs)
        weights = [torch.cat([torch.ones_like(kept[:1]), kept[s + 1 :].cumprod(0)]) for s in range(T)]
        h = kept.cumprod(0) * state[0]
        for s in range(T):
            h = torch.cat([h[:s], h[s:] + weights[s] * written[s]])
        return self.outputs(h), (h[-1],)


class WritesFastWeights(GatesByMultiplying):
    """Memory is a matrix of outer products, read by multiplication."""

    def initial_state(self, B):
        return (torch.zeros(B, HIDDEN, HIDDEN),)

    def advance(self, obs, state, first):
        key, value = self.module["gate"](obs).softmax(-1), torch.tanh(self.module["write"](obs))
        matrix = 0.8 * keep(state[0], first) + key[:, :, None] * value[:, None, :]
        return (matrix * key[:, :, None]).sum(1), (matrix,)


class TurnsInTheComplexPlane(GatesByMultiplying):
    """A diagonal linear recurrence with complex numbers."""

    def initial_state(self, B):
        return (torch.zeros(B, HIDDEN, dtype=torch.complex64),)

    def advance(self, obs, state, first):
        turn = torch.polar(torch.full((HIDDEN,), 0.8), torch.arange(HIDDEN) / 2.0)
        h = turn * keep(state[0], first) + torch.tanh(self.module["write"](obs))
        return h.real + torch.sigmoid(self.module["gate"](obs)) * h.imag, (h,)


class SumsWithoutBound(GatesByMultiplying):
    """The memory is a running sum, read through a logarithm."""

    def advance(self, obs, state, first):
        total = keep(state[0], first) + F.softplus(self.module["write"](obs))
        return torch.log1p(total.abs()) + torch.tanh(self.module["gate"](obs)), (total,)


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


class FreezesItsReservoir(GatesByMultiplying):
    """An echo state network: the recurrent weights are fixed, only heads and input learn."""

    def network(self):
        network = super().network()
        network.register_buffer("echo", torch.linalg.qr(torch.randn(HIDDEN, HIDDEN))[0])
        return network

    def advance(self, obs, state, first):
        h = torch.tanh(0.9 * keep(state[0], first) @ self.module.get_buffer("echo") + self.module["write"](obs))
        return h * torch.sigmoid(self.module["gate"](obs)), (h,)


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


UNUSUAL_MEMORIES = [
    *(kind for kind in Plain.__subclasses__() if kind is not GatesByMultiplying),
    GatesByMultiplying,
    *GatesByMultiplying.__subclasses__(),
    masks_the_last_reward_in_the_contract,
]
