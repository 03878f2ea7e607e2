"""Every setting: its type, its limits, its default and one line about it. No other file holds a default.

`env.*` and `policy.*` have a class per world and per agent, so a key that would do nothing there is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

Count = Annotated[int, Field(ge=1)]
Unit = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e6)]
Positive = Annotated[float, Field(gt=0.0, le=1e6)]


def allowed(text: str) -> dict[str, Any]:
    """What a text key accepts, in the words of its error message."""
    return {"allowed": text}


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)


# ----------------------------------------------------------------------------------------------------- worlds


class EnvSection(Section):
    num_envs: Count = Field(default=64, le=65536, description="environments; slots = num_envs x agents per environment")


class MemoryEnv(EnvSection):
    name: Literal["memory"] = Field(default="memory", description="T-mazes: a cue at the start says which door pays")
    num_envs: Count = Field(default=8, le=65536, description="environments; slots = num_envs x rooms")
    rooms: Count = Field(default=8, le=64, description="sealed mazes (one agent each) per environment")
    corridor: Count = Field(default=3, le=200, description="steps between the cue and the doors")
    window: Literal[3, 5, 7, 9, 11, 13, 15] = Field(default=3, description="side of the square an agent sees")


class CollectEnv(EnvSection):
    name: Literal["collect"] = Field(default="collect", description="agents gather hearts from mines")
    num_envs: Count = Field(default=16, le=65536, description="environments; slots = num_envs x agents")
    agents: Count = Field(default=2, le=64, description="agents per environment")
    size: int = Field(default=9, ge=5, le=100, description="side of the map, walls included")
    mines: Count = Field(default=8, le=1000, description="mines, one heart each")
    max_steps: Count = Field(default=32, le=100_000, description="steps per episode")
    window: Literal[3, 5, 7, 9, 11, 13, 15] = Field(default=7, description="side of the square an agent sees")
    desync: bool = Field(default=False, description="end each environment's first episode at a random step")


class ArenaEnv(EnvSection):
    name: Literal["arena"] = Field(default="arena", description="mine -> generator -> altar, rewards shaped")
    num_envs: Count = Field(default=4, le=65536, description="environments; slots = num_envs x agents")
    agents: Count = Field(default=24, le=200, description="agents per environment")
    size: int = Field(default=25, ge=8, le=200, description="side of the map, walls included")
    mines: Count = Field(default=10, le=1000, description="mines, which give ore")
    generators: Count = Field(default=5, le=1000, description="generators, which turn ore into a battery")
    altars: Count = Field(default=5, le=1000, description="altars, which turn a battery into a heart")
    max_steps: Count = Field(default=1000, le=1_000_000, description="steps per episode")
    window: Literal[3, 5, 7, 9, 11, 13, 15] = Field(default=11, description="side of the square an agent sees")
    num_tokens: Count = Field(default=200, le=1000, description="most tokens in one observation")
    shaped: bool = Field(
        default=True, description="holding an ore or a battery is worth a little on the way to a heart"
    )
    desync: bool = Field(default=True, description="end each environment's first episode at a random step")


class GymEnv(EnvSection):
    name: str = Field(
        pattern=r"^gym:[^\x00-\x1f\x7f]+$",
        description="a Gymnasium environment, one slot each",
        json_schema_extra=allowed("gym:NAME, such as gym:CartPole-v1"),
    )
    num_envs: Count = Field(default=16, le=65536, description="environments, one slot each")
    hide: list[Annotated[int, Field(ge=0)]] = Field(
        default=[], description="entries of a vector observation to leave out"
    )
    action_mask: bool = Field(default=False, description="read info['action_mask'], which says what actions are legal")
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for gymnasium.make")


class GymVectorEnv(EnvSection):
    name: str = Field(
        pattern=r"^gymvec:[^\x00-\x1f\x7f]+$",
        description="a Gymnasium environment with a vector form of its own",
        json_schema_extra=allowed("gymvec:NAME, such as gymvec:CartPole-v1"),
    )
    hide: list[Annotated[int, Field(ge=0)]] = Field(
        default=[], description="entries of a vector observation to leave out"
    )
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for gymnasium.make_vec")


class PettingZooEnv(EnvSection):
    name: str = Field(
        pattern=r"^pettingzoo:[^\x00-\x1f\x7f]+$",
        description="module of a PettingZoo parallel environment",
        json_schema_extra=allowed("pettingzoo:MODULE, such as pettingzoo:mpe2.simple_spread_v3"),
    )
    num_envs: Count = Field(default=8, le=65536, description="environments; slots = num_envs x agents")
    action_mask: bool = Field(
        default=False, description="read infos[agent]['action_mask'], which says what actions are legal"
    )
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for parallel_env")


ENVS_BY_NAME: dict[str, type[EnvSection]] = {"memory": MemoryEnv, "collect": CollectEnv, "arena": ArenaEnv}
ENVS_BY_PREFIX: dict[str, type[EnvSection]] = {
    "gym": GymEnv,
    "gymvec": GymVectorEnv,
    "pettingzoo": PettingZooEnv,
}


def env_kind(value: Any) -> str:
    name = value.get("name", "memory") if isinstance(value, dict) else value.name
    return str(name).split(":", 1)[0]


EnvSettings = Annotated[
    Annotated[MemoryEnv, Tag("memory")]
    | Annotated[CollectEnv, Tag("collect")]
    | Annotated[ArenaEnv, Tag("arena")]
    | Annotated[GymEnv, Tag("gym")]
    | Annotated[GymVectorEnv, Tag("gymvec")]
    | Annotated[PettingZooEnv, Tag("pettingzoo")],
    Discriminator(env_kind),
]


# --------------------------------------------------------------------------------------------------- policies


class PolicySection(Section):
    """What every agent understands. None means: the agent's own size."""

    core: Literal["own", "lstm", "gru", "mingru", "none"] = Field(
        default="own",
        description="the recurrent cell: the agent's own (an LSTM), or another; none is a memoryless control",
    )
    hidden: int | None = Field(default=None, ge=1, le=8192, description="width of the memory (None: the agent's own)")
    layers: int | None = Field(default=None, ge=1, le=16, description="layers of the memory (None: the agent's own)")
    memory_scope: Literal["episode", "lifetime"] = Field(
        default="episode", description="lifetime keeps memory across episode ends on purpose (meta-learning)"
    )
    compile: bool = Field(default=False, description="torch.compile the policy around its recurrence")
    weights: str | None = Field(
        default=None,
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="a run, or a checkpoint of one, to start from: weights are found by name, in either family",
        json_schema_extra=allowed("the path of a run folder or of a checkpoint in it"),
    )

    @property
    def agent_word(self) -> str:
        """How the agent was chosen: py_agent=fast, agent=mine.yaml."""
        key = "agent" if "agent" in type(self).model_fields else "py_agent"
        return f"{key}={getattr(self, key)}"

    @property
    def agent_name(self) -> str:
        """The agent in a word, for names and titles."""
        return self.agent_word.partition("=")[2].rpartition("/")[2].removesuffix(".yaml").replace(".py:", "-")


