"""What all our MettaGrid games have in common: resources, tags, vibes, actions, and so the observation features.

MettaGrid keeps the ids of its optional features in variables of the whole process: building a game without
`last_action_move` silently removes those tokens from a game that has them. Tag and resource ids depend on the lists
of each game. With one layout for every game neither can go wrong, and a policy reads any of our games unchanged.
"""

from __future__ import annotations

from mettagrid.config.event_config import EventConfig
from mettagrid.config.mettagrid_config import (
    ActionsConfig,
    AgentConfig,
    AnyGridObjectConfig,
    ChangeVibeActionConfig,
    GameConfig,
    MoveActionConfig,
    NoopActionConfig,
)
from mettagrid.config.obs_config import GlobalObsConfig, ObsConfig
from mettagrid.config.tag import typeTag
from mettagrid.config.vibes import Vibe
from mettagrid.policy.policy_env_interface import PolicyEnvInterface

from holdfast.errors import HoldfastError
from holdfast.spec import Feature

RESOURCES = ["heart", "ore", "battery", "chosen"]
OBJECTS = ["agent", "altar", "cue", "door", "generator", "mine", "wall"]
VIBES = [Vibe("😐", "default"), Vibe("⬆️", "up"), Vibe("⬇️", "down")]

# last_reward is always 0 (MettaGrid writes observations before rewards), so it is not sent.
GLOBAL_TOKENS = {"episode_completion_pct": True, "last_action": True, "last_reward": False}
NEVER_SENT = {"last_reward", "goal", "lp:east", "lp:west", "lp:north", "lp:south"}

# MettaGrid divides every amount by 256, which hides the difference between none and one.
AMOUNTS = {"inv:heart": 10.0, "inv:ore": 1.0, "inv:battery": 1.0, "inv:chosen": 1.0}


def make_config(
    *,
    agent: AgentConfig,
    num_agents: int,
    max_steps: int,
    truncates: bool,
    window: int,
    num_tokens: int,
    objects: dict[str, AnyGridObjectConfig],
    events: dict[str, EventConfig] | None = None,
) -> GameConfig:
    """A game in the common layout, without a map."""
    return GameConfig(
        num_agents=num_agents,
        max_steps=max_steps,
        episode_truncates=truncates,
        resource_names=list(RESOURCES),
        tags=[typeTag(name) for name in OBJECTS],
        obs=ObsConfig(
            width=window, height=window, num_tokens=num_tokens, global_obs=GlobalObsConfig(**GLOBAL_TOKENS)
        ),
        protocol_details_obs=False,
        actions=ActionsConfig(
            noop=NoopActionConfig(),
            move=MoveActionConfig(),
            change_vibe=ChangeVibeActionConfig(enabled=False, vibes=list(VIBES)),
        ),
        agent=agent,
        objects=objects,
        events=events or {},
    )


def features(interface: PolicyEnvInterface) -> tuple[Feature, ...]:
    """The features our games send. A game with a feature id of its own is refused."""
    ids = {feature.name: feature.id for feature in interface.obs_features}
    if ids != FEATURE_IDS:
        other = sorted(ids.items() ^ FEATURE_IDS.items())
        raise HoldfastError(
            f"A MettaGrid game with other observation features ({', '.join(f'{name}={id_}' for name, id_ in other)}) "
            "cannot run beside ours: MettaGrid keeps feature ids per process.\n"
            "Build it with holdfast.envs.mettagrid.layout.make_config."
        )
    categories = {
        "agent:group": 1,
        "last_action": len(interface.action_names),
        "tag": len(interface.tags),
        "vibe": len(VIBES),
    }
    return tuple(
        Feature(f.id, f.name, AMOUNTS.get(f.name, f.normalization), categories.get(f.name, 0))
        for f in interface.obs_features
        if f.name not in NEVER_SENT
    )


FEATURE_IDS = {
    feature.name: feature.id
    for feature in make_config(
        agent=AgentConfig(), num_agents=1, max_steps=1, truncates=True, window=3, num_tokens=1, objects={}
    )
    .id_map()
    .features()
}
