"""The walk of one observation from the world to the gradient, from a trace of one acting step and one learning step.

A function of the package is on the spine if it

- receives or returns the observation, in any container,
- receives or returns what the network made of it: its outputs, actions, log-probs, values, losses,
- or is on the call stack when the environment steps, when the network runs, or when backward starts.

The network itself (encoder, core, heads) and torch are left out. The trace of acting ends with the last step of a rollout, before
its bootstrap value (`predict_values`). All other functions of the package in the trace are helpers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

import holdfast
from holdfast.config import load_settings
from holdfast.rollout import Collector
from holdfast.trainer import train
from holdfast.trainer.learner import Learner

PACKAGE = Path(holdfast.__file__).parent
NETWORK = ("policies/plain/", "policies/parts/", "policies/components/", "policies/lstm_wrapper.py", "recurrence/")
END_OF_ACTING = "policies/policy.py: Policy.predict_values"
SMALL = ["settings=quickstart", "env.num_envs=1", "trainer.horizon=4", "trainer.total_timesteps=128"]
ONE_MINIBATCH = ["trainer.update_epochs=1", "trainer.batch_size=None", "trainer.minibatch_size=None"]


class Walk:
    """A profile hook that collects functions of the package, those on the spine in the order they are met."""

    def __init__(self) -> None:
        self.spine: dict[CodeType, str] = {}
        self.all: dict[CodeType, str] = {}
        self.outputs: list[torch.Tensor] = []  # of the network; kept alive, so that their storages stay theirs

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and getattr(arg, "__name__", "") in ("step", "run_backward"):
            self._add_callers(frame)
        name = name_in_package(frame.f_code)
        if name is None or event not in ("call", "return"):
            return
        if name == END_OF_ACTING:
            sys.setprofile(None)
            return
        if event == "return" and name.startswith("policies/"):
            self.outputs += [x for x in leaves(arg) if isinstance(x, torch.Tensor)]
        if name.startswith(NETWORK):
            self._add_callers(frame)
            return
        self.all.setdefault(frame.f_code, name)
        passed = arg if event == "return" else [frame.f_locals[key] for key in argument_names(frame.f_code)]
        if any(map(self._is_on_the_way, leaves(passed))):
            self.spine.setdefault(frame.f_code, name)

    def _is_on_the_way(self, x: torch.Tensor | np.ndarray) -> bool:
        """Whether x is the observation (tokens [..., 3] of bytes: nothing else in the run looks like that) or made from it."""
        if str(x.dtype).endswith("uint8") and x.ndim >= 3 and x.shape[-1] == 3:
            return True
        if not isinstance(x, torch.Tensor):
            return False
        storage = x.untyped_storage().data_ptr()
        return x.grad_fn is not None or any(storage == y.untyped_storage().data_ptr() for y in self.outputs)

    def _add_callers(self, frame: FrameType | None) -> None:
        """Every function of the package on the stack, outermost first, down from `collect` or `update`."""
        stack = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        traced = [i for i, code in enumerate(stack) if code.co_qualname in ("Collector.collect", "Learner.update")]
        for code in reversed(stack[: traced[-1] + 1] if traced else []):
            name = name_in_package(code)
            if name is not None and not name.startswith(NETWORK):
                self.spine.setdefault(code, name)


def leaves(value: Any, depth: int = 0) -> Iterator[torch.Tensor | np.ndarray]:
    """Arrays and tensors in containers of any kind."""
    if isinstance(value, torch.Tensor | np.ndarray):
        yield value
    elif depth < 4:
        items: list[Any] = []
        if isinstance(value, TensorDictBase):
            items = [value.get(key) for key in value.keys()]  # noqa: SIM118  (iterating a td gives its rows)
        elif isinstance(value, Mapping):
            items = list(value.values())
        elif isinstance(value, tuple | list):
            items = list(value)
        elif is_dataclass(value) and not isinstance(value, type):
            items = [getattr(value, field.name) for field in fields(value)]
        for item in items:
            yield from leaves(item, depth + 1)


def argument_names(code: CodeType) -> tuple[str, ...]:
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(name for name in names if name != "self")


def name_in_package(code: CodeType) -> str | None:
    """`rollout/collector.py: Collector.collect`; None for other code, comprehensions and lambdas."""
    if not code.co_filename.startswith(f"{PACKAGE}/") or code.co_name.startswith("<"):
        return None
    return f"{Path(code.co_filename).relative_to(PACKAGE)}: {code.co_qualname}"


def trace_second_call(cls: type, method: str, walk: Walk) -> None:
    """The second, because the first one also sets things up."""
    original, calls = getattr(cls, method), iter(range(10**6))

    def traced(*args: Any, **options: Any) -> Any:
        if next(calls) != 1:
            return original(*args, **options)
        sys.setprofile(walk)
        try:
            return original(*args, **options)
        finally:
            sys.setprofile(None)

    setattr(cls, method, traced)


def main() -> None:
    walk = Walk()
    trace_second_call(Collector, "collect", walk)
    trace_second_call(Learner, "update", walk)
    with tempfile.TemporaryDirectory() as folder:
        train(load_settings([*SMALL, *ONE_MINIBATCH, "progress=off", f"runs_dir={folder}", "run=walk"]))
    for name in walk.spine.values():
        print(name)
    everything = {**walk.all, **walk.spine}
    for title, found in (("with helpers", everything), ("spine", walk.spine)):
        files = {name.partition(":")[0] for name in found.values()}
        print(f"{title}: {len(found)} functions in {len(files)} files")


if __name__ == "__main__":
    main()
