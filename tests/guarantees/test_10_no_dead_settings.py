"""Guarantee 10: every key has an observable effect or is refused."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from holdfast.config import describe_keys, load_settings
from holdfast.errors import SettingsError
from holdfast.runs import TIMING, read_metrics
from holdfast.trainer import train

GYM = [
    "env=gym:CartPole-v1",
    "env.hide=[1]",
    "env.num_envs=4",
    "trainer.horizon=8",
    "trainer.batch_size=64",
    "trainer.minibatch_size=32",
    "trainer.total_timesteps=192",
    "trainer.update_epochs=2",
    "trainer.normalize_rewards=false",
    "trainer.schedule.lr.kind=constant",
    "policy.hidden=8",
    "policy.encoder=[8]",
    "policy.heads=[8]",
]
MEMORY = [
    "settings=memory",
    "env=memory",
    "env.num_envs=1",
    "env.rooms=2",
    "trainer.horizon=8",
    "trainer.batch_size=32",
    "trainer.minibatch_size=16",
    "trainer.total_timesteps=64",
]
COLLECT = [w.replace("memory", "collect").replace("rooms", "agents") for w in MEMORY] + ["env.max_steps=8"]
ARENA = [
    *(w.replace("collect", "arena") for w in COLLECT),
    "env.size=12",
    "env.mines=3",
    "env.generators=2",
    "env.altars=2",
]
TAXI = ["env=gym:Taxi-v4", *GYM[2:]]
PENDULUM = ["env=gym:Pendulum-v1", *GYM[2:]]
VECTOR = ["env=gymvec:CartPole-v1", *GYM[1:]]
SPREAD = [
    "env=pettingzoo:mpe2.simple_spread_v3",
    *GYM[2:],
    "env.num_envs=2",
    "trainer.batch_size=48",
    "trainer.minibatch_size=24",
]
SPREAD = [w for w in SPREAD if w not in ("env.num_envs=4", "trainer.batch_size=64", "trainer.minibatch_size=32")]

# key -> (words of the base run, words added to both runs, the word whose effect is tested)
EFFECT_ON_METRICS = {
    "seed": (GYM, [], "seed=1"),
    "trainer.shards": (GYM, [], "trainer.shards=2"),
    "env.name": (GYM, [], "env=gym:Acrobot-v1"),
    "env.num_envs": (GYM, [], "env.num_envs=2"),
    "env.hide": (GYM, [], "env.hide=[3]"),
    "env.action_mask": (TAXI, [], "env.action_mask=true"),
    "env.kwargs": (GYM, [], "env.kwargs={sutton_barto_reward: true}"),
    "env.rooms": (MEMORY, [], "env.rooms=4"),
    "env.corridor": (MEMORY, [], "env.corridor=5"),
    "env.window": (MEMORY, [], "env.window=5"),
    "env.agents": (COLLECT, [], "env.agents=4"),
    "env.size": (COLLECT, [], "env.size=12"),
    "env.mines": (COLLECT, [], "env.mines=3"),
    "env.max_steps": (COLLECT, [], "env.max_steps=4"),
    "env.desync": (COLLECT, ["env.max_steps=30"], "env.desync=true"),
    "env.generators": (ARENA, [], "env.generators=4"),
    "env.altars": (ARENA, [], "env.altars=4"),
    "env.shaped": (ARENA, ["env.mines=40", "trainer.total_timesteps=256"], "env.shaped=false"),
    "policy.py_agent": (MEMORY, [], "py_agent=latent_attn_tiny"),
    "policy.agent": (MEMORY, [], "agent=example"),
    "policy.core": (GYM, [], "policy.core=gru"),
    "policy.init": (MEMORY, [], "policy.init=seeds"),
    "policy.hidden": (GYM, [], "policy.hidden=9"),
    "policy.layers": (GYM, [], "policy.layers=2"),
    "policy.memory_scope": (GYM, [], "policy.memory_scope=lifetime"),
    "policy.sees": (GYM, [], "policy.sees=[action]"),
    "policy.encoder": (GYM, [], "policy.encoder=[9]"),
    "policy.heads": (GYM, [], "policy.heads=[9]"),
    "policy.normalize_obs": (GYM, [], "policy.normalize_obs=false"),
    "policy.log_std": (PENDULUM, [], "policy.log_std=-1"),
    "trainer.total_timesteps": (GYM, [], "trainer.total_timesteps=128"),
    "trainer.horizon": (GYM, [], "trainer.horizon=4"),
    "trainer.batch_size": (GYM, [], "trainer.batch_size=96"),
    "trainer.minibatch_size": (GYM, [], "trainer.minibatch_size=16"),
    "trainer.update_epochs": (GYM, [], "trainer.update_epochs=3"),
    "trainer.lr": (GYM, [], "trainer.lr=2e-3"),
    "trainer.adam_eps": (GYM, [], "trainer.adam_eps=1e-2"),
    "trainer.gamma": (GYM, [], "trainer.gamma=0.5"),
    "trainer.gae_lambda": (GYM, [], "trainer.gae_lambda=0.5"),
    "trainer.advantage": (GYM, ["trainer.lr=0.1"], "trainer.advantage=vtrace"),
    "trainer.vtrace_rho": (GYM, ["trainer.advantage=vtrace", "trainer.lr=0.1"], "trainer.vtrace_rho=0.5"),
    "trainer.vtrace_c": (GYM, ["trainer.advantage=vtrace", "trainer.lr=0.1"], "trainer.vtrace_c=0.5"),
    "trainer.clip": (GYM, ["trainer.lr=0.1"], "trainer.clip=0.01"),
    "trainer.value_clip": (GYM, ["trainer.lr=0.1"], "trainer.value_clip=0.001"),
    "trainer.value_coef": (GYM, [], "trainer.value_coef=1"),
    "trainer.entropy_coef": (GYM, [], "trainer.entropy_coef=0.5"),
    "trainer.max_grad_norm": (GYM, [], "trainer.max_grad_norm=0.01"),
    "trainer.normalize_advantage": (GYM, [], "trainer.normalize_advantage=false"),
    "trainer.target_kl": (GYM, ["trainer.lr=0.1"], "trainer.target_kl=1e-6"),
    "trainer.stop_at_return": (GYM, ["trainer.total_timesteps=6400"], "trainer.stop_at_return=5"),
    "eval.interval": (GYM, [], "eval.interval=2"),
    "eval.episodes": (GYM, ["eval.interval=3"], "eval.episodes=2"),
    "eval.greedy": (GYM, ["eval.interval=3"], "eval.greedy=false"),
    "trainer.reward_scale": (GYM, [], "trainer.reward_scale=0.1"),
    "trainer.normalize_rewards": (GYM, [], "trainer.normalize_rewards=true"),
    "trainer.l2_init": (GYM, [], "trainer.l2_init=0.1"),
    "trainer.weight_clip": (GYM, [], "trainer.weight_clip=0.5"),
    "trainer.weight_metrics_interval": (GYM, [], "trainer.weight_metrics_interval=2"),
    "trainer.prioritized.alpha": (GYM, [], "trainer.prioritized.alpha=1"),
    "trainer.prioritized.beta": (GYM, ["trainer.prioritized.alpha=1"], "trainer.prioritized.beta=0.1"),
    "trainer.schedule.lr.kind": (GYM, [], "trainer.schedule.lr.kind=linear"),
    "trainer.schedule.lr.end": (GYM, ["trainer.schedule.lr.kind=cosine"], "trainer.schedule.lr.end=1e-2"),
    "trainer.schedule.entropy_coef.kind": (
        GYM,
        ["trainer.entropy_coef=1"],
        "trainer.schedule.entropy_coef.kind=linear",
    ),
    "trainer.schedule.entropy_coef.end": (
        GYM,
        ["trainer.schedule.entropy_coef.kind=cosine"],
        "trainer.schedule.entropy_coef.end=1",
    ),
    "trainer.schedule.clip.kind": (GYM, ["trainer.lr=0.1"], "trainer.schedule.clip.kind=linear"),
    "trainer.schedule.clip.end": (
        GYM,
        ["trainer.lr=0.1", "trainer.schedule.clip.kind=linear"],
        "trainer.schedule.clip.end=0.4",
    ),
    "trainer.start_states": (GYM, [], "trainer.start_states=zeros"),
    "trainer.burn_in": (GYM, ["trainer.lr=0.1"], "trainer.burn_in=4"),
    "trainer.reset_memory_each_rollout": (GYM, [], "trainer.reset_memory_each_rollout=true"),
}
# Keys that do not change the metrics; each has its own test below.
EFFECT_ELSEWHERE = {
    "run",
    "runs_dir",
    "device",
    "audit",
    "progress",
    "tensorboard",
    "wandb.mode",
    "wandb.project",
    "wandb.entity",
    "wandb.group",
    "wandb.tags",
    "wandb.name",
    "policy.compile",
    "policy.weights",
    "policy.kwargs",
    "trainer.num_workers",
    "trainer.worker_timeout",
    "trainer.worker_failures",
    "trainer.ranks",  # tests/cli/test_launch.py
    "trainer.rank_timeout",  # tests/reliability/test_a_rank_dies.py
    "trainer.checkpoint_interval",
    "trainer.keep.last",
    "trainer.keep.best",
    "trainer.keep.every",
    "trainer.on_disk_error",
    "trainer.skipped_updates",
    "resume",
    "trainer.threads",
    "debug.shapes",
    "debug.poison",
    "env.num_tokens",
}
ECHOES = {"lr", "agent_steps", "update"}  # these differ even if the key has no other effect


def run(words: list[str], folder: Path, name: str) -> Path:
    return train(load_settings([*words, f"runs_dir={folder}", f"run={name}", "progress=off"])).run


def figures(path: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in TIMING | ECHOES} for row in read_metrics(path)]


def without(words: list[str], word: str) -> list[str]:
    key = word.split("=")[0]
    return [w for w in words if w.split("=")[0] != key]


def test_every_key_has_a_test():
    assert {key.name for key in describe_keys()} == set(EFFECT_ON_METRICS) | EFFECT_ELSEWHERE


@pytest.fixture(scope="module")
def base_figures(tmp_path_factory):
    """Metrics of a run with these words; equal words are run once."""
    folder = tmp_path_factory.mktemp("base")

    @cache
    def figures_of(*words):
        return figures(run(list(words), folder, f"run{len(list(folder.iterdir()))}"))

    return figures_of


@pytest.mark.parametrize("key", EFFECT_ON_METRICS)
def test_the_key_changes_the_run(key, base_figures, tmp_path):
    base, common, word = EFFECT_ON_METRICS[key]
    base = [w for w in base if w.split("=")[0] not in {c.split("=")[0] for c in common}]
    changed = figures(run([*without([*base, *common], word), word], tmp_path, "changed"))
    assert changed != base_figures(*base, *common)


def test_the_same_words_give_the_same_run(tmp_path):
    """Otherwise the test above would find an effect of every key."""
    assert figures(run(GYM, tmp_path, "one")) == figures(run(GYM, tmp_path, "two"))


def test_refreshed_start_states_differ_from_stored_ones(tmp_path):
    words = [*GYM, "trainer.lr=0.1"]
    stored = figures(run(words, tmp_path, "stored"))
    refreshed = figures(run([*words, "trainer.start_states=refreshed"], tmp_path, "refreshed"))
    assert stored != refreshed


@pytest.mark.parametrize(
    ("base", "word"),
    [
        (VECTOR, "env.hide=[3]"),
        (VECTOR, "env.kwargs={sutton_barto_reward: true}"),
        (SPREAD, "env.hide=[0]"),
        (SPREAD, "env.kwargs={N: 2}"),
    ],
)
def test_keys_of_the_other_worlds(base, word, tmp_path):
    words = without(base, word)
    if "N:" in word:
        words = [w for w in words if "batch_size" not in w]
    assert figures(run(words, tmp_path, "plain")) != figures(run([*words, word], tmp_path, "changed"))


def test_an_agent_that_cannot_read_the_world_is_refused(tmp_path):
    run(MEMORY, tmp_path, "fast")
    with pytest.raises(SettingsError, match="py_agent=fast"):
        run([*MEMORY, "py_agent=box"], tmp_path, "box")


def test_policy_weights_loads_the_weights_of_another_run(tmp_path):
    first = run([*GYM, "trainer.checkpoint_interval=1"], tmp_path, "first")
    fresh = figures(run([*GYM, "seed=1"], tmp_path, "fresh"))
    assert figures(run([*GYM, "seed=1", f"policy.weights={first}"], tmp_path, "second")) != fresh
    one = figures(run([*GYM, f"policy.weights={first}/checkpoints/00000003"], tmp_path, "third"))
    assert one == figures(run([*GYM, f"policy.weights={first}"], tmp_path, "fourth")), (
        "a run means its newest checkpoint"
    )
    assert one != figures(run([*GYM, f"policy.weights={first}/checkpoints/00000001"], tmp_path, "oldest"))
    with pytest.raises(SettingsError, match=r"policy\.weights=.*nowhere"):
        run([*GYM, f"policy.weights={tmp_path}/nowhere"], tmp_path, "fifth")
    with pytest.raises(SettingsError, match=r"policy\.weights=.*size"):
        run([*without(GYM, "policy.hidden=9"), "policy.hidden=9", f"policy.weights={first}"], tmp_path, "sixth")


def test_policy_kwargs_reach_a_custom_class(tmp_path):
    code = Path(__file__).parents[2] / "examples" / "custom_policy.py"
    words = [w for w in GYM if not w.startswith(("policy.encoder", "policy.heads"))]
    small = figures(run([*words, f"py_agent={code}:MyPolicy", "policy.kwargs.width=4"], tmp_path, "small"))
    wide = figures(run([*words, f"py_agent={code}:MyPolicy", "policy.kwargs.width=8"], tmp_path, "wide"))
    assert small != wide


def test_audit_runs_before_training(tmp_path, caplog):
    run(GYM, tmp_path, "unaudited")
    assert "audit" not in caplog.text
    run([*GYM, "audit=on"], tmp_path, "audited")
    assert "audit: py_agent=box" in caplog.text


def test_run_and_runs_dir_name_the_folder(tmp_path):
    assert run(GYM, tmp_path / "here", "name") == tmp_path / "here" / "name"


def test_checkpoint_interval_decides_how_many_checkpoints_are_written(tmp_path):
    def saved(path):
        return sorted(p.name for p in (path / "checkpoints").iterdir())

    assert saved(run([*GYM, "trainer.checkpoint_interval=1"], tmp_path, "all")) == [
        "00000001",
        "00000002",
        "00000003",
    ]
    assert saved(run([*GYM, "trainer.checkpoint_interval=0"], tmp_path, "last")) == ["00000003"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["trainer.keep.last=1"], [4]),
        (["trainer.keep.last=2"], [3, 4]),
        (["trainer.keep.last=1", "trainer.keep.every=2"], [2, 4]),
        (["trainer.keep.last=1", "trainer.keep.every=3"], [3, 4]),
    ],
)
def test_which_checkpoints_are_kept(words, left, tmp_path):
    words = [*without(GYM, "trainer.total_timesteps="), "trainer.total_timesteps=256", *words]
    path = run([*words, "trainer.checkpoint_interval=1", "trainer.keep.best=false"], tmp_path, "kept")
    assert sorted(int(p.name) for p in (path / "checkpoints").iterdir()) == left


def test_the_best_checkpoint_is_kept(tmp_path):
    words = [*without(GYM, "trainer.total_timesteps="), "trainer.total_timesteps=448", "trainer.lr=0.1"]
    words += ["trainer.checkpoint_interval=1", "trainer.keep.last=1"]
    path = run(words, tmp_path, "best")
    returns = {row["update"]: row["episode_return"] for row in read_metrics(path) if row["episode_return"] is not None}
    best = max(returns, key=lambda update: (returns[update], update))
    last = max(returns)
    assert best != last, "the best checkpoint is the last: choose another seed"
    assert sorted(int(p.name) for p in (path / "checkpoints").iterdir()) == [best, last]
    plain = run([*words, "trainer.keep.best=false"], tmp_path, "last")
    assert sorted(int(p.name) for p in (plain / "checkpoints").iterdir()) == [last]


def test_resume_must_and_never(tmp_path):
    with pytest.raises(SettingsError, match="resume=must"):
        run([*GYM, "resume=must"], tmp_path, "demo")
    run(GYM, tmp_path, "demo")
    run([*GYM, "resume=must"], tmp_path, "demo")
    with pytest.raises(SettingsError, match="resume=never"):
        run([*GYM, "resume=never"], tmp_path, "demo")


def test_on_disk_error_stops_or_continues(tmp_path, monkeypatch):
    from holdfast.checkpoint import CheckpointError, save_checkpoint
    from holdfast.trainer import saver

    save, failed = save_checkpoint, []

    def fail_once(*args):
        if not failed:
            failed.append(args)
            raise CheckpointError("the disk is full")
        return save(*args)

    monkeypatch.setattr(saver, "save_checkpoint", fail_once)
    words = [*GYM, "trainer.checkpoint_interval=1"]
    on = run(words, tmp_path, "on")
    assert sorted(p.name for p in (on / "checkpoints").iterdir()) == ["00000002", "00000003"]
    failed.clear()
    with pytest.raises(CheckpointError, match="the disk is full"):
        run([*words, "trainer.on_disk_error=stop"], tmp_path, "stop")
    assert len(read_metrics(tmp_path / "stop")) == 1


def test_skipped_updates_limits_skipped_steps_in_a_row(tmp_path, monkeypatch):
    from holdfast.errors import HoldfastError
    from holdfast.trainer import learner

    step, bad = learner.Learner._step, []
    monkeypatch.setattr(learner.Learner, "_step", lambda self: step(self) if len(bad) >= 2 else bad.append(1))
    rows = read_metrics(run([*GYM, "trainer.skipped_updates=2"], tmp_path, "survived"))
    assert [row["skipped"] for row in rows] == [2, 0, 0]
    assert len(list((tmp_path / "survived" / "skipped").iterdir())) == 2
    bad.clear()
    with pytest.raises(HoldfastError, match="non-finite gradient 2 times in a row"):
        run([*GYM, "trainer.skipped_updates=1"], tmp_path, "stopped")


def test_num_workers_starts_processes_and_changes_no_number(tmp_path, monkeypatch):
    started = []
    from holdfast.envs import workers

    init = workers.WorkerWorld.__init__
    monkeypatch.setattr(
        workers.WorkerWorld, "__init__", lambda self, *a, **k: (started.append(a[1]), init(self, *a, **k))[1]
    )
    assert figures(run(GYM, tmp_path, "here")) == figures(run([*GYM, "trainer.num_workers=2"], tmp_path, "there"))
    assert started == [2, 1, 1]  # and one each for the two environments that test whether the world can be replayed


def test_worker_limits_reach_the_workers(tmp_path, monkeypatch):
    """tests/envs/test_worker_failures.py tests what the limits do."""
    given = []
    from holdfast.envs import workers

    init = workers.WorkerWorld.__init__
    monkeypatch.setattr(
        workers.WorkerWorld, "__init__", lambda self, *a, **k: (given.append(k), init(self, *a, **k))[1]
    )
    words = ["trainer.num_workers=1", "trainer.worker_timeout=7.5", "trainer.worker_failures=9"]
    run([*GYM, *words], tmp_path, "limits")
    assert (given[0]["timeout"], given[0]["failures"]) == (7.5, 9)


def test_trainer_threads_sets_the_threads_of_torch(tmp_path):
    before = torch.get_num_threads()
    try:
        run([*GYM, "trainer.threads=1"], tmp_path, "one")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_missing_device_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="device=xpu:7"):
        run([*GYM, "device=xpu:7"], tmp_path, "device")


def test_progress_prints_lines_or_nothing(tmp_path, capsys):
    train(load_settings([*GYM, f"runs_dir={tmp_path}", "run=lines", "progress=lines"]))
    assert "steps/s" in capsys.readouterr().out
    run(GYM, tmp_path, "quiet")
    assert capsys.readouterr().out == ""


def test_debug_shapes_prints_shapes(tmp_path, caplog):
    train(load_settings([*GYM, f"runs_dir={tmp_path}", "run=shapes", "progress=lines", "debug.shapes=true"]))
    assert "start state 0" in caplog.text


def test_debug_poison_fills_the_buffer():
    from holdfast.config import plan_batches
    from holdfast.policies import make_policy
    from holdfast.trainer.shard import make_experience

    def unwritten(*words):
        settings = load_settings([*GYM, *words])
        policy = make_policy(settings.policy, settings.env.describe())
        experience = make_experience(settings, policy, plan_batches(settings.trainer, 4), 4)
        return experience.inputs[0]["env_obs"]

    assert unwritten("debug.poison=true").isnan().all()
    assert not unwritten().isnan().any()


def test_tensorboard_writes_events(tmp_path):
    path = run([*GYM, "tensorboard=on"], tmp_path, "events")
    assert list(path.rglob("events.out.tfevents.*"))


def test_wandb_without_its_package_is_refused(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SettingsError, match="wandb"):
        run([*GYM, "wandb=offline"], tmp_path, "wandb")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "argument", "value"),
    [
        ("wandb.mode=on", "mode", "online"),
        ("wandb.project=mine", "project", "mine"),
        ("wandb.entity=us", "entity", "us"),
        ("wandb.group=lr", "group", "lr"),
        ("wandb.tags=[a]", "tags", ["a"]),
        ("wandb.name=first", "name", "first"),
    ],
)
def test_wandb_is_told(word, argument, value, tmp_path, monkeypatch):
    from types import SimpleNamespace

    told = []
    sink = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)
    module = SimpleNamespace(init=lambda **given: told.append(given) or sink)
    monkeypatch.setitem(__import__("sys").modules, "wandb", module)
    mode = [] if word.startswith("wandb.mode") else ["wandb=offline"]
    run([*GYM, *mode, word], tmp_path, "told")
    assert told[0][argument] == value


def test_policy_compile_calls_torch_compile(monkeypatch, tmp_path):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda f: compiled.append(f) or f)
    run([*GYM, "policy.compile=true"], tmp_path, "compiled")
    assert len(compiled) == 2


def test_too_few_tokens_are_an_error(tmp_path):
    from holdfast.errors import HoldfastError

    words = without(ARENA, "env.num_tokens=")
    assert json.loads((run(words, tmp_path, "default") / "summary.json").read_text())["agent_steps"] > 0
    with pytest.raises(HoldfastError, match="num_tokens"):
        run([*words, "env.num_tokens=3"], tmp_path, "few")
