"""Settings of a run: type, limits, default and description of every key. Defaults are defined nowhere else.

The settings for worlds and policies are in `envs/worlds/` and `policies/`, their base classes in `sections.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.config.sections import (
    PRINTABLE,
    Count,
    EnvSettings,
    NonNegative,
    PolicySettings,
    Positive,
    Section,
    Unit,
    setting,
)

Interval = Annotated[int, Field(ge=0, le=10**9)]
Return = Annotated[float, Field(ge=-1e12, le=1e12)]
Tag = Annotated[str, Field(min_length=1, max_length=64, pattern=rf"^{PRINTABLE}+$")]


class Schedule(Section):
    kind: Literal["constant", "linear", "cosine"] = setting("constant", "how the value changes over the run")
    end: NonNegative = setting(0.0, "value at the end of the run (linear, cosine)")


class LrSchedule(Schedule):
    kind: Literal["constant", "linear", "cosine"] = setting("linear", "how the value changes over the run")


class Schedules(Section):
    lr: LrSchedule = setting(LrSchedule(), "schedule for trainer.lr")
    entropy_coef: Schedule = setting(Schedule(), "schedule for trainer.entropy_coef")
    clip: Schedule = setting(Schedule(), "schedule for trainer.clip")


class Prioritized(Section):
    alpha: Unit = setting(0.0, "0: use every segment once per epoch; 1: sample segments in proportion to |advantage|")
    beta: Unit = setting(0.6, "importance-sampling exponent at the start of the run; rises to 1 at the end")


class Keep(Section):
    last: Count = setting(3, "number of newest checkpoints to keep", le=10**6)
    best: bool = setting(True, "keep the checkpoint with the highest mean return")
    every: Interval = setting(0, "also keep one checkpoint every N updates; 0: none")


class TrainerSettings(Section):
    total_timesteps: Count = setting(
        300_000, "number of agent steps to collect, rounded up to whole batches", le=10**15
    )
    num_workers: int = setting(
        0, "number of processes that step environments; 0: step them in the training process", ge=0, le=512
    )
    worker_timeout: float = setting(60.0, "seconds a worker may take for one step", ge=0.1, le=86400.0)
    worker_failures: int = setting(
        3, "maximum number of consecutive restarts of a failing worker before the run stops", ge=0, le=10**6
    )
    shards: Count | None = setting(
        None,
        "equal blocks of slots that are computed one by one and summed in order; part of the run (None: number of ranks)",
        le=65536,
    )
    ranks: str = setting(
        "1",
        "processes that compute the shards; `auto`: one per core. The result does not depend on it",
        pattern=r"^(auto|[1-9][0-9]{0,4})$",
        allowed="a number that divides trainer.shards, or auto",
    )
    rank_timeout: float = setting(
        7.0, "seconds without a sign of life before a rank counts as lost", ge=2.0, le=86400.0
    )
    horizon: Count = setting(128, "steps per segment: how far gradients reach back in time (BPTT length)", le=65536)
    batch_size: Count | None = setting(None, "agent steps per update (None: slots x horizon)", le=2**31)
    minibatch_size: Count | None = setting(None, "agent steps per gradient step (None: batch_size / 4)", le=2**31)
    update_epochs: Count = setting(6, "number of epochs per batch", le=100)

    lr: float = setting(1e-3, "learning rate for Adam", gt=0.0, le=10.0)
    adam_eps: float = setting(1e-8, "epsilon for Adam", gt=0.0, le=1.0)
    gamma: Unit = setting(0.99, "discount factor")
    gae_lambda: Unit = setting(0.95, "lambda for GAE and V-trace")
    advantage: Literal["gae", "vtrace"] = setting("gae", "advantage estimator")
    vtrace_rho: Positive = setting(1.0, "V-trace rho-bar: upper limit of the importance weight on each step's TD error")
    vtrace_c: Positive = setting(
        1.0, "V-trace c-bar: upper limit of the importance weights that propagate later TD errors"
    )
    clip: Positive = setting(0.2, "PPO clip range for the probability ratio")
    value_clip: NonNegative = setting(0.0, "PPO clip range for the value change; 0: no clipping")
    value_coef: NonNegative = setting(0.44, "weight of the value loss")
    entropy_coef: NonNegative | None = setting(
        None, "weight of the entropy bonus (None: 0.015 x log(number of actions); 0.01 for real numbers)"
    )
    max_grad_norm: NonNegative = setting(0.5, "maximum gradient norm; 0: no clipping")
    normalize_advantage: bool = setting(True, "normalize advantages to mean 0 and variance 1 per minibatch")
    target_kl: NonNegative = setting(
        0.0, "skip the remaining epochs of a batch once the mean KL exceeds this value; 0: never"
    )
    normalize_rewards: bool = setting(
        True,
        "divide rewards by the size of discounted returns at the start of the run; reported returns are not divided",
    )
    stop_at_return: Return | None = setting(
        None,
        "finish the run once the mean return of the last 100 training episodes is at least this (None: never); counts "
        "from the 100th episode on, or from as many as there are slots",
    )
    reward_scale: Positive = setting(1.0, "factor for rewards in training; reported returns are not scaled")
    l2_init: NonNegative = setting(
        0.0, "coefficient of the L2 penalty on the distance of weights from their initial values"
    )
    weight_clip: NonNegative = setting(
        0.0, "clip weights to this multiple of the layer's largest initial weight; 0: no clipping"
    )
    prioritized: Prioritized = setting(Prioritized(), "prioritised segment sampling")
    schedule: Schedules = setting(Schedules(), "schedules for lr, entropy_coef and clip")

    start_states: Literal["stored", "zeros", "refreshed"] = setting(
        "stored",
        "recurrent state at the start of a segment: as stored while acting, zeros, or recomputed from epoch 2 on",
    )
    burn_in: int = setting(
        0, "steps replayed without gradient before each segment, to warm up the recurrent state", ge=0, le=65536
    )
    reset_memory_each_rollout: bool = setting(False, "reset the recurrent memory of all slots before every rollout")

    weight_metrics_interval: Interval = setting(
        0, "updates between metrics for each weight tensor, such as its norm; 0: never"
    )
    checkpoint_interval: Interval = setting(50, "updates between checkpoints; 0: only at the end")
    keep: Keep = setting(Keep(), "which checkpoints to keep")
    on_disk_error: Literal["continue", "stop"] = setting(
        "continue", "if a write fails: warn and retry later (`continue`), or stop the run (`stop`)"
    )
    skipped_updates: int = setting(
        3, "maximum number of consecutive non-finite gradient steps to skip before the run stops", ge=0, le=10**6
    )
    threads: int = setting(0, "number of torch threads; 0: chosen from the size of the network", ge=0, le=1024)


class EvalSettings(Section):
    interval: Interval = setting(0, "updates between evaluations; 0: never")
    episodes: Count = setting(20, "play at least this many episodes, the same number in every slot", le=10**6)
    greedy: bool = setting(True, "take the most probable action instead of sampling one")


class WandbSettings(Section):
    mode: Literal["on", "offline", "off"] = setting("off", "also log to Weights & Biases; short: wandb=on")
    project: str = setting(
        "holdfast",
        "project of the run",
        max_length=128,
        pattern=r"^[^/\\#?%:\p{C}\p{Zl}\p{Zp}]+$",
        allowed="a name without / \\ # ? % : (at most 128 characters)",
    )
    entity: str | None = setting(
        None,
        "user or team that the project belongs to (None: your default)",
        max_length=128,
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$",
        allowed="the name of a user or a team",
    )
    group: str | None = setting(
        None,
        "group of the run (None: no group; in a sweep, the sweep's name)",
        max_length=128,
        pattern=rf"^{PRINTABLE}+$",
        allowed="a name (at most 128 characters)",
    )
    tags: list[Tag] = setting([], "tags of the run", "a list such as [baseline, long], each a name", max_length=50)
    name: str | None = setting(
        None,
        "name of the run in Weights & Biases (None: the name of the run folder)",
        max_length=128,
        pattern=rf"^{PRINTABLE}+$",
        allowed="a name (at most 128 characters)",
    )


class DebugSettings(Section):
    shapes: bool = setting(False, "log tensor shapes and memory use during the first update")
    poison: bool = setting(False, "fill the experience buffer with NaN before every rollout, to expose unwritten rows")


class Settings(Section):
    run: str = setting(
        "",
        "name of the run folder (empty: generated from settings, seed and time)",
        max_length=200,
        pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*)?$",
        allowed="letters, digits and . _ - (at most 200, not starting with a dot)",
    )
    runs_dir: str = setting(
        "runs",
        "folder that contains the run folders",
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        allowed="the path of a folder, without control characters",
    )
    resume: Literal["auto", "must", "never"] = setting(
        "auto", "`auto`: resume run=NAME if it exists; `must`: stop if it does not exist; `never`: stop if it exists"
    )
    seed: int = setting(0, "seed for weights, sampling and environments", ge=0, le=2**31 - 1)
    device: str = setting(
        "cpu",
        "torch device for the policy and the experience buffer",
        pattern=r"^[a-z]+(:[0-9]{1,3})?$",
        allowed="a torch device, such as cpu, cuda or cuda:1",
    )
    env: EnvSettings = setting({}, "the world", validate_default=True)
    policy: PolicySettings = setting({}, "the agent", validate_default=True)
    trainer: TrainerSettings = setting(TrainerSettings(), "settings for collecting experience and for learning")
    eval: EvalSettings = setting(EvalSettings(), "evaluation while training, in worlds of its own")
    audit: Literal["auto", "on", "warn", "off"] = setting(
        "auto",
        "audit the policy before training; `on`: stop if it fails, `warn`: only warn, `auto`: on for custom policies",
    )
    progress: Literal["auto", "bars", "lines", "off"] = setting(
        "auto", "progress display; `auto`: bars in a terminal, one redrawn line in a notebook, else lines"
    )
    tensorboard: Literal["on", "off"] = setting("off", "also write TensorBoard events into the run folder")
    wandb: WandbSettings = setting(WandbSettings(), "Weights & Biases")
    debug: DebugSettings = setting(DebugSettings(), "settings for debugging")
