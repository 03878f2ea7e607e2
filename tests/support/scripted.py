"""Settings of a world with random observations, for code that builds its world from settings."""

from __future__ import annotations

from typing import Any

from holdfast.config.sections import EnvSection
from holdfast.spec import WorldSpec
from support.worlds import ScriptedWorld


class ScriptedEnv(EnvSection):
    """`build` returns a ScriptedWorld. There is no word for it."""

    name: str = "scripted"
    spec: WorldSpec
    end_rate: float = 0.05

    def build(self, env_ids: range, buffers: Any = None) -> ScriptedWorld:
        return ScriptedWorld(self.spec, len(env_ids), self.end_rate)
