"""Small policies of every kind and random inputs for them; each guarantee is tested on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import torch
from tensordict import TensorDict, TensorDictBase

from holdfast.config import registry
from holdfast.policies import GRID_AGENTS, BoxPolicy, ComponentPolicy, Policy
from holdfast.policies.registry import read_graph
from holdfast.recurrence import State
from holdfast.spec import (
    BoxActions,
    BoxObs,
    DiscreteActions,
    DiscreteObs,
    Feature,
    MixedActions,
    MultiDiscreteActions,
    ObsPart,
    TokenObs,
    WorldSpec,
    keys,
)
from support.new_lstm_policy import NewLSTMPolicy

FEATURES = (
    Feature(0, "agent:group", 10.0),
    Feature(1, "episode_completion_pct", 255.0),
    Feature(2, "last_action", 10.0, ("noop", "move_north", "move_south", "move_west", "move_east")),
    Feature(3, "vibe", 255.0, ("default", "up", "down", "odd")),
    Feature(4, "tag", 10.0, ("agent", "wall", "mine")),
    Feature(5, "inv:heart", 256.0),
)
MOVES = DiscreteActions(("noop", "move_north", "move_south", "move_west", "move_east"))
TOKENS = WorldSpec("tokens", TokenObs(8, (5, 5), FEATURES), MOVES, 1)
VECTOR = WorldSpec("vector", BoxObs((3,), "float32"), DiscreteActions(("0", "1")), 1)
SYMBOLS = WorldSpec("symbols", DiscreteObs(4), MultiDiscreteActions((2, 3)), 1)
REALS = WorldSpec("reals", BoxObs((3,), "float32"), BoxActions((-2.0, -1.0), (2.0, 1.0)), 1)
MASKED = WorldSpec("masked", BoxObs((3,), "float32"), MultiDiscreteActions((4, 3), masked=True), 1)
MASKED_MOVES = WorldSpec("masked moves", BoxObs((3,), "float32"), DiscreteActions(MOVES.names, masked=True), 1)
PARTS = (ObsPart("camera", (12, 12, 3), 0, 255.0), ObsPart("speed", (2,), 432))
MIXED = WorldSpec("mixed", BoxObs((434,), "float32", PARTS), DiscreteActions(("0", "1", "2")), 1)
NESTED_PARTS = (
    ObsPart("board", (5, 5, 2), 0),
    ObsPart("cards", (2,), 50, sizes=(3, 4)),
    ObsPart("level", (), 52),
    ObsPart("place", (), 53, sizes=(2000,)),  # embedded
)
NESTED = WorldSpec(
    "nested", BoxObs((54,), "float32", NESTED_PARTS), MixedActions((3, 2), (-1.0,), (1.0,), masked=True), 1
)


def make(name: str, core: str = "lstm", layers: int = 2, seed: int = 0, memory_scope: str = "episode") -> Policy:
    """Build the policy of this name; NAME+sees is one that sees its previous action and reward."""
    torch.manual_seed(seed)
    name, plus, _ = name.partition("+sees")
    options = {"sees": ["action", "reward"] if plus else [], "memory_scope": memory_scope}
    small = {"hidden_size": 12, "num_layers": layers, "core": core, "encoder": [10], "heads": [8], **options}
    grid = {"hidden_size": 16, "num_layers": layers, "core": core, **options}
    match name:
        case _ if name in GRID_AGENTS:
            policy = registry.AGENTS[name](TOKENS, **grid)
        case _ if name in GRAPHS:
            policy = ComponentPolicy(TOKENS, read_graph(name.removeprefix("agent=")), name, **grid)
        case "two-memories":
            policy = ComponentPolicy(TOKENS, two_memories(), name, **grid)
        case "box":
            policy = BoxPolicy(VECTOR, **small)
        case "box-symbols":
            policy = BoxPolicy(SYMBOLS, **small)
        case "box-reals":
            policy = BoxPolicy(REALS, **small)
        case "box-mixed":
            policy = BoxPolicy(MIXED, **small)
        case "box-masked":
            policy = BoxPolicy(MASKED, **small)
        case "box-nested":
            policy = BoxPolicy(NESTED, **small)
        case "new-lstm-policy":
            policy = NewLSTMPolicy(VECTOR, num_layers=layers, **options)
        case "new-lstm-policy-masked":
            policy = NewLSTMPolicy(MASKED_MOVES, num_layers=layers)
        case _:
            raise ValueError(name)
    with torch.no_grad():  # last layers start near zero, where outputs hardly depend on inputs
        for parameter in policy.parameters():
            parameter.normal_(0.0, min(0.3, parameter.shape[-1] ** -0.5))
    return policy


def two_memories() -> dict:
    """The graph of `fast` with a second memory, a GRU with its own inputs."""
    graph = read_graph("fast")
    parts = graph["components"]
    parts["own"] = {"type": "ObsOwnLinear", "sources": ["obs_normalizer"], "nn_params": {"out_features": 6}}
    small = {"hidden_size": 5, "num_layers": 1}
    parts["second"] = {"type": "GRU", "sources": ["own"], "nn_params": small}
    parts["both"] = {"type": "Concat", "sources": ["_core_", "second"]}
    parts["actor_1"]["sources"] = parts["critic_1"]["sources"] = ["both"]
    return graph


GRAPHS = tuple(f"agent={name}" for name in GRID_AGENTS)
HAND_WRITTEN = ("new-lstm-policy", "new-lstm-policy-masked")
AGENTS = (*GRID_AGENTS, *GRAPHS, "two-memories")
EVERY_POLICY = (*AGENTS, "box", "box-symbols", "box-reals", "box-mixed", "box-masked", "box-nested", *HAND_WRITTEN)
CELLS = tuple(name for name in registry.CELLS if name != "none")
OTHER_CELLS = [name for name in CELLS if name != "lstm"]
# The hand-written policies have a fixed cell; the others take any. Each cell is combined with every kind of encoder.
EVERY_POLICY_AND_CELL = [(policy, "lstm") for policy in EVERY_POLICY]
EVERY_POLICY_AND_CELL += [(p, c) for p in ("fast", "agent=fast", "example", "box", "box-masked") for c in OTHER_CELLS]
FURTHER = ("latent_attn_tiny", "agent=latent_attn_small", "box-symbols", "two-memories", "box-mixed", "box-reals")
EVERY_POLICY_AND_CELL += zip(FURTHER, cycle(OTHER_CELLS))
SEEING = ("box+sees", "box-symbols+sees", "box-reals+sees", "agent=fast+sees", "new-lstm-policy+sees")
EVERY_POLICY_AND_CELL += [(policy, "lstm") for policy in SEEING]


def random_obs(spec: WorldSpec, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    obs = spec.obs
    match obs:
        case TokenObs():
            rows, columns = (
                torch.randint(0, side, (*shape, obs.num_tokens), generator=generator) for side in obs.window
            )
            attribute = torch.randint(0, len(FEATURES), rows.shape, generator=generator)
            value = torch.randint(0, 3, rows.shape, generator=generator)
            coordinate = (rows << 4 | columns).where(attribute != 1, 0xFE)
            tokens = torch.stack([coordinate, attribute, value], -1)
            tokens[..., -2:, :] = 0xFF
            return tokens.byte()
        case DiscreteObs(n=n):
            return torch.randint(0, n, shape, generator=generator)
        case _:
            numbers = torch.randn(*shape, *obs.shape, generator=generator)
            for part in obs.parts:
                for i, size in enumerate(part.sizes, part.start):
                    numbers[..., i] = torch.randint(0, size, shape, generator=generator)
            return numbers


def random_actions(spec: WorldSpec, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    match spec.actions:
        case DiscreteActions(names=names):
            return torch.randint(0, len(names), shape, generator=generator)
        case MultiDiscreteActions(sizes=sizes):
            return torch.stack([torch.randint(0, n, shape, generator=generator) for n in sizes], -1)
        case BoxActions(low=low):
            return torch.randn(*shape, len(low), generator=generator)
        case MixedActions(sizes=sizes, low=low):
            chosen = [torch.randint(0, n, shape, generator=generator).float() for n in sizes]
            return torch.cat([torch.stack(chosen, -1), torch.randn(*shape, len(low), generator=generator)], -1)


def random_arrivals(spec: WorldSpec, T: int, B: int, seed: int, end_rate: float = 0.3) -> dict[str, torch.Tensor]:
    """Random inputs [T, B, ...]; terminated or truncated ends episodes at random."""
    generator = torch.Generator().manual_seed(seed)
    return {
        keys.OBS: random_obs(spec, (T, B), generator),
        keys.REWARDS: torch.randn(T, B, generator=generator),
        keys.DONES: torch.rand(T, B, generator=generator) < end_rate / 2,
        keys.TRUNCATEDS: torch.rand(T, B, generator=generator) < end_rate / 2,
        **({keys.ACTION_MASK: random_masks(spec, (T, B), generator)} if spec.mask_size else {}),
        keys.LAST_ACTIONS: random_actions(spec, (T, B), generator),
    }


def random_masks(spec: WorldSpec, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Random masks [*shape, mask size]: half of the choices are illegal, but never all choices of one part."""
    parts = []
    for size in spec.actions.mask_sizes:
        one = torch.randint(0, size, (*shape, 1), generator=generator)
        parts.append((torch.rand(*shape, size, generator=generator) < 0.5).scatter(-1, one, True))
    return torch.cat(parts, -1)


