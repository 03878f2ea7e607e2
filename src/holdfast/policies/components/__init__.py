"""The component family: agents as graphs of named components, written in YAML."""

from holdfast.policies.components.component_policy import ComponentPolicy

__all__ = ["ComponentPolicy"]
