"""ComponentPolicy: a policy built from a graph of named components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import SettingsError
from holdfast.policies.components.component import BuildContext, Component
from holdfast.policies.components.cores import CoreComponent, cell_types
from holdfast.policies.components.graph import ACTION, CORE, VALUE, build, compute_order, read_entries
from holdfast.policies.policy import Policy
from holdfast.policies.tensordict_api import Inputs
from holdfast.recurrence import State
from holdfast.spec import WorldSpec, keys


class ComponentPolicy(Policy):
    """A policy that runs its components in order on tensors [T * B, ...], or [T, B, ...] for recurrent components.

    hidden_size, num_layers: sizes of `_core_`, instead of the sizes in the YAML file.
    core: the cell of every recurrent component, instead of the cells in the YAML file.
    sees: "action", "reward" or both: what `_core_` sees of the previous step, besides the output of its source.
    """

    def __init__(
        self,
        spec: WorldSpec,
        data: Any,
        where: str = "agent",
        hidden_size: int | None = None,
        num_layers: int | None = None,
        core: str | None = None,
        memory_scope: str = "episode",
        sees: Sequence[str] = (),
    ):
        super().__init__(spec, memory_scope)
        self.see(sees)
        entries = read_entries(data, where)
        order = compute_order(entries, where)
        cells = cell_types()
        cores = [name for name in order if entries[name].type in cells.values()]
        if CORE not in cores:
            choices = ", ".join(cells.values())
            raise SettingsError(f"{where}: {CORE} is a {entries[CORE].type}; its type must be one of {choices}.")
        for name in cores:
            entry = entries[name]
            sizes = {"hidden_size": hidden_size, "num_layers": num_layers} if name == CORE else {}
            params = {**entry.nn_params, **{key: size for key, size in sizes.items() if size is not None}}
            cell = entry.type if core is None else cells[core]
            entries[name] = entry.model_copy(update={"type": cell, "nn_params": params})
        self.entries, self.order = entries, order
        self.components = nn.ModuleDict(
            build(entries, order, BuildContext(spec, self.vocabulary), where, self.num_seen)
        )
        before_cores = set(cores)
        for name in reversed(order):
            if name in before_cores:
                before_cores.update(entries[name].sources)
        self._part = {name: "encoder" if name in before_cores else "heads" for name in order}
        self._part |= dict.fromkeys(cores, "recurrence")

    def component(self, name: str) -> Component:
        found = self.components[name]
        assert isinstance(found, Component)
        return found

    @property
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        found = (self.components[name] for name in self.order)
        return tuple(shape for part in found if isinstance(part, CoreComponent) for shape in part.layer.state_shapes)

    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        T, B = first.shape
        obs = inputs[keys.OBS].flatten(0, 1)
        rows: dict[str, Any] = {}
        final: State = ()
        for name in self.order:
            component = self.components[name]
            sources = [rows[source] for source in self.entries[name].sources] or [obs]
            if isinstance(component, CoreComponent):
                begin, end = len(final), len(final) + len(component.layer.state_shapes)
                x = sources[0].unflatten(0, (T, B))
                if name == CORE and self.previous_step is not None:
                    x = torch.cat([x, self.previous_step(inputs, first)], -1)
                y, after = component(x, start[begin:end], first)
                rows[name] = y.flatten(0, 1)
                final += after
            else:
                rows[name] = component(*sources)
        return rows[ACTION].unflatten(0, (T, B)), rows[VALUE].reshape(T, B), final

    @property
    def absorbs(self) -> bool:
        return any(type(self.component(name)).absorb is not Component.absorb for name in self.order)

    def absorb(self, obs: Tensor) -> None:
        for name in self.order:
            self.component(name).absorb(obs)

    def compile_around_recurrence(self) -> None:
        """Apply torch.compile to all components except the recurrent components, whose kernels are already fused."""
        for name in self.order:
            component = self.component(name)
            if not isinstance(component, CoreComponent):
                component.forward = torch.compile(component.forward)

    def part_of(self, parameter_name: str) -> str:
        return self._part[parameter_name.split(".")[1]]

    def weight_scales(self) -> dict[str, tuple[float, float]]:
        entries = {name: self.entries[name.split(".")[1]] for name, _ in self.named_parameters()}
        return {name: (entry.clip_scale, entry.l2_init_scale) for name, entry in entries.items()}
