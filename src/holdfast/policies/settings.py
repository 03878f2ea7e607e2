"""Settings for each kind of policy. This module does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from holdfast.config.registry import POLICIES
from holdfast.config.sections import PRINTABLE, OneOf, PolicySection, plain_agents

GRAPHS = Path(__file__).parent / "agents"
GRID_AGENTS = tuple(sorted(path.stem for path in GRAPHS.glob("*.yaml")))  # in both families


class GridPolicySection(PolicySection):
    init: Literal["own", "seeds"] = Field(
        default="own",
        description="weight initialization: own (Holdfast's default), or seeds "
        "(as in the first version of these agents: LSTM biases 1, small embeddings)",
    )


@POLICIES.register("plain")
class PlainPolicySettings(GridPolicySection):
    py_agent: Annotated[str, OneOf(plain_agents)] = Field(
        default="fast", description="grid-world agent, written as a PyTorch class"
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return plain_agents()


Widths = list[Annotated[int, Field(ge=1, le=8192)]]


@POLICIES.register("box")
class BoxPolicySettings(PolicySection):
    py_agent: Literal["box"] = Field(
        default="box", description="agent for observations that are vectors, images or symbols"
    )
    encoder: Widths = Field(default=[64, 64], description="layer widths of the MLP encoder")
    heads: Widths = Field(default=[64], description="hidden layer widths of the actor and critic MLPs")
    normalize_obs: bool = Field(
        default=True, description="normalize vector observations by their running mean and variance"
    )
    log_std: float = Field(
        default=0.0, ge=-5.0, le=2.0, description="initial log standard deviation of continuous actions"
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("box",)


@POLICIES.register("component")
class ComponentPolicySettings(GridPolicySection):
    key: ClassVar[str] = "agent"
    own_file: ClassVar[str] = "FILE.yaml"

    agent: str = Field(
        pattern=rf"^({'|'.join(GRID_AGENTS)}|{PRINTABLE}+\.ya?ml)$",
        description="agent built from a graph of components: the name of a built-in agent, or the path of a .yaml file",
        json_schema_extra={"allowed": f"one of {', '.join(GRID_AGENTS)}, or the path of a .yaml file"},
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return GRID_AGENTS

    @classmethod
    def accepts(cls, key: str, name: str) -> bool:
        return super().accepts(key, name) or (key == cls.key and name.endswith((".yaml", ".yml")))


@POLICIES.register("own")
class OwnPolicySettings(PolicySection):
    own_file: ClassVar[str] = "FILE.py:CLASS"

    py_agent: str = Field(
        pattern=rf"^{PRINTABLE}*[^/]\.py:[^\W\d]\w*$",
        description="custom policy class; the file is executed, so set this on the command line, not in a settings file",
        json_schema_extra={"allowed": "FILE.py:CLASS, such as ./mine.py:MyPolicy"},
    )
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for the constructor of the policy class")

    _source: Any = PrivateAttr(None)  # the class, if a Python program passed it

    @property
    def source(self) -> Any:
        """The policy class. Reading this executes the file, unless a Python program passed the class."""
        from holdfast.policies.registry import load_class

        return load_class(self.py_agent) if self._source is None else self._source

    def with_source(self, source: type) -> OwnPolicySettings:
        """Return these settings for a class that a Python program passed."""
        settings = self.model_copy()
        settings._source = source
        return settings

    @classmethod
    def accepts(cls, key: str, name: str) -> bool:
        return key == cls.key and ".py:" in name
