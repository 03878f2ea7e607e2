"""Agent: a trained policy that acts in a loop of the user's own, on arrays, with its state as a value."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from holdfast.deploy.observations import MAX_SIZES, AgentInputError, ObservationReader
from holdfast.envs.spaces import ActionWriter
from holdfast.errors import CheckpointError, printable
from holdfast.policies import Policy, Sampling
from holdfast.policies.actions import readable_parts
from holdfast.policies.parts.previous import no_actions
from holdfast.spec import WorldSpec, keys

AgentState = tuple[np.ndarray, ...]


class Normal(NamedTuple):
    """The distribution of actions that are real numbers."""

    mean: np.ndarray
    std: np.ndarray


class _Fixed(NamedTuple):
    """Inputs that are the same for every call with a batch of one size."""

    state_shapes: list[tuple[int, ...]]
    state_dtypes: list[np.dtype]
    all_first: Tensor  # [1, B] bool
    none_first: Tensor
    no_rewards: Tensor  # [1, B]


class Agent:
    """A trained agent. Make one with `holdfast.load(run)`.

    Observations, action masks and actions have the form that they have in the environment: arrays, numbers, Dicts or
    Tuples; one of them, or a batch with an additional first axis, as in vector environments. The memory is a value:
    `act` takes it and returns the new one. `step` and `reset` keep it in the agent, for loops with one environment or one
    batch of them.

    An agent that sees the previous action (`policy.sees`) has it in its state; one that sees the reward needs `reward`, the
    reward that came with the observation.
    """

    def __init__(self, policy: Policy, device: str = "cpu", seed: int = 0, checkpoint: str = ""):
        policy.eval()
        self.policy, self.device, self.checkpoint = policy, torch.device(device), checkpoint
        self._reader = ObservationReader(policy.spec)
        self._writer = ActionWriter(self._reader.action_space, policy.spec.name, 0)
        if self._writer.spec.shape != policy.spec.actions.shape or self._writer.sizes != policy.spec.actions.sizes:
            raise CheckpointError(f"the action space of {printable(policy.spec.name)} in the checkpoint is damaged")
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._sees_action = keys.LAST_ACTIONS in policy.get_agent_experience_spec()
        self._sees_reward = policy.previous_step is not None and "reward" in policy.previous_step.sees
        self._fixed: dict[int, _Fixed] = {}  # by batch size
        self._state: AgentState | None = None
        self._first: bool | np.ndarray = True
        self._rows = 1  # of the last batch

    def __repr__(self) -> str:
        at = f", checkpoint {self.checkpoint}" if self.checkpoint else ""
        return f"<Agent {type(self.policy).__name__} for {self.spec.name}{at}>"

    @property
    def spec(self) -> WorldSpec:
        """The world that the agent was trained in: its name, observations and actions."""
        return self.policy.spec

    @property
    def observation_space(self) -> gymnasium.Space:
        """The space of the observations of the environment."""
        return self._reader.space

    @property
    def action_space(self) -> gymnasium.Space:
        """The space of the actions of the environment."""
        return self._reader.action_space

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions, if they have any: in MettaGrid `noop`, `move_north`, ..."""
        return getattr(self.spec.actions, "names", ())

    @property
    def recurrent(self) -> bool:
        """Whether the agent has memory. If not, its state is ()."""
        return self.policy.has_memory()

    def initial_state(self, batch: int | None = None) -> AgentState:
        """Return the memory with which an episode starts, for one observation (None) or for a batch of this size."""
        leaves = [leaf.cpu().numpy() for leaf in self.policy.initial_state(batch or 1)]
        return (*leaves, no_actions(self.spec.actions, batch or 1)) if self._sees_action else tuple(leaves)

    # ------------------------------------------------------------------------------- memory as a value

    def act(
        self,
        obs: Any,
        state: AgentState | None = None,
        first: Any = None,
        greedy: bool = True,
        *,
        mask: Any = None,
        reward: Any = None,
    ) -> tuple[Any, AgentState]:
        """Return the action for an observation, or for a batch, and the new state.

        state: what the last call returned. None: an episode starts, with empty memory.
        first: whether an episode starts with this observation; for a batch, a flag for each. None: only if there is no state.
        greedy: take the most probable action (the mean for real numbers), instead of sampling one.
        mask: the action mask, if the environment has it in `info` and not in its observations.
        reward: the reward that came with the observation, if the policy sees it.
        """
        inputs, start, B = self._inputs(obs, state, first, mask, reward)
        self.policy.sampling = Sampling(greedy, self._generator)
        with torch.no_grad():
            acted = self.policy.act(inputs, start)
        actions = acted.actions[0].cpu().numpy()
        final = tuple(leaf.cpu().numpy().copy() for leaf in acted.state)  # a policy may overwrite its tensors later
        if self._sees_action:
            final = (*final, actions.copy())
        if B is None:
            (action,) = self._writer.rows(actions)
            return action, final
        return self._writer.write(actions), final

    def value(
        self, obs: Any, state: AgentState | None = None, first: Any = None, *, mask: Any = None, reward: Any = None
    ) -> Any:
        """Return the critic's value of an observation, or of a batch, given the memory before it; the memory stays as it is.

        With `trainer.normalize_rewards`, which is on by default, values are in units of normalised rewards.
        """
        inputs, start, B = self._inputs(obs, state, first, mask, reward)
        values = self.policy.predict_values(inputs, start)[0].cpu().numpy()
        return float(values[0]) if B is None else values

    def probabilities(
        self, obs: Any, state: AgentState | None = None, first: Any = None, *, mask: Any = None, reward: Any = None
    ) -> Any:
        """Return the probabilities of all actions; the memory stays as it is.

        For one choice, this is an array [actions], for several choices a tuple of them, and for real numbers a `Normal` with
        mean and std, after the choices if there are both. For a batch, each array has an additional first axis.
        """
        inputs, start, B = self._inputs(obs, state, first, mask, reward)
        self.policy.sampling = Sampling(greedy=True)  # draws no random numbers
        with torch.no_grad():
            params = self.policy.act(inputs, start).params
            if params is None:
                raise AgentInputError(
                    f"{type(self.policy).__name__} has a forward of its own, so only its actions are known."
                )
            outputs = self.policy.distribution.full_log_probs(params[0])
        outputs = outputs if B is not None else outputs[0]
        choices, mean, std = readable_parts(self.spec.actions, outputs)
        found: list[Any] = [choice.cpu().numpy() for choice in choices]
        if mean.shape[-1]:
            found.append(Normal(mean.cpu().numpy(), std.cpu().numpy()))
        return found[0] if len(found) == 1 else tuple(found)

    # ------------------------------------------------------------------------------- memory kept by the agent

    def step(self, obs: Any, reward: Any = None, greedy: bool = True, *, mask: Any = None) -> Any:
        """Return the action for an observation, or for a batch; the agent keeps its memory until `reset`."""
        action, self._state = self.act(obs, self._state, self._first, greedy, mask=mask, reward=reward)
        self._first = False
        return action

    def reset(self, ended: Any = None) -> None:
        """Forget the memory that `step` keeps: call this when an episode ends.

        ended: for a batch, a flag for each environment, such as `terminated | truncated`. None: all.
        """
        if ended is None or self._state is None:
            self._state, self._first = None, True
            return
        flags, rows = np.asarray(ended), self._rows
        if flags.shape not in ((), (rows,)) or flags.dtype.kind not in "biu":
            raise AgentInputError(
                f"reset got flags of shape {flags.shape} and dtype {flags.dtype}; for {_observations(rows)} it needs a bool, or "
                f"an array of {rows} of them."
            )
        self._first = flags.astype(bool) | self._first

    # ------------------------------------------------------------------------------- inputs of the policy

    def _inputs(
        self, obs: Any, state: AgentState | None, first: Any, mask: Any, reward: Any
    ) -> tuple[dict[str, Tensor], tuple[Tensor, ...], int | None]:
        """Return what `Policy.act` needs, for one step [1, B], and the size of the batch (None: one observation)."""
        read, B = self._reader.read(obs)
        rows = self._rows = B or 1
        fixed = self._fixed.get(rows) or self._fix(rows)
        if state is None:
            state = self.initial_state(B)
            first = True if first is None else first
        elif not _is_state(state, fixed):
            state = _read_state(state, fixed, rows)
        flags = fixed.all_first if first is True else fixed.none_first
        if first is not None and not isinstance(first, bool):
            flags = self._flags(first, rows)
        for leaf in state:
            if not np.isfinite(leaf).all():
                raise AgentInputError(f"the state contains {leaf[~np.isfinite(leaf)][0]}.")
        leaves = [torch.from_numpy(leaf) for leaf in state]
        inputs = {keys.OBS: read.unsqueeze(0), keys.DONES: flags, keys.TRUNCATEDS: fixed.none_first}
        inputs[keys.REWARDS] = fixed.no_rewards if reward is None else self._rewards(reward, rows)
        if reward is None and self._sees_reward and not flags.all():
            raise AgentInputError(
                "this policy sees rewards (policy.sees): pass reward=, the reward that came with the observation."
            )
        if (legal := self._reader.read_mask(obs, mask, B)) is not None:
            inputs[keys.ACTION_MASK] = legal.unsqueeze(0)
        if self._sees_action:
            *leaves, last = leaves
            inputs[keys.LAST_ACTIONS] = last.unsqueeze(0)
        if self.device.type != "cpu":
            inputs = {key: x.to(self.device) for key, x in inputs.items()}
            leaves = [leaf.to(self.device) for leaf in leaves]
        return inputs, tuple(leaves), B

    def _fix(self, rows: int) -> _Fixed:
        """Return what is the same for every call with a batch of this size."""
        start = self.initial_state(rows)
        none = torch.zeros(1, rows, dtype=torch.bool)
        if len(self._fixed) >= MAX_SIZES:
            self._fixed.clear()
        shapes, dtypes = [leaf.shape for leaf in start], [leaf.dtype for leaf in start]
        self._fixed[rows] = fixed = _Fixed(shapes, dtypes, ~none, none, torch.zeros(1, rows))
        return fixed

    def _flags(self, first: Any, rows: int) -> Tensor:
        flags = np.asarray(first)
        if flags.shape not in ((), (rows,)) or flags.dtype.kind not in "biu":
            raise AgentInputError(
                f"first has shape {flags.shape} and dtype {flags.dtype}; for {_observations(rows)} it must be a bool, or an "
                f"array of {rows} of them."
            )
        return torch.from_numpy(np.broadcast_to(flags.astype(bool), (1, rows)).copy())

    def _rewards(self, reward: Any, rows: int) -> Tensor:
        try:
            found = np.asarray(reward, np.float32)
        except (TypeError, ValueError):
            raise AgentInputError(
                f"reward={printable(repr(reward), 60)}: needs a number for each observation."
            ) from None
        if found.shape not in ((), (rows,)):
            raise AgentInputError(
                f"reward has shape {found.shape}; for {_observations(rows)} it must be a number each."
            )
        if not np.isfinite(found).all():
            raise AgentInputError(f"the agent got a reward with {found[~np.isfinite(found)].flat[0]}.")
        return torch.from_numpy(np.broadcast_to(found, (1, rows)).copy())


