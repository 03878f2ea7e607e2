"""Adapter for any policy written as a function `step(obs, state, first) -> (outputs, state)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from holdfast.audit.adapters.common import SampledSubject, Sampler
from holdfast.audit.compare import check_pair
from holdfast.audit.subject import NotOfferedError, Outputs, State, UnusableError, source_location


class StepFunction(SampledSubject):
    """A step function or module as a subject. States and outputs are a tensor, or a tuple or dict of tensors.

        def subject():
            net = MyNetwork()
            return StepFunction(net.step, net.initial_state, obs_shape=(4,), sequence=net.unroll)

    Run `holdfast audit mine.py:subject`. initial_state(B) returns the state of B slots at the start of an episode. first
    [B] marks observations that start an episode; it is boolean, and in one check int64, uint8 or float32 (use
    `--declare boolean_flags` if callers never pass those). Give sequence(obs [T, B, ...], state, first [T, B]) if learning
    runs other code; if step returns `actions`, sequence gets them [T, B, ...] as a fourth argument, to score. The outputs
    `value`, `log_prob`, `entropy` and `full_log_probs` have checks of their own; all others are compared as numbers. If
    an observation contains the reward that arrived with it, reward_index says where: obs[..., reward_index].
    """

    def __init__(
        self,
        step: Callable[..., tuple[Any, Any]],
        initial_state: Callable[[int], Any],
        *,
        obs_shape: tuple[int, ...] | None = None,
        observations: Sampler | None = None,
        sequence: Callable[..., tuple[Any, Any]] | None = None,
        module: nn.Module | None = None,
        slot_axis: int = 1,
        layered: bool = True,
        no_gradient: tuple[int, ...] = (),
        reward_index: int | None = None,
        name: str = "",
    ):
        super().__init__(obs_shape, observations)
        self._step, self._sequence, self._initial_state = step, sequence, initial_state
        self._example = initial_state(1)
        owner = getattr(step, "__self__", step)
        self.module = module if module is not None or not isinstance(owner, nn.Module) else owner
        self.slot_axis, self.layered, self.no_gradient = slot_axis, layered, no_gradient
        self.reward_index, self.passes_rewards = reward_index, reward_index is not None
        self.name = name or name_of(step)

    def initial_state(self, B: int) -> State:
        return leaves_of(self._initial_state(B), self._example)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        obs = self._with_last_reward(obs, first)
        outputs, after = check_pair(self._step(obs, shaped_like(self._example, state), first), "step")
        return named(outputs), leaves_of(after, self._example)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        if self._sequence is None:
            raise NotOfferedError("no sequence= given, so learning is assumed to run the same steps as acting")
        obs, taken = self._with_last_reward(obs, first), () if actions is None else (actions,)
        outputs, after = check_pair(self._sequence(obs, shaped_like(self._example, state), first, *taken), "sequence")
        return named(outputs), leaves_of(after, self._example)

    def _with_last_reward(self, obs: Tensor, first: Tensor) -> Tensor:
        if self.last_reward is None or self.reward_index is None:
            return obs
        obs = obs.clone()
        obs[..., self.reward_index].masked_fill_(first != 0, self.last_reward)
        return obs

    def state_name(self, i: int) -> str:
        if isinstance(self._example, Mapping):
            return f"state[{[*self._example][i]!r}]"
        return f"state.{self._example._fields[i]}" if hasattr(self._example, "_fields") else super().state_name(i)

    def where(self, method: str) -> str:
        code = self._sequence if method == "sequence" and self._sequence is not None else self._step
        return source_location(type(code).forward if isinstance(code, nn.Module) else code)


def name_of(step: Callable[..., Any]) -> str:
    """Return the name for the report: CLASS.METHOD for a method, else the name of the function or class."""
    if inspect.ismethod(step):
        return f"{type(step.__self__).__name__}.{step.__name__}"
    return getattr(step, "__qualname__", type(step).__name__)


def leaves_of(state: Any, like: Any) -> State:
    """Return the tensors of a state. If it is a dict, they are in the key order of `like`."""
    if state is None:
        return ()
    if isinstance(state, Tensor):
        return (state,)
    if isinstance(state, Mapping) and isinstance(like, Mapping):
        if state.keys() != like.keys():
            one, other = (", ".join(map(str, names)) for names in (like, state))
            raise UnusableError(
                f"the state has different names in different calls: {one} and {other}. Use the same names."
            )
        return tuple(state[name] for name in like)
    return tuple(state.values() if isinstance(state, Mapping) else state)


def shaped_like(example: Any, leaves: State) -> Any:
    """Rebuild a state of the type of `example` (tensor, tuple, named tuple, list or dict) from its tensors."""
    if example is None:
        return None
    if isinstance(example, Tensor):
        return leaves[0]
    if isinstance(example, Mapping):
        return dict(zip(example, leaves, strict=True))
    return type(example)(*leaves) if hasattr(example, "_fields") else type(example)(leaves)


def named(outputs: Any) -> Outputs:
    if isinstance(outputs, Tensor):
        return {"output": outputs}
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return {f"output {i}": output for i, output in enumerate(outputs)}
