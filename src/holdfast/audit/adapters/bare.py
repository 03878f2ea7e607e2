"""Adapter for a bare nn.LSTM, nn.GRU or nn.RNN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.audit.adapters.common import zero_where_first
from holdfast.audit.subject import Outputs, State, Subject
from holdfast.errors import SettingsError

REQUIRED = ("input_size", "hidden_size", "proj_size", "num_layers", "bidirectional", "batch_first")


class BareRecurrent(Subject):
    """A recurrent module of torch as a subject, with any number of layers, batch_first or not.

        def subject():
            return BareRecurrent(nn.LSTM(8, 64, num_layers=2))

    Run `holdfast audit mine.py:subject`. Such a module knows nothing of episodes. In acting, the adapter zeroes the
    state at episode starts, as a careful caller does. In learning, it makes one call for the whole sequence, as usual,
    without resets. So checks of resets fail; if this is intended, use `--declare learning_without_resets`.
    """

    fixed_flag_dtype = "the policy gets no flags, because the caller resets its state"

    def __init__(self, module: nn.LSTM | nn.GRU | nn.RNN, name: str = ""):
        if not all(hasattr(module, attribute) for attribute in REQUIRED):
            raise SettingsError(
                f"BareRecurrent needs an nn.LSTM, nn.GRU or nn.RNN, not {type(module).__name__}. "
                "Use StepFunction for cells and for your own modules."
            )
        self.module: nn.LSTM | nn.GRU | nn.RNN = module  # pyright: ignore[reportIncompatibleVariableOverride]
        self.name = name or str(module)

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        return torch.randn(N, self.module.input_size, generator=generator)

    def initial_state(self, B: int) -> State:
        rows = self.module.num_layers * (2 if self.module.bidirectional else 1)
        h = torch.zeros(rows, B, self.module.proj_size or self.module.hidden_size)
        return (h, torch.zeros(rows, B, self.module.hidden_size)) if isinstance(self.module, nn.LSTM) else (h,)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        outputs, state = self._run(obs.unsqueeze(0), zero_where_first(state, first, self.slot_axis))
        return {name: y[0] for name, y in outputs.items()}, state

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return self._run(obs, state)

    def where(self, method: str) -> str:
        return ""  # the code to look at is the caller's, which is unknown

    def _run(self, x: Tensor, state: State) -> tuple[Outputs, State]:
        """Run x [T, B, I] -> outputs [T, B, H] and the final state."""
        if self.module.batch_first:
            x = x.transpose(0, 1)
        y, after = self.module(x, state if isinstance(self.module, nn.LSTM) else state[0])
        if self.module.batch_first:
            y = y.transpose(0, 1)
        return {"output": y}, after if isinstance(after, tuple) else (after,)