GridAgentName = Literal["fast", "latent_attn_tiny", "latent_attn_small", "latent_attn_med", "example"]
GRID_AGENTS: tuple[str, ...] = get_args(GridAgentName)


class GridPolicySection(PolicySection):
    init: Literal["own", "seeds"] = Field(
        default="own",
        description="initial weights: own, or seeds for those of the first version (LSTM biases 1, small embeddings)",
    )


class PlainPolicySettings(GridPolicySection):
    py_agent: GridAgentName = Field(default="fast", description="an agent for grid worlds, in plain PyTorch")


class ComponentPolicySettings(GridPolicySection):
    agent: str = Field(
        pattern=rf"^({'|'.join(GRID_AGENTS)}|[^\x00-\x1f\x7f]+\.ya?ml)$",
        description="an agent as a graph of components: a ready-made one, or a .yaml file of yours",
        json_schema_extra=allowed(f"one of {', '.join(GRID_AGENTS)}, or the path of a .yaml file"),
    )


class OwnPolicySettings(PolicySection):
    py_agent: str = Field(
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x1f\x7f/]\.py:[A-Za-z_]\w*$",
        description="a policy class in a file of yours; it is run, so a settings file cannot name it",
        json_schema_extra=allowed("FILE.py:CLASS, such as ./mine.py:MyPolicy"),
    )
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for the class")


class BoxPolicySettings(PolicySection):
    py_agent: Literal["box"] = Field(default="box", description="a plain MLP encoder for vectors and symbols")
    encoder: list[Annotated[int, Field(ge=1, le=8192)]] = Field(
        default=[64, 64], description="widths of the encoder MLP"
    )
    heads: list[Annotated[int, Field(ge=1, le=8192)]] = Field(default=[64], description="widths of each head's MLP")
    normalize_obs: bool = Field(
        default=True, description="running mean and variance of observations, moved between batches"
    )
    log_std: float = Field(
        default=0.0, ge=-5.0, le=2.0, description="log of the first standard deviation of Box actions"
    )


