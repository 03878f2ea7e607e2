"""A small, correct recurrent policy that uses nothing of Holdfast. Mutants inherit from it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.audit.subject import ACTIONS, Outputs, State, Subject

OBS, HIDDEN, LAYERS, CHOICES = 5, 6, 2, 3


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(OBS, HIDDEN)
        self.cells = nn.ModuleList(nn.LSTMCell(HIDDEN, HIDDEN) for _ in range(LAYERS))
        self.actor = nn.Linear(HIDDEN, CHOICES)
        self.critic = nn.Linear(HIDDEN, 1)


class ReferencePolicy(Subject):
    """A two-layer LSTM that keeps its memory in a table with a row per slot."""

    def __init__(self, seed: int = 0):
        self.name = type(self).__name__
        self.seed = seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module: Network = self.network()  # pyright: ignore[reportIncompatibleVariableOverride]
        self.memory: State = self.initial_state(0)

    def network(self) -> Network:
        return Network()

    # ------------------------------------------------------------------------------------------------ pieces

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        return torch.randn(N, OBS, generator=generator)

    def initial_state(self, B: int) -> State:
        return torch.zeros(LAYERS, B, HIDDEN), torch.zeros(LAYERS, B, HIDDEN)

    def encode(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.module.encoder(obs))

    def reset(self, state: State, first: Tensor) -> State:
        kept = (first == 0).to(state[0].dtype)[None, :, None]
        return tuple(leaf * kept for leaf in state)

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        after = []
        for layer, cell in enumerate(self.module.cells):
            x, c = cell(x, (state[0][layer], state[1][layer]))
            after.append((x, c))
        return x, tuple(torch.stack(leaves) for leaves in zip(*after, strict=True))

    def advance(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        return self.cell(x, self.reset(state, first))

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Features [..., HIDDEN] -> log-probs [..., CHOICES] and values [...]."""
        return self.module.actor(y).log_softmax(-1), self.module.critic(y).squeeze(-1)

    # ------------------------------------------------------------------------------------------------- forms

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        y, state = self.advance(self.encode(obs), state, first)
        log_probs, value = self.heads(y)
        actions = torch.multinomial(log_probs.exp(), 1).squeeze(-1)
        return {ACTIONS: actions, **self.scores(log_probs, value, actions)}, state

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        ys = []
        for x, now in zip(self.encode(obs), first, strict=True):
            y, state = self.advance(x, state, now)
            ys.append(y)
        log_probs, value = self.heads(torch.stack(ys))
        assert actions is not None
        return self.scores(log_probs, value, actions), state

    def scores(self, log_probs: Tensor, value: Tensor, actions: Tensor) -> Outputs:
        return {
            "log_prob": log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1),
            "value": value,
            "entropy": -(log_probs.exp() * log_probs).sum(-1),
            "full_log_probs": log_probs,
        }

    # ------------------------------------------------------------------------------------------------ memory

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs, state = self.step(obs, self.recall(slots), self.ended(terminated, truncated))
        self.store(state, slots)
        return outputs

    def value_from_memory(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return self.step(obs, self.recall(slots), self.ended(terminated, truncated))[0]

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        return self.sequence(obs, state, self.ended(terminated, truncated), actions)[0]

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return (terminated != 0) | (truncated != 0)

    def recall(self, slots: Tensor) -> State:
        missing = int(slots.max()) + 1 - self.memory[0].shape[1]
        if missing > 0:
            rows = self.initial_state(missing)
            self.memory = tuple(torch.cat([leaf, new], 1) for leaf, new in zip(self.memory, rows, strict=True))
        return tuple(leaf[:, slots] for leaf in self.memory)

    def store(self, state: State, slots: Tensor) -> None:
        for table, leaf in zip(self.memory, state, strict=True):
            table[:, slots] = leaf.detach()

    def get_memory(self) -> State:
        return tuple(leaf.clone() for leaf in self.memory)

    def set_memory(self, memory: State) -> None:
        self.memory = tuple(leaf.detach().clone() for leaf in memory)

    def reset_memory(self) -> None:
        self.memory = tuple(torch.zeros_like(leaf) for leaf in self.memory)

    def reset_slots(self, slots: Tensor) -> None:
        for leaf in self.memory:
            leaf[:, slots] = 0.0

    def rebuild(self) -> ReferencePolicy:
        return type(self)(self.seed + 1)
