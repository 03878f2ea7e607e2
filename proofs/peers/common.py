"""What every script of the comparison shares: command line, task, clock and the JSON line it prints.

The network is the same for everybody: Linear(2, 64), tanh, LSTM(64, 64), one linear layer for the action logits and one for
the value. So are the settings of PPO below.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

HIDDEN = 64
HORIZON = 32  # steps per environment in a rollout, and in a training sequence
EPOCHS = 4
MINIBATCHES = 4
LR, GAMMA, GAE_LAMBDA, CLIP = 3e-4, 0.99, 0.95, 0.2
VALUE_COEF, ENTROPY_COEF, MAX_GRAD_NORM = 0.5, 0.0, 0.5

GOAL = 450.0  # mean return of greedy episodes
GOAL_EPISODES = 20
GOAL_INTERVAL = 1024  # steps between evaluations
GOAL_STEPS = 98_304


def parse_options(tasks: Sequence[str] = ("speed",)) -> argparse.Namespace:
    """Read the command line and use one thread."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=tasks, default="speed", help="speed: steps/s; others: time to a goal")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0, help="speed: measure at least this long")
    parser.add_argument("--warm-up", type=float, default=2.0, help="speed: seconds left out first")
    parser.add_argument("--steps", type=int, default=GOAL_STEPS, help="goal: give up after this many steps")
    parser.add_argument("--limit", type=float, default=120.0, help="goal: give up after this many training seconds")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Clock:
    """Steps per second over a fixed time, after a warm-up of at least one update."""

    def __init__(self, options: argparse.Namespace):
        self.warm_up, self.seconds = options.warm_up, options.seconds
        self.began = perf_counter()
        self.start: tuple[int, float] | None = None
        self.end: tuple[int, float] | None = None

    def update_done(self, steps: int, now: float | None = None) -> bool:
        """Note that an update has ended after `steps` steps in all; true once it has been measured long enough."""
        now = perf_counter() if now is None else now
        if self.start is None:
            if now - self.began >= self.warm_up:
                self.start = steps, now
        elif self.end is None and now - self.start[1] >= self.seconds:
            self.end = steps, now
        return self.end is not None

    def figures(self) -> dict[str, float]:
        if self.start is None or self.end is None:
            raise RuntimeError("training ended before the measurement was complete")
        steps, seconds = self.end[0] - self.start[0], self.end[1] - self.start[1]
        return {"steps": steps, "seconds": seconds, "steps_per_s": steps / seconds}


class GoalClock:
    """Training seconds until `evaluate` returns a mean of 450. The time spent evaluating does not count."""

    def __init__(self, options: argparse.Namespace, evaluate: Callable[[], float]):
        self.options, self.evaluate = options, evaluate
        self.began = perf_counter()
        self.evaluating = 0.0
        self.steps = self.evaluated_at = 0
        self.reached = False
        self.seconds = 0.0

    def update_done(self, steps: int) -> bool:
        """Evaluate if 1,024 steps have passed since the last time; true once the goal is reached or given up."""
        now = perf_counter()
        self.steps, self.seconds = steps, now - self.began - self.evaluating
        if steps - self.evaluated_at >= GOAL_INTERVAL:
            self.evaluated_at = steps
            self.reached = self.evaluate() >= GOAL
            self.evaluating += perf_counter() - now
        return self.reached or steps >= self.options.steps or self.seconds >= self.options.limit

    def figures(self) -> dict[str, float | bool]:
        return {"reached": self.reached, "steps": self.steps, "seconds": self.seconds}


def print_result(figures: dict[str, Any], packages: Sequence[str], note: str = "") -> None:
    """Print the one JSON line that the driver reads."""
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps({**figures, "versions": {"python": platform.python_version(), **versions}, "note": note}))
