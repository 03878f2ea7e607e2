"""Snapshots: copy the full state of a run between two updates, and restore a run from the copy, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from holdfast.checkpoint import Checkpoint, CheckpointError, flatten_optimizer
from holdfast.envs import ReplayError, ReplayPoint, episode_seed
from holdfast.errors import HoldfastError
from holdfast.policies import MettaAgent
from holdfast.ranks import Shards
from holdfast.rollout import RecentEpisodes
from holdfast.runs.json_data import as_checkpoint_error
from holdfast.trainer.learner import Learner
from holdfast.trainer.shard import Shard
from holdfast.trainer.state import GlobalRandomState, Progress, RunState

GROUPS = {"policy", "optimizer", "memory", "rng", "arrived", "episodes"}
# replay point, if there is one; initial weights, for l2_init and weight_clip; for normalize_rewards
OPTIONAL_GROUPS = {"world", "first", "rewards"}
WORLD = ("episodes", "lengths", "actions")
# Tensors of one shard, by group, and the axis along which those of all shards are joined. Others are the same on all ranks.
SHARD_AXIS = {"memory": 1, "arrived": 0, "world": 0, "running": 0, "generators": 0}


@dataclass(frozen=True)
class Snapshot:
    """A copy of the run after `state.update` updates. Further training does not change the copy.

    parts: what belongs to each shard of this rank, in the order of shards. `joined` adds that of other ranks.
    """

    state: RunState
    tensors: dict[str, dict[str, Tensor]]
    parts: Sequence[dict[str, dict[str, Tensor]]] = ()

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Snapshot:
        tensors = checkpoint.tensors
        if odd := sorted((tensors.keys() ^ GROUPS) - OPTIONAL_GROUPS):
            raise CheckpointError(f"{odd[0]}.safetensors is {'unexpected' if odd[0] in tensors else 'missing'}")
        return cls(RunState.from_json(checkpoint.facts), tensors)

    def joined(self, shards: Shards) -> Snapshot:
        """Return the snapshot of the whole run. Every rank calls this; the result is complete on rank 0 only."""
        parts = list(self.parts)
        if shards.group.size > 1:
            found = shards.group.gather(b"".join(pack_tensors(part) for part in self.parts))
            if not shards.group.leads:
                return self
            parts = [part for data in found for part in unpack_tensors(data)]
        tensors = {group: dict(members) for group, members in self.tensors.items()}
        if not all("world" in part for part in parts):  # an episode that is too long to be replayed
            parts = [{group: members for group, members in part.items() if group != "world"} for part in parts]
        for group, members in parts[0].items():
            axis = SHARD_AXIS[group]
            whole = {name: torch.cat([part[group][name] for part in parts], axis) for name in members}
            tensors.setdefault({"running": "episodes", "generators": "rng"}.get(group, group), {}).update(whole)
        return Snapshot(self.state, tensors)


def take_snapshot(
    progress: Progress, agent: MettaAgent, learner: Learner, shards: Sequence[Shard], recent: RecentEpisodes
) -> Snapshot:
    """Copy the state of the run. Call this between two updates: after learning, before the next rollout."""
    optimizer, optimizer_facts = flatten_optimizer(learner.optimizer)
    rng, rng_facts = _get_random_states()
    tensors = {"policy": agent.policy.state_dict(), "optimizer": optimizer, "rng": rng, "episodes": recent.tensors()}
    noise = learner.shards.noise or [torch.get_rng_state()]
    if learner.shards.count > 1:
        *noise, rng["common"] = noise
    triples = zip(shards, learner.generators, noise, strict=True)
    parts = [_part_of(shard, agent, minibatches, own_noise) for shard, minibatches, own_noise in triples]
    if learner.reward_scale:
        tensors["rewards"] = learner.reward_scale.tensors()
    copies = _copy(tensors)
    if learner.first_values:
        copies["first"] = dict(learner.first_values)  # they never change
    world = shards[0].collector.world
    state = RunState(
        **vars(progress),
        episodes=recent.count,
        info_names=recent.info_names,
        world_seed=world.seed,
        world_steps=world.steps,
        optimizer=optimizer_facts,
        skipped_in_a_row=learner.skipped_in_a_row,
        rng=rng_facts,
        world=agent.built_for.to_json(),
        policy=agent.settings.model_dump(mode="json"),
        agent=agent.facts(),
    )
    return Snapshot(state, copies, [_copy(part) for part in parts])


def _part_of(
    shard: Shard, agent: MettaAgent, minibatches: torch.Generator, noise: Tensor
) -> dict[str, dict[str, Tensor]]:
    """Return the tensors that belong to one shard."""
    collector, generator = shard.collector, shard.sampling.generator
    experience = collector.experience
    assert generator is not None
    memory = agent.policy.memory.read(collector.slots)
    part = {
        "memory": {f"leaf_{i}": leaf for i, leaf in enumerate(memory)},
        "arrived": {key: x[0] for key, x in experience.inputs[experience.num_rows].items()},
        "running": collector.episodes.tensors(),
        "generators": {
            "sampling": generator.get_state()[None],
            "minibatches": minibatches.get_state()[None],
            "torch": noise[None],
        },
    }
    if point := collector.replay_point():
        part["world"] = {name: torch.from_numpy(getattr(point, name)) for name in WORLD}
    return part


def restore_snapshot(
    snapshot: Snapshot, agent: MettaAgent, learner: Learner, shards: Sequence[Shard], recent: RecentEpisodes
) -> str | None:
    """Restore everything except weights and optimizer, which `agent` and `learner` already have.

    Return None if the restore is exact. If the worlds cannot be replayed, start new episodes with zero memory and
    return the reason.
    """
    tensors, state = snapshot.tensors, snapshot.state
    with as_checkpoint_error("the checkpoint does not match this run"):
        recent.restore(tensors["episodes"], state.episodes, state.info_names)
        memory = tensors["memory"]
        agent.policy.set_memory(tuple(memory[f"leaf_{i}"] for i in range(len(memory))))
        reason = _replay_worlds(snapshot, shards, learner.shards)
        rng = {name: x.view(-1, x.shape[-1]) for name, x in tensors["rng"].items()}  # one state per shard
        for i, (shard, minibatches) in enumerate(zip(shards, learner.generators, strict=True)):
            running = ("running_return", "running_length")
            if reason is None:
                shard.collector.episodes.restore({name: tensors["episodes"][name][shard.slots] for name in running})
            assert shard.sampling.generator is not None
            # set_state needs aligned memory (it crashes otherwise), which a copy has
            shard.sampling.generator.set_state(rng["sampling"][shard.number].clone())
            minibatches.set_state(rng["minibatches"][shard.number].clone())
            if learner.shards.noise:
                learner.shards.noise[i] = rng["torch"][shard.number].clone()
                learner.shards.noise[-1] = rng["common"][0].clone()
        if learner.reward_scale and "rewards" in tensors:
            learner.reward_scale.restore(tensors["rewards"])
        learner.skipped_in_a_row = state.skipped_in_a_row
        _set_random_states(rng, state.rng)
    return reason


def _replay_worlds(snapshot: Snapshot, shards: Sequence[Shard], all_shards: Shards) -> str | None:
    """Replay the running episodes; if that fails on any rank, start new episodes on all ranks and return the reason."""
    state, reason = snapshot.state, None
    for shard in shards:
        try:
            _replay_world(snapshot, shard, all_shards.count)
        except CheckpointError:
            raise
        except HoldfastError as error:  # the replay gave other observations, or the world rejects the saved actions
            if shard.collector.world.closed:
                advice = "Use trainer.num_workers=0 to resume this run with new episodes."
                raise HoldfastError(f"{error}\n{advice}") from error
            reason = str(error)
            break
    reason = next(filter(None, all_shards.gather(reason)), None)
    if reason is not None:
        for shard in shards:
            # a new seed, because training has already seen the episodes of the old one
            shard.collector.start(episode_seed(state.world_seed, state.update, state.world_steps))
            shard.collector.episodes.forget_running()
    return reason


def _replay_world(snapshot: Snapshot, shard: Shard, num_shards: int) -> None:
    """Replay the running episodes of one shard; raise ReplayError if that is impossible."""
    tensors, state, collector = snapshot.tensors, snapshot.state, shard.collector
    shapes = {key: x.shape for key, x in tensors["arrived"].items()}
    slots = num_shards * len(collector.slots)
    expected = {key: (slots, *x.shape[2:]) for key, x in collector.experience.inputs[0].items()}
    if shapes != expected:  # a tensor of the wrong shape would be broadcast
        odd = next(key for key in {**shapes, **expected} if shapes.get(key) != expected.get(key))
        problem = f"{odd[:80]!r} is missing, unexpected or has the wrong shape"
        raise CheckpointError(f"the checkpoint does not match this run (arrived.safetensors: {problem})")
    if "world" not in tensors:
        reason = "the running episodes are not in the checkpoint, because they could not be replayed"
        raise ReplayError(f"{collector.world.world_spec.name}: {reason}")
    arrived = {key: x[shard.slots] for key, x in tensors["arrived"].items()}
    saved = {name: x.numpy() for name, x in tensors["world"].items()}
    envs = collector.world.env_ids
    point = ReplayPoint(state.world_seed, state.world_steps, **saved).of_envs(envs.start, envs.stop)
    collector.resume(point, arrived)


def _get_random_states() -> tuple[dict[str, Tensor], GlobalRandomState]:
    """Return the states of Python's and NumPy's generators, which a custom policy or environment may use."""
    numpy: dict[str, Any] = np.random.get_state(legacy=False)  # pyright: ignore[reportAssignmentType]
    _, python, gauss_next = random.getstate()
    tensors = {"numpy": torch.from_numpy(numpy["state"]["key"].astype(np.int64)), "python": torch.tensor(python)}
    return tensors, GlobalRandomState((numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]), gauss_next)


def _set_random_states(tensors: Mapping[str, Tensor], rest: GlobalRandomState) -> None:
    torch.set_rng_state(tensors["torch"][0].clone())
    np.random.set_state(("MT19937", tensors["numpy"][0].numpy().astype(np.uint32), *rest.numpy))
    random.setstate((3, tuple(tensors["python"][0].tolist()), rest.python))


def _copy(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    return {group: {name: x.detach().clone() for name, x in members.items()} for group, members in groups.items()}


def pack_tensors(groups: Mapping[str, Mapping[str, Tensor]]) -> bytes:
    """Serialise tensors of one shard or snapshot, preceded by the number of bytes."""
    flat = {f"{group}/{name}": x.cpu().contiguous() for group, members in groups.items() for name, x in members.items()}
    data = safetensors.torch.save(flat)
    return len(data).to_bytes(8, "little") + data


def unpack_tensors(data: bytes) -> list[dict[str, dict[str, Tensor]]]:
    """Return everything that was packed into `data`, one after the other."""
    found = []
    while data:
        size = 8 + int.from_bytes(data[:8], "little")
        groups: dict[str, dict[str, Tensor]] = {}
        for path, x in safetensors.torch.load(data[8:size]).items():
            group, _, name = path.partition("/")
            groups.setdefault(group, {})[name] = x
        found.append(groups)
        data = data[size:]
    return found
