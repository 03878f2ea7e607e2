"""A world whose rewards need a memory of a known length, and policies whose memory is known exactly."""

import gymnasium
import torch
from gymnasium import spaces

from holdfast.policies import Policy


class Echo(gymnasium.Env):
    """Reward for saying which of two numbers was shown `delay` steps ago; nothing is to be said before."""

    def __init__(self, delay: int, cue_at_start: bool = False):
        self.delay, self.cue_at_start = delay, cue_at_start
        self.observation_space = spaces.Discrete(2)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shown = [int(self.np_random.integers(2))]
        return self.shown[-1], {}

    def step(self, action):
        said_right = len(self.shown) > self.delay and action == self.shown[0 if self.cue_at_start else -1 - self.delay]
        self.shown.append(int(self.np_random.integers(2)))
        ended = len(self.shown) > self.delay + 8
        return self.shown[-1], float(said_right) / 8, ended, False, {}


class Shifts(Policy):
    """Remembers the last observations, newest first, as +1 or -1, and says the one of `delay` steps ago."""

    def __init__(self, spec, delay: int, remembers: int):
        super().__init__(spec)
        self.delay, self.remembers = delay, remembers
        self.weight = torch.nn.Parameter(torch.zeros(1))

    @property
    def state_shapes(self):
        return ((1, self.remembers),)

    def unroll(self, inputs, first, start):
        (memory,), said = start, []
        for obs, begins in zip(inputs["env_obs"], first, strict=True):
            memory = torch.where(begins.view(1, -1, 1), torch.zeros_like(memory), memory)
            now = 2.0 * obs.view(1, -1, 1).float() - 1
            seen = torch.cat([now, memory], -1)
            said.append(torch.stack([torch.zeros_like(seen[0, :, 0]), seen[0, :, self.delay]], -1))
            memory = seen[..., : self.remembers]
        return torch.stack(said), torch.zeros(first.shape), (memory,)


class First(Shifts):
    """Remembers the first observation of the episode, and says it."""

    def unroll(self, inputs, first, start):
        (memory,), said = start, []
        for obs, begins in zip(inputs["env_obs"], first, strict=True):
            memory = torch.where(begins.view(1, -1, 1), 2.0 * obs.view(1, -1, 1).float() - 1, memory)
            said.append(torch.stack([torch.zeros(obs.shape[0]), memory[0, :, 0]], -1))
        return torch.stack(said), torch.zeros(first.shape), (memory,)


class Same(Echo):
    """Every observation of an episode is the same, so none has to be remembered."""

    def step(self, action):
        _, *rest = super().step(action)
        self.shown[-1] = self.shown[0]
        return self.shown[0], *rest
