"""MettaGrid configurations as a user writes them, and broken ones."""

from mettagrid.config.action_config import ActionsConfig, ChangeVibeActionConfig, MoveActionConfig
from mettagrid.config.game_value import InventoryValue
from mettagrid.config.handler_config import Handler, actorHas, deposit, updateActor
from mettagrid.config.mettagrid_config import (
    AgentConfig,
    GameConfig,
    GridObjectConfig,
    InventoryConfig,
    MettaGridConfig,
    ResourceLimitsConfig,
    WallConfig,
)
from mettagrid.config.mutation import logStatToGame
from mettagrid.config.obs_config import GlobalObsConfig, ObsConfig
from mettagrid.config.reward_config import inventoryReward
from mettagrid.config.vibes import Vibe
from mettagrid.map_builder.ascii import AsciiMapBuilder
from mettagrid.map_builder.random_map import RandomMapBuilder
from mettagrid.mapgen.mapgen import MapGen


def berries(num_agents=3, bushes=6, vibes=True, **changes) -> MettaGridConfig:
    """Other objects than Holdfast's games, diagonal moves, three vibes, a window that is not square, own statistics."""
    bush = GridObjectConfig(name="bush", on_use_handler=Handler(mutations=[updateActor({"berry": 1})]))
    pot = GridObjectConfig(
        name="pot",
        on_use_handler=Handler(
            filters=[actorHas({"berry": 1})], mutations=[deposit({"berry": 1}), updateActor({"jam": 1})]
        ),
    )
    bell = GridObjectConfig(name="bell", on_use_handler=Handler(mutations=[logStatToGame("rung")]))
    words = [Vibe("a", "default"), Vibe("b", "here"), Vibe("c", "there")]
    limits = {
        "tool": ResourceLimitsConfig(base=1, resources=["tool"]),
        "jam": ResourceLimitsConfig(base=9, resources=["jam"]),
    }
    game = GameConfig(
        num_agents=num_agents,
        max_steps=25,
        resource_names=["berry", "jam", "tool"],
        obs=ObsConfig(
            width=9,
            height=5,
            num_tokens=90,
            global_obs=GlobalObsConfig(local_position=True, obs={"jam_made": InventoryValue(item="jam")}),
        ),
        actions=ActionsConfig(
            move=MoveActionConfig(allowed_directions=["north", "south", "west", "east", "northeast", "southwest"]),
            change_vibe=ChangeVibeActionConfig(enabled=vibes, vibes=words),
        ),
        objects={"wall": WallConfig(), "bush": bush, "pot": pot, "bell": bell},
        agent=AgentConfig(rewards={"jam": inventoryReward("jam")}, inventory=InventoryConfig(limits=limits)),
        map_builder=RandomMapBuilder.Config(
            agents=num_agents, width=9, height=9, border_width=1, objects={"bush": bushes, "pot": 3, "bell": 4}
        ),
    )
    return MettaGridConfig(game=game.model_copy(update=changes), desync_episodes=False)


config = berries()
rung = berries(end_episode_on_game_stats={"rung": 2.0})
endless = berries(max_steps=0)
teams = berries(
    agents=[AgentConfig(team_id=team, rewards={"jam": inventoryReward("jam")}) for team in (4, 4, 7)],
    map_builder=RandomMapBuilder.Config(
        agents={"team_4": 2, "team_7": 1}, width=7, height=7, objects={"bush": 4, "pot": 3}
    ),
)
nested = berries(
    num_agents=4,
    map_builder=MapGen.Config(
        instances=4,
        border_width=1,
        instance=MapGen.Config(
            border_width=1, instance=RandomMapBuilder.Config(agents=1, width=6, height=6, objects={"bush": 5, "pot": 3})
        ),
    ),
)
ascii_map = berries(
    map_builder=AsciiMapBuilder.Config(
        map_data=[list(row) for row in ("@@@@@@", "......", "@@@@@@", "..b...")],
        char_to_map_name={"@": "agent.agent", ".": "empty", "b": "bush"},
    )
)
silent = berries(vibes=False)
moved = berries(obs=ObsConfig(width=9, height=5, num_tokens=90, global_obs=GlobalObsConfig(last_action_move=True)))


def staged(seed, env, episode, first=2):
    """More bushes in every episode, longer episodes in every environment, and a map that the seed decides."""
    assert isinstance(seed, int)
    staged = berries(bushes=first + episode)
    staged.game.max_steps = 5 + env
    return staged


def poorer(episode):
    """Only limits, and so the scales of features, change between episodes."""
    config = berries()
    config.game.agent.inventory.default_limit = 50 if episode else 100
    return config


def grown(episode):
    config = berries()
    if episode:
        config.game.objects["chest"] = GridObjectConfig(name="chest")
    return config


_calls = []


def forgetful():
    """Not deterministic: another map at every call."""
    _calls.append(0)
    return berries(bushes=len(_calls) % 7 + 1)


def forgetful_of_seed(seed):
    return forgetful()


def raises():
    raise OSError("no bushes today")


def needs_one():
    return GameConfig(num_agents=0)


def bare_game():
    return config.game


number = 7
windows = berries(obs=ObsConfig(width=4, height=4, num_tokens=90))
still = berries(actions=ActionsConfig(move=MoveActionConfig(enabled=False)))
crowded = berries(num_agents=3, obs=ObsConfig(width=9, height=9, num_tokens=10))
lonely = berries(map_builder=RandomMapBuilder.Config(agents=1, width=5, height=5))
unknown = berries(map_builder=RandomMapBuilder.Config(agents=3, width=6, height=6, objects={"dragon": 1}))
many = berries(resource_names=[f"r{i}" for i in range(80)] + ["berry", "jam", "tool"])
