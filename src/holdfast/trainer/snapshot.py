"""Snapshots: copy the full state of a run between two updates, and restore a run from the copy, bit for bit."""

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
from holdfast.runs.json_data import as_checkpoint_error
from holdfast.trainer.learner import Learner
from holdfast.trainer.state import GlobalRandomState, Progress, RunState

GROUPS = {"policy", "optimizer", "memory", "rng", "arrived", "episodes"}
OPTIONAL_GROUPS = {"world", "first"}  # replay point, if there is one; initial weights, for l2_init and weight_clip


@dataclass(frozen=True)
class Snapshot:
    """A copy of the run after `state.update` updates. Further training does not change the copy."""

    state: RunState
    tensors: dict[str, dict[str, Tensor]]

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Snapshot:
        tensors = checkpoint.tensors
        if odd := sorted((tensors.keys() ^ GROUPS) - OPTIONAL_GROUPS):
            raise CheckpointError(f"{odd[0]}.safetensors is {'unexpected' if odd[0] in tensors else 'missing'}")
        return cls(RunState.from_json(checkpoint.facts), tensors)


def take_snapshot(progress: Progress, agent: MettaAgent, learner: Learner, collector: Collector) -> Snapshot:
    """Copy the state of the run. Call this between two updates: after learning, before the next rollout."""
    policy, experience = agent.policy, collector.experience
    generator = policy.sampling.generator
    assert generator is not None
    optimizer, optimizer_facts = flatten_optimizer(learner.optimizer)
    rng, rng_facts = _get_random_states()
    tensors = {
        "policy": policy.state_dict(),
        "optimizer": optimizer,
        "memory": {f"leaf_{i}": leaf for i, leaf in enumerate(policy.get_memory())},
        "rng": {"sampling": generator.get_state(), "minibatches": learner.generator.get_state(), **rng},
        "arrived": {key: x[0] for key, x in experience.inputs[experience.num_rows].items()},
        "episodes": collector.episodes.tensors(),
    }
    if point := collector.replay_point():
        names = ("episodes", "lengths", "actions")
        tensors["world"] = {name: torch.from_numpy(getattr(point, name)) for name in names}
    copies = {group: {name: x.detach().clone() for name, x in members.items()} for group, members in tensors.items()}
    if learner.first_values:
        copies["first"] = dict(learner.first_values)  # they never change
    state = RunState(
        **vars(progress),
        episodes=collector.episodes.count,
        world_seed=collector.world.seed,
        world_steps=collector.world.steps,
        optimizer=optimizer_facts,
        skipped_in_a_row=learner.skipped_in_a_row,
        rng=rng_facts,
        world=agent.built_for.to_json(),
        policy=agent.settings.model_dump(mode="json"),
        agent=agent.facts(),
    )
    return Snapshot(state, copies)


def restore_snapshot(snapshot: Snapshot, agent: MettaAgent, learner: Learner, collector: Collector) -> str | None:
    """Restore everything except weights and optimizer, which `agent` and `learner` already have.

    Return None if the restore is exact. If the worlds cannot be replayed, start new episodes with zero memory and
    return the reason.
    """
    tensors, state = snapshot.tensors, snapshot.state
    policy, generator = agent.policy, agent.policy.sampling.generator
    assert generator is not None
    with as_checkpoint_error("the checkpoint does not match this run"):
        arrived = {key: x.shape for key, x in tensors["arrived"].items()}
        expected = {key: x.shape[1:] for key, x in collector.experience.inputs[0].items()}
        if arrived != expected:  # a tensor of the wrong shape would be broadcast
            odd = next(key for key in {**arrived, **expected} if arrived.get(key) != expected.get(key))
            problem = f"{odd[:80]!r} is missing, unexpected or has the wrong shape"
            raise CheckpointError(f"the checkpoint does not match this run (arrived.safetensors: {problem})")
        collector.episodes.restore(tensors["episodes"], state.episodes)
        memory = tensors["memory"]
        policy.set_memory(tuple(memory[f"leaf_{i}"] for i in range(len(memory))))
        reason = _replay_worlds(snapshot, collector)
        generator.set_state(tensors["rng"]["sampling"])
        learner.generator.set_state(tensors["rng"]["minibatches"])
        learner.skipped_in_a_row = state.skipped_in_a_row
        _set_random_states(tensors["rng"], state.rng)
    return reason


def _replay_worlds(snapshot: Snapshot, collector: Collector) -> str | None:
    """Replay the running episodes; if that fails, start new episodes and return the reason."""
    tensors, state = snapshot.tensors, snapshot.state
    try:
        if "world" not in tensors:
            reason = "the running episodes are not in the checkpoint, because they could not be replayed"
            raise ReplayError(f"{collector.world.world_spec.name}: {reason}")
        actions = {name: x.numpy() for name, x in tensors["world"].items()}
        collector.resume(ReplayPoint(state.world_seed, state.world_steps, **actions), tensors["arrived"])
    except CheckpointError:
        raise
    except HoldfastError as error:  # the replay gave other observations, or the world rejects the saved actions
        if collector.world.closed:
            advice = "Use trainer.num_workers=0 to resume this run with new episodes."
            raise HoldfastError(f"{error}\n{advice}") from error
        # a new seed, because training has already seen the episodes of the old one
        collector.start(episode_seed(state.world_seed, state.update, state.world_steps))
        collector.episodes.forget_running()
        return str(error)
    return None


def _get_random_states() -> tuple[dict[str, Tensor], GlobalRandomState]:
    """Return the states of the global random generators, which a custom policy or environment may use."""
    numpy: dict[str, Any] = np.random.get_state(legacy=False)  # pyright: ignore[reportAssignmentType]
    _, python, gauss_next = random.getstate()
    tensors = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
        "python": torch.tensor(python),
    }
    return tensors, GlobalRandomState((numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]), gauss_next)


def _set_random_states(tensors: Mapping[str, Tensor], rest: GlobalRandomState) -> None:
    torch.set_rng_state(tensors["torch"])
    np.random.set_state(("MT19937", tensors["numpy"].numpy().astype(np.uint32), *rest.numpy))
    random.setstate((3, tuple(tensors["python"].tolist()), rest.python))
