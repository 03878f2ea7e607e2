"""mettagrid:FILE.py:NAME: a MettaGrid configuration of your own. mettagrid:NAME: one that comes with MettaGrid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, setting, world_name
from holdfast.custom_code import process_restored
from holdfast.envs.mettagrid.game import Game, MettaGridEnv
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import WorldSpec

if TYPE_CHECKING:
    from holdfast.envs.mettagrid.config_game import ConfigGame

READY = ("arena", "empty_room", "navigation")  # configurations that come with MettaGrid


@WORLDS.register("mettagrid:")
class MettaGridConfigEnv(MettaGridEnv):
    known_deterministic: ClassVar[bool] = False

    name: str = world_name(
        "mettagrid:FILE.py:NAME", "a MettaGridConfig, or a function that returns one", "mettagrid:./mine.py:config"
    )
    num_envs: Count = setting(8, "number of environments; slots = num_envs x agents", le=65536)
    kwargs: dict[str, Any] = setting({}, "keyword arguments for the function")
    desync: bool | None = setting(
        None,
        "end each environment's first episode at a random step (None: as desync_episodes of the configuration says)",
    )

    @classmethod
    def module_in(cls, name: str) -> str:
        named = name.partition(":")[2]
        return "" if named in READY else named.rpartition(":")[0] or named

    def games(self) -> Callable[[int, int, int], ConfigGame]:
        from holdfast.envs.mettagrid.config_game import ConfigGames

        return ConfigGames(self)

    def spec_of(self, game: Game) -> WorldSpec:
        from holdfast.envs.mettagrid.features import describe_config

        return describe_config(self.name, game.config)

    @process_restored()
    def describe(self) -> WorldSpec:
        """Return the specs, after starting one episode: MettaGrid checks a configuration only when it builds the game."""
        try:
            with self.build(range(1)) as world:
                world.reset(seed=0)
                return world.world_spec
        except HoldfastError as error:
            raise SettingsError(str(error)) from error
