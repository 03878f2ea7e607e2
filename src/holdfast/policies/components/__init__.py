"""The component family: an agent as a graph of named components, written in YAML."""

from holdfast.policies.components.component_policy import ComponentPolicy

__all__ = ["ComponentPolicy"]
