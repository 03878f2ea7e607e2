"""Evaluate the policy while it is trained (eval.interval). This changes nothing in the run but its metrics `eval/...`."""

from __future__ import annotations

import logging
from contextlib import nullcontext

import numpy as np
import torch

from holdfast.config.settings import Settings
from holdfast.custom_code import process_restored
from holdfast.errors import HoldfastError, SettingsError
from holdfast.policies import Policy
from holdfast.rollout import mean_info, play_episodes

logger = logging.getLogger(__name__)

FIRST_SEED = 2**31  # seeds of runs are below, so no run trains on these episodes


def check_eval(settings: Settings) -> None:
    """Raise SettingsError if there is no second world to evaluate in."""
    if settings.eval.interval and settings.env.num_ready:
        raise SettingsError(
            f"eval.interval={settings.eval.interval}: env={settings.env.name} is a ready object, in which training already "
            "takes place.\nName its class or a function that makes it, or remove eval.interval."
        )


@process_restored()
def eval_metrics(settings: Settings, policy: Policy) -> dict[str, float]:
    """Play the evaluation episodes, the same ones each time, in new worlds; return the means as metrics.

    If the evaluation fails, warn and return no metrics: training does not depend on it.
    """
    chosen, trainer = settings.eval, settings.trainer
    # A compiled policy would be compiled again for another number of slots, and could round differently from then on.
    eager = torch.compiler.set_stance("force_eager") if settings.policy.compile else nullcontext()
    try:
        with eager:
            episodes = play_episodes(
                policy,
                settings.env,
                chosen.episodes,
                FIRST_SEED + settings.seed,
                chosen.greedy,
                device=settings.device,
                num_workers=min(trainer.num_workers, 1),
                worker_timeout=trainer.worker_timeout,
                worker_failures=trainer.worker_failures,
            )
    except HoldfastError as error:
        logger.warning(
            "EVALUATION FAILED, training continues: %s\nTo train without evaluations: eval.interval=0", error
        )
        return {}
    returns = [e.episode_return for e in episodes]
    return {
        "eval/return": float(np.mean(returns)),
        "eval/return_std": float(np.std(returns)),
        "eval/length": float(np.mean([e.length for e in episodes])),
        **mean_info(episodes, prefix="eval/info/"),
    }
