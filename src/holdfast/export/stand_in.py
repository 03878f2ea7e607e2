"""STAND-IN for the exported acting step of the `export` branch; delete it when the branches are merged. py_agent=fast, LSTM only.

`program_of` is to be replaced by what that branch has: prepared, Interface.of, Step, program.trace, metadata_of, program.save.
"""

from __future__ import annotations

import io
import json
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.policies import Policy
from holdfast.policies.actions import only_legal
from holdfast.recurrence.fused import step_lstm
from holdfast.spec import keys


class Step(nn.Module):
    def __init__(self, policy: Any):
        super().__init__()
        self.policy = policy

    def forward(
        self, obs: Tensor, h_in: Tensor, c_in: Tensor, first: Tensor, last_action: Tensor | None = None
    ) -> dict[str, Tensor]:
        p, B = self.policy, obs.shape[0]
        cell, channel, _, weight = p.obs._read(obs.long(), True)
        usable = (cell >= 0) & (channel >= 0) & (obs[..., 0] != 255)
        area = p.obs.side**2
        place = (channel * area + cell).where(usable, 0)
        grid = weight.new_zeros(B, p.obs.num_channels * area).scatter_add(1, place, weight.where(usable, 0.0))
        grid = grid.view(B, p.obs.num_channels, p.obs.side, p.obs.side)
        x = F.relu(F.conv2d(grid, p.cnn1.weight, p.cnn1.bias, stride=3))
        x = F.relu(F.conv2d(x, p.cnn2.weight, p.cnn2.bias)).flatten(1)
        x = F.relu(F.linear(x, p.fc1.weight, p.fc1.bias))
        x = F.relu(F.linear(x, p.encoded_obs.weight, p.encoded_obs.bias))[None]
        if p.previous_step is not None:
            assert last_action is not None
            x = torch.cat([x, p.previous_step({keys.LAST_ACTIONS: last_action[None]}, first[None])], -1)
        state = tuple(leaf.masked_fill(first[None, :, None], 0.0) for leaf in (h_in, c_in))
        y, (h, c) = step_lstm(x, state, p.core.weights())
        value = F.linear(torch.tanh(F.linear(y[0], p.critic_1.weight, p.critic_1.bias)), p.value.weight, p.value.bias)
        logits = p.action(F.relu(F.linear(y[0], p.actor_1.weight, p.actor_1.bias)), p.action_embeds())
        if p._unlearned is not None:
            logits = only_legal(logits, ~p._unlearned)
        return {"logits": logits, "value": value.squeeze(-1), "h_out": h, "c_out": c}


@torch.no_grad()
def program_of(policy: Policy, source: dict[str, str]) -> bytes:
    """Return the policy's acting step as a torch.export program, with metadata that includes `source`."""
    B, spec = 2, policy.spec
    inputs: dict[str, Tensor] = {"obs": torch.full((B, *spec.obs.shape), 255, dtype=torch.uint8)}
    inputs |= zip(("h_in", "c_in"), policy.initial_state(B), strict=True)
    inputs["first"] = torch.ones(B, dtype=torch.bool)
    if policy.previous_step is not None:
        inputs["last_action"] = torch.full((B,), -1)
    batch = torch.export.Dim("batch", min=1)
    shapes = {name: {1 if name.endswith("_in") else 0: batch} for name in inputs}
    program = torch.export.export(Step(policy), (), inputs, dynamic_shapes=shapes)
    ports = {name: {"shape": list(x.shape), "dtype": str(x.dtype)} for name, x in inputs.items()}
    names = json.dumps(cast(Any, spec.actions).names)
    metadata = {"holdfast_export": "1", "inputs": json.dumps(ports), "action_names": names, **source}
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"holdfast.json": json.dumps(metadata)})
    return file.getvalue()
