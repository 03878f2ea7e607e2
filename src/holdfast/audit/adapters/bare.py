"""A bare nn.LSTM, nn.GRU or nn.RNN, called as most people call it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.audit.adapters.common import blanked
from holdfast.audit.subject import Outputs, State, Subject
from holdfast.errors import SettingsError

READ = ("input_size", "hidden_size", "proj_size", "num_layers", "bidirectional", "batch_first")


class BareRecurrent(Subject):
    """A recurrent module of torch's, with any number of layers, batch_first or not.

        def subject():
            return BareRecurrent(nn.LSTM(8, 64, num_layers=2))

    `holdfast audit mine.py:subject`. Such a module knows no episodes. Acting is audited as a careful caller does it: state
    is zeroed where an episode begins, before each single step. Learning is audited as most do it: one call for the
    whole sequence, which runs through episode ends. That is a finding; `--declare learning_without_resets` if it is meant.
    """

    flags_are_cast = "it is given no flags: its caller clears its state"

    def __init__(self, module: nn.LSTM | nn.GRU | nn.RNN, name: str = ""):
        if not all(hasattr(module, read) for read in READ):
            raise SettingsError(
                f"BareRecurrent takes an nn.LSTM, nn.GRU or nn.RNN, and was given {type(module).__name__}. "
                "StepFunction is the adapter for cells and for modules of one's own."
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
        outputs, state = self._run(obs.unsqueeze(0), blanked(state, first, self.slot_axis))
        return {name: y[0] for name, y in outputs.items()}, state

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return self._run(obs, state)

    def where(self, method: str) -> str:
        return ""  # the code to look at is the caller's, which is not known here

    def _run(self, x: Tensor, state: State) -> tuple[Outputs, State]:
        """x [T, B, I] -> outputs [T, B, H] and the state after them."""
        if self.module.batch_first:
            x = x.transpose(0, 1)
        y, after = self.module(x, state if isinstance(self.module, nn.LSTM) else state[0])
        if self.module.batch_first:
            y = y.transpose(0, 1)
        return {"output": y}, after if isinstance(after, tuple) else (after,)
