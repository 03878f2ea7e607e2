"""Diagnostics: the tensor shapes of one update (debug.shapes), and metrics of the weight matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from holdfast.policies import Policy, shared_name
from holdfast.ppo import Experience
from holdfast.trainer.learner import Update


def describe_update(policy: Policy, experience: Experience, update: Update) -> Iterator[str]:
    """Yield shape, dtype and mean |x| of each tensor in the experience, the first minibatch and the memory, one per line."""
    whole, sample = experience.whole(), update.sample
    tensors = {
        **{f"experience {key} [R, S]": x for key, x in whole.inputs.items()},
        "experience actions [R, S]": whole.actions,
        "experience values [R, S]": whole.values,
        **{f"minibatch {key} [T, M]": x for key, x in sample.inputs.items()},
        **{f"minibatch start state {i} [layers, M, hidden]": x for i, x in enumerate(sample.start_state)},
        **{f"memory leaf {i} [layers, slots, hidden]": x for i, x in enumerate(policy.get_memory())},
    }
    yield f"shapes of one update: T = horizon {experience.horizon}, S = slots {experience.num_slots}"
    for name, x in tensors.items():
        size = f"  mean |x| {float(x.float().abs().mean()):.4g}" if x.numel() else ""
        yield f"  {name}: {list(x.shape)} {str(x.dtype).removeprefix('torch.')}{size}"
    yield f"  episode starts inside the minibatch: {int(sample.first[1:].sum())}"
    yield f"  parity: |log-ratio| {update.parity.max_log_ratio:.2g}, |value| {update.parity.max_value:.2g}"


@torch.no_grad()
def weight_metrics(policy: Policy) -> dict[str, float]:
    """Return the norm, largest entry and effective rank of every weight matrix, keyed by `shared_name`.

    The effective rank is the number of singular values that make up 99% of their sum. If it falls while returns stay
    flat, the network has stopped using its width.
    """
    found: dict[str, float] = {}
    for name, weight in policy.named_parameters():
        if weight.dim() < 2:
            continue
        sizes = torch.linalg.svdvals(weight.flatten(1).float())
        share = sizes.cumsum(0) / sizes.sum().clamp(min=1e-30)
        key = f"weights/{shared_name(name)}"
        found[f"{key}/norm"] = float(weight.norm())
        found[f"{key}/largest"] = float(weight.abs().max())
        found[f"{key}/effective_rank"] = int((share < 0.99).sum()) + 1
    return found
