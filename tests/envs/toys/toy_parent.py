"""A program with workers, to be killed: prints its workers' process ids, then does what it is told."""

from __future__ import annotations

import multiprocessing
import sys

import numpy as np

from holdfast.envs import GymEnv, make_world


def main(ending: str) -> None:
    settings = GymEnv(name="gym:toy_gym:Odd-v0", num_envs=2, kwargs={"fault": "sleep"})
    world = make_world(settings, num_workers=2, worker_timeout=0.5 if ending == "impatient" else 60)
    world.reset(seed=0)
    if ending == "restarted":
        for child in multiprocessing.active_children():
            child.kill()
        world.step(np.array([0, 0]))
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    if ending == "leave":
        return
    if ending == "fail":
        raise RuntimeError("something else went wrong")
    actions = np.array([3, 0]) if ending in ("hang", "restarted") else np.array([0, 0])
    while True:
        world.step(actions)


if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/")[0])
    main(sys.argv[1])
