"""The layout shared by all built-in MettaGrid games: resources, tags, vibes, actions and observation features.

MettaGrid keeps the ids of optional features in global variables: building a game without `last_action_move` silently
removes these tokens from another game that uses them. Ids of tags and resources depend on the lists of each game. One
layout without optional features avoids both problems, and a policy can play all built-in games unchanged.
"""

from __future__ import annotations

from holdfast.envs.mettagrid import api as mg
from holdfast.envs.mettagrid.game import Game
from holdfast.errors import HoldfastError
from holdfast.spec import DiscreteActions, Feature, TokenObs, WorldSpec

RESOURCES = ["heart", "ore", "battery", "chosen"]
OBJECTS = ["agent", "altar", "cue", "door", "generator", "mine", "wall"]
VIBES = [mg.Vibe("😐", "default"), mg.Vibe("⬆️", "up"), mg.Vibe("⬇️", "down")]

NEVER_SENT = {"last_reward", "goal", "lp:east", "lp:west", "lp:north", "lp:south"}

# MettaGrid divides every amount by 256, which makes 0 and 1 almost equal.
AMOUNTS = {"inv:heart": 10.0, "inv:ore": 1.0, "inv:battery": 1.0, "inv:chosen": 1.0}


def make_config(
    *,
    agent: mg.AgentConfig,
    num_agents: int,
    max_steps: int,
    truncates: bool,
    window: int,
    num_tokens: int,
    objects: dict[str, mg.AnyGridObjectConfig],
    events: dict[str, mg.EventConfig] | None = None,
    shows_time: bool = True,
) -> mg.GameConfig:
    """Return a game config in the shared layout. `shows_time` adds episode progress and last action to observations."""
    return mg.GameConfig(
        num_agents=num_agents,
        max_steps=max_steps,
        episode_truncates=truncates,
        resource_names=list(RESOURCES),
        tags=[mg.typeTag(name) for name in OBJECTS],
        obs=mg.ObsConfig(
            width=window,
            height=window,
            num_tokens=num_tokens,
            # last_reward would always be 0: MettaGrid writes observations before rewards.
            global_obs=mg.GlobalObsConfig(episode_completion_pct=shows_time, last_action=shows_time, last_reward=False),
        ),
        protocol_details_obs=False,
        actions=mg.ActionsConfig(change_vibe=mg.ChangeVibeActionConfig(enabled=False, vibes=list(VIBES))),
        agent=agent,
        objects=objects,
        events=events or {},
    )


def describe_game(name: str, game: Game) -> WorldSpec:
    """Return the observation and action specs of a game, without building a simulation."""
    interface = mg.PolicyEnvInterface.from_mg_cfg(mg.MettaGridConfig(game=game.config))
    obs = TokenObs(game.config.obs.num_tokens, interface.egocentric_shape, features(interface))
    return WorldSpec(name, obs, DiscreteActions(tuple(interface.action_names)), game.config.num_agents)


def features(interface: mg.PolicyEnvInterface) -> tuple[Feature, ...]:
    """Return the observation features of a game; raise HoldfastError if they are not those of the shared layout."""
    ids = {feature.name: feature.id for feature in interface.obs_features}
    if ids != FEATURE_IDS:
        others = ", ".join(sorted(name for name, _ in ids.items() ^ FEATURE_IDS.items()))
        raise HoldfastError(
            f"The observation features of this MettaGrid game differ from those of Holdfast's games ({others}). "
            "Such games cannot share a process, because MettaGrid keeps feature ids in global variables.\n"
            "Build the game's configuration with holdfast.envs.mettagrid.layout.make_config."
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


_EMPTY = make_config(
    agent=mg.AgentConfig(), num_agents=1, max_steps=1, truncates=True, window=3, num_tokens=1, objects={}
)
FEATURE_IDS = {feature.name: feature.id for feature in _EMPTY.id_map().features()}
