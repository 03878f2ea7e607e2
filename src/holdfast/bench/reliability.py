"""What it costs that a run cannot be lost: time inside the checks and copies, as a share of the whole."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

from holdfast.config import load_settings, plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.envs import World, describe
from holdfast.rollout.action_log import ActionLog
from holdfast.runs import read_metrics
from holdfast.trainer import loop, train
from holdfast.trainer.saver import Saver

SAVES = 10  # in the measured run; the share is the one of the default interval
DEFAULT_INTERVAL = TrainerSettings().checkpoint_interval


def measure_reliability(
    updates: int, names: tuple[str, ...] = ("quickstart", "cartpole_no_velocity", "arena")
) -> list[dict]:
    rows = []
    for name in names:
        words = [
            f"settings={name}",
            "progress=off",
            "run=bench",
            f"trainer.checkpoint_interval={max(1, updates // SAVES)}",
        ]
        settings = load_settings(words)
        plan = plan_batches(settings.trainer, settings.env.num_envs * describe(settings.env).agents_per_env)
        words.append(f"trainer.total_timesteps={updates * plan.batch_size}")
        with tempfile.TemporaryDirectory() as folder, timing() as spent:
            run = train(load_settings([*words, f"runs_dir={folder}"])).run
            saves = sum(1 for row in read_metrics(run) if row["update"] % max(1, updates // SAVES) == 0)
            learning = sum(plan.batch_size / row["sps"] for row in read_metrics(run))
        whole = learning + spent["snapshot"]
        shares = {part: spent[part] / whole for part in ("finite", "actions", "snapshot")}
        shares["checkpoint"] = spent["checkpoint"] / saves / DEFAULT_INTERVAL / (whole / updates)
        rows.append({"settings": name, **{f"share_{part}": share for part, share in shares.items()}})
        rows[-1] |= {"share_in_all": sum(shares.values()), "seconds_per_checkpoint": spent["checkpoint"] / saves}
    return rows


@contextmanager
def timing() -> Iterator[dict[str, float]]:
    """Seconds inside each guard, from here to the end of the block."""
    spent: dict[str, float] = defaultdict(float)

    def timed(part: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent[part] += perf_counter() - began

        return call

    guards = (
        ("finite", World, "_check_finite"),
        ("actions", ActionLog, "add"),
        ("snapshot", loop, "take_snapshot"),
        ("checkpoint", Saver, "write"),
    )
    with ExitStack() as stack:
        for part, owner, name in guards:
            stack.enter_context(patch.object(owner, name, timed(part, getattr(owner, name))))
        yield spent
