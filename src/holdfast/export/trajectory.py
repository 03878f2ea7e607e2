"""A recorded trajectory: what a policy was given in its world over many steps, and what it answered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from holdfast.config.sections import EnvSection
from holdfast.envs import make_world
from holdfast.export.interface import OF_POLICY, Interface, split_scores
from holdfast.export.step import Read
from holdfast.policies import Policy, Sampling
from holdfast.rollout import first_inputs, last_actions
from holdfast.rollout.play import random_states_kept
from holdfast.spec import keys

CUTS = 3  # episodes that begin in a slot whose own episode is longer than the recording
FLAGS = (keys.DONES, keys.TRUNCATEDS)


@dataclass(frozen=True)
class Trajectory:
    """T steps of B slots. Slots begin with a state of zeros, and their episodes with `first`."""

    inputs: dict[str, np.ndarray]  # [T, B, ...] by the names of the exported inputs, without the state
    outputs: dict[str, np.ndarray]  # [T, B, ...], a state [T, layers, B, hidden], by the names of the exported outputs
    actions: np.ndarray  # [T, B, ...] the policy's greedy actions

    @property
    def steps(self) -> int:
        return self.inputs["first"].shape[0]

    @property
    def slots(self) -> int:
        return self.inputs["first"].shape[1]

    @property
    def episodes(self) -> int:
        return int(self.inputs["first"].sum())


def record(policy: Policy, env: EnvSection, steps: int, slots: int, seed: int) -> tuple[Trajectory, Interface]:
    """Play the world with sampled actions, then let the policy answer greedily to what it was given there.

    The policy runs as in training: `act` on `dones` and `truncateds`, with a state of its own.
    """
    seen, reads = _play(policy, env, steps, slots, seed)
    _cut_long_episodes(seen, seed)
    interface = Interface.of(policy, reads)
    outputs, actions = _answers(policy, seen, interface)
    named = {name: seen[key] for name, key in OF_POLICY.items() if name in {port.name for port in interface.inputs}}
    named["first"] = seen[keys.DONES] | seen[keys.TRUNCATEDS]
    return Trajectory(named, outputs, actions), interface


@torch.no_grad()
def _play(
    policy: Policy, env: EnvSection, steps: int, slots: int, seed: int
) -> tuple[dict[str, np.ndarray], frozenset[str]]:
    """Return the inputs [T, B, ...] of T steps by the names of `spec.keys`, and the names that the policy reads."""
    agents = env.describe().agents_per_env
    env = env.model_copy(update={"num_envs": -(-slots // agents)})
    rows: list[dict[str, np.ndarray]] = []
    read = frozenset[str]()
    sampling = Sampling(generator=torch.Generator().manual_seed(seed))
    with random_states_kept(seed), policy.set_aside(sampling), make_world(env) as world:
        spec = world.world_spec
        inputs, state = first_inputs(spec, *world.reset(seed=seed)), policy.initial_state(world.num_slots)
        for _ in range(steps):
            rows.append({key: x[:slots].copy() for key, x in inputs.items()})
            given = Read({key: torch.from_numpy(x)[None] for key, x in inputs.items()})
            acted = policy.act(given, state)
            read |= given.names
            state = acted.state
            actions = acted.actions[0].numpy()
            obs, rewards, terminated, truncated, info = world.step(actions)
            inputs = {keys.OBS: obs, keys.REWARDS: rewards, keys.DONES: terminated, keys.TRUNCATEDS: truncated}
            inputs[keys.LAST_ACTIONS] = last_actions(spec, actions, info["valid"])
            if keys.ACTION_MASK in info:
                inputs[keys.ACTION_MASK] = info[keys.ACTION_MASK]
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}, read


def _cut_long_episodes(seen: dict[str, np.ndarray], seed: int) -> None:
    """Begin episodes where a slot's own episode is longer than the recording, so that every slot is reset."""
    began = seen[keys.DONES] | seen[keys.TRUNCATEDS]
    generator = np.random.default_rng(seed)
    later = np.arange(1, len(began))
    for slot in np.flatnonzero(~began[1:].any(0)):
        at = generator.permutation(later)[:CUTS]
        for step, flag in zip(at, np.resize(FLAGS, len(at)), strict=True):
            seen[flag][step, slot] = True


@torch.no_grad()
def _answers(
    policy: Policy, seen: dict[str, np.ndarray], interface: Interface
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the policy's outputs and greedy actions for the inputs [T, B, ...], by the names of the interface."""
    state = policy.initial_state(seen[keys.DONES].shape[1])
    rows: list[dict[str, np.ndarray]] = []
    actions = []
    with policy.set_aside(Sampling(greedy=True)):
        for step in range(len(seen[keys.DONES])):
            acted = policy.act({key: torch.from_numpy(x[step : step + 1]) for key, x in seen.items()}, state)
            state = tuple(leaf.clone() for leaf in acted.state)  # a policy may overwrite its tensors later
            assert acted.params is not None
            outputs = {**split_scores(policy, acted.params[0]), "value": acted.values[0]}
            leaves = zip(interface.state_outputs, state, strict=True)
            outputs |= {port.name: leaf for port, leaf in leaves}
            rows.append({name: tensor.numpy().copy() for name, tensor in outputs.items()})
            actions.append(acted.actions[0].numpy().copy())
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}, np.stack(actions)
