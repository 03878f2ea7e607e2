"""Dependency maps: which outputs answer to which inputs, found by changing each input and by differentiating."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.audit.compare import by_slot, differences
from holdfast.audit.findings import NO_GRADIENT, SAME
from holdfast.audit.probe import Probe
from holdfast.audit.script import SEQUENCE, Script
from holdfast.audit.subject import ACTIONS, NotOfferedError

# Episodes of the four slots of a map: unbroken; cut inside; begun at step 0 and cut at the last step; cut twice in a row.
MAP_ENDS: dict[int, list[int]] = {1: [3], 2: [0, 5], 3: [2, 3]}


@dataclass(frozen=True)
class DependencyMap:
    """size [1 + T, B, T, B]: how much output (t, b) answers to source (s, c). Source 0 is the start state of slot c,
    source s + 1 its observation at step s. NaN: not measured."""

    kind: str  # changes or gradients
    form: str
    first: Tensor  # [T, B]
    size: Tensor

    @property
    def allowed(self) -> Tensor:
        """[1 + T, B, T, B] bool: the same slot, not earlier, in the same episode."""
        T, B = self.first.shape
        episode = self.first.long().cumsum(0)
        source = torch.cat([torch.zeros(1, B, dtype=torch.long), episode])
        same_episode = source[:, :, None, None] == episode[None, None]
        not_earlier = torch.arange(T)[None, :] >= (torch.arange(T + 1) - 1)[:, None]
        return same_episode & self.same_slot & not_earlier[:, None, :, None]

    @property
    def across_a_start(self) -> Tensor:
        """The same slot, not earlier, and an episode began in between."""
        T, B = self.first.shape
        not_earlier = torch.arange(T + 1)[:, None] <= torch.arange(T)[None, :]
        return self.same_slot & ~self.allowed & not_earlier[:, None, :, None].expand(T + 1, B, T, B)

    @property
    def from_the_start(self) -> Tensor:
        """What the start state may move."""
        cells = self.allowed.clone()
        cells[1:] = False
        return cells

    @property
    def later(self) -> Tensor:
        """What observations may move after the step they are seen at."""
        cells = self.allowed.clone()
        cells[0] = False
        for t in range(len(self.first)):
            cells[t + 1, :, t] = False
        return cells

    @property
    def limit(self) -> float:
        """What is larger has moved. Of gradients: next to the largest that may be there, and is a number."""
        if self.kind == "changes":
            return SAME
        return NO_GRADIENT * self.largest(self.allowed & self.size.isfinite())[0]

    @property
    def same_slot(self) -> Tensor:
        T, B = self.first.shape
        return torch.eye(B, dtype=torch.bool)[None, :, None, :].expand(T + 1, B, T, B)

    @property
    def measured(self) -> Tensor:
        return ~self.size.isnan()

    def largest(self, where: Tensor) -> tuple[float, str, str]:
        """The largest size among these cells, and in words which output answers to which source."""
        where = where & self.measured
        if not where.any():
            return 0.0, "", ""
        cells = self.size.where(where, -1.0)
        s, c, t, b = (int(i) for i in torch.unravel_index(cells.argmax(), cells.shape))
        source = f"the start state of slot {c}" if s == 0 else f"the observation of slot {c} at step {s - 1}"
        return float(cells.max()), f"the output of slot {b} at step {t}", source


def map_of_changes(probe: Probe, form: str) -> DependencyMap:
    """Change each input in turn, and see which outputs move."""
    script = probe.script(ends=MAP_ENDS)
    T, B = script.first.shape
    actions = probe.run(form, script).outputs.get(ACTIONS) if form == SEQUENCE else None
    usual = probe.run(form, script, actions)
    drawn = probe.actions_repeat
    other = probe.any_state(B)
    size = torch.full((T + 1, B, T, B), float("nan"), dtype=torch.float64)
    for b in range(B):
        if script.start:
            changed = Script(script.obs, script.first, probe.placed(script.start, b, other, b))
            size[0, b] = differences(usual.outputs, probe.run(form, changed, actions).outputs, actions_too=drawn)
        for t in range(T):
            changed = script.with_obs(t, b, probe.other_obs(script.obs[t, b]))
            size[t + 1, b] = differences(usual.outputs, probe.run(form, changed, actions).outputs, actions_too=drawn)
    return DependencyMap("changes", form, script.first, size)


def map_of_gradients(probe: Probe, form: str) -> DependencyMap:
    """Differentiate each output by the start state, and by the observations where they are real numbers."""
    script = probe.script(ends=MAP_ENDS)
    T, B = script.first.shape
    start = tuple(leaf.detach().clone().requires_grad_(leaf.is_floating_point()) for leaf in script.start)
    obs = script.obs.clone().requires_grad_() if script.obs.is_floating_point() else script.obs
    leaves = [leaf for leaf in start if leaf.requires_grad]
    if not leaves and not obs.requires_grad:
        raise NotOfferedError("it has no state, and observations without gradients")
    with torch.enable_grad():
        outputs = probe.run(form, Script(obs, script.first, start)).outputs
    total = projected({name: y for name, y in outputs.items() if y.requires_grad})
    sources = [*leaves, *([obs] if obs.requires_grad else [])]
    size = torch.full((T + 1, B, T, B), float("nan"), dtype=torch.float64)
    axis = probe.subject.slot_axis
    for t in range(T):
        for b in range(B):
            gradients = torch.autograd.grad(total[t, b], sources, retain_graph=True, allow_unused=True)
            found = [
                torch.zeros_like(x)
                if g is None
                else g.nan_to_num(nan=float("inf"), posinf=float("inf"))  # NaN means: not measured
                for x, g in zip(sources, gradients, strict=True)
            ]
            if leaves:
                rows = [by_slot(leaf.abs(), axis).amax(1) for leaf in found[: len(leaves)]]
                size[0, :, t, b] = torch.stack(rows).amax(0).double()
            if obs.requires_grad:
                size[1:, :, t, b] = found[-1].flatten(2).abs().amax(-1).double()
    return DependencyMap("gradients", form, script.first, size)


def projected(outputs: dict[str, Tensor]) -> Tensor:
    """[T, B]: a random mixture of everything that is put out, so that one backward pass asks about all of it.

    Not a sum: that of probabilities is 1, whatever they depend on. An output is mixed in the same way in every call.
    """
    if not outputs:
        raise NotOfferedError("none of its outputs has a gradient")
    total = torch.zeros(())
    for name in sorted(outputs):
        y = outputs[name].unsqueeze(-1).flatten(2)
        y = y.where(y.isfinite(), 0.0)  # choices that are ruled out may be -inf
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        total = total + (y * torch.randn(y.shape[-1], generator=generator)).sum(-1)
    return total
