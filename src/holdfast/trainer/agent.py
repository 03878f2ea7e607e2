"""Build a run's agent, with new weights or with the weights of another run."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch
from tensordict import TensorDict

from holdfast.checkpoint import Checkpoint, first_usable, load_policy, newest_first
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError, one_line, printable
from holdfast.policies import MettaAgent, OwnPolicySettings, Policy, Sampling
from holdfast.policies.registry import check_policy_size
from holdfast.runs.folder import CHECKPOINTS, MANIFEST, runs_folder
from holdfast.runs.json_data import as_checkpoint_error
from holdfast.spec import WorldSpec, keys

logger = logging.getLogger(__name__)


def make_agent(settings: Settings, spec: WorldSpec) -> MettaAgent:
    """Build an agent for this world; if `policy.weights` is set, load the weights from that run or checkpoint."""
    check_policy_size(settings.policy, spec)
    if settings.policy.weights:
        return _with_weights_of(settings.policy.weights, settings, spec)
    agent = MettaAgent(settings.policy, spec)
    if isinstance(settings.policy, OwnPolicySettings):
        _try_out(agent.policy, settings.policy.agent_word)
    return agent


def _with_weights_of(source: str, settings: Settings, spec: WorldSpec) -> MettaAgent:
    """Build the agent with another run's weights. Features and actions missing from that run start untrained."""
    checkpoint = _load_weights(source, runs_folder(settings))
    try:
        with as_checkpoint_error(f"policy.weights={source}: the checkpoint does not contain an agent"):
            agent = MettaAgent(settings.policy, WorldSpec.from_json(checkpoint.facts["world"]))
            agent.take(checkpoint.facts["agent"], checkpoint.tensors["policy"])
    except SettingsError as error:
        raise SettingsError(f"policy.weights={source}: {error}") from error
    if new := agent.initialize_to_world(spec, learn=True):
        logger.info(
            "policy.weights: these features or actions are not in that run, so they start untrained: %s", ", ".join(new)
        )
    return agent


def _load_weights(source: str, runs_dir: Path) -> Checkpoint:
    """Load the checkpoint at the path `source`, or the newest usable checkpoint of the run with that path or name."""
    for path in (Path(source).expanduser(), runs_dir / source):
        if not os.path.isdir(path):  # pathlib raises if a name is too long
            continue
        is_checkpoint = os.path.isfile(path / MANIFEST)
        if found := first_usable([path] if is_checkpoint else newest_first(path / CHECKPOINTS), load_policy):
            return found[1]
    raise SettingsError(
        f"policy.weights={printable(source, 200)}: no checkpoint there. Give the folder of a run, such as runs/first."
    )


@torch.no_grad()
def _try_out(policy: Policy, agent: str) -> None:
    """Run a custom policy once on an all-zero observation; raise SettingsError if the policy raises an exception."""
    spec = policy.spec
    shapes = policy.get_agent_experience_spec()
    arrived = {key: torch.ones(2, *shape, dtype=getattr(torch, dtype)) for key, (shape, dtype) in shapes.items()}
    arrived[keys.OBS].zero_()
    flags = {keys.REWARDS: torch.zeros(2), keys.DONES: torch.ones(2) > 0, keys.TRUNCATEDS: torch.zeros(2) > 0}
    try:
        with policy.set_aside(Sampling(generator=torch.Generator())):
            policy(TensorDict({**arrived, **flags}, batch_size=[2]))
    except Exception as error:
        world = f"observations {spec.obs.dtype} {[*spec.obs.shape]}, actions {type(spec.actions).__name__}"
        raise SettingsError(
            f"{agent} cannot act in {spec.name} ({world}):\n{type(error).__name__}: {one_line(error)}\n"
            "Check that the policy accepts these observations and that encode_observations returns [N, input_size]."
        ) from error
