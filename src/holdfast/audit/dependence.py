"""Dependency maps: which output depends on which input, measured by changing inputs and flags, and by differentiating."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from holdfast.audit.compare import differences, largest_by_slot
from holdfast.audit.findings import NO_GRADIENT, SAME
from holdfast.audit.probe import Probe
from holdfast.audit.script import ACT, SEQUENCE, Script
from holdfast.audit.subject import NotOfferedError, State

# Slot 0 has no reset; the others are reset inside, at the first and the last step, and on consecutive steps.
MAP_RESETS: dict[int, list[int]] = {1: [3], 2: [0, 5], 3: [2, 3]}
# Gradients that return zeros instead of None, and keep the graph for further outputs.
differentiate = partial(torch.autograd.grad, retain_graph=True, materialize_grads=True)


@dataclass(frozen=True)
class DependencyMap:
    """How strongly outputs depend on inputs. size[s, c, t, b]: effect of source s of slot c on slot b's output at step t.

    Source 0 is the start state of a slot, source s > 0 its observation at step s - 1; in a map of flags, the flag of that
    observation, and no start state. NaN means not measured.
    """

    kind: str  # changes, gradients or flags
    form: str
    first: Tensor  # [T, B]
    size: Tensor  # [1 + T, B, T, B]
    flag: str = ""  # in a map of flags, which one was changed if there are two: terminated or truncated

    @property
    def not_earlier(self) -> Tensor:
        """[1 + T, B, T, B] bool: the output is not earlier than the source."""
        T = len(self.first)
        return (torch.arange(T + 1)[:, None] <= torch.arange(T) + 1)[:, None, :, None].expand_as(self.size)

    @property
    def allowed(self) -> Tensor:
        """Cells that may show a dependence: same slot, same episode, and the output is not earlier than the source."""
        episode = self.first.long().cumsum(0)
        source = torch.cat([torch.zeros_like(episode[:1]), episode])
        return (source[:, :, None, None] == episode) & self.same_slot & self.not_earlier

    @property
    def across_reset(self) -> Tensor:
        """Cells of the same slot in which an episode started between the source and the output."""
        return self.same_slot & ~self.allowed & self.not_earlier

    @property
    def from_start_state(self) -> Tensor:
        """Cells of outputs that may depend on the start state."""
        cells = self.allowed.clone()
        cells[1:] = False
        return cells

    @property
    def later(self) -> Tensor:
        """Cells of outputs that may depend on an observation of an earlier step."""
        source, output = torch.arange(len(self.size))[:, None], torch.arange(len(self.first))
        return self.allowed & ((source > 0) & (source <= output))[:, None, :, None]

    @property
    def limit(self) -> float:
        """Sizes above this count as a dependence. For gradients, it is relative to the largest finite allowed one."""
        if self.kind == "gradients":
            return NO_GRADIENT * self.largest(self.allowed & self.size.isfinite())[0]
        return SAME

    @property
    def same_slot(self) -> Tensor:
        return torch.eye(self.first.shape[1], dtype=torch.bool)[:, None].expand_as(self.size)

    @property
    def measured(self) -> Tensor:
        return ~self.size.isnan()

    def largest(self, where: Tensor) -> tuple[float, str, str]:
        """Return the largest size among these cells, with the names of its output and its source."""
        where = where & self.measured
        if not where.any():
            return 0.0, "", ""
        cells = self.size.where(where, -1.0)
        s, c, t, b = (int(i) for i in torch.unravel_index(cells.argmax(), cells.shape))
        what = "flag" if self.kind == "flags" else "observation"
        source = f"the start state of slot {c}" if s == 0 else f"the {what} of slot {c} at step {s - 1}"
        return float(cells.max()), f"the output of slot {b} at step {t}", source


def map_of_changes(probe: Probe, form: str) -> DependencyMap:
    """Change each input in turn and measure how far each output moves."""
    script = probe.script(resets=MAP_RESETS)
    T, B = script.first.shape
    actions = probe.run(form, script).actions if form == SEQUENCE else None
    usual, drawn = probe.run(form, script, actions).outputs, torch.get_rng_state()
    repeatable = probe.draws_are_repeatable
    other = probe.random_state(B)
    size = torch.full((T + 1, B, T, B), float("nan"), dtype=torch.float64)

    def movement(changed: Script) -> Tensor:
        outputs = probe.run(form, changed, actions).outputs
        # With rejection sampling, one slot may consume more random numbers and shift those of the others.
        return differences(usual, outputs, actions_too=repeatable and drawn.equal(torch.get_rng_state()))

    for b in range(B):
        if script.start:
            size[0, b] = movement(replace(script, start=probe.with_slot(script.start, b, other, b)))
        for t in range(T):
            size[t + 1, b] = movement(script.with_obs(t, b, probe.other_obs(script.obs[t, b])))
    return DependencyMap("changes", form, script.first, size)


def maps_of_flags(probe: Probe, form: str) -> list[DependencyMap]:
    """Flip each flag in turn and measure how far each output moves. With memory of its own, a policy gets two flags."""
    script, maps = probe.script(resets=MAP_RESETS), []
    for flag in ("terminated", "truncated") if form == ACT else ("",):
        effects = effects_of_flags(probe, form, replace(script, ended_by=flag))
        size = torch.cat([torch.full_like(effects[:1], float("nan")), effects])
        maps.append(DependencyMap("flags", form, script.first, size, flag))
    return maps


def effects_of_flags(probe: Probe, form: str, script: Script) -> Tensor:
    """Return a tensor [t, b, t', b']: how far the output at (t', b') moves when the flag at (t, b) is flipped."""
    T, B = script.first.shape
    usual, size = probe.run(form, script), torch.zeros(T, B, T, B, dtype=torch.float64)
    for t, b in product(range(T), range(B)):
        first = script.first.clone()
        first[t, b] = ~first[t, b]
        flipped = probe.run(form, replace(script, first=first), usual.actions)
        size[t, b] = differences(usual.outputs, flipped.outputs)
    return size


@torch.enable_grad()
def map_of_gradients(probe: Probe, form: str) -> DependencyMap:
    """Differentiate each output with respect to the start state, and to the observations if they are real numbers."""
    script = probe.script(resets=MAP_RESETS)
    T, B = script.first.shape
    start = differentiable(script.start)
    obs = script.obs.clone().requires_grad_() if script.obs.is_floating_point() else script.obs
    leaves = [leaf for leaf in start if leaf.requires_grad]
    sources = [*leaves, *([obs] if obs.requires_grad else [])]
    if not sources:
        raise NotOfferedError("the policy has no state, and its observations are not real numbers")
    outputs = probe.run(form, Script(obs, script.first, start)).outputs
    total = random_projection({name: y for name, y in outputs.items() if y.requires_grad})
    size = torch.full((T + 1, B, T, B), float("nan"), dtype=torch.float64)
    for t in range(T):
        for b in range(B):
            gradients = differentiate(total[t, b], sources)
            # NaN means "not measured" in a map.
            found = [g.nan_to_num(nan=float("inf"), posinf=float("inf")).abs() for g in gradients]
            if leaves:
                rows = [largest_by_slot(leaf, probe.subject.slot_axis) for leaf in found[: len(leaves)]]
                size[0, :, t, b] = torch.stack(rows).amax(0).double()
            if obs.requires_grad:
                size[1:, :, t, b] = found[-1].flatten(2).amax(-1).double()
    return DependencyMap("gradients", form, script.first, size)


def differentiable(state: State) -> State:
    """Copy a state, and record gradients for its floating-point tensors, unless they are empty."""
    return tuple(leaf.detach().clone().requires_grad_(has_gradient(leaf)) for leaf in state)


def has_gradient(leaf: Tensor) -> bool:
    return leaf.is_floating_point() and leaf.numel() > 0


def random_projection(outputs: dict[str, Tensor]) -> Tensor:
    """Reduce outputs [T, B, ...] to [T, B] with fixed random weights, so that one backward pass covers all of them.

    A plain sum would not do: probabilities sum to 1, whatever they depend on.
    """
    if not outputs:
        raise NotOfferedError("no output has a gradient")
    total = torch.zeros(())
    for name in sorted(outputs):
        y = outputs[name].unsqueeze(-1).flatten(2)
        y = y.where(y.isfinite(), 0.0)  # masked choices may be -inf
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        total = total + (y * torch.randn(y.shape[-1], generator=generator)).sum(-1)
    return total