POLICIES_BY_KIND: dict[str, type[PolicySection]] = {
    "plain": PlainPolicySettings,
    "box": BoxPolicySettings,
    "component": ComponentPolicySettings,
    "own": OwnPolicySettings,
}
AGENT_WORDS = {  # how an agent of each kind is chosen
    "plain": "py_agent=fast",
    "box": "py_agent=box",
    "component": "agent=fast",
    "own": "py_agent=FILE.py:CLASS",
}


def policy_kind(key: str, name: str) -> str | None:
    """The kind of policy.agent or policy.py_agent of this name; None where there is none."""
    if key == "agent":
        return "component" if name in GRID_AGENTS or name.endswith((".yaml", ".yml")) else None
    if ".py:" in name:
        return "own"
    return "box" if name == "box" else "plain" if name in GRID_AGENTS else None


def _kind_of_policy(value: Any) -> str | None:
    if isinstance(value, dict):
        key = "agent" if "agent" in value else "py_agent"
        return policy_kind(key, str(value.get(key, "fast")))
    return next(kind for kind, section in POLICIES_BY_KIND.items() if isinstance(value, section))


PolicySettings = Annotated[
    Annotated[PlainPolicySettings, Tag("plain")]
    | Annotated[BoxPolicySettings, Tag("box")]
    | Annotated[ComponentPolicySettings, Tag("component")]
    | Annotated[OwnPolicySettings, Tag("own")],
    Discriminator(_kind_of_policy),
]


# ---------------------------------------------------------------------------------------------------- trainer


class Schedule(Section):
    kind: Literal["constant", "linear", "cosine"] = Field(default="constant", description="shape over the whole run")
    end: NonNegative = Field(default=0.0, description="value at the end of the run (linear, cosine)")


class Schedules(Section):
    lr: Schedule = Field(default=Schedule(), description="of trainer.lr")
    entropy_coef: Schedule = Field(default=Schedule(), description="of trainer.entropy_coef")
    clip: Schedule = Field(default=Schedule(), description="of trainer.clip")


class Prioritized(Section):
    alpha: Unit = Field(
        default=0.0, description="0: every segment once per epoch; 1: drawn in proportion to |advantage|"
    )
    beta: Unit = Field(
        default=0.6, description="how much importance weights undo the drawing, at the start (1 at the end)"
    )


class Keep(Section):
    last: Count = Field(default=3, le=10**6, description="newest checkpoints to keep")
    best: bool = Field(default=True, description="keep the checkpoint with the highest mean return")
    every: int = Field(default=0, ge=0, le=10**9, description="keep the checkpoint of every so many updates; 0: none")


