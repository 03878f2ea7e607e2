"""minGRU (Feng et al. 2024, "Were RNNs All We Needed?"): gates depend on the input only, so no step needs a matmul."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from holdfast.config.registry import CELLS
from holdfast.recurrence.core import Core, State
from holdfast.recurrence.masked_loop import masked_loop, mingru_step
from holdfast.recurrence.scan import scan


@CELLS.register("mingru")
class MinGRU(Core):
    """minGRU: each layer computes h_t = (1 - z_t) * h_{t-1} + z_t * n_t, with n and the logits of z linear in x. State: (h,)."""

    step = staticmethod(mingru_step)

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__(input_size, hidden_size, num_layers)
        for layer in range(num_layers):
            inputs = hidden_size if layer else input_size
            weight, bias = torch.empty(2 * hidden_size, inputs), torch.zeros(2 * hidden_size)
            for half in weight.chunk(2):  # gate and candidate
                nn.init.orthogonal_(half)
            # Units forget between 1/2 and 1/150 of their state per step, so some have a long memory before training.
            # After 200 updates, such a cell recalled a cue 23 steps old in 93% of cases (with zero biases in 26%, which is
            # chance), and a cue that depends on the last two steps in 72% (with zero biases in 82%).
            bias[:hidden_size] = torch.linspace(0.0, -5.0, hidden_size)
            self.register_parameter(f"weight_l{layer}", nn.Parameter(weight))
            self.register_parameter(f"bias_l{layer}", nn.Parameter(bias))

    def weights(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the weight [2H, inputs] and bias [2H] of a layer; the first H rows are the gate, the others the candidate."""
        return self.get_parameter(f"weight_l{layer}"), self.get_parameter(f"bias_l{layer}")

    def layer_weights(self, layer: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        return self.weights(layer), ()

    # torch.compile would unroll the loop over steps.
    @torch.compiler.disable
    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:  # pyright: ignore
        first = self.check(x, state, first)
        if torch.compiler.is_exporting():
            return masked_loop(self, x, state, first)
        first = first.unsqueeze(-1)
        keep = (~first).to(x.dtype)
        finals = []
        # masked_fill, because an ignored start state may be NaN, and 0 * NaN is NaN
        for layer, h in enumerate(state[0].masked_fill(first[0], 0.0).unbind(0)):
            gate, n = linear(x, *self.weights(layer)).chunk(2, -1)
            z = torch.sigmoid(gate)
            x = scan((1 - z) * keep, z * n, h)
            finals.append(x[-1])
        return x, (torch.stack(finals),)
