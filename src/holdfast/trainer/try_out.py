"""Try a user's policy once before training, so that one that does not fit its world is refused early."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from holdfast.errors import SettingsError, one_line
from holdfast.policies import Policy, Sampling
from holdfast.spec import keys


@torch.no_grad()
def try_out(policy: Policy, agent: str) -> None:
    """Let the policy act once on an empty observation; SettingsError if it raises."""
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
            "Check that it fits these observations and that encode_observations returns input_size numbers."
        ) from error
