"""Find settings that contradict each other or have no effect; each message says what to change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import NamedTuple

from holdfast.config.batches import size_problem
from holdfast.config.describe import keys_by_name
from holdfast.config.settings import Settings


class Needs(NamedTuple):
    """A rule: `keys` have an effect only if `holds(settings)` is true; `wanted` is that condition as text.

    only_given: a value in a file is no conflict, so that wandb=off works without removing the other keys of the file.
    """

    wanted: str
    holds: Callable[[Settings], bool]
    keys: tuple[str, ...]
    only_given: bool = False


def _schedule(name: str) -> Needs:
    key = f"trainer.schedule.{name}"
    return Needs(f"{key}.kind=linear or cosine", lambda s: attrgetter(f"{key}.kind")(s) != "constant", (f"{key}.end",))


WANDB_KEYS = ("wandb.project", "wandb.entity", "wandb.group", "wandb.tags", "wandb.name")
MEMORY_KEYS = ("policy.memory_scope", "trainer.start_states", "trainer.burn_in", "trainer.reset_memory_each_rollout")
NEEDS = (
    Needs(
        "trainer.advantage=vtrace",
        lambda s: s.trainer.advantage == "vtrace",
        ("trainer.vtrace_rho", "trainer.vtrace_c"),
    ),
    Needs(
        "trainer.prioritized.alpha above 0", lambda s: s.trainer.prioritized.alpha > 0, ("trainer.prioritized.beta",)
    ),
    *map(_schedule, ("lr", "entropy_coef", "clip")),
    Needs("trainer.value_coef above 0", lambda s: s.trainer.value_coef > 0, ("trainer.value_clip",)),
    Needs("trainer.update_epochs of 2 or more", lambda s: s.trainer.update_epochs > 1, ("trainer.target_kl",)),
    Needs("eval.interval above 0", lambda s: s.eval.interval > 0, ("eval.episodes", "eval.greedy")),
    Needs("wandb=on or wandb=offline", lambda s: s.wandb.mode != "off", WANDB_KEYS, only_given=True),
    Needs("recurrent memory, which policy.core=none does not have", lambda s: s.policy.core != "none", MEMORY_KEYS),
)


def find_conflicts(settings: Settings, given: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for every conflict.

    A key without effect is a conflict if the command line sets it (`given`) or if its value is not the default. So the
    config.yaml of a run, which contains every key, can be used to start another run.
    """

    def conflict(key: str, reason: str) -> tuple[str, str]:
        return key, f"{key}={attrgetter(key)(settings)}: {reason}"

    for rule in NEEDS:
        for key in rule.keys if not rule.holds(settings) else ():
            is_default = attrgetter(key)(settings) == keys_by_name()[key][0].default
            if key in given or not (is_default or rule.only_given):
                yield conflict(key, f"has no effect without {rule.wanted}. Change that setting or remove this key.")

    trainer, num_envs = settings.trainer, settings.env.num_envs
    single_epoch = "has no effect with trainer.update_epochs=1. Set trainer.update_epochs to 2 or more"
    if trainer.burn_in and trainer.start_states != "stored":
        yield conflict("trainer.burn_in", f"works only with trainer.start_states=stored, not {trainer.start_states}.")
    if trainer.advantage == "vtrace" and trainer.update_epochs == 1:
        yield conflict("trainer.advantage", f"{single_epoch}.")
    if trainer.start_states == "refreshed" and trainer.update_epochs == 1:
        yield conflict("trainer.start_states", f"{single_epoch}, or trainer.start_states to stored.")
    if trainer.num_workers > num_envs:
        yield conflict("trainer.num_workers", f"must be at most env.num_envs, which is {num_envs}.")
    shards, ranks = trainer.shards or 1, trainer.ranks
    if num_envs % shards:
        yield conflict("trainer.shards", f"must divide env.num_envs, which is {num_envs}.")
    if trainer.shards and ranks != "auto" and trainer.shards % int(ranks):
        yield conflict("trainer.ranks", f"must divide trainer.shards, which is {trainer.shards}.")
    if settings.policy.weights and getattr(settings.policy, "init", "own") != "own":
        reason = "has no effect with policy.weights, which replaces the initial weights. Remove one of the two keys."
        yield conflict("policy.init", reason)
    if sizes := size_problem(trainer):
        key, message = sizes
        yield key, message + (_nearest_batches(settings) if key == "trainer.batch_size" else "")


def _nearest_batches(settings: Settings) -> str:
    """Return the nearest valid batch sizes. The number of agents is known only once the world is built."""
    num_envs, horizon, batch = settings.env.num_envs, settings.trainer.horizon, settings.trainer.batch_size or 0
    below = batch // (num_envs * horizon) * num_envs * horizon
    sizes = " or ".join(str(size) for size in (below, below + num_envs * horizon) if size)
    return f" With {num_envs} environments of one agent each ({num_envs} slots), the nearest are {sizes}."
