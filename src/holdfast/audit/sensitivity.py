"""Scale weights so that leaks are measurable.

With fresh weights, outputs often hardly depend on observations, and then no leak can be measured. The audit is about
the code, not the weights. So if an observation moves an output by less than SENSITIVE, larger weight matrices are drawn
until it moves further. Afterwards the old weights are restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from holdfast.audit.compare import differences
from holdfast.audit.findings import SAME
from holdfast.audit.probe import Probe
from holdfast.audit.script import STEP
from holdfast.audit.subject import ACTIONS, Subject, UnusableError

SENSITIVE = 1e-2  # a thousand times what counts as a change
GAINS = (1.5, 2.0, 2.5, 3.0, 4.0)


@contextmanager
def restored_afterwards(subject: Subject) -> Iterator[None]:
    """Restore weights, buffers, train and eval modes and the policy's own memory at the end."""
    modules = [] if subject.module is None else list(subject.module.modules())
    tensors = [x for module in modules for x in (*module.parameters(recurse=False), *module.buffers(recurse=False))]
    buffers = [(module, dict(module._buffers)) for module in modules]  # a policy may replace them
    memory = None
    with suppress(Exception):  # no memory, or a broken get_memory, which the checks will report
        memory = tuple(leaf.detach().clone() for leaf in subject.get_memory())
    with values_restored(tensors), modes_restored(subject.module):
        try:
            yield
        finally:
            with suppress(Exception):
                subject.set_memory(memory) if memory else subject.reset_memory()
            for module, own in buffers:
                module._buffers.clear()
                module._buffers.update(own)


@contextmanager
def modes_restored(module: nn.Module | None) -> Iterator[None]:
    """Restore the train or eval mode of every module at the end."""
    modes = [] if module is None else [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def values_restored(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Restore the values of these tensors at the end."""
    restore = save_values(tensors)
    try:
        yield
    finally:
        restore()


def save_values(tensors: Iterable[Tensor]) -> Callable[[], None]:
    """Copy the values of these tensors and return a function that puts them back."""
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors]

    @torch.no_grad()
    def restore() -> None:
        for tensor, value in kept:
            if tensor.shape == value.shape:  # a memory table may have grown
                tensor.copy_(value)

    return restore


@torch.no_grad()
def perturb(weights: Iterable[nn.Parameter], generator: torch.Generator) -> None:
    """Move weights a little, as an update would; not so far that a positive scale becomes negative."""
    for weight in weights:
        noise = torch.randn(weight.shape, generator=generator).to(weight).clamp(-3, 3)
        weight.add_(0.1 * weight.abs().clamp(0.01, 1.0) * noise)


@torch.no_grad()
def redraw_weights(module: nn.Module, gain: float, seed: int) -> None:
    """Draw weight matrices from a normal distribution. Vectors (biases, scales) keep their values."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            size = max(parameter.shape[0], parameter[0].numel()) ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator).to(parameter) * gain * size)


def raise_sensitivity(probe: Probe) -> str:
    """Redraw weights at larger scales until every output responds to observations. Return a note for the report, or ''."""
    module, before = probe.subject.module, sensitivities(probe)
    if min(before.values()) >= SENSITIVE:
        return ""
    restore = save_values([] if module is None else module.parameters())
    after = before if module is None else _scale_weights(probe, module)
    # An output that nothing moves, such as a standard deviation that is a parameter, cannot leak.
    name = min(after or before, key=lambda name: before[name])
    if before[name] >= SENSITIVE:
        restore()
        return ""
    largest, smallest = max(after.values(), default=0.0), min(after.values(), default=0.0)
    if largest == 0 and not outputs_ever_change(probe):
        raise UnusableError("outputs do not depend on observations, so nothing can be measured.")
    if 0 < largest <= SAME:
        more = " Set `module`, so that larger weights can be tried." if module is None else ""
        raise UnusableError(
            f"observations change no output by more than {largest:.1e}, so leaks would not be seen.{more}"
        )
    if module is None:
        note = f"observations change {name} by only {before[name]:.1e}"
    else:
        note = (
            "weight matrices were scaled up for the audit (this is no fault of the policy). With the policy's own weights "
            f"an observation moved {name} by {before[name]:.1e}, too little to measure a leak. With larger ones "
            + (f"it moves outputs by {smallest:.1e} or more" if after else "it moves no output of its step either")
        )
    if smallest < SENSITIVE:
        note += ". That is still little, so a small leak would not show"
    return note


def outputs_ever_change(probe: Probe) -> bool:
    """Whether outputs of two scripts differ within a few steps: they may depend on earlier observations only."""
    with torch.no_grad():
        one, other = (probe.run(STEP, probe.script(T=4, B=8)).outputs for _ in range(2))
    return bool(differences(one, other).any())


def _scale_weights(probe: Probe, module: nn.Module) -> dict[str, float]:
    """Scale the weights by larger and larger gains until the outputs are sensitive enough. Return the nonzero sensitivities."""
    after: dict[str, float] = {}
    for gain in GAINS:
        redraw_weights(module, gain, probe.seed)
        after = {name: size for name, size in sensitivities(probe).items() if size > 0}
        if after and min(after.values()) >= SENSITIVE:
            break
    return after


def sensitivities(probe: Probe) -> dict[str, float]:
    """Return how far each output moves when the observation of its step changes (median of eight slots)."""
    script = probe.script(T=1, B=8)
    other = torch.stack([probe.other_obs(obs) for obs in script.obs[0]]).unsqueeze(0)
    with torch.no_grad():
        usual, changed = (probe.run(STEP, shown).outputs for shown in (script, replace(script, obs=other)))
    # Entropy depends on observations where log-probs do; with a fixed standard deviation it never moves.
    all_names = [name for name in usual if name != ACTIONS]
    names = [name for name in all_names if name not in ("log_prob", "entropy")] or all_names
    if not names:
        raise UnusableError("step returns nothing but actions: return logits, values or log-probs too.")
    return {name: float(differences(usual, changed, (name,)).median()) for name in names}
