"""One acting step of a policy as a module whose inputs and outputs are tensors with names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import SettingsError
from holdfast.export.interface import OF_POLICY, Interface, split_scores
from holdfast.policies import Policy, Sampling
from holdfast.spec import keys


class Step(nn.Module):
    """Run the policy on inputs [B, ...] by name, and return its outputs [B, ...] by name.

    `first` stands for `dones | truncateds`, which the policy reads.
    """

    def __init__(self, policy: Policy, interface: Interface):
        super().__init__()
        self.policy, self.interface = policy, interface

        def forward(**inputs: Tensor) -> dict[str, Tensor]:
            return self.step(inputs)

        # torch.export reads names from the signature, and its dynamic shapes do not work with **inputs (torch 2.13).
        named = [inspect.Parameter(port.name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for port in interface.inputs]
        forward.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
        self.forward = forward

    def step(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        first = inputs["first"].unsqueeze(0)
        flags = {keys.DONES: first, keys.TRUNCATEDS: torch.zeros_like(first)}
        seen = {key: inputs[name].unsqueeze(0) for name, key in OF_POLICY.items() if name in inputs}
        state = tuple(inputs[port.name] for port in self.interface.state_inputs)
        acted = self.policy.act({**seen, **flags}, state)
        assert acted.params is not None  # None only from a custom forward, which `refuse_custom_forward` refuses
        outputs = {**split_scores(self.policy, acted.params[0]), "value": acted.values[0]}
        after = zip(self.interface.state_outputs, acted.state, strict=True)
        return outputs | {port.name: leaf for port, leaf in after}

    def example(self, batch: int) -> dict[str, Tensor]:
        """Return inputs of zeros for `batch` rows; everything is allowed and every row begins an episode."""
        inputs = {
            port.name: torch.zeros(port.full_shape(batch), dtype=getattr(torch, port.dtype))
            for port in self.interface.inputs
        }
        return inputs | {name: torch.ones_like(inputs[name]) for name in ("first", "action_mask") if name in inputs}


def refuse_custom_forward(policy: Policy) -> None:
    """Raise SettingsError for a policy whose `forward` reads and writes TensorDicts, and its memory inside."""
    if type(policy).forward is not Policy.forward:
        raise SettingsError(
            f"{type(policy).__name__} has a `forward` of its own, which reads and writes its memory, so it cannot be "
            "exported. Write encode_observations and decode_actions, or unroll, instead (docs/policies.md)."
        )


@contextmanager
def prepared(policy: Policy) -> Iterator[None]:
    """Inside the block, the policy acts greedily in eval mode, and its parameters need no gradient."""
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    with policy.set_aside(Sampling(greedy=True)), torch.no_grad():
        try:
            for parameter in trained:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)


class Read(dict[str, Any]):
    """Inputs of a policy that note which of them it reads."""

    def __init__(self, inputs: Mapping[str, Any]):
        super().__init__(inputs)
        self.names: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.names.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)