def _is_state(state: Any, fixed: _Fixed) -> bool:
    """Return whether this is a state as `act` returns it. Fast, because `act` calls it at every step."""
    return (
        isinstance(state, tuple)
        and [getattr(leaf, "shape", None) for leaf in state] == fixed.state_shapes
        and [getattr(leaf, "dtype", None) for leaf in state] == fixed.state_dtypes
        and all(type(leaf) is np.ndarray and leaf.flags.writeable for leaf in state)
    )


def _read_state(state: Any, fixed: _Fixed, rows: int) -> AgentState:
    """Return a state that was a list, tensors or other numbers in the meantime, such as one that was stored as JSON."""
    if not isinstance(state, tuple | list) or len(state) != len(fixed.state_shapes):
        raise _wrong_state(state, fixed.state_shapes, rows)
    leaves = []
    for number, (leaf, shape, dtype) in enumerate(zip(state, fixed.state_shapes, fixed.state_dtypes, strict=True)):
        try:
            found = leaf.detach().cpu().numpy() if isinstance(leaf, Tensor) else np.array(leaf)
            found = found.astype(dtype, casting="same_kind")
        except (TypeError, ValueError):  # objects, text, lists of different lengths
            raise AgentInputError(f"the state does not fit: its entry {number} is not an array of numbers.") from None
        if found.shape != shape:
            raise _wrong_state(state, fixed.state_shapes, rows)
        leaves.append(found)
    return tuple(leaves)


def _wrong_state(state: Any, needed: list[tuple[int, ...]], rows: int) -> AgentInputError:
    found = [_shape(leaf) for leaf in state] if isinstance(state, tuple | list) else type(state).__name__
    return AgentInputError(
        f"the state does not fit: it has the shapes {found}, and for {_observations(rows)} it needs {needed}. "
        "Pass what the last call returned for the same batch, or None when an episode starts."
    )


def _shape(leaf: Any) -> Any:
    try:
        return np.shape(leaf)
    except ValueError:
        return "lists of different lengths"


def _observations(count: int) -> str:
    return "one observation" if count == 1 else f"{count} observations"
