"""Base classes of settings: the sections `env.*` and `policy.*` have one subclass per world and per kind of policy.

So a key that would have no effect in a world or an agent is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, SerializeAsAny
from pydantic_core import CoreSchema, core_schema

from holdfast.config.registry import AGENTS, CELLS, POLICIES, WORLDS
from holdfast.spec import WorldSpec

Count = Annotated[int, Field(ge=1)]
Unit = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e6)]
Positive = Annotated[float, Field(gt=0.0, le=1e6)]


class Section(BaseModel):
    """Typed settings with limits; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def setting(default: Any, description: str, allowed: str = "", **limits: Any) -> Any:
    """A field of a section. allowed: what it accepts, if its type and limits do not say it (for messages)."""
    extra: Any = {"allowed": allowed} if allowed else None
    return Field(default=default, description=description, json_schema_extra=extra, **limits)


@dataclass(frozen=True)
class OneOf:
    """Annotates a text key that accepts registered names, `names()` at the time it is checked."""

    names: Callable[[], Iterable[str]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, value: str) -> str:
        if value not in self.names():
            raise ValueError(f"{value} is not one of {', '.join(self.names())}")
        return value


class EnvSection(Section):
    """Settings of a world, which know how to build it. Subclasses register with `@WORLDS.register(NAME)`."""

    usual_agent: ClassVar[str] = "box"  # py_agent if none is given
    single_generator: ClassVar[bool] = False  # one generator for all environments: no workers, no replay
    known_deterministic: ClassVar[bool] = False  # no need to test before a run whether episodes can be replayed

    name: str
    num_envs: Count = setting(64, "environments; slots = num_envs x agents per environment", le=65536)

    def describe(self) -> WorldSpec:
        """What a policy may know about the world; SettingsError if the world does not exist or is not supported."""
        with self.build(range(1)) as world:
            world.check_masks()
            return world.world_spec

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        """The `World` with these environments, writing into `buffers` (its own if None)."""
        raise NotImplementedError

    @classmethod
    def word(cls) -> str:
        """How the world is written after env=: memory, gym:NAME."""
        extra = cls.model_fields["name"].json_schema_extra
        assert isinstance(extra, dict), "the field `name` is made by world_name()"
        return str(extra["allowed"]).partition(",")[0]


def world_name(word: str, description: str, example: str = "") -> Any:
    """The field `name` of a world that is written as `word`: "memory", or "gym:NAME" for any name with that prefix."""
    prefix, colon, _ = word.partition(":")
    pattern = rf"^{prefix}{colon}[^\x00-\x1f\x7f]+$" if colon else rf"^{word}$"
    allowed = f"{word}, such as {example}" if example else word
    return setting(... if colon else word, description, allowed, pattern=pattern)


def find_world(name: str) -> str | None:
    """The registered name of a world: memory for "memory", gym: for "gym:CartPole-v1"; None if there is none."""
    prefix, colon, rest = name.partition(":")
    found = f"{prefix}:" if colon and rest.strip() else name if not colon else ""
    return found if found in WORLDS else None


class PolicySection(Section):
    """Settings of every policy. Subclasses register with `@POLICIES.register(KIND)`; None is the agent's default."""

    key: ClassVar[str] = "py_agent"  # the key that chooses the agent
    own_file: ClassVar[str] = ""  # how a user's own agent is written

    core: Annotated[str, OneOf(lambda: ("own", *CELLS))] = setting(
        "own", "recurrent cell; own: the agent's default (an LSTM), none: no memory, as a control"
    )
    hidden: int | None = setting(None, "hidden size (None: the agent's default)", ge=1, le=8192)
    layers: int | None = setting(None, "recurrent layers (None: the agent's default)", ge=1, le=16)
    memory_scope: Literal["episode", "lifetime"] = setting(
        "episode", "lifetime keeps memory across episodes on purpose (meta-learning)"
    )
    compile: bool = setting(False, "torch.compile everything except the recurrent cell")
    weights: str | None = setting(
        None,
        "run or checkpoint whose weights to start from, matched by name, in either family",
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        allowed="the path of a run folder or of a checkpoint in it",
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Ready-made agents of this kind."""
        return ()

    @classmethod
    def accepts(cls, key: str, name: str) -> bool:
        """Whether KEY=NAME chooses an agent of this kind."""
        return key == cls.key and name in cls.names()

    @classmethod
    def word(cls) -> str:
        """How an agent of this kind is chosen: py_agent=fast, py_agent=FILE.py:CLASS."""
        names = cls.names()
        return f"{cls.key}={('fast' if 'fast' in names else names[0]) if names else cls.own_file}"

    @property
    def agent_word(self) -> str:
        """How the agent was chosen: py_agent=fast, agent=mine.yaml."""
        return f"{self.key}={getattr(self, self.key)}"

    @property
    def agent_name(self) -> str:
        """Short name of the agent, for folders and titles."""
        return self.agent_word.partition("=")[2].rpartition("/")[2].removesuffix(".yaml").replace(".py:", "-")


def find_policy(key: str, name: str) -> str | None:
    """The kind of policy that KEY=NAME chooses (key: agent or py_agent); None if there is none."""
    return next((kind for kind, section in POLICIES.items() if section.accepts(key, name)), None)


def agent_names(key: str) -> tuple[str, ...]:
    """Ready-made agents that can be chosen by agent= or py_agent=."""
    return tuple(name for section in POLICIES.values() if section.key == key for name in section.names())


def plain_agents() -> tuple[str, ...]:
    """Agents without settings of their own: those whose name is not a kind of policy."""
    return tuple(name for name in AGENTS if name not in POLICIES)


def _read_world(value: Any) -> Any:
    """Validate env.* with the section of the world that it names."""
    if not isinstance(value, dict):
        return value
    world = find_world(str(value.get("name", "memory")))
    if world is None:
        raise ValueError(f"no such world: {value['name']}")
    return WORLDS[world].model_validate(value)


def _read_policy(value: Any) -> Any:
    """Validate policy.* with the section of the agent that it names."""
    if not isinstance(value, dict):
        return value
    key = "agent" if "agent" in value else "py_agent"
    kind = find_policy(key, str(value.get(key, "fast")))
    if kind is None:
        raise ValueError(f"no such agent: {key}={value[key]}")
    return POLICIES[kind].model_validate(value)


EnvSettings = Annotated[SerializeAsAny[EnvSection], BeforeValidator(_read_world)]
PolicySettings = Annotated[SerializeAsAny[PolicySection], BeforeValidator(_read_policy)]
