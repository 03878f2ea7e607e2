"""Any policy that is a function: `step(obs, state, first) -> (outputs, state)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.audit.adapters.common import Observe, observing
from holdfast.audit.compare import pair
from holdfast.audit.failing import UnusableError
from holdfast.audit.subject import NotOfferedError, Outputs, State, Subject, source_of


class StepFunction(Subject):
    """A function or module as a policy. States and outputs are a tensor, or a tuple or dict of tensors.

        def subject():
            net = MyNetwork()
            return StepFunction(net.step, net.initial_state, obs_shape=(4,), sequence=net.unroll)

    `holdfast audit mine.py:subject`. initial_state(B) gives the blank state of B slots. first [B] marks observations that
    open an episode, in booleans, and for one check as int64, uint8 and float32 (`--declare boolean_flags` if those never
    come). sequence, if learning has code of its own, takes obs [T, B, ...], state and first [T, B]. Where step puts out `actions`, sequence
    is given them [T, B, ...] as a fourth argument, to score. The names `value`, `log_prob`, `entropy` and
    `full_log_probs` in a dict of outputs are compared by the checks of that name, all others only as numbers.
    """

    def __init__(
        self,
        step: Callable[..., tuple[Any, Any]],
        initial_state: Callable[[int], Any],
        *,
        obs_shape: tuple[int, ...] | None = None,
        observations: Observe | None = None,
        sequence: Callable[..., tuple[Any, Any]] | None = None,
        module: nn.Module | None = None,
        slot_axis: int = 1,
        layered: bool = True,
        no_gradient: tuple[int, ...] = (),
        name: str = "",
    ):
        self._step, self._sequence = step, sequence
        self._blank = initial_state
        self._like = initial_state(1)
        self._observe = observing("StepFunction", obs_shape, observations)
        owner = getattr(step, "__self__", step)
        self.module = module if module is not None or not isinstance(owner, nn.Module) else owner
        self.slot_axis, self.layered, self.no_gradient = slot_axis, layered, no_gradient
        self.name = name or name_of(step)

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        return self._observe(N, generator)

    def initial_state(self, B: int) -> State:
        return leaves_of(self._blank(B), self._like)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        outputs, after = pair(self._step(obs, shaped_like(self._like, state), first), "step")
        return named(outputs), leaves_of(after, self._like)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        if self._sequence is None:
            raise NotOfferedError("no form for sequences was given: learning takes the same steps as acting")
        taken = () if actions is None else (actions,)
        outputs, after = pair(self._sequence(obs, shaped_like(self._like, state), first, *taken), "sequence")
        return named(outputs), leaves_of(after, self._like)

    def where(self, method: str) -> str:
        code = self._sequence if method == "sequence" and self._sequence is not None else self._step
        return source_of(type(code).forward if isinstance(code, nn.Module) else code)


def name_of(step: Callable[..., Any]) -> str:
    """Of a method: the class of the instance, which may have inherited it."""
    if inspect.ismethod(step):
        return f"{type(step.__self__).__name__}.{step.__name__}"
    return getattr(step, "__qualname__", type(step).__name__)


def leaves_of(state: Any, like: Any) -> State:
    """The tensors of a state, those of a dict in the order of the first one, `like`."""
    if state is None:
        return ()
    if isinstance(state, Tensor):
        return (state,)
    if isinstance(state, Mapping) and isinstance(like, Mapping):
        if state.keys() != like.keys():
            one, other = (", ".join(map(str, names)) for names in (like, state))
            raise UnusableError(f"a state has {one}, and another one {other}: names have to be the same.")
        return tuple(state[name] for name in like)
    return tuple(state.values() if isinstance(state, Mapping) else state)


def shaped_like(example: Any, leaves: State) -> Any:
    """These tensors as the state that they came from: a tensor, tuple, named tuple, list or dict."""
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
