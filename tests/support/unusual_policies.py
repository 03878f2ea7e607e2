"""ReferencePolicy policies of unusual kinds, which no check of the auditor may accuse."""

import torch

from audit.mutants import ReferencePolicy
from audit.mutants.reference_policy import HIDDEN


class WithoutCells(ReferencePolicy):
    """The reference policy without its LSTM, for policies with another memory."""

    def network(self):
        network = super().network()
        network.cells = torch.nn.ModuleList()
        return network


class MasksWithInfinity(ReferencePolicy):
    """Choice 2 is never legal."""

    def heads(self, y):
        log_probs, value = super().heads(y)
        illegal = torch.tensor([False, False, True])
        return log_probs.masked_fill(illegal, float("-inf")).log_softmax(-1), value

    def scores(self, log_probs, value, actions):
        scores = super().scores(log_probs, value, actions)
        legal = log_probs[..., :2]
        return {**scores, "entropy": -(legal.exp() * legal).sum(-1)}


class DrawsFromItsOwnGenerator(ReferencePolicy):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.own = torch.Generator().manual_seed(1)

    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        actions = torch.multinomial(outputs["full_log_probs"].exp(), 1, generator=self.own).squeeze(-1)
        return {"actions": actions, **self.scores(outputs["full_log_probs"], outputs["value"], actions)}, state


class ActsWithoutGradients(ReferencePolicy):
    def step(self, obs, state, first):
        with torch.no_grad():
            return super().step(obs, state, first)


class TakesOnlyBooleans(ReferencePolicy):
    def reset(self, state, first):
        if first.dtype != torch.bool:
            raise TypeError("flags are boolean")
        return super().reset(state, first)

    def ended(self, terminated, truncated):
        return terminated | truncated


class LearnsItsStart(ReferencePolicy):
    """The blank state is not zero but learned, and resets go back to it."""

    def network(self):
        network = super().network()
        network.register_parameter("start", torch.nn.Parameter(torch.full((2, 1, HIDDEN), 0.3)))
        return network

    def initial_state(self, B):
        return tuple(torch.tanh(self.module.get_parameter("start")).expand(-1, B, -1) for _ in range(2))

    def reset(self, state, first):
        ended = (first != 0)[None, :, None]
        return tuple(
            torch.where(ended, new, leaf) for new, leaf in zip(self.initial_state(len(first)), state, strict=True)
        )

    def reset_memory(self):
        self.set_memory(self.initial_state(self.memory[0].shape[1]))

    def reset_slots(self, slots):
        for leaf, blank in zip(self.memory, self.initial_state(len(slots)), strict=True):
            leaf[:, slots] = blank.detach()


class CountsSteps(ReferencePolicy):
    """A third tensor of the state is a whole number."""

    def initial_state(self, B):
        return (*super().initial_state(B), torch.zeros(1, B, 1, dtype=torch.long))

    def reset(self, state, first):
        going_on = (first == 0)[None, :, None]
        return tuple(leaf * going_on.to(leaf.dtype) for leaf in state)

    def cell(self, x, state):
        y, after = super().cell(x + 0.1 * (state[2][0] % 3), state[:2])
        return y, (*after, state[2] + 1)


class CountsInABuffer(CountsSteps):
    """The table of its third tensor is a buffer of the network, and so looks like a weight."""

    def set_memory(self, memory):
        super().set_memory(memory)
        self.module.register_buffer("count", self.memory[2], persistent=False)


class RemembersTheLargestOfAll(WithoutCells):
    """A running maximum that begins at minus infinity."""

    def initial_state(self, B):
        return torch.full((2, B, HIDDEN), -torch.inf), torch.zeros(2, B, HIDDEN)

    def reset(self, state, first):
        ended = (first != 0)[None, :, None]
        blank = self.initial_state(len(first))
        return tuple(torch.where(ended, new, leaf) for new, leaf in zip(blank, state, strict=True))

    def cell(self, x, state):
        h = torch.maximum(state[0], x)
        return h[0] + h[1] + state[1].sum(0), (h, 0.5 * state[1])

    def reset_memory(self):
        self.memory = self.initial_state(self.memory[0].shape[1])

    def reset_slots(self, slots):
        self.memory[0][:, slots] = -torch.inf
        self.memory[1][:, slots] = 0.0


class DrawsRealNumbers(ReferencePolicy):
    """Actions are drawn with a gradient, as many libraries draw them."""

    def distribution(self, log_probs):
        return torch.distributions.Normal(log_probs, 0.5)

    def step(self, obs, state, first):
        y, state = self.advance(self.encode(obs), state, first)
        log_probs, value = self.heads(y)
        actions = self.distribution(log_probs).rsample()
        return {"actions": actions, **self.scores(log_probs, value, actions)}, state

    def scores(self, log_probs, value, actions):
        return {"log_prob": self.distribution(log_probs).log_prob(actions).sum(-1), "value": value}


class Squashes(DrawsRealNumbers):
    """Actions go through tanh. Learning takes that back, which blows the rounding of what was stored up."""

    def step(self, obs, state, first):
        y, state = self.advance(self.encode(obs), state, first)
        mean, value = self.heads(y)
        drawn = self.distribution(mean).sample()
        return {"actions": torch.tanh(drawn), **self.scores(mean, value, drawn)}, state

    def sequence(self, obs, state, first, actions):
        drawn = torch.atanh(actions.clamp(-1 + 1e-6, 1 - 1e-6))
        return super().sequence(obs, state, first, drawn)


