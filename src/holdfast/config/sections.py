"""Base classes for settings. `env.*` has one subclass per world, `policy.*` one per kind of policy.

So setting a key that the selected world or agent does not have is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, SerializeAsAny
from pydantic_core import CoreSchema, core_schema

from holdfast.config.registry import AGENTS, CELLS, POLICIES, WORLDS
from holdfast.custom_code import process_restored
from holdfast.spec import WorldSpec

Count = Annotated[int, Field(ge=1)]
Unit = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e6)]
Positive = Annotated[float, Field(gt=0.0, le=1e6)]

OWN_WORLD = ".py:"  # the registered name of FILE.py:NAME
PRINTABLE = r"[^\p{C}\p{Zl}\p{Zp}]"  # no control, direction or line-separator characters: names are printed
Entries = list[Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=200, pattern=rf"^{PRINTABLE}+$")]]


class Section(BaseModel):
    """Typed settings with limits; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def setting(default: Any, description: str, allowed: str = "", **limits: Any) -> Any:
    """Return a field for a section. `allowed`: the valid values, for messages (default: from type and limits)."""
    extra: Any = {"allowed": allowed} if allowed else None
    return Field(default=default, description=description, json_schema_extra=extra, **limits)


@dataclass(frozen=True)
class OneOf:
    """Annotation for a text key that accepts only the names in `names()`, which is called at each validation."""

    names: Callable[[], Iterable[str]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, value: str) -> str:
        if value not in self.names():
            raise ValueError(f"{value} is not one of {', '.join(self.names())}")
        return value


class EnvSection(Section):
    """Settings for a world; `build` creates the world. Subclasses register with `@WORLDS.register(NAME)`."""

    usual_agent: ClassVar[str] = "box"  # the value of py_agent if no agent is selected
    known_deterministic: ClassVar[bool] = False  # do not test before a run whether episodes can be replayed

    name: str
    num_envs: Count = setting(64, "number of environments; slots = num_envs x agents per environment", le=65536)

    @property
    def single_generator(self) -> bool:
        """Whether all environments share one random generator, so that there are no workers and no replay."""
        return False

    @property
    def num_ready(self) -> int:
        """How many environments an object has that the user made, so that no other can be made for tests or evaluation.

        0 for all worlds that make their environments themselves.
        """
        return 0

    @property
    def one_by_one(self) -> str:
        """What to use instead of a world with a single generator, for messages."""
        return f"env=gym:{self.name.partition(':')[2]}"

    @process_restored()
    def describe(self) -> WorldSpec:
        """Return the observation and action specs; raise SettingsError if the world does not exist or is unsupported."""
        with self.build(range(1)) as world:
            world.check_masks()
            return world.world_spec

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        """Build a `World` with the environments `env_ids` that writes into `buffers` (None: allocate new buffers)."""
        raise NotImplementedError

    @classmethod
    def module_in(cls, name: str) -> str:
        """Return the module or file whose code building the world `name` runs, if the name contains it, else "".

        Only the command line may name such a world: a file could come from anybody.
        """
        return name.partition(":")[2].rpartition(":")[0]  # gym:MODULE:ID

    @classmethod
    def word(cls) -> str:
        """Return the text that selects this world after `env=`: "memory" or "gym:NAME"."""
        extra = cls.model_fields["name"].json_schema_extra
        assert isinstance(extra, dict), "define the field `name` with world_name()"
        return str(extra["allowed"]).partition(",")[0]


def world_name(word: str, description: str, example: str = "") -> Any:
    """Return the field `name` for a world. `word` is "memory", or "gym:NAME" for all names with that prefix."""
    prefix, colon, _ = word.partition(":")
    pattern = rf"^{prefix}{colon}{PRINTABLE}+$" if colon else rf"^{word}$"
    allowed = f"{word}, such as {example}" if example else word
    return setting(... if colon else word, description, allowed, pattern=pattern)


def find_world(name: str) -> str | None:
    """Return the registered name of a world: "memory" for "memory", "gym:" for "gym:CartPole-v1"; None if unknown."""
    prefix, colon, rest = name.partition(":")
    found = f"{prefix}:" if colon and rest.strip() else name if not colon else ""
    return found if found in WORLDS else OWN_WORLD if re.search(r"\.py:\s*\S", name) else None


