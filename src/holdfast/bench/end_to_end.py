"""Whole training, for real: steps per second, where the time goes, and bytes of experience per step."""

from __future__ import annotations

import tempfile

from holdfast.config import load_settings, plan_batches
from holdfast.envs import describe
from holdfast.policies import make_policy
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train
from holdfast.trainer.loop import make_experience


def measure_end_to_end(
    updates: int, names: tuple[str, ...] = ("quickstart", "cartpole_no_velocity", "arena")
) -> list[dict]:
    """A short run of each ready-made settings file; the first update (warm-up) does not count."""
    rows = []
    for name in names:
        words = [f"settings={name}", "progress=off", "run=bench"]
        settings = load_settings(words)
        spec = describe(settings.env)
        num_slots = settings.env.num_envs * spec.agents_per_env
        plan = plan_batches(settings.trainer, num_slots)
        words.append(f"trainer.total_timesteps={(updates + 1) * plan.batch_size}")
        with tempfile.TemporaryDirectory() as folder:
            result = train(load_settings([*words, f"runs_dir={folder}"]))
            metrics = read_metrics(result.run)[1:]
        seconds = sum(plan.batch_size / row["sps"] for row in metrics)
        experience = make_experience(settings, make_policy(settings.policy, spec), plan, num_slots)
        rows.append(
            {
                "settings": name,
                "slots": num_slots,
                "steps_per_s": len(metrics) * plan.batch_size / seconds,
                **{key: sum(row[key] for row in metrics) / len(metrics) for key in SHARES},
                "bytes_per_step": experience.bytes_per_step,
            }
        )
    return rows


SHARES = ("share_world", "share_inference", "share_learning")
