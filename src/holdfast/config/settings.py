"""Settings of a run: type, limits, default and description of every key. No other file holds a default.

The sections of worlds and policies are in `envs/worlds/` and `policies/`, their base classes in `sections.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from holdfast.config.registry import POLICIES, WORLDS
from holdfast.config.sections import (
    Count,
    EnvSection,
    NonNegative,
    PolicySection,
    Positive,
    Section,
    Unit,
    allowed,
    find_policy,
    find_world,
)


class Schedule(Section):
    kind: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="how the value changes over the run"
    )
    end: NonNegative = Field(default=0.0, description="value at the end of the run (linear, cosine)")


class Schedules(Section):
    lr: Schedule = Field(default=Schedule(), description="schedule of trainer.lr")
    entropy_coef: Schedule = Field(default=Schedule(), description="schedule of trainer.entropy_coef")
    clip: Schedule = Field(default=Schedule(), description="schedule of trainer.clip")


class Prioritized(Section):
    alpha: Unit = Field(
        default=0.0, description="0: every segment once per epoch; 1: sampled in proportion to |advantage|"
    )
    beta: Unit = Field(
        default=0.6, description="importance correction for the sampling at the start of the run (1 at the end)"
    )


class Keep(Section):
    last: Count = Field(default=3, le=10**6, description="newest checkpoints to keep")
    best: bool = Field(default=True, description="keep the checkpoint with the highest mean return")
    every: int = Field(
        default=0, ge=0, le=10**9, description="also keep one checkpoint every this many updates; 0: none"
    )


class TrainerSettings(Section):
    total_timesteps: Count = Field(
        default=300_000, le=10**15, description="agent steps to collect, rounded up to whole batches"
    )
    num_workers: int = Field(
        default=0, ge=0, le=512, description="processes that step environments; 0: the training process"
    )
    worker_timeout: float = Field(
        default=60.0, ge=0.1, le=86400.0, description="seconds a worker may take for one step before it is restarted"
    )
    worker_failures: int = Field(
        default=3,
        ge=0,
        le=10**6,
        description="failures in a row after which a worker is restarted; one more stops the run",
    )
    horizon: Count = Field(
        default=16, le=65536, description="steps per segment: how far gradients reach back in time (BPTT length)"
    )
    batch_size: Count | None = Field(
        default=None, le=2**31, description="agent steps per update (None: slots x horizon)"
    )
    minibatch_size: Count | None = Field(
        default=None, le=2**31, description="agent steps per gradient step (None: batch_size / 4)"
    )
    update_epochs: Count = Field(default=1, le=100, description="epochs over each batch")

    lr: float = Field(default=1e-3, gt=0.0, le=10.0, description="learning rate of Adam")
    adam_eps: float = Field(default=1e-8, gt=0.0, le=1.0, description="epsilon of Adam")
    gamma: Unit = Field(default=0.977, description="discount factor")
    gae_lambda: Unit = Field(default=0.916, description="lambda of GAE and V-trace")
    advantage: Literal["gae", "vtrace"] = Field(default="gae", description="advantage estimator")
    vtrace_rho: Positive = Field(
        default=1.0, description="upper limit of the importance weight of a step's own TD error (vtrace)"
    )
    vtrace_c: Positive = Field(
        default=1.0, description="upper limit of the importance weights of later TD errors (vtrace)"
    )
    clip: Positive = Field(default=0.1, description="PPO clip of the probability ratio")
    value_clip: NonNegative = Field(default=0.1, description="PPO clip of the change of the value; 0: no clipping")
    value_coef: NonNegative = Field(default=0.44, description="weight of the value loss")
    entropy_coef: NonNegative = Field(default=0.0021, description="weight of the entropy bonus")
    max_grad_norm: NonNegative = Field(default=0.5, description="gradient norm is clipped to this; 0: no clipping")
    normalize_advantage: bool = Field(
        default=True, description="normalize advantages to mean 0 and variance 1 per minibatch"
    )
    target_kl: NonNegative = Field(
        default=0.0, description="stop the epochs of a batch once the mean KL exceeds this; 0: never"
    )
    reward_scale: Positive = Field(
        default=1.0, description="factor on rewards while learning; reported returns are not scaled"
    )
    l2_init: NonNegative = Field(
        default=0.0, description="L2 penalty on the distance of weights from their initial values"
    )
    weight_clip: NonNegative = Field(
        default=0.0, description="clip weights to this multiple of the layer's largest initial weight; 0: no clipping"
    )
    prioritized: Prioritized = Field(default=Prioritized(), description="prioritised segment sampling")
    schedule: Schedules = Field(default=Schedules(), description="schedules of lr, entropy_coef and clip")

    start_states: Literal["stored", "zeros", "refreshed"] = Field(
        default="stored",
        description="recurrent state at the start of a segment: as stored, zeros, or recomputed in each later epoch",
    )
    burn_in: int = Field(
        default=0,
        ge=0,
        le=65536,
        description="steps before a segment to replay without gradient, to warm up its state",
    )
    reset_memory_each_rollout: bool = Field(default=False, description="reset all memory before every rollout")

    weight_metrics_interval: int = Field(
        default=0, ge=0, le=10**9, description="updates between metrics of each weight (norm, effective rank); 0: never"
    )
    checkpoint_interval: int = Field(
        default=50, ge=0, le=10**9, description="updates between checkpoints; 0: only at the end"
    )
    keep: Keep = Field(default=Keep(), description="which checkpoints to keep")
    on_disk_error: Literal["continue", "stop"] = Field(
        default="continue", description="when a checkpoint or a metric cannot be written: warn and retry later, or stop"
    )
    skipped_updates: int = Field(
        default=3,
        ge=0,
        le=10**6,
        description="non-finite gradient steps in a row to skip before the run stops",
    )
    threads: int = Field(default=0, ge=0, le=1024, description="torch threads; 0: chosen by the size of the network")


class DebugSettings(Section):
    shapes: bool = Field(default=False, description="log tensor shapes and memory through the first update")
    poison: bool = Field(
        default=False, description="fill experience with NaN before every rollout, to expose unwritten rows"
    )


def _read_world(value: Any) -> Any:
    """Validate env.* with the section of the world that it names."""
    if not isinstance(value, dict):
        return value
    name = str(value.get("name", "memory"))
    world = find_world(name)
    if world is None:
        raise ValueError(f"no such world: {name}")
    return WORLDS[world].model_validate(value)


def _read_policy(value: Any) -> Any:
    """Validate policy.* with the section of the agent that it names."""
    if not isinstance(value, dict):
        return value
    key = "agent" if "agent" in value else "py_agent"
    name = str(value.get(key, "fast"))
    kind = find_policy(key, name)
    if kind is None:
        raise ValueError(f"no such agent: {key}={name}")
    return POLICIES[kind].model_validate(value)


EnvSettings = Annotated[SerializeAsAny[EnvSection], BeforeValidator(_read_world)]
PolicySettings = Annotated[SerializeAsAny[PolicySection], BeforeValidator(_read_policy)]


class Settings(Section):
    run: str = Field(
        default="",
        max_length=200,
        pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*)?$",
        description="name of the run folder (empty: generated from settings, seed and time)",
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
        description="if run=NAME exists: auto resumes it, never refuses; must refuses to start a new run",
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="seed of weights, sampling and environments")
    device: str = Field(
        default="cpu",
        pattern=r"^[a-z]+(:[0-9]{1,3})?$",
        description="torch device that holds policy and experience",
        json_schema_extra=allowed("a torch device, such as cpu, cuda or cuda:1"),
    )
    env: EnvSettings = Field(default_factory=lambda: _read_world({}), description="the world")
    policy: PolicySettings = Field(default_factory=lambda: _read_policy({}), description="the agent")
    trainer: TrainerSettings = Field(default=TrainerSettings(), description="collection and learning")
    audit: Literal["auto", "on", "warn", "off"] = Field(
        default="auto",
        description="audit the policy before training: stop if it fails, or warn; auto: only your own policies",
    )
    progress: Literal["auto", "bars", "lines", "off"] = Field(
        default="auto", description="progress view; auto: bars in a terminal"
    )
    tensorboard: Literal["on", "off"] = Field(
        default="off", description="also write TensorBoard events into the run folder"
    )
    wandb: Literal["on", "offline", "off"] = Field(default="off", description="also log to Weights & Biases")
    debug: DebugSettings = Field(default=DebugSettings(), description="debugging aids")
