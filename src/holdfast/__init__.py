"""Holdfast trains recurrent policies with PPO over many environments, and audits recurrent policies for state bugs.

run = holdfast.train("settings=cartpole_no_velocity", seed=3)
agent = holdfast.load(run.path)
action, state = agent.act(observation)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.deploy import Agent, AgentInputError, load
    from holdfast.errors import HoldfastError, SettingsError
    from holdfast.python_api import Run, train

__version__ = "0.1.0"
__all__ = ["Agent", "AgentInputError", "HoldfastError", "Run", "SettingsError", "load", "train"]

_MODULES = {  # by name, where it is defined
    "Agent": "deploy",
    "AgentInputError": "deploy",
    "load": "deploy",
    "HoldfastError": "errors",
    "SettingsError": "errors",
    "Run": "python_api",
    "train": "python_api",
    "export": "export",
}


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def __getattr__(name: str) -> Any:
    """Import what is used when it is used: torch takes seconds, and the command line does not always need it."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    module = import_module(f"holdfast.{_MODULES[name]}")
    return module if name == "export" else getattr(module, name)
