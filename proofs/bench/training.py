"""Short training runs: steps per second, where the time goes, and what the safeguards against losing a run cost."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

from holdfast.config import BatchPlan, Settings, load_settings, plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.envs import World
from holdfast.policies import make_policy
from holdfast.rollout.action_log import ActionLog
from holdfast.runs import read_metrics
from holdfast.trainer import loop, train
from holdfast.trainer.saver import Saver
from holdfast.trainer.shard import make_experience

READY = ("quickstart", "cartpole_no_velocity", "arena")
SHARES = ("share_world", "share_inference", "share_learning")
NUM_SAVES = 10  # in a measured run; the reported share is the one at the default interval
DEFAULT_INTERVAL = TrainerSettings().checkpoint_interval


def measure_end_to_end(updates: int, names: tuple[str, ...] = READY) -> list[dict[str, Any]]:
    """A row per settings file: steps/s, shares of time and bytes of experience per step. The first update is left out."""
    rows = []
    for name in names:
        settings, plan, metrics = train_briefly(name, updates + 1)
        spec = settings.env.describe()
        num_slots = settings.env.num_envs * spec.agents_per_env
        experience = make_experience(settings, make_policy(settings.policy, spec), plan, num_slots)
        steps_per_s = updates * plan.batch_size / training_seconds(plan, metrics[1:])
        shares = {key: sum(row[key] for row in metrics[1:]) / updates for key in SHARES}
        row = {"settings": name, "slots": num_slots, "steps_per_s": steps_per_s, **shares}
        rows.append({**row, "bytes_per_step": experience.bytes_per_step})
    return rows


def measure_reliability(updates: int, names: tuple[str, ...] = READY) -> list[dict[str, Any]]:
    """A row per settings file: the share of training time spent in each safeguard."""
    rows = []
    interval = max(1, updates // NUM_SAVES)
    for name in names:
        with time_safeguards() as spent:
            _, plan, metrics = train_briefly(name, updates, f"trainer.checkpoint_interval={interval}")
        total = training_seconds(plan, metrics) + spent["snapshot"]
        seconds_per_checkpoint = spent["checkpoint"] / (updates // interval)
        shares = {part: spent[part] / total for part in ("finite", "actions", "snapshot")}
        shares["checkpoint"] = seconds_per_checkpoint / DEFAULT_INTERVAL / (total / updates)
        shares["in_all"] = sum(shares.values())
        row = {"settings": name, **{f"share_{part}": share for part, share in shares.items()}}
        rows.append({**row, "seconds_per_checkpoint": seconds_per_checkpoint})
    return rows


def train_briefly(name: str, updates: int, *words: str) -> tuple[Settings, BatchPlan, list[dict[str, Any]]]:
    """Train a settings file for so many updates; its settings, batch plan and a row of metrics per update."""
    with tempfile.TemporaryDirectory() as folder:
        words = (f"settings={name}", "progress=off", "run=bench", f"runs_dir={folder}", *words)
        settings = load_settings(words)
        plan = plan_batches(settings.trainer, settings.env.num_envs * settings.env.describe().agents_per_env)
        settings = load_settings([*words, f"trainer.total_timesteps={updates * plan.batch_size}"])
        return settings, plan, read_metrics(train(settings).run)


def training_seconds(plan: BatchPlan, metrics: list[dict[str, Any]]) -> float:
    return sum(plan.batch_size / row["sps"] for row in metrics)


@contextmanager
def time_safeguards() -> Iterator[dict[str, float]]:
    """Seconds spent inside each safeguard until the block ends."""
    spent: dict[str, float] = defaultdict(float)

    def timed(part: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent[part] += perf_counter() - began

        return call

    safeguards = (
        ("finite", World, "_check_finite"),
        ("actions", ActionLog, "add"),
        ("snapshot", loop, "take_snapshot"),
        ("checkpoint", Saver, "write"),
    )
    with ExitStack() as stack:
        for part, owner, name in safeguards:
            stack.enter_context(patch.object(owner, name, timed(part, getattr(owner, name))))
        yield spent