class PolicySection(Section):
    """Settings shared by all policies; None means the agent's default. Subclasses use `@POLICIES.register(KIND)`."""

    key: ClassVar[str] = "py_agent"  # the key that selects the agent
    own_file: ClassVar[str] = ""  # the form of a custom agent, such as FILE.py:CLASS

    core: Annotated[str, OneOf(lambda: ("own", *CELLS))] = setting(
        "own", "recurrent cell; `own`: the agent's default (an LSTM), `none`: no memory, as a baseline"
    )
    hidden: int | None = setting(None, "hidden size (None: the agent's default)", ge=1, le=8192)
    layers: int | None = setting(None, "number of recurrent layers (None: the agent's default)", ge=1, le=16)
    memory_scope: Literal["episode", "lifetime"] = setting(
        "episode", "when to reset memory: `episode` at every episode start, `lifetime` never (for meta-learning)"
    )
    sees: Annotated[list[Literal["action", "reward"]], AfterValidator(lambda names: sorted(set(names)))] = setting(
        [],
        "what the recurrent core sees of the previous step, besides the observation; for bandits and memory tasks",
        "a list of action, reward or both, such as [action,reward]",
    )
    compile: bool = setting(False, "apply torch.compile to everything except the recurrent cell")
    weights: str | None = setting(
        None,
        "run or checkpoint to load initial weights from, matched by parameter name; works across agent= and py_agent=",
        max_length=1000,
        pattern=rf"^{PRINTABLE}+$",
        allowed="the path of a run folder or of a checkpoint in it",
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the ready-made agents of this kind."""
        return ()

    @classmethod
    def accepts(cls, key: str, name: str) -> bool:
        """Return whether KEY=NAME selects an agent of this kind."""
        return key == cls.key and name in cls.names()

    @classmethod
    def word(cls) -> str:
        """Return a setting that selects an agent of this kind: "py_agent=fast", "py_agent=FILE.py:CLASS"."""
        names = cls.names()
        return f"{cls.key}={('fast' if 'fast' in names else names[0]) if names else cls.own_file}"

    @property
    def agent_word(self) -> str:
        """The setting that selected the agent: "py_agent=fast", "agent=mine.yaml"."""
        return f"{self.key}={getattr(self, self.key)}"

    @property
    def is_graph_file(self) -> bool:
        """Whether the agent is a graph of components in a file of the user."""
        return self.agent_word.endswith(".yaml")

    @property
    def agent_name(self) -> str:
        """Short name of the agent, for folder names and titles."""
        return self.agent_word.partition("=")[2].rpartition("/")[2].removesuffix(".yaml").replace(".py:", "-")


def find_policy(key: str, name: str) -> str | None:
    """Return the kind of policy that KEY=NAME selects (`key`: "agent" or "py_agent"); None if NAME is unknown."""
    return next((kind for kind, section in POLICIES.items() if section.accepts(key, name)), None)


def agent_names(key: str) -> tuple[str, ...]:
    """Return the names of the ready-made agents that `key` ("agent" or "py_agent") can select."""
    return tuple(name for section in POLICIES.values() if section.key == key for name in section.names())


def plain_agents() -> tuple[str, ...]:
    """Return the agents without additional settings: those whose name is not a kind of policy."""
    return tuple(name for name in AGENTS if name not in POLICIES)


def _read_world(value: Any) -> Any:
    """Validate `env.*` with the settings class of the world that `env.name` selects."""
    if not isinstance(value, dict):
        return value
    world = find_world(str(value.get("name", "memory")))
    if world is None:
        raise ValueError(f"no such world: {value['name']}")
    return WORLDS[world].model_validate(value)


def _read_policy(value: Any) -> Any:
    """Validate `policy.*` with the settings class of the agent that `agent` or `py_agent` selects."""
    if not isinstance(value, dict):
        return value
    key = "agent" if "agent" in value else "py_agent"
    kind = find_policy(key, str(value.get(key, "fast")))
    if kind is None:
        raise ValueError(f"no such agent: {key}={value[key]}")
    return POLICIES[kind].model_validate(value)


EnvSettings = Annotated[SerializeAsAny[EnvSection], BeforeValidator(_read_world)]
PolicySettings = Annotated[SerializeAsAny[PolicySection], BeforeValidator(_read_policy)]
