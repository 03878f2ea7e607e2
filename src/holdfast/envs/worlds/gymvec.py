"""gymvec:NAME, a Gymnasium environment that has its own vector implementation."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from holdfast.config.registry import WORLDS
from holdfast.config.sections import EnvSection, world_name
from holdfast.spec import WorldSpec


@WORLDS.register("gymvec:")
class GymVectorEnv(EnvSection):
    single_generator: ClassVar[bool] = True

    name: str = world_name(
        "gymvec:NAME", "Gymnasium environment with its own vector implementation", "gymvec:CartPole-v1"
    )
    hide: list[Annotated[int, Field(ge=0)]] = Field(default=[], description="entries of a vector observation to hide")
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for gymnasium.make_vec")

    def describe(self) -> WorldSpec:
        """The world of a batch of one, which is closed again."""
        with self.build(range(1)) as world:
            return world.world_spec

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.vector_world import make_vector_world

        return make_vector_world(self, env_ids)
