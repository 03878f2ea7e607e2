"""A Gymnasium environment that misbehaves towards its process; `gym:support.rowdy:Rowdy-v0` imports this file.

`env.kwargs.step=change_folder+change_umask` names the functions below that it calls in every step; in the same way `init`, `reset`
and `close`. Observations and rewards do not depend on them, so the run must come out the same.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import psutil
import torch
from gymnasium import spaces


def change_folder() -> None:
    os.chdir("/")


def change_umask() -> None:
    os.umask(0o777)


def change_seeds() -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)


def leave_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(3600,), name="left over").start()


def sleep() -> None:
    time.sleep(3600)


def fail() -> None:
    raise ValueError("rowdy")


def write_a_lot() -> None:
    print("x" * 100_000)
    print("x" * 100_000, file=sys.stderr)


def exit_at_once() -> None:
    os._exit(3)


def exit_politely() -> None:
    sys.exit(0)


def fork(child: Callable[[], None]) -> None:
    """Fork at some calls; the child calls `child` and, if that returns, goes on. This process waits until it has ended."""
    calls.append(None)
    if len(calls) not in (1, 2, 20, 150):
        return
    if (pid := os.fork()) == 0:
        child()
    else:
        os.waitpid(pid, 0)


def fork_and_go_on() -> None:
    fork(lambda: None)


def fork_and_fail() -> None:
    fork(fail)


def fork_and_exit() -> None:
    fork(exit_politely)


class Odd(BaseException):
    pass


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")


def raise_odd() -> None:
    raise Odd("odd")


def raise_generator_exit() -> None:
    raise GeneratorExit


def raise_mute() -> None:
    raise MuteError


def raise_many_lines() -> None:
    raise ValueError("\n".join(f"line {i}" for i in range(200)))


def late(deed: Callable[[], None]) -> None:
    """Do it in the third rollout: 64 steps per update, and the replay test has played some before."""
    calls.append(None)
    if len(calls) == 150:
        deed()


def close_files() -> None:
    late(lambda: os.closerange(3, 256))


def allow_no_files() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    late(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit)))


def use_device_meta() -> None:
    late(lambda: torch.set_default_device("meta"))


class Unwritable:
    def write(self, *_: object) -> int:
        raise ValueError("unwritable")

    def flush(self) -> None:
        raise ValueError("unwritable")


def replace_streams() -> None:
    sys.stdout = sys.stderr = Unwritable()


def use_up_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 2**26, resource.RLIM_INFINITY))
    hoard = []
    while True:
        hoard.append(bytearray(2**10))


class Stops:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def stop_in_a_destructor() -> None:
    """Python ignores exceptions there, that of a signal handler, too. Once, in the third rollout of a run."""
    if callable(signal.getsignal(signal.SIGTERM)):
        calls.append(None)
        if len(calls) == 150:
            Stops()


calls: list[None] = []


class Rowdy(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, **deeds: str) -> None:
        self.deeds, self.t = deeds, 0
        self._do("init")

    def _do(self, when: str) -> None:
        for deed in filter(None, self.deeds.get(when, "").split("+")):
            globals()[deed]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        self._do("reset")
        return self.np_random.random(2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self._do("step")
        return self.np_random.random(2).astype(np.float32), float(action), False, self.t == 10, {}

    def close(self) -> None:
        self._do("close")


gymnasium.register("Rowdy-v0", entry_point=f"{__name__}:Rowdy")