def random_state(policy: Policy, B: int, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(layers, B, hidden, generator=generator) for layers, hidden in policy.state_shapes)


def step_td(arrivals: dict[str, torch.Tensor], t: int, slots: torch.Tensor | None = None) -> TensorDict:
    """Step t of arrivals [T, B, ...]; with slots, only those columns, with their slot ids."""
    columns = {key: x[t] if slots is None else x[t, slots] for key, x in arrivals.items()}
    if slots is not None:
        columns[keys.SLOT_IDS] = slots
    return TensorDict(columns, batch_size=[len(columns[keys.DONES])])


def score(policy: Policy, inputs: Mapping[str, torch.Tensor], start: State, actions: torch.Tensor) -> TensorDictBase:
    """Log-prob, entropy, values [T, M] and the final state of given actions, by both interfaces, which must agree exactly."""
    out = score_by_tensordict(policy, inputs, start, actions)
    scored = policy.score(inputs, start, actions)
    for key, tensor in ((keys.LOG_PROB, scored.log_prob), (keys.ENTROPY, scored.entropy), (keys.VALUES, scored.values)):
        assert torch.equal(out[key], tensor), key
    for i, leaf in enumerate(scored.state):
        assert torch.equal(out[f"{keys.FINAL_STATE}{i}"][0], leaf.transpose(0, 1))
    return out


def score_by_tensordict(
    policy: Policy, inputs: Mapping[str, torch.Tensor], start: State, actions: torch.Tensor
) -> TensorDictBase:
    """What `score` returns, only by `policy(td, state, action)`: the one interface that torch.compile(policy) compiles."""
    T, M = actions.shape[:2]
    td = TensorDict({key: x.transpose(0, 1) for key, x in inputs.items()}, batch_size=[M, T])
    return policy(td, state=start, action=actions.transpose(0, 1)).transpose(0, 1)


def value_of(policy: Policy, inputs: Mapping[str, torch.Tensor], state: State) -> torch.Tensor:
    """Values [B] of inputs [B, ...]."""
    return policy.predict_values({key: x[None] for key, x in inputs.items()}, state)[0]


def state_after(policy: Policy, inputs: Mapping[str, torch.Tensor], start: State, actions: torch.Tensor) -> State:
    """State after replaying inputs [T, M, ...]."""
    with torch.no_grad():
        return policy.score(inputs, start, actions).state
