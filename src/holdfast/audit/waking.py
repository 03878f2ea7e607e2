"""Waking a policy up. Fresh weights often make one that hardly answers to what it sees, and then no leak would show.

It is the code that is judged, not the weights. So where an observation moves outputs by less than LOUD, weight matrices
are drawn anew and larger, until it does; afterwards they are as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from holdfast.audit.probe import STEPPING, Probe, differences

LOUD = 1e-2  # a thousand times what counts as a movement
GAINS = (1.5, 2.0, 2.5, 3.0, 4.0)


@contextmanager
def awake(probe: Probe) -> Iterator[str]:
    """Inside, the subject answers to what it sees. Yields what was done, in words; '' if nothing had to be."""
    module = probe.subject.module
    before = answer(probe)
    if before >= LOUD or module is None:
        yield ""
        return
    kept = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    try:
        loudest = wake(probe, module)
        yield (
            f"with its own weights an observation moved outputs by {before:.1e}, too little to see a leak by. "
            f"Weight matrices were drawn anew for the audit: {loudest:.1e}"
        )
    finally:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(kept[name])


def answer(probe: Probe) -> float:
    """How much an output moves with its own observation: the median over eight slots."""
    script = probe.script(T=1, B=8)
    other = torch.stack([probe.other_obs(obs) for obs in script.obs[0]]).unsqueeze(0)
    with torch.no_grad():
        usual, changed = (probe.run(STEPPING, shown).outputs for shown in (script, replace(script, obs=other)))
    return float(differences(usual, changed).median())


@torch.no_grad()
def wake(probe: Probe, module: nn.Module) -> float:
    """Draw larger weight matrices until the policy answers; returns how much it does."""
    found = 0.0
    for gain in GAINS:
        generator = torch.Generator().manual_seed(probe.seed)
        for parameter in module.parameters():
            if parameter.dim() > 1:  # vectors are biases and scales, which have their reasons
                size = max(parameter.shape[0], parameter[0].numel()) ** -0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator).to(parameter) * gain * size)
        found = answer(probe)
        if found >= LOUD:
            break
    return found
