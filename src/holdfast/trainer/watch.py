"""Warn about unhealthy training early, with the likely cause and what to change."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.config.settings import Settings, TrainerSettings
from holdfast.envs.episode_info import MAX_NAMES
from holdfast.errors import name_some
from holdfast.trainer.learner import Parity
from holdfast.trainer.trends import LASTING, ExplainedVariance, Metrics, Returns

PARITY_BREACH = 1e-3  # four orders of magnitude above rounding errors, so only a bug reaches it
FAR_BELOW = -0.2  # explained variance of values that vary, but not as returns do
ENTROPY_LEFT = 0.01  # fraction of the first entropy below which a policy hardly explores
LONG_EPISODES = 2  # episodes of this many horizons, or more
MAX_PARAMETERS = 4  # a warning lists at most this many parameters


class Watch:
    """Check every update; report each kind of problem once, and again if it becomes ten times worse.

    before: metrics that this run logged before it was resumed; problems in them are not reported again.
    updates: number of updates in the whole run.
    """

    def __init__(self, settings: Settings, before: Iterable[Mapping[str, Any]] = (), updates: int = sys.maxsize):
        self.settings = settings
        self._reported: dict[str, float] = {}
        self._usual: dict[str, float] = {}
        self._first_entropy: float | None = None
        self._returns = Returns(updates)
        self._explained = ExplainedVariance(updates)
        for row in before:
            self._look_at({key: value for key, value in row.items() if isinstance(value, int | float)})

    def look(
        self,
        parity: Parity,
        metrics: Metrics,
        without_gradient: Sequence[str] = (),
        info_names: Sequence[str] = (),
    ) -> list[str]:
        """Return warnings for this update, usually none. info_names: of all numbers that environments reported."""
        texts = []
        if self._worse("parity", parity.max_log_ratio, PARITY_BREACH):
            texts.append(
                "PARITY BREACH: for the same steps, learning computes different action probabilities than acting did (largest "
                f"|log-ratio| {parity.max_log_ratio:.2g}; healthy: below 1e-5). {explain_parity(parity, self.settings)}"
            )
        if self._once("no gradient") and without_gradient:  # checked after the first update of a process
            texts.append(
                f"NO GRADIENT in learning for {name_some(without_gradient, MAX_PARAMETERS)}. Check that forward uses "
                "these parameters and does not detach their output; if they are frozen on purpose, use requires_grad_(False)."
            )
        if len(info_names) > MAX_NAMES and self._once("info names"):
            texts.append(
                f"TOO MANY NAMES in the world's info: the first {MAX_NAMES} by name become metrics, up to "
                f"info/{info_names[MAX_NAMES - 1]}. Report fewer numbers at the end of an episode."
            )
        return texts + self._look_at(metrics)

    def _look_at(self, metrics: Metrics) -> list[str]:
        texts = []
        if times := self._exploded("grad_norm_recurrence", metrics, smallest=10.0, limit=100.0):
            texts.append(
                f"GRADIENT EXPLODES: the recurrence's gradient is {times:.0f} times its usual size. "
                "Try a shorter trainer.horizon or a smaller trainer.lr."
            )
        if times := self._exploded("value_loss", metrics, smallest=1.0, limit=1000.0):
            texts.append(
                f"VALUES EXPLODE: the value loss is {times:.0f} times its usual size. "
                "Try a smaller trainer.lr or trainer.reward_scale."
            )
        returns, entropy = self._returns, metrics.get("entropy")
        returns.add(metrics)
        if self._first_entropy is None:
            self._first_entropy = entropy
        first = self._first_entropy or 0.0  # may be negative for continuous actions, whose entropy has no lower bound
        no_exploration = first > 0 and entropy is not None and not entropy > ENTROPY_LEFT * first
        if no_exploration and not returns.learned and self._once("entropy"):  # after learning, low entropy is fine
            texts.append(
                f"ENTROPY COLLAPSED from {first:.2g} to {entropy:.2g}, and the return has not risen: the policy has "
                "stopped exploring. Try a larger trainer.entropy_coef or a smaller trainer.lr."
            )
        trainer, length = self.settings.trainer, metrics.get("episode_length") or 0.0
        trained_before = bool(self.settings.policy.weights)
        self._explained.add(metrics)
        # Once a task is solved, returns hardly vary, and a good critic has nothing left to explain. Values that err by more
        # than returns vary are those of a critic that has learned something; one without a gradient is near 0.
        dead = self._explained.is_nothing and not returns.constant
        if dead and (self._explained.was_good or (returns.doubled and self._explained.now < FAR_BELOW)):
            dead = not (returns.learned or trained_before)
        if dead and self._once("explained variance"):
            texts.append(
                f"VALUES EXPLAIN NOTHING: after {self._explained.count} updates the critic's explained variance is "
                f"{self._explained.now:.2g} (1: perfect, 0: no better than a constant), so advantages are mostly noise.\n"
                f"{advise_critic(trainer)}"
            )
        flat = returns.flat and not trained_before
        if flat and self._once("flat"):
            texts.append(describe_flat(returns))
        remembers = self.settings.policy.core != "none"
        if flat and remembers and length > LONG_EPISODES * trainer.horizon and self._once("horizon"):
            texts.append(
                f"SHORT HORIZON: episodes last {length:.0f} steps, but gradients reach back only {trainer.horizon} "
                "(trainer.horizon), and the return has not risen.\nIf something must be remembered for longer, raise "
                f"trainer.horizon, for example to {2 ** math.ceil(math.log2(min(length, 1024)))}."
            )
        if returns.num_low >= LASTING and self._once(f"collapse from {returns.best}"):
            kept = "; the best checkpoint is kept (trainer.keep.best)" if trainer.keep.best else ""
            kl = " or a trainer.target_kl such as 0.02" if trainer.update_epochs > 1 and not trainer.target_kl else ""
            texts.append(
                f"RETURN COLLAPSED from {returns.best:.4g} at update {returns.best_update} to {returns.now:.4g}. "
                f"Try a smaller trainer.lr{kl}{kept}."
            )
        return texts

    def _exploded(self, key: str, metrics: Metrics, smallest: float, limit: float) -> float:
        """Return the ratio of a metric to its running mean if it should be reported, else 0."""
        value, usual = metrics.get(key) or 0.0, self._usual.get(key)
        self._usual[key] = value if usual is None else 0.95 * usual + 0.05 * value
        times = value / usual if usual else 0.0
        return times if not value <= smallest and self._worse(key, times, limit) else 0.0

    def _worse(self, kind: str, value: float, limit: float) -> bool:
        """Return whether to report: the value is above the limit and above ten times the last reported value."""
        value = math.inf if math.isnan(value) else value
        if not value > max(limit, 10 * self._reported.get(kind, 0.0)):
            return False
        self._reported[kind] = value
        return True

    def _once(self, kind: str) -> bool:
        return self._worse(kind, 1.0, 0.5)


def describe_flat(returns: Returns) -> str:
    """Describe a return that has not risen, and what to change."""
    explore = "a larger trainer.entropy_coef, more environments (env.num_envs)"
    if returns.constant and returns.now == 0.0:
        return (
            f"NO REWARD FOUND in {returns.count} updates: the return of every episode was 0.\n"
            f"Try {explore}, or a world that rewards the first steps towards its goal."
        )
    if returns.constant:
        return (
            f"RETURN NEVER MOVED in {returns.count} updates: the return of every episode was {returns.now:.4g}, "
            f"whatever the agent did.\nTry {explore}, or rewards that depend on each action."
        )
    before, now = returns.levels
    return (
        f"RETURN HAS NOT RISEN in {returns.count} updates: a mean of {before:.4g} at first, {now:.4g} lately.\n"
        f"Try another trainer.lr, {explore}, and check that rewards depend on the actions."
    )


def advise_critic(trainer: TrainerSettings) -> str:
    """Return what to change if the values explain nothing. The size of rewards is the usual cause."""
    if not trainer.value_coef:
        return "trainer.value_coef=0 switches off learning of values; set it above 0."
    normalize = "" if trainer.normalize_rewards else " trainer.normalize_rewards=true,"
    clip = " trainer.value_clip=0," if trainer.value_clip else ""
    return f"Try{normalize}{clip} a larger trainer.value_coef or a larger trainer.lr."


def explain_parity(parity: Parity, settings: Settings) -> str:
    """Describe the likely bug, judging by where in the segments the log-ratio differs from 0."""
    if settings.trainer.start_states == "zeros":
        return "Expected with trainer.start_states=zeros: only learning starts every segment from zero memory."
    wrong, after_first = parity.log_ratio > PARITY_BREACH, parity.first.cumsum(0) > 0
    if not (wrong & ~after_first).any():
        return (
            "The probabilities differ only after an episode start inside a segment: probably acting and learning "
            "reset memory at different steps, or one of them resets only part of it."
        )
    if not (wrong & after_first).any():
        return (
            "The probabilities differ only before the first episode start of a segment: probably the segment's start "
            "state is wrong (shifted by a step, from another slot, or reset)."
        )
    return (
        "The probabilities differ both before and after episode starts: probably not a memory bug. Check for dropout, "
        "batch statistics, a normaliser that changes between acting and learning, or swapped time and slot axes."
    )