class TrainerSettings(Section):
    total_timesteps: Count = Field(
        default=300_000, le=10**15, description="agent steps to collect, rounded up to whole batches"
    )
    num_workers: int = Field(default=0, ge=0, le=512, description="processes that step worlds; 0 steps them here")
    worker_timeout: float = Field(
        default=60.0, ge=0.1, le=86400.0, description="seconds a worker may take for one step before it counts as hung"
    )
    worker_failures: int = Field(
        default=3,
        ge=0,
        le=10**6,
        description="failures of one worker in a row that are survived; 0: the first one stops the run",
    )
    horizon: Count = Field(default=16, le=65536, description="steps per segment, the length gradients reach back")
    batch_size: Count | None = Field(
        default=None, le=2**31, description="agent steps per update (None: slots x horizon)"
    )
    minibatch_size: Count | None = Field(
        default=None, le=2**31, description="agent steps per gradient step (None: batch_size / 4)"
    )
    update_epochs: Count = Field(default=1, le=100, description="passes over each batch")

    lr: float = Field(default=1e-3, gt=0.0, le=10.0, description="learning rate of Adam")
    adam_eps: float = Field(default=1e-8, gt=0.0, le=1.0, description="epsilon of Adam")
    gamma: Unit = Field(default=0.977, description="discount")
    gae_lambda: Unit = Field(default=0.916, description="lambda of GAE and V-trace")
    advantage: Literal["gae", "vtrace"] = Field(default="gae", description="how advantages are estimated")
    vtrace_rho: Positive = Field(default=1.0, description="largest importance weight of a step's own error (vtrace)")
    vtrace_c: Positive = Field(default=1.0, description="largest importance weight of later errors (vtrace)")
    clip: Positive = Field(default=0.1, description="PPO clip of the probability ratio")
    value_clip: NonNegative = Field(
        default=0.1, description="clip of the value's move from its stored value; 0 switches it off"
    )
    value_coef: NonNegative = Field(default=0.44, description="weight of the value loss")
    entropy_coef: NonNegative = Field(default=0.0021, description="weight of the entropy bonus")
    max_grad_norm: NonNegative = Field(default=0.5, description="largest gradient norm; 0 switches clipping off")
    normalize_advantage: bool = Field(
        default=True, description="zero mean and unit variance of advantages per minibatch"
    )
    target_kl: NonNegative = Field(
        default=0.0, description="stop a batch's epochs when the mean KL passes this; 0 never stops"
    )
    reward_scale: Positive = Field(
        default=1.0, description="factor on rewards for learning; reported returns stay unscaled"
    )
    l2_init: NonNegative = Field(default=0.0, description="pull of the weights towards their first values")
    weight_clip: NonNegative = Field(
        default=0.0, description="largest weight, as a multiple of the layer's largest first weight"
    )
    prioritized: Prioritized = Field(default=Prioritized(), description="prioritised segment sampling")
    schedule: Schedules = Field(default=Schedules(), description="how rates change over the run")

    start_states: Literal["stored", "zeros", "refreshed"] = Field(
        default="stored",
        description="memory a segment is learned from: as lived, zeros, or recomputed for each later epoch",
    )
    burn_in: int = Field(
        default=0,
        ge=0,
        le=65536,
        description="steps before a segment replayed without gradient to warm its memory up",
    )
    reset_memory_each_rollout: bool = Field(default=False, description="wipe all memory before every rollout")

    weight_metrics_interval: int = Field(
        default=0, ge=0, le=10**9, description="updates between metrics of each weight (norm, effective rank); 0: none"
    )
    checkpoint_interval: int = Field(
        default=50, ge=0, le=10**9, description="updates between checkpoints; 0 saves only at the end"
    )
    keep: Keep = Field(default=Keep(), description="which checkpoints stay")
    on_disk_error: Literal["continue", "stop"] = Field(
        default="continue", description="when a checkpoint or a metric cannot be written: warn and try again, or stop"
    )
    skipped_updates: int = Field(
        default=3,
        ge=0,
        le=10**6,
        description="non-finite gradient steps in a row that are skipped before the run stops",
    )
    threads: int = Field(default=0, ge=0, le=1024, description="torch threads; 0 chooses by the size of the network")


class DebugSettings(Section):
    shapes: bool = Field(default=False, description="log tensor shapes and memory through the first update")
    poison: bool = Field(
        default=False, description="fill experience with NaN before every rollout, so unwritten rows show"
    )


class Settings(Section):
    run: str = Field(
        default="",
        max_length=200,
        pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*)?$",
        description="name of the run folder (empty: made from settings, seed and time)",
        json_schema_extra=allowed("letters, digits and . _ - (at most 200, not starting with a dot)"),
    )
    runs_dir: str = Field(
        default="runs",
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        description="folder that holds run folders",
        json_schema_extra=allowed("the path of a folder, without control characters"),
    )
    resume: Literal["auto", "must", "never"] = Field(
        default="auto",
        description="what to do when run=NAME exists: auto continues it, must refuses to start anew, never refuses to continue",
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="seed of weights, sampling and worlds")
    device: str = Field(
        default="cpu",
        pattern=r"^[a-z]+(:[0-9]{1,3})?$",
        description="torch device that holds policy and experience",
        json_schema_extra=allowed("a torch device, such as cpu, cuda or cuda:1"),
    )
    env: EnvSettings = Field(default=MemoryEnv(), description="the world")
    policy: PolicySettings = Field(default=PlainPolicySettings(), description="the agent's own settings")
    trainer: TrainerSettings = Field(default=TrainerSettings(), description="collection and learning")
    audit: Literal["auto", "on", "warn", "off"] = Field(
        default="auto",
        description="audit the policy before training and refuse one that fails (warn: train it anyway); "
        "auto: policies of one's own",
    )
    progress: Literal["auto", "bars", "lines", "off"] = Field(
        default="auto", description="progress view; auto: bars in a terminal"
    )
    tensorboard: Literal["on", "off"] = Field(
        default="off", description="also write TensorBoard events into the run folder"
    )
    wandb: Literal["on", "offline", "off"] = Field(default="off", description="also log to Weights & Biases")
    debug: DebugSettings = Field(default=DebugSettings(), description="looking inside")
