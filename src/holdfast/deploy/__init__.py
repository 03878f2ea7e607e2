"""A trained agent outside of its run folder: in a script, a game or a robot."""

from typing import TYPE_CHECKING

from holdfast.config.registry import lazy_exports

if TYPE_CHECKING:
    from holdfast.deploy.agent import Agent, Normal
    from holdfast.deploy.loading import load, load_agent
    from holdfast.deploy.observations import AgentInputError

__all__ = ["Agent", "AgentInputError", "Normal", "load", "load_agent"]

__getattr__ = lazy_exports(__name__)
