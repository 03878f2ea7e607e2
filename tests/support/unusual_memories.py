"""Correct policies with unusual memories, without a memory table. No check may accuse them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from holdfast.audit import Subject

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
            self.module: nn.ModuleDict = self.network()  # pyright: ignore[reportIncompatibleVariableOverride]

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
        return (self.module.get_parameter("start.h").expand(B, HIDDEN),)

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


class KeepsAnEmptyTensor(Plain):
    """One tensor of the state has width 0, as that of a part which is switched off."""

    def initial_state(self, B):
        return torch.zeros(B, 0), torch.zeros(B, HIDDEN)

    def advance(self, obs, state, first):
        h = self.module["cell"](obs, keep(state[1], first))
        return h, (state[0], h)


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


class FreezesItsReservoir(GatesByMultiplying):
    """An echo state network: the recurrent weights are fixed, only heads and input learn."""

    def network(self):
        network = super().network()
        network.register_buffer("echo", torch.linalg.qr(torch.randn(HIDDEN, HIDDEN))[0])
        return network

    def advance(self, obs, state, first):
        h = torch.tanh(0.9 * keep(state[0], first) @ self.module.get_buffer("echo") + self.module["write"](obs))
        return h * torch.sigmoid(self.module["gate"](obs)), (h,)
