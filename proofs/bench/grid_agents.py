"""Agents on observations of the arena: Fast against the first version's implementation, and all agents side by side."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from first_version import FirstVersionFast
from timing import time_in_turns
from torch import Tensor

from holdfast.config import load_settings
from holdfast.envs import ArenaEnv, make_world
from holdfast.policies import GRID_AGENTS, Fast, Policy, make_policy
from holdfast.spec import WorldSpec, keys


def measure_fast(repeats: int, T: int = 64, M: int = 96) -> list[dict[str, Any]]:
    """A row for learning from a minibatch [T, M] (forward, loss, backward) and one for acting on M slots."""
    arrivals, spec = arena_arrivals(T, M)
    torch.manual_seed(0)
    ours, first = Fast(spec), FirstVersionFast(spec)
    rows = []
    for what, call, steps in (("learning", learn, T * M), ("acting", act, M)):
        ms = time_in_turns({"ours": partial(call, ours, arrivals), "first": partial(call, first, arrivals)}, repeats)
        us, us_first = (1e3 * ms[side] / steps for side in ("ours", "first"))
        row = {"what": what, "steps": steps, "us_per_step": us, "us_per_step_first_version": us_first}
        rows.append({**row, "speedup": us_first / us})
    return rows


def measure_agents(repeats: int, T: int = 16, M: int = 96) -> list[dict[str, Any]]:
    """A row per agent: time per learning step, time per acting step, and steps per second of both (one epoch)."""
    arrivals, spec = arena_arrivals(T, M)
    torch.manual_seed(0)
    words = [f"{key}={name}" for name in GRID_AGENTS for key in ("py_agent", "agent")]
    policies = {word: make_policy(load_settings([word]).policy, spec) for word in words}
    learning = time_in_turns({word: partial(learn, policy, arrivals) for word, policy in policies.items()}, repeats)
    acting = time_in_turns({word: partial(act, policy, arrivals) for word, policy in policies.items()}, repeats)
    return [
        {
            "agent": word,
            "parameters": sum(p.numel() for p in policies[word].parameters()),
            "us_per_learning_step": 1e3 * learning[word] / (T * M),
            "us_per_acting_step": 1e3 * acting[word] / M,
            "steps_per_s": 1e3 / (learning[word] / (T * M) + acting[word] / M),
        }
        for word in words
    ]


def learn(policy: Policy, arrivals: dict[str, Tensor]) -> None:
    """Run forward and backward over the minibatch."""
    T, M = arrivals[keys.DONES].shape
    policy.zero_grad(set_to_none=True)
    scored = policy.score(arrivals, policy.initial_state(M), torch.zeros(T, M, dtype=torch.long))
    (scored.log_prob.mean() + scored.values.mean() + scored.entropy.mean()).backward()


@torch.no_grad()
def act(policy: Policy, arrivals: dict[str, Tensor]) -> None:
    """Run one step of every slot."""
    M = arrivals[keys.DONES].shape[1]
    policy.act({key: x[:1] for key, x in arrivals.items()}, policy.initial_state(M))


def arena_arrivals(T: int, M: int) -> tuple[dict[str, Tensor], WorldSpec]:
    """T steps of M slots of the arena under random actions; 1% of the steps are marked as episode ends."""
    env = ArenaEnv(num_envs=(M + 23) // 24)
    generator = torch.Generator().manual_seed(0)
    with make_world(env) as world:
        obs, _ = world.reset(seed=0)
        seen = []
        for _ in range(T):
            seen.append(torch.from_numpy(obs[:M]).clone())
            obs, *_ = world.step(torch.randint(0, 5, (world.num_slots,), generator=generator).numpy())
        spec = world.world_spec
    ends = torch.rand(T, M, generator=generator) < 0.01
    rest = {keys.REWARDS: torch.zeros(T, M), keys.DONES: ends, keys.TRUNCATEDS: torch.zeros_like(ends)}
    return {keys.OBS: torch.stack(seen), **rest}, spec
