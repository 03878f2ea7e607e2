"""Fast against the first version's formulation, learning and acting, on observations of a real arena."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.bench.first_version import FirstVersionFast
from holdfast.bench.timing import interleaved
from holdfast.config.settings import ArenaEnv
from holdfast.envs import make_world
from holdfast.policies import Fast, Policy
from holdfast.rollout import score
from holdfast.spec import WorldSpec, keys


def measure_fast(repeats: int, T: int = 64, M: int = 96) -> list[dict]:
    """Rows for learning a minibatch [T, M] (forward, loss, backward) and for acting on M slots."""
    arrivals, spec = arena_arrivals(T, M)
    torch.manual_seed(0)
    policies: dict[str, Policy] = {"holdfast": Fast(spec), "first version": FirstVersionFast(spec)}
    actions = torch.zeros(T, M, dtype=torch.long)

    def learn(policy: Policy) -> None:
        policy.zero_grad(set_to_none=True)
        out = score(policy, arrivals, policy.initial_state(M), actions)
        (out[keys.LOG_PROB].mean() + out[keys.VALUES].mean() + out[keys.ENTROPY].mean()).backward()

    @torch.no_grad()
    def act(policy: Policy) -> None:
        one = {key: x[:1] for key, x in arrivals.items()}
        score(policy, one, policy.initial_state(M), actions[:1])

    rows = []
    for what, call, steps in (("learning", learn, T * M), ("acting", act, M)):
        ms = interleaved({name: lambda p=policy, c=call: c(p) for name, policy in policies.items()}, repeats)
        rows.append(
            {
                "what": what,
                "steps": steps,
                "us_per_step": 1e3 * ms["holdfast"] / steps,
                "us_per_step_first_version": 1e3 * ms["first version"] / steps,
                "speedup": ms["first version"] / ms["holdfast"],
            }
        )
    return rows


def arena_arrivals(T: int, M: int) -> tuple[dict[str, Tensor], WorldSpec]:
    """T steps of M slots of a real arena under random actions, with 1% episode ends."""
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
    arrivals = {
        keys.OBS: torch.stack(seen),
        keys.REWARDS: torch.zeros(T, M),
        keys.DONES: ends,
        keys.TRUNCATEDS: torch.zeros_like(ends),
    }
    return arrivals, spec
