"""What all our MettaGrid games have in common: resources, tags, vibes, actions, and so observation features.

MettaGrid keeps the ids of its optional features in variables of the whole process: building a game without
`last_action_move` silently takes those tokens away from a game that has them. Ids of tags and resources
follow from the lists of each game. With one layout, and no optional feature, neither can go wrong, and a
policy reads any of our games unchanged.
"""

from __future__ import annotations

from mettagrid.config.action_config import (
    ActionsConfig,
    ChangeVibeActionConfig,
    MoveActionConfig,
    NoopActionConfig,
)
from mettagrid.config.event_config import EventConfig
from mettagrid.config.mettagrid_config import AgentConfig, AnyGridObjectConfig, GameConfig
from mettagrid.config.obs_config import GlobalObsConfig, ObsConfig
from mettagrid.config.tag import typeTag
from mettagrid.config.vibes import Vibe
from mettagrid.policy.policy_env_interface import PolicyEnvInterface

from holdfast.errors import HoldfastError
from holdfast.spec import Feature

RESOURCES = ["heart", "ore", "battery", "chosen"]
OBJECTS = ["agent", "altar", "cue", "door", "generator", "mine", "wall"]
VIBES = [Vibe("😐", "default"), Vibe("⬆️", "up"), Vibe("⬇️", "down")]

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
    shows_time: bool = True,
) -> GameConfig:
    """A game in the common layout, without a map. shows_time: how much of the episode is over, and the last action."""
    return GameConfig(
        num_agents=num_agents,
        max_steps=max_steps,
        episode_truncates=truncates,
        resource_names=list(RESOURCES),
        tags=[typeTag(name) for name in OBJECTS],
        obs=ObsConfig(
            width=window,
            height=window,
            num_tokens=num_tokens,
            # last_reward would always be 0: MettaGrid writes observations before rewards.
            global_obs=GlobalObsConfig(episode_completion_pct=shows_time, last_action=shows_time, last_reward=False),
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
        others = ", ".join(sorted(name for name, _ in ids.items() ^ FEATURE_IDS.items()))
        raise HoldfastError(
            f"A MettaGrid game with other observation features ({others}) cannot run beside ours: "
            "MettaGrid keeps feature ids per process.\n"
            "Build its configuration with holdfast.envs.mettagrid.layout.make_config."
        )
    categories = {
        "agent:group": ("all",),
        "last_action": tuple(interface.action_names),
        "tag": tuple(interface.tags),
        "vibe": tuple(vibe.name for vibe in VIBES),
    }
    return tuple(
        Feature(f.id, f.name, AMOUNTS.get(f.name, f.normalization), categories.get(f.name, ()))
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
