"""A policy that Holdfast has trained, for MettaGrid's own runner.

`holdfast export RUN --mettagrid DIR` copies this file into DIR, beside the network and `policy_spec.json`, so it imports
mettagrid, numpy and torch only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mettagrid.policy.policy import AgentPolicy, MultiAgentPolicy
from mettagrid.policy.policy_env_interface import PolicyEnvInterface
from mettagrid.simulator import Action, AgentObservation, Simulation

FORMAT = "1"  # of METADATA
PROGRAM = "policy.pt2"  # the network, as a torch.export program of one step of B agents
METADATA = "holdfast.json"  # inside the program's file
WORLD = "mettagrid_world"  # in METADATA: the PolicyEnvInterface of the world that the policy is for
GIVEN = ("obs", "first", "last_action")  # inputs of the program, besides the memory
EMPTY = 255  # all three bytes of a token that is not used


class HoldfastPolicy(MultiAgentPolicy):
    """Plays the most probable action, or samples.

    sample: draw actions at random, by their probabilities.
    seed: makes the samples reproducible; every agent has a random generator of its own.
    """

    def __init__(
        self, policy_env_info: PolicyEnvInterface, device: str = "cpu", sample: bool = False, seed: int | None = None
    ):
        super().__init__(policy_env_info, device=device)
        if torch.device(device).type != "cpu":
            raise ValueError(f"device={device}: this policy was exported for the CPU")
        self.sample, self.seed = sample, seed
        self._network: Any = None
        self.name = ""

    def load_policy_data(self, policy_data_path: str) -> None:
        """Load the exported program: its file, or the folder that contains it."""
        path = Path(policy_data_path)
        path = path / PROGRAM if path.is_dir() else path
        extra_files = {METADATA: ""}
        program = torch.export.load(path, extra_files=extra_files)
        metadata: dict[str, str] = json.loads(extra_files[METADATA] or "{}")
        if metadata.get("holdfast_export") != FORMAT or WORLD not in metadata:
            raise ValueError(f"{path}: not exported with --mettagrid by this version of Holdfast")
        if problem := difference(PolicyEnvInterface.model_validate_json(metadata[WORLD]), self._policy_env_info):
            raise ValueError(f"{path}: exported for another world: {problem}")
        self._network = program.module()
        self._inputs: dict[str, Any] = json.loads(metadata["inputs"])
        self._state = [name.removesuffix("_in") for name in self._inputs if name.endswith("_in")]
        if unknown := [n for n in self._inputs if n not in GIVEN and not n.endswith("_in")]:
            raise ValueError(
                f"{path}: the policy reads {', '.join(unknown)}, which MettaGrid does not give to policies"
            )
        self.action_names: list[str] = json.loads(metadata["action_names"])  # in the order of the logits
        self.name = f"{metadata.get('run', '')} {metadata.get('checkpoint', '')}".strip()

    def agent_policy(self, agent_id: int) -> HoldfastAgent:
        return HoldfastAgent(self, agent_id)

    @torch.no_grad()
    def act(self, agents: Sequence[HoldfastAgent], observations: Sequence[AgentObservation]) -> list[Action]:
        """Run one step of these agents: choose their actions, and update their memories and infos."""
        if self._network is None:
            raise ValueError(f"this policy has no data: give data_path, the {PROGRAM} of the export or its folder")
        inputs = {
            "obs": torch.from_numpy(np.stack([self._tokens(obs) for obs in observations])),
            "first": torch.tensor([agent.memory is None for agent in agents]),
            "last_action": torch.tensor([agent.last_action for agent in agents]),
        }
        memories = [agent.memory or self._no_memory() for agent in agents]
        inputs |= {f"{name}_in": torch.cat(rows, 1) for name, *rows in zip(self._state, *memories, strict=True)}
        outputs = self._network(**{name: inputs[name] for name in self._inputs})
        memory = [outputs[f"{name}_out"] for name in self._state]
        log_probs = outputs["logits"].log_softmax(-1)
        for row, agent in enumerate(agents):
            agent.memory = [leaf[:, row : row + 1] for leaf in memory]
            agent.choose(log_probs[row], float(outputs["value"][row]))
        return [Action(name=self.action_names[agent.last_action]) for agent in agents]

    def _no_memory(self) -> list[torch.Tensor]:
        shapes = [self._inputs[f"{name}_in"]["shape"] for name in self._state]
        return [torch.zeros(layers, 1, hidden) for layers, _, hidden in shapes]

    def _tokens(self, obs: AgentObservation) -> np.ndarray:
        """Return the tokens of an observation, padded as MettaGrid pads its own arrays."""
        tokens = np.full(self._policy_env_info.observation_shape, EMPTY, np.uint8)
        if obs.tokens:
            tokens[: len(obs.tokens)] = [token.raw_token for token in obs.tokens]
        return tokens


class HoldfastAgent(AgentPolicy):
    """One agent: its memory, last action and random generator. Agents with the same policy are computed as one batch.

    memory: one tensor [layers, 1, hidden] per state tensor; None before the first observation of an episode.
    """

    def __init__(self, policy: HoldfastPolicy, agent_id: int):
        super().__init__(policy.policy_env_info)
        self._policy, self._group = policy, [self]
        self._generator = torch.Generator()
        if policy.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(int(np.random.SeedSequence([policy.seed, agent_id]).generate_state(1)[0]))
        self.reset()

    def reset(self, simulation: Simulation | None = None) -> None:
        """Begin an episode."""
        self.memory: list[torch.Tensor] | None = None
        self.last_action = -1
        self._infos = {}

    def step(self, obs: AgentObservation) -> Action:
        return self._policy.act([self], [obs])[0]

    def can_step_group(self, policies: Sequence[AgentPolicy]) -> bool:
        """Return whether one call of `step_group` can step all of these; if so, it is called next."""
        self._group = [
            agent for agent in policies if isinstance(agent, HoldfastAgent) and agent._policy is self._policy
        ]
        return len(self._group) == len(policies)

    def step_group(self, observations: list[tuple[int, AgentObservation]]) -> list[Action]:
        return self._policy.act(self._group, [obs for _, obs in observations])

    def choose(self, log_probs: torch.Tensor, value: float) -> None:
        """Choose an action by its log-probs [A], and show MettaGrid's replay viewer what the policy computed."""
        probs = log_probs.exp()
        if self._policy.sample:
            self.last_action = int(torch.multinomial(probs, 1, generator=self._generator))
        else:
            self.last_action = int(log_probs.argmax())
        self._infos = {
            "policy_name": self._policy.name,
            "action": self._policy.action_names[self.last_action],  # the replay itself says noop for a move that failed
            "action_prob": _short(probs[self.last_action]),
            "entropy": _short(torch.special.entr(probs).sum()),
            "value": _short(value),
        }
        if self.memory:
            self._infos["memory_norm"] = _short(torch.cat([leaf.flatten() for leaf in self.memory]).norm())


def difference(built_for: PolicyEnvInterface, world: PolicyEnvInterface) -> str:
    """Return how `world` differs from the world that a policy was built for, as far as observations and actions go."""
    numbers = {
        "window": (built_for.egocentric_shape, world.egocentric_shape),
        "tokens per observation": (built_for.observation_shape, world.observation_shape),
    }
    for what, (before, now) in numbers.items():
        if tuple(before) != tuple(now):
            return f"{what}: {' x '.join(map(str, now))} instead of {' x '.join(map(str, before))}"
    names = {
        "features": [{f.name: f.id for f in pei.obs_features} for pei in (built_for, world)],
        "tags": [{name: i for i, name in enumerate(pei.tags)} for pei in (built_for, world)],
        "actions": [{name: i for i, name in enumerate(pei.all_action_names)} for pei in (built_for, world)],
    }
    for what, (known, found) in names.items():
        if known != found:
            differing = sorted({name for name, _ in known.items() ^ found.items()})
            more = f" and {len(differing) - 5} more" if len(differing) > 5 else ""
            return f"other {what}, or with other numbers: {', '.join(differing[:5])}{more}"
    return ""


def _short(number: Any) -> float:
    return round(float(number), 6)
