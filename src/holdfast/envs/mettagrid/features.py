"""Observation features and actions of any MettaGrid configuration, with their names and scales."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from holdfast.envs.mettagrid import api as mg
from holdfast.spec import DiscreteActions, Feature, TokenObs, WorldSpec

LARGEST = 255  # value of a token

# MettaGrid keeps the ids of these features in global variables (the ids of all others belong to each simulation).
GLOBAL_IDS = ("aoe_mask", "last_action_move", "territory:")


def describe_config(name: str, game: mg.GameConfig) -> WorldSpec:
    """Return the observation and action specs of a configuration, without building a simulation."""
    interface = mg.PolicyEnvInterface.from_mg_cfg(mg.MettaGridConfig(game=game))
    obs = TokenObs(game.obs.num_tokens, interface.egocentric_shape, features(interface, game))
    return WorldSpec(name, obs, DiscreteActions(tuple(interface.all_action_names)), game.num_agents)


def global_ids(game: mg.GameConfig) -> dict[str, int]:
    """Return the ids that MettaGrid keeps once per process, by the name of the feature."""
    return {f.name: f.id for f in game.id_map().features() if f.name.startswith(GLOBAL_IDS)}


def features(interface: mg.PolicyEnvInterface, game: mg.GameConfig) -> tuple[Feature, ...]:
    """Return the features that observations can contain.

    Tag, vibe, last action and group are categories. The others are numbers, divided so that 1 differs from 0: MettaGrid
    would divide most of them by 100 to 256. Where the largest number is known, its square root is the divisor, so that
    the smallest amount (1) and the largest one are equally far from 1.
    """
    teams = [*dict.fromkeys(agent.team_id for agent in game.agents)]
    categories = {
        "agent:group": tuple(f"team_{team}" for team in teams) if len(teams) > 1 else ("all",),
        "last_action": tuple(interface.all_action_names),
        "tag": tuple(interface.tags),
        "vibe": _vibes(game),
    }
    scales = {"episode_completion_pct": float(LARGEST), "agent_id": float(max(1, game.num_agents - 1))}
    for resource in game.resource_names:
        scales[f"inv:{resource}"] = math.sqrt(_largest_amount(resource, game))
    never = _never_sent(game)
    return tuple(
        Feature(f.id, f.name, scales.get(f.name, min(f.normalization, math.sqrt(LARGEST))), categories.get(f.name, ()))
        for f in interface.obs_features
        if f.name not in never
    )


def _never_sent(game: mg.GameConfig) -> set[str]:
    """Return features that have an id but are switched off."""
    shown = game.obs.global_obs
    off = {
        "episode_completion_pct": shown.episode_completion_pct,
        "last_action": shown.last_action,
        "last_reward": shown.last_reward,
        "goal": shown.goal_obs,
        "vibe": bool(_vibes(game)),
    } | dict.fromkeys(("lp:east", "lp:west", "lp:north", "lp:south"), shown.local_position)
    return {name for name, sent in off.items() if not sent}


def _vibes(game: mg.GameConfig) -> tuple[str, ...]:
    """Return the vibes up to the last one that can occur; () if only the first can, which has no token.

    A configuration lists all 152 vibes of MettaGrid unless the user shortens the list; most occur in no game.
    """
    names = [vibe.name for vibe in game.actions.change_vibe.vibes]
    last = len(names) - 1 if game.actions.change_vibe.enabled else 0
    for model in models_in(game):
        if isinstance(model, mg.GridObjectConfig):
            last = max(last, model.vibe)
        elif isinstance(model, mg.ChangeVibeMutation) and model.vibe_name in names:
            last = max(last, names.index(model.vibe_name))
    unnamed = (f"vibe_{number}" for number in range(len(names), last + 1))
    return (*names[: last + 1], *unnamed) if last else ()


def _largest_amount(resource: str, game: mg.GameConfig) -> int:
    """Return the largest amount of a resource that one token can show: that of an agent, or of an object.

    Every object could hold anything, so an object counts for what it has at the start and what a mutation gives it.
    """
    amounts = [_limit(resource, agent.inventory) for agent in game.agents or [game.agent]]
    amounts += [thing.inventory.initial.get(resource, 0) for thing in game.objects.values()]
    amounts += [LARGEST for model in models_in(game) if resource in _given_to_objects(model)]
    return min(max(1, *amounts), LARGEST)


def _limit(resource: str, inventory: mg.InventoryConfig) -> int:
    shared = [limit for limit in inventory.limits.values() if resource in limit.resources]
    return max((limit.max if limit.modifiers else limit.base for limit in shared), default=inventory.default_limit)


def _given_to_objects(model: BaseModel) -> Mapping[str, int]:
    """Return the resources that a mutation gives to something else than the agent that acts; {} for other models."""
    match model:
        case mg.ResourceDeltaMutation(target=mg.EntityTarget.TARGET, deltas=resources):
            return {name: amount for name, amount in resources.items() if amount > 0}
        case mg.ResourceTransferMutation(to_target=mg.EntityTarget.TARGET, resources=resources):
            return resources
        case mg.QueryInventoryMutation(deltas=resources):
            return resources
        case _:
            return {}


def models_in(value: Any) -> Iterator[BaseModel]:
    """Yield every pydantic model in a value made of models, mappings and sequences, the outer ones first."""
    if isinstance(value, BaseModel):
        yield value
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from models_in(item)
