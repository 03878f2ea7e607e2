"""Waking a policy up. Fresh weights often make one that hardly answers to what it sees, and then no leak would show.

It is the code that is judged, not the weights. So where an observation moves an output by less than LOUD, weight matrices
are drawn anew and larger, until it does. Whoever wakes a policy puts its weights back afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from holdfast.audit.compare import differences
from holdfast.audit.failing import UnusableError
from holdfast.audit.findings import SAME
from holdfast.audit.probe import Probe
from holdfast.audit.script import STEPPING
from holdfast.audit.subject import ACTIONS, Subject

LOUD = 1e-2  # a thousand times what counts as a movement
GAINS = (1.5, 2.0, 2.5, 3.0, 4.0)


@contextmanager
def left_as_it_was(subject: Subject) -> Iterator[None]:
    """Afterwards weights, statistics, modes and the memory that the policy keeps are what they were."""
    modules = [] if subject.module is None else list(subject.module.modules())
    tensors = [(x, x.detach().clone()) for module in modules for x in _own_tensors(module)]
    buffers = [(module, dict(module._buffers)) for module in modules]  # a policy may put others in their place
    memory = None
    with suppress(Exception):  # it keeps none, or cannot say; what is wrong with that, checks will find
        memory = tuple(leaf.detach().clone() for leaf in subject.get_memory())
    try:
        with modes_kept(subject.module):
            yield
    finally:
        with suppress(Exception):
            subject.set_memory(memory) if memory else subject.reset_memory()
        for module, own in buffers:
            module._buffers.clear()
            module._buffers.update(own)
        put_back(tensors)


@contextmanager
def modes_kept(module: nn.Module | None) -> Iterator[None]:
    """Afterwards every module is in the mode it came in: some may be frozen in evaluation mode on purpose."""
    modes = [] if module is None else [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def moved(weights: Sequence[nn.Parameter], generator: torch.Generator) -> Iterator[None]:
    """These weights a little off, as after an update; not so far that one changes its sign and is no deviation any more."""
    own = [(weight, weight.detach().clone()) for weight in weights]
    try:
        with torch.no_grad():
            for weight, kept in own:
                noise = torch.randn(kept.shape, generator=generator).to(kept).clamp(-3, 3)
                weight.add_(0.1 * kept.abs().clamp(0.01, 1.0) * noise)
        yield
    finally:
        put_back(own)


@torch.no_grad()
def put_back(tensors: Iterable[tuple[Tensor, Tensor]]) -> None:
    """The numbers that each of these had before."""
    for tensor, kept in tensors:
        if tensor.shape == kept.shape:  # a table of memory may have grown
            tensor.copy_(kept)


def _own_tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def wake(probe: Probe) -> str:
    """Draw larger weight matrices until every output answers. What was done, in words; '' if nothing had to be."""
    module, before = probe.subject.module, answers(probe)
    if min(before.values()) >= LOUD:
        return ""
    own = [] if module is None else [(x, x.detach().clone()) for x in module.parameters()]
    after = before if module is None else woken(probe, module)
    # An output that nothing moves, such as a deviation that is a parameter, has nothing to leak.
    name = min(after or before, key=lambda name: before[name])
    if before[name] >= LOUD:
        put_back(own)
        return ""
    loudest, quietest = max(after.values(), default=0.0), min(after.values(), default=0.0)
    if loudest == 0 and not changes_at_all(probe):
        raise UnusableError("its outputs do not change with what it observes, so nothing could be seen.")
    if 0 < loudest <= SAME:
        more = "Set `module`, so that larger weights can be tried." if module is None else ""
        raise UnusableError(
            f"an observation moves no output by more than {loudest:.1e}: no leak would show. {more}".strip()
        )
    if module is None:
        said = f"an observation moves {name} by {before[name]:.1e} only"
    else:
        said = (
            "weight matrices were drawn larger for the time of the audit, which is nothing against the policy: with its own "
            f"an observation moved {name} by {before[name]:.1e}, too little to see a leak by; with these "
            + (f"by {quietest:.1e} or more" if after else "it moves nothing, either")
        )
    return said if quietest >= LOUD else f"{said}. That is little still: a leak a thousand times smaller would not show"


def changes_at_all(probe: Probe) -> bool:
    """Whether any output of a few steps differs from another: it may answer to what came before."""
    with torch.no_grad():
        one, other = (probe.run(STEPPING, probe.script(T=4, B=8)).outputs for _ in range(2))
    return bool(differences(one, other).any())


def woken(probe: Probe, module: nn.Module) -> dict[str, float]:
    """How much outputs move with the first matrices that are large enough, or else with the largest."""
    after: dict[str, float] = {}
    for gain in GAINS:
        redraw(module, gain, probe.seed)
        after = {name: size for name, size in answers(probe).items() if size > 0}
        if after and min(after.values()) >= LOUD:
            break
    return after


def answers(probe: Probe) -> dict[str, float]:
    """How much each output moves with its own observation: the median over eight slots."""
    script = probe.script(T=1, B=8)
    other = torch.stack([probe.other_obs(obs) for obs in script.obs[0]]).unsqueeze(0)
    with torch.no_grad():
        usual, changed = (probe.run(STEPPING, shown).outputs for shown in (script, replace(script, obs=other)))
    # Entropy answers where log-probs do; with a fixed deviation it never moves.
    names = [name for name in usual if name not in (ACTIONS, "log_prob", "entropy")] or [
        n for n in usual if n != ACTIONS
    ]
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
