"""MettaAgent: a policy (plain or component), and the metadata that is saved along with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor, nn

from holdfast.config.sections import PolicySection
from holdfast.errors import SettingsError
from holdfast.policies.components.graph import read_entries
from holdfast.policies.policy import Policy
from holdfast.policies.registry import build_on_meta, make_policy, read_graph
from holdfast.policies.settings import ComponentPolicySettings
from holdfast.policies.vocabulary import Vocabulary
from holdfast.recurrence import State
from holdfast.spec import WorldSpec


class MettaAgent(nn.Module):
    """A plain or component policy, with the data that is saved with its weights: settings, world spec and graph.

    Calls and attribute reads are forwarded to `agent.policy`, so that wrappers such as DistributedDataParallel work. To set
    an attribute of the policy, set it on `agent.policy`.
    """

    def __init__(self, settings: PolicySection, spec: WorldSpec, graph: Any = None):
        super().__init__()
        self.settings = settings
        self.built_for = spec  # the world that layer sizes were chosen for; the agent may move to another world later
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

    def facts(self) -> dict[str, Any]:
        """Return the data to save with the weights: the vocabulary and, for the component family, the graph."""
        return {"vocabulary": asdict(self.policy.vocabulary), "graph": self.graph}

    @classmethod
    def restore(
        cls, settings: PolicySection, spec: WorldSpec, facts: Mapping[str, Any], weights: Mapping[str, Tensor]
    ) -> MettaAgent:
        """Rebuild a saved agent without reading its YAML file. spec: the world that the agent was built for."""
        graph = facts["graph"]
        if graph is not None:
            read_entries(graph, "checkpoint")
        elif isinstance(settings, ComponentPolicySettings):  # would read the file that the settings name
            raise SettingsError(f"these weights belong to another agent than {settings.agent_word}.")
        if on_meta := build_on_meta(settings, spec, graph):
            match_weights(
                on_meta, facts, weights
            )  # settings with larger sizes than these weights cost no memory or time
        agent = cls(settings, spec, graph)
        agent.take(facts, weights)
        return agent

    def take(self, facts: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Load the weights of a saved plain or component agent."""
        self.policy.load_state_dict(match_weights(self.policy, facts, weights))


def match_weights(policy: Policy, facts: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give a policy the vocabulary of saved weights, and return these by the policy's names, matched by shared_name()."""
    policy.take_vocabulary(Vocabulary.from_json(facts["vocabulary"]))
    given = {shared_name(name): tensor for name, tensor in weights.items()}
    own = policy.state_dict()
    if len(given) < len(weights):
        raise SettingsError(
            "two of these weights have the same name without component prefixes; rename one of the components."
        )
    wanted = {shared_name(name) for name in own}
    missing, unknown = sorted(wanted - given.keys()), sorted(given.keys() - wanted)
    if missing or unknown:
        in_weights = [f"they have no parameter {missing[0]}"] if missing else []
        in_agent = [f"this agent has no parameter {unknown[0]}"] if unknown else []
        raise SettingsError(f"these weights belong to another agent: {'; '.join(in_weights + in_agent)}.")
    for name, tensor in own.items():
        there = given[shared_name(name)]
        if there.shape != tensor.shape:
            shapes = f"shape {list(there.shape)} in the weights, {list(tensor.shape)} in this agent"
            raise SettingsError(f"these weights belong to an agent of another size: {shared_name(name)} has {shapes}.")
    return {name: given[shared_name(name)] for name in own}


def shared_name(name: str) -> str:
    """Return the name that a weight has in both families: core.bias_l0 for components._core_.layer.bias_l0."""
    parts = name.split(".")
    if len(parts) < 3 or parts[0] != "components" or parts[2] not in ("layer", "kept"):
        return name
    component, _, *inside = parts[1:]
    return ".".join([component.strip("_"), *inside])
