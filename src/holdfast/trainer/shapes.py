"""debug.shapes: list every tensor of one update with its shape, dtype and mean size."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from holdfast.policies import Policy
from holdfast.ppo import Experience
from holdfast.trainer.learner import Update


def describe_update(policy: Policy, experience: Experience, update: Update) -> Iterator[str]:
    """Yield one line per tensor: experience, the first minibatch and the policy's memory."""
    whole = experience.whole()
    yield f"shapes of one update: T = horizon {experience.horizon}, S = slots {experience.num_slots}"
    for key, x in whole.inputs.items():
        yield _line(f"  experience {key} [R, S]", x)
    yield _line("  experience actions [R, S]", whole.actions)
    yield _line("  experience values [R, S]", whole.values)
    for key, x in update.sample.inputs.items():
        yield _line(f"  minibatch {key} [T, M]", x)
    for i, leaf in enumerate(update.sample.start_state):
        yield _line(f"  minibatch start state {i} [layers, M, hidden]", leaf)
    for i, leaf in enumerate(policy.get_memory()):
        yield _line(f"  memory leaf {i} [layers, slots, hidden]", leaf)
    yield f"  episode starts inside the minibatch: {int(update.sample.first[1:].sum())}"
    yield f"  parity: |log-ratio| {update.parity.max_log_ratio:.2g}, |value| {update.parity.max_value:.2g}"


def _line(name: str, x: Tensor) -> str:
    size = f"  mean |x| {float(x.float().abs().mean()):.4g}" if x.numel() else ""
    return f"{name}: {list(x.shape)} {str(x.dtype).removeprefix('torch.')}{size}"
