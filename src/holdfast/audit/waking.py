"""Waking a policy up. Fresh weights often make one that hardly answers to what it sees, and then no leak would show.

It is the code that is judged, not the weights. So where an observation moves an output by less than LOUD, weight matrices
are drawn anew and larger, until it does. Whoever wakes a policy puts its weights back afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from holdfast.audit.probe import STEPPING, Probe, UnusableError, differences
from holdfast.audit.subject import ACTIONS

LOUD = 1e-2  # a thousand times what counts as a movement
GAINS = (1.5, 2.0, 2.5, 3.0, 4.0)


@contextmanager
def left_as_it_was(module: nn.Module | None) -> Iterator[None]:
    """Afterwards weights, statistics and modes are what they were."""
    if module is None:
        yield
        return
    tensors = [(x, x.detach().clone()) for x in (*module.parameters(), *module.buffers())]
    modes = [(inner, inner.training) for inner in module.modules()]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, kept in tensors:
                if tensor.shape == kept.shape:  # a table of memory may have grown
                    tensor.copy_(kept)
        for inner, training in modes:
            inner.training = training


def wake(probe: Probe) -> str:
    """Draw larger weight matrices until every output answers. What was done, in words; '' if nothing had to be."""
    module, before = probe.subject.module, answers(probe)
    if min(before.values()) >= LOUD or module is None:
        return ""
    name = min(before, key=lambda name: before[name])
    after: list[float] = []
    for gain in GAINS:
        redraw(module, gain, probe.seed)
        # An output that nothing moves (a deviation that is a parameter) has nothing to leak either.
        after = [size for size in answers(probe).values() if size > 0]
        if after and min(after) >= LOUD:
            break
    return (
        f"weight matrices were drawn larger for the time of the audit, which is nothing against the policy: with its own "
        f"an observation moved {name} by {before[name]:.1e}, too little to see a leak by; with these by {min(after, default=0.0):.1e}"
    )


def answers(probe: Probe) -> dict[str, float]:
    """How much each output moves with its own observation: the median over eight slots."""
    script = probe.script(T=1, B=8)
    other = torch.stack([probe.other_obs(obs) for obs in script.obs[0]]).unsqueeze(0)
    with torch.no_grad():
        usual, changed = (probe.run(STEPPING, shown).outputs for shown in (script, replace(script, obs=other)))
    names = [name for name in usual if name not in (ACTIONS, "log_prob")] or [n for n in usual if n != ACTIONS]
    if not names:
        raise UnusableError("it puts out nothing but actions: give logits, values or log-probs, too.")
    return {name: float(differences(usual, changed, (name,)).median()) for name in names}


@torch.no_grad()
def redraw(module: nn.Module, gain: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        if parameter.dim() > 1:  # vectors are biases and scales, which have their reasons
            size = max(parameter.shape[0], parameter[0].numel()) ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator).to(parameter) * gain * size)
