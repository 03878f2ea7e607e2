"""Adam with less Python overhead per step."""

from __future__ import annotations

from typing import Any

import torch


class Adam(torch.optim.Adam):
    """torch.optim.Adam with one parameter group and fused=True. Results and state are the same, bit for bit.

    For a small policy, torch's own `step` spends more time on checking options than on updating weights.
    """

    def __init__(self, params: Any, lr: float, eps: float):
        super().__init__(params, lr=lr, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        (group,) = self.param_groups
        params = [param for param in group["params"] if param.grad is not None]
        states = [self.state[param] for param in params]
        if not all(states):
            super().step()  # creates the missing states
            return
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)  # pyright: ignore[reportPrivateImportUsage]
        beta1, beta2 = group["betas"]
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
            params,
            [param.grad for param in params],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
