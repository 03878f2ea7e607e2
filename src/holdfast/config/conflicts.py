"""Settings that cannot work together, and settings that would do nothing: both refused, with the way out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import reduce
from typing import Any

from holdfast.config.batches import size_problem
from holdfast.config.describe import keys_of
from holdfast.config.settings import Settings


@dataclass(frozen=True)
class Needs:
    """`keys` have an effect only while `holds`; `wanted` says so in words."""

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
    Needs(
        (
            "policy.memory_scope",
            "trainer.start_states",
            "trainer.burn_in",
            "trainer.reset_memory_each_rollout",
        ),
        lambda s: s.policy.core != "none",
        "policy.core=lstm or gru",
    ),
)


def find_conflicts(settings: Settings, given: Collection[str] = ()) -> list[tuple[str, str]]:
    """(key, message) of everything that cannot work or would do nothing.

    A key that would do nothing is refused when a word gave it, or when it is not at its default: a complete
    settings file (the config.yaml of a run) names every key, and is good to start another run from.
    """
    found = [
        (key, f"{key}={value}: has no effect without {rule.wanted}. Add that, or leave {key} out.")
        for rule in NEEDS
        if not rule.holds(settings)
        for key, value in ((key, _value(settings, key)) for key in rule.keys)
        if key in given or value != keys_of(type(settings.env), type(settings.policy))[key].default
    ]
    trainer, num_envs = settings.trainer, settings.env.num_envs
    if trainer.burn_in and trainer.start_states != "stored":
        found.append(
            (
                "trainer.burn_in",
                f"trainer.burn_in={trainer.burn_in}: needs trainer.start_states=stored, "
                f"not {trainer.start_states}.",
            )
        )
    if trainer.start_states == "refreshed" and trainer.update_epochs == 1:
        found.append(
            (
                "trainer.start_states",
                "trainer.start_states=refreshed: has no effect in a single epoch. "
                "Set trainer.update_epochs to 2 or more, or use stored.",
            )
        )
    if trainer.num_workers > num_envs:
        found.append(
            (
                "trainer.num_workers",
                f"trainer.num_workers={trainer.num_workers}: more workers than environments. "
                f"Use at most env.num_envs={num_envs}, or raise that.",
            )
        )
    sizes = size_problem(trainer)
    return found + ([sizes] if sizes else [])


def _value(settings: Settings, key: str) -> Any:
    return reduce(getattr, key.split("."), settings)
