"""Refuse settings that contradict each other and settings without effect; each message says what to change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import reduce

from holdfast.config.batches import size_problem
from holdfast.config.describe import keys_of
from holdfast.config.settings import Settings


@dataclass(frozen=True)
class Needs:
    """`keys` have an effect only if `holds(settings)`; `wanted` is that condition as text."""

    keys: tuple[str, ...]
    holds: Callable[[Settings], bool]
    wanted: str


NEEDS = (
    Needs(
        ("trainer.vtrace_rho", "trainer.vtrace_c"),
        lambda s: s.trainer.advantage == "vtrace",
        "trainer.advantage=vtrace",
    ),
    Needs(
        ("trainer.prioritized.beta",),
        lambda s: s.trainer.prioritized.alpha > 0,
        "trainer.prioritized.alpha above 0",
    ),
    Needs(
        ("trainer.schedule.lr.end",),
        lambda s: s.trainer.schedule.lr.kind != "constant",
        "trainer.schedule.lr.kind=linear or cosine",
    ),
    Needs(
        ("trainer.schedule.entropy_coef.end",),
        lambda s: s.trainer.schedule.entropy_coef.kind != "constant",
        "trainer.schedule.entropy_coef.kind=linear or cosine",
    ),
    Needs(
        ("trainer.schedule.clip.end",),
        lambda s: s.trainer.schedule.clip.kind != "constant",
        "trainer.schedule.clip.kind=linear or cosine",
    ),
    Needs(("trainer.value_clip",), lambda s: s.trainer.value_coef > 0, "trainer.value_coef above 0"),
    Needs(("trainer.target_kl",), lambda s: s.trainer.update_epochs > 1, "trainer.update_epochs of 2 or more"),
    Needs(
        (
            "policy.memory_scope",
            "trainer.start_states",
            "trainer.burn_in",
            "trainer.reset_memory_each_rollout",
        ),
        lambda s: s.policy.core != "none",
        "memory (policy.core=none has none)",
    ),
)


def find_conflicts(settings: Settings, given: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """(key, message) of every conflict.

    A key without effect is refused if a word sets it (`given`) or if its value is not the default. So a complete
    settings file (the config.yaml of a run), which names every key, can be used to start another run.
    """
    keys = keys_of(type(settings.env), type(settings.policy))

    def conflict(key: str, reason: str) -> tuple[str, str]:
        return key, f"{key}={reduce(getattr, key.split('.'), settings)}: {reason}"

    for rule in NEEDS:
        for key in rule.keys if not rule.holds(settings) else ():
            if key in given or reduce(getattr, key.split("."), settings) != keys[key].default:
                yield conflict(key, f"has no effect without {rule.wanted}. Add that or remove the key.")

    trainer, num_envs = settings.trainer, settings.env.num_envs
    if trainer.burn_in and trainer.start_states != "stored":
        yield conflict("trainer.burn_in", f"needs trainer.start_states=stored, not {trainer.start_states}.")
    if trainer.advantage == "vtrace" and trainer.update_epochs == 1:
        reason = "has no effect in a single epoch. Set trainer.update_epochs to 2 or more."
        yield conflict("trainer.advantage", reason)
    if trainer.start_states == "refreshed" and trainer.update_epochs == 1:
        reason = "has no effect in a single epoch. Set trainer.update_epochs to 2 or more, or use stored."
        yield conflict("trainer.start_states", reason)
    if trainer.num_workers > num_envs:
        yield conflict("trainer.num_workers", f"needs at most one worker per environment, and env.num_envs={num_envs}.")
    if settings.policy.weights and getattr(settings.policy, "init", "own") != "own":
        reason = "has no effect with policy.weights, which replaces the initial weights. Remove one of them."
        yield conflict("policy.init", reason)
    sizes = size_problem(trainer)
    if sizes:
        yield sizes
