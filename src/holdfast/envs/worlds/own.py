"""FILE.py:NAME: an environment of the user's own, of Gymnasium or PettingZoo."""

from __future__ import annotations

import os
from typing import Any

from pydantic import PrivateAttr

from holdfast.config.registry import WORLDS
from holdfast.config.sections import PRINTABLE, Count, setting
from holdfast.custom_code import process_restored
from holdfast.envs.worlds.gym import GymEnv
from holdfast.errors import SettingsError, split_code_name
from holdfast.spec import WorldSpec


@WORLDS.register(".py:")
class OwnEnv(GymEnv):
    name: str = setting(
        ...,
        "class or function in a Python file that makes a Gymnasium environment (Env, VectorEnv) or a PettingZoo environment "
        "(ParallelEnv, AECEnv); the file is executed, so set this on the command line, not in a settings file",
        "FILE.py:NAME, such as ./mine.py:MyEnv",
        pattern=rf"^{PRINTABLE}*[^/]\.py:[^\W\d]\w*$",
    )
    num_envs: Count = setting(8, "number of environments; slots = num_envs x agents", le=65536)
    kwargs: dict[str, Any] = setting({}, "keyword arguments for the class or function")

    _file: str = PrivateAttr()  # absolute, because the environment may change the working directory
    _source: Any = PrivateAttr(None)  # the class, function or object that `python_env` was given

    def model_post_init(self, context: Any) -> None:
        self._file = os.path.abspath(os.path.expanduser(split_code_name(self.name)[0]))

    @classmethod
    def module_in(cls, name: str) -> str:
        return split_code_name(name)[0]

    @property
    def source(self) -> Any:
        """The class, function or object that makes environments. Reading this executes the file."""
        from holdfast.envs.own_world import load_source

        return load_source(self.name, self._file) if self._source is None else self._source

    def with_source(self, source: Any) -> OwnEnv:
        """Return these settings for a class, function or object that a Python program passed."""
        from holdfast.envs.own_world import is_ready

        if self.kwargs and is_ready(source):
            raise SettingsError(
                "env.kwargs: has no effect on an environment that exists already. Pass its class, or leave them out."
            )
        settings = self.model_copy()
        settings._source = source
        return settings

    @property
    def single_generator(self) -> bool:
        from holdfast.envs.own_world import makes_vectors

        return makes_vectors(self.source)

    @property
    def num_ready(self) -> int:
        from holdfast.envs.own_world import num_ready

        return num_ready(self.source)

    @property
    def one_by_one(self) -> str:
        return "a class or function that makes one environment instead of a VectorEnv"

    @process_restored()
    def describe(self) -> WorldSpec:
        from holdfast.envs.own_world import try_out

        with self.build(range(self.num_ready or 1)) as world:
            try_out(world, self.source)
            return world.world_spec

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.own_world import build_own_world

        return build_own_world(self, env_ids, buffers)

    def __getstate__(self) -> dict[Any, Any]:
        """Return what a worker process gets. Without a picklable source, raise SettingsError."""
        from holdfast.envs.own_world import check_picklable

        if self._source is not None:
            check_picklable(self._source, self.name)
        return super().__getstate__()