class DrawsByRejection(DrawsRealNumbers):
    """How many random numbers a slot takes depends on what it draws from, and so does what is left for the next slot."""

    def distribution(self, log_probs):
        return torch.distributions.Beta(0.5 - log_probs, 1.0 - 0.5 * log_probs)


class RemembersWhatItDid(ReferencePolicy):
    """The action that was drawn goes into the next state."""

    def initial_state(self, B):
        return (*super().initial_state(B), torch.zeros(1, B, HIDDEN))

    def cell(self, x, state):
        y, after = super().cell(x + state[2][0], state[:2])
        return y, (*after, torch.zeros(1, len(x), HIDDEN))

    def step(self, obs, state, first):
        outputs, after = super().step(obs, state, first)
        return outputs, (*after[:2], self.done(outputs["actions"]))

    def sequence(self, obs, state, first, actions):
        parts = []
        for t in range(len(obs)):
            outputs, state = super().sequence(obs[t : t + 1], state, first[t : t + 1], actions[t : t + 1])
            state = (*state[:2], self.done(actions[t]))
            parts.append(outputs)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, state

    def done(self, actions):
        return torch.nn.functional.one_hot(actions, HIDDEN).float().unsqueeze(0)


class ChoosesHard(WithoutCells):
    """Memory is one of six symbols, with a gradient as if it were their probabilities."""

    layered = False

    def cell(self, x, state):
        soft = (self.module.encoder.bias + 3 * (x + 0.5 * state[0].sum(0) + 0.1 * state[1].sum(0))).softmax(-1)
        hard = torch.nn.functional.one_hot(soft.argmax(-1), HIDDEN).float() + soft - soft.detach()
        return x + hard, (torch.stack([hard, x]), 0.5 * state[1] + 0.1 * hard)


class WaitsForACue(WithoutCells):
    """Nine of ten observations show no cue, and change nothing in memory."""

    def observations(self, N, generator):
        obs = super().observations(N, generator)
        obs[:, 0] *= torch.rand(N, generator=generator) < 0.1
        return obs

    def initial_state(self, B):
        return (torch.zeros(1, B, 1),)

    def step(self, obs, state, first):
        memory = self.reset(state, first)[0]
        after = torch.where(obs[None, :, :1] != 0, obs[None, :, :1], memory)
        log_probs, value = self.heads(self.encode(obs) + after[0])
        actions = torch.multinomial(log_probs.exp(), 1).squeeze(-1)
        return {"actions": actions, **self.scores(log_probs, value, actions)}, (after,)

    def sequence(self, obs, state, first, actions):
        memory, seen = state[0], []
        for x, flag in zip(obs, first, strict=True):
            memory = torch.where(x[None, :, :1] != 0, x[None, :, :1], self.reset((memory,), flag)[0])
            seen.append(memory[0])
        return self.scores(*self.heads(self.encode(obs) + torch.stack(seen)), actions), (memory,)  # pyright: ignore[reportArgumentType]


class HandsBackNoState(ReferencePolicy):
    def sequence(self, obs, state, first, actions):
        return super().sequence(obs, state, first, actions)[0], ()


class RemembersAWindow(WithoutCells):
    """Its state is the features of the last three steps, the oldest of which falls out, and which of them there were."""

    layered, no_gradient = False, (1,)

    def initial_state(self, B):
        return torch.zeros(3, B, HIDDEN), torch.zeros(3, B, 1)

    def cell(self, x, state):
        seen, there = (
            torch.cat([leaf[1:], new[None]]) for leaf, new in zip(state, (x, torch.ones_like(x[:, :1])), strict=True)
        )
        weights = (seen * x).sum(-1, keepdim=True).masked_fill(there < 0.5, float("-inf")).softmax(0)
        return (weights * seen).sum(0) + x, (seen, there)


class HasFewReluUnits(ReferencePolicy):
    """Some of them do not answer to a small change, while a large one wakes them."""

    def encode(self, obs):
        return torch.relu(self.module.encoder(obs))


class ObservesCodes(ReferencePolicy):
    """Real numbers that are only names of things."""

    def observations(self, N, generator):
        return torch.randint(5, (N, 1), generator=generator).float()

    def encode(self, obs):
        return super().encode(torch.nn.functional.one_hot(obs[..., 0].long(), 5).float())


class RemembersTheLargest(WithoutCells):
    """A running maximum: what is not the largest has no gradient, and a larger one would move outputs."""

    def cell(self, x, state):
        h = torch.maximum(state[0], x)
        return h[0] + h[1] + state[1].sum(0), (h, 0.5 * state[1])


class PutsOutProbabilities(ReferencePolicy):
    """They sum to 1, whatever the state. Learning goes slot by slot."""

    def scores(self, log_probs, value, actions):
        return {"probabilities": log_probs.exp()}

    def sequence(self, obs, state, first, actions):
        parts = [
            super(PutsOutProbabilities, self).sequence(
                obs[:, b : b + 1], tuple(x[:, b : b + 1] for x in state), first[:, b : b + 1], actions
            )
            for b in range(obs.shape[1])
        ]
        outputs = {name: torch.cat([part[name] for part, _ in parts], 1) for name in parts[0][0]}
        return outputs, tuple(torch.cat(leaves, 1) for leaves in zip(*(final for _, final in parts), strict=True))
