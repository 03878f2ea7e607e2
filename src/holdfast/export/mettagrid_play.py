"""Play one episode of a bundle in MettaGrid's runner, without Holdfast: a script, started by `mettagrid.py`.

stdin: JSON with `bundle`, `env` (a MettaGridConfig), `seed` and `most_steps`. Last line of stdout: what happened.
"""

from __future__ import annotations

import json
import sys
import zlib
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any
from unittest.mock import patch


class NoHoldfast(MetaPathFinder):
    """Refuse to import Holdfast, so that the bundle shows that it does without."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] == "holdfast":
            raise ImportError(f"{name} is not available to an exported policy")


def play(spec: Any, env: Any, seed: int, most_steps: int) -> dict[str, list[Any]]:
    """Play an episode with the policy of a PolicySpec; end it after `most_steps`.

    Return, per step, a checksum of the observations, the actions that the runner took for them, and the policy's values.
    """
    from mettagrid.runner.rollout import run_episode_local
    from mettagrid.simulator import Simulator
    from mettagrid.simulator.interface import SimulatorEventHandler

    observed: list[int] = []
    actions: list[list[int]] = []
    values: list[list[float]] = []

    class Recorder(SimulatorEventHandler):
        def on_episode_start(self) -> None:
            self.look()

        def on_step(self) -> None:
            sim: Any = self._sim
            moves, vibes = sim._c_sim.actions().tolist(), sim._c_sim.vibe_actions().tolist()
            infos = sim._context["policy_infos"]
            actions.append([vibe or move for move, vibe in zip(moves, vibes, strict=True)])
            values.append([infos[agent]["value"] for agent in range(sim.num_agents)])
            self.look()
            if len(actions) == most_steps:
                sim.end_episode()

        def look(self) -> None:
            observed.append(zlib.crc32(self._sim._c_sim.observations().tobytes()))

    original = Simulator.__init__

    def with_recorder(self: Simulator, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self.add_event_handler(Recorder())

    with patch.object(Simulator, "__init__", with_recorder):
        run_episode_local(policy_specs=[spec], assignments=[0] * env.game.num_agents, env=env, seed=seed)
    return {"observed": observed[:-1], "actions": actions, "values": values}


def main() -> None:
    sys.meta_path.insert(0, NoHoldfast())
    from mettagrid.config.mettagrid_config import MettaGridConfig
    from mettagrid.policy.prepare_policy_spec import load_policy_spec_from_path

    job = json.load(sys.stdin)
    spec = load_policy_spec_from_path(Path(job["bundle"]))
    print(json.dumps(play(spec, MettaGridConfig.model_validate(job["env"]), job["seed"], job["most_steps"])))


if __name__ == "__main__":
    main()
