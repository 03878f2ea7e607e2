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


class Paid(Echo):
    """As Echo, with the same pay at every step, and luck that no action changes."""

    def __init__(self, delay: int, pay: float = 0.0, luck: float = 0.0):
        super().__init__(delay)
        self.pay, self.luck = pay, luck

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self.lucky = float(self.np_random.normal()) * self.luck
        return found

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, reward + self.pay + self.lucky, *rest


class Count(gymnasium.Env):
    """Nothing is to be seen; 1 is the right action at step `when` of 8, and 0 at the others."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, when: int = 4):
        self.when = when

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return 0, {}

    def step(self, action):
        right = int(action) == (self.step_number == self.when)
        self.step_number += 1
        return 0, float(right), self.step_number == 8, False, {}


class Counts(Policy):
    """Counts the steps of the episode, and says 1 at step `when`."""

    def __init__(self, spec, when: int = 4):
        super().__init__(spec)
        self.when = when
        self.weight = torch.nn.Parameter(torch.zeros(1))

    @property
    def state_shapes(self):
        return ((1, 1),)

    def unroll(self, inputs, first, start):
        (memory,), said = start, []
        for begins in first:
            memory = torch.where(begins.view(1, -1, 1), torch.zeros_like(memory), memory)
            now = (memory[0, :, 0] - self.when).abs() < 0.5
            score = 2.0 * now.float() - 1 + self.weight
            said.append(torch.stack([torch.zeros_like(score), score], -1))
            memory = memory + 1
        return torch.stack(said), torch.zeros(first.shape), (memory,)
