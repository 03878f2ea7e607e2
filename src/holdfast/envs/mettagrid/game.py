"""Base class of the settings of MettaGrid worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from holdfast.config.sections import EnvSection
from holdfast.envs.mettagrid.maps import Map
from holdfast.spec import WorldSpec

if TYPE_CHECKING:
    from holdfast.envs.mettagrid.api import GameConfig

Window = Literal[3, 5, 7, 9, 11, 13, 15]


class Game(Protocol):
    """The rules, which are the same in every episode, and a map for each episode."""

    config: GameConfig

    def map(self, seed: int) -> Map: ...


class MettaGridEnv(EnvSection):
    """Subclasses add their settings and make the game."""

    usual_agent: ClassVar[str] = "fast"
    known_deterministic: ClassVar[bool] = True

    def game(self) -> Game:
        raise NotImplementedError

    def describe(self) -> WorldSpec:
        from holdfast.envs.mettagrid.layout import describe_game

        return describe_game(self.name, self.game())

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.mettagrid.adapter import MettaGridWorld

        return MettaGridWorld(self, env_ids, buffers)
