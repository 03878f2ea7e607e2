"""Everything a run is between two updates, as copies; and a run put back to it, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.checkpoint import Checkpoint, CheckpointError, flatten_optimizer
from holdfast.envs import ReplayError, ReplayPoint, episode_seed
from holdfast.errors import HoldfastError
from holdfast.policies import MettaAgent
from holdfast.rollout import Collector
from holdfast.runs.files import fitting
from holdfast.trainer.learner import Learner

Tensors = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Snapshot:
    """The run after `update` updates. Nothing in it changes when the run goes on."""

    update: int
    tensors: Tensors
    facts: dict[str, Any]


def take_snapshot(
    update: int, agent: MettaAgent, learner: Learner, collector: Collector, facts: Mapping[str, Any]
) -> Snapshot:
    """Between two updates, when the rollout is complete and learned from. facts: what else is to be known again."""
    policy, experience = agent.policy, collector.experience
    generator = policy.sampling.generator
    assert generator is not None
    optimizer, optimizer_facts = flatten_optimizer(learner.optimizer)
    rng, rng_facts = _random_states()
    tensors = {
        "policy": policy.state_dict(),
        "optimizer": optimizer,
        "memory": {f"leaf_{i}": leaf for i, leaf in enumerate(policy.get_memory())},
        "rng": {"sampling": generator.get_state(), "minibatches": learner.generator.get_state(), **rng},
        "arrived": experience.arrival(experience.num_rows),
        "episodes": collector.episodes.tensors(),
    }
    point = collector.replay_point()
    if point is not None:
        tensors["world"] = {
            "episodes": torch.from_numpy(point.episodes),
            "lengths": torch.from_numpy(point.lengths),
            "actions": torch.from_numpy(point.actions),
        }
    copies = {group: {name: x.detach().clone() for name, x in members.items()} for group, members in tensors.items()}
    if learner.first_values:
        copies["first"] = dict(learner.first_values)  # they never change
    return Snapshot(
        update,
        copies,
        {
            **facts,
            "update": update,
            "episodes": collector.episodes.count,
            "world_seed": collector.world.seed,
            "world_steps": collector.world.steps,
            "optimizer": optimizer_facts,
            "rng": rng_facts,
        },
    )


def put_back(saved: Checkpoint, agent: MettaAgent, learner: Learner, collector: Collector) -> str | None:
    """Everything but the weights, which the agent was built with. Why the worlds are not where they were, if they are not.

    Worlds that do not come back start new episodes: nothing of the old ones is left, in memory neither.
    """
    tensors, facts = saved.tensors, saved.facts
    policy, generator = agent.policy, agent.policy.sampling.generator
    assert generator is not None
    with fitting("it does not fit this run"):
        _check_arrived(tensors["arrived"], collector.experience.arrival(0))
        learner.restore(tensors.get("first", {}), tensors["optimizer"], facts["optimizer"])
        collector.episodes.restore(tensors["episodes"], facts["episodes"])
        memory = tensors.get("memory", {})
        policy.set_memory(tuple(memory[f"leaf_{i}"] for i in range(len(memory))))
        reason = _bring_back_worlds(tensors, facts, collector)
        generator.set_state(tensors["rng"]["sampling"])
        learner.generator.set_state(tensors["rng"]["minibatches"])
        _set_random_states(tensors["rng"], facts["rng"])
    return reason


def _check_arrived(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Of the right kind; a wrong shape would be broadcast."""
    odd = [key for key in {**saved, **own} if key not in saved or key not in own or saved[key].shape != own[key].shape]
    if odd:
        raise CheckpointError(f"it does not fit this run (arrived: {odd[0][:80]!r})")


def _bring_back_worlds(tensors: Tensors, facts: Mapping[str, Any], collector: Collector) -> str | None:
    seed = facts["world_seed"]
    try:
        if "world" not in tensors:
            raise ReplayError(f"{collector.world.world_spec.name}: where its environments stood could not be saved")
        point = ReplayPoint(seed, facts["world_steps"], **{name: x.numpy() for name, x in tensors["world"].items()})
        collector.resume(point, tensors["arrived"])
    except CheckpointError:
        raise
    except HoldfastError as error:  # it did not come back, or refuses what was done in it before
        if collector.world.closed:
            raise HoldfastError(f"{error}\nWith trainer.num_workers=0 the run goes on with new episodes.") from error
        # another seed: the first episodes again would be the ones that were learned from already
        collector.start(episode_seed(seed, facts["update"], facts["world_steps"]))
        collector.episodes.forget_running()
        return str(error)
    return None


def _random_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Generators of the whole process: a policy or an environment of a user's own may draw from them."""
    numpy: dict[str, Any] = np.random.get_state(legacy=False)  # pyright: ignore[reportAssignmentType]
    _, python, gauss_next = random.getstate()
    tensors = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
        "python": torch.tensor(python),
    }
    facts = {"numpy": [numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]], "python": gauss_next}
    return tensors, facts


def _set_random_states(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    torch.set_rng_state(tensors["torch"])
    pos, has_gauss, gauss = facts["numpy"]
    np.random.set_state(("MT19937", tensors["numpy"].numpy().astype(np.uint32), pos, has_gauss, gauss))
    random.setstate((3, tuple(tensors["python"].tolist()), facts["python"]))
