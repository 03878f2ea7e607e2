"""MettaAgent: the front door. It picks the family, moves between worlds, and carries what it knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor, nn

from holdfast.config.settings import ComponentPolicySettings, PolicySection
from holdfast.errors import SettingsError
from holdfast.policies.components.graph import read_entries
from holdfast.policies.policy import Policy
from holdfast.policies.registry import make_policy, read_graph
from holdfast.policies.vocabulary import Vocabulary
from holdfast.recurrence import State
from holdfast.spec import WorldSpec


class MettaAgent(nn.Module):
    """A policy of either family, and what has to be kept with its weights.

    Calling it calls the policy, and whatever else a policy has can be read through it, so a wrapper that only calls its
    module (DistributedDataParallel) can go around it. What is to be set is set on `agent.policy`.
    """

    def __init__(self, settings: PolicySection, spec: WorldSpec, graph: Any = None):
        super().__init__()
        self.settings = settings
        self.built_for = spec  # it decides the sizes of layers; the world the agent lives in may become another
        self.graph = graph
        if graph is None and isinstance(settings, ComponentPolicySettings):
            self.graph = read_graph(settings.agent)
        self.policy: Policy = make_policy(settings, spec, self.graph)

    def forward(self, td: TensorDictBase, state: State | None = None, action: Tensor | None = None) -> TensorDictBase:
        return self.policy(td, state, action)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("policy"), name)

    def initialize_to_world(self, spec: WorldSpec, learn: bool = True) -> list[str]:
        """As the policy's: the world from now on, and the names in it that are new."""
        return self.policy.initialize_to_world(spec, learn)

    # ------------------------------------------------------------------------------------------ kept with weights

    def facts(self) -> dict[str, Any]:
        """What weights alone do not say: the names they are for, and the graph they belong to."""
        return {"vocabulary": self.policy.vocabulary.to_json(), "graph": self.graph}

    @classmethod
    def restore(
        cls, settings: PolicySection, spec: WorldSpec, facts: Mapping[str, Any], weights: Mapping[str, Tensor]
    ) -> MettaAgent:
        """The agent that was saved, in the world it was saved in. Reads no file."""
        graph = facts["graph"]
        if graph is not None:
            read_entries(graph, "checkpoint")
        agent = cls(settings, spec, graph)
        agent.take(facts, weights)
        return agent

    def take(self, facts: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Become what was saved, in either family: weights are found by the name both families have for them."""
        policy = self.policy
        policy.take_vocabulary(Vocabulary.from_json(dict(facts["vocabulary"])))
        given = {shared_name(name): tensor for name, tensor in weights.items()}
        own = policy.state_dict()
        if len(given) < len(weights):
            raise SettingsError("two of these weights have one name in both families, so they cannot be told apart.")
        odd = sorted(given.keys() ^ {shared_name(name) for name in own})
        if odd:
            raise SettingsError(f"these weights are of another agent: {odd[0]} is in one of the two only.")
        for name, tensor in own.items():
            there = given[shared_name(name)]
            if there.shape != tensor.shape:
                shapes = f"{list(there.shape)} there, {list(tensor.shape)} here"
                raise SettingsError(f"these weights are of an agent of another size: {shared_name(name)} is {shapes}.")
        policy.load_state_dict({name: given[shared_name(name)] for name in own})


def shared_name(name: str) -> str:
    """What both families call a weight: components._core_.layer.bias_l0 -> core.bias_l0."""
    parts = name.split(".")
    if len(parts) < 3 or parts[0] != "components" or parts[2] not in ("layer", "kept"):
        return name
    component, _, *inside = parts[1:]
    return ".".join([component.strip("_"), *inside])
