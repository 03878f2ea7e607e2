"""holdfast export --mettagrid: what MettaGrid's own runner plays, what is refused, and what a failure leaves behind."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.cli import main
from holdfast.config import load_run_world, load_settings
from holdfast.config.sections import EnvSection
from holdfast.deploy.loading import load_agent
from holdfast.envs.worlds.memory import MemoryEnv
from holdfast.envs.worlds.mettagrid import MettaGridConfigEnv
from holdfast.errors import CheckpointError, HoldfastError, SettingsError
from holdfast.evaluate import evaluate_run
from holdfast.policies import make_policy
from holdfast.policies.plain.fast import Fast
from holdfast.trainer import train

if find_spec("mettagrid") is None:
    pytest.skip("needs mettagrid", allow_module_level=True)

from mettagrid.policy.loader import initialize_or_load_policy
from mettagrid.policy.policy import PolicySpec
from mettagrid.policy.policy_env_interface import PolicyEnvInterface
from mettagrid.simulator import AgentObservation, Simulator

from holdfast.envs.mettagrid.adapter import MettaGridWorld
from holdfast.envs.mettagrid.runner import runner_episode
from holdfast.export import mettagrid as export
from holdfast.export.mettagrid import Played, compare, export_mettagrid, play_in_runner, refuse_policy, write_bundle
from holdfast.export.mettagrid_play import play
from holdfast.export.mettagrid_policy import difference

TOYS = Path(__file__).parents[1] / "envs" / "toys" / "toy_metta.py"
CLASS_PATH = "holdfast.export.mettagrid_policy.HoldfastPolicy"
ROOMS, SEED = 3, 7
TINY = [
    "seed=4",
    "trainer.lr=1e-6",
    f"env.rooms={ROOMS}",
    "env.num_envs=2",
    "trainer.horizon=16",
    "trainer.batch_size=96",
    "audit=off",
]
TINY += [
    "trainer.minibatch_size=48",
    "trainer.total_timesteps=384",
    "progress=off",
    "policy.sees=[action]",
]

# Plays episodes of a bundle, as somebody does who has MettaGrid and not Holdfast. argv: a folder with jobs, the bundle.
THEIRS = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("holdfast", "tensordict"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import json, pathlib
from mettagrid.config.mettagrid_config import MettaGridConfig
from mettagrid.runner.rollout import run_episode_local
from mettagrid.simulator.simulator import SimulationAgent
from mettagrid.util.uri_resolvers.schemes import policy_spec_from_uri
folder, bundle = map(pathlib.Path, sys.argv[1:])
taken, set_action = [], SimulationAgent.set_action
def recorded(self, action):
    taken.append(action.name)
    set_action(self, action)
SimulationAgent.set_action = recorded
for job in sorted(folder.glob("*.job")):
    env, seed = json.loads(job.read_text())
    env = MettaGridConfig.model_validate(env)
    run_episode_local(
        policy_specs=[policy_spec_from_uri(bundle.as_uri())], assignments=[0] * env.game.num_agents, env=env, seed=seed,
        replay_path=job.with_suffix(".json.z"), render_mode="none",
    )
    job.with_suffix(".actions").write_text(json.dumps(taken))
    taken.clear()
assert not any(name.split(".")[0] == "holdfast" for name in sys.modules)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run whose actions vary, because its policy is as good as untrained and depends strongly on what it sees."""
    folder, build = tmp_path_factory.mktemp("runs"), Fast.__init__

    def restless(self, *args, **options):
        build(self, *args, **options)
        with torch.no_grad():
            self.encoded_obs.weight.mul_(10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fast, "__init__", restless)
        return train(load_settings(["env=memory", *TINY, f"runs_dir={folder}", "run=small"])).run


@pytest.fixture(scope="module")
def env(run) -> EnvSection:
    return load_run_world(run / "config.yaml")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory) -> tuple[Path, str, Played]:
    """What `holdfast export` wrote and printed, and what MettaGrid's runner played to check it."""
    folder, seen = tmp_path_factory.mktemp("exported") / "small", []
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(export, "play_in_runner", lambda *args: seen.append(play_in_runner(*args)) or seen[0])
        command(run, "--mettagrid", folder)
    return folder, out.getvalue(), seen[0]


@pytest.fixture(scope="module")
def bundle(exported) -> Path:
    return exported[0]


def command(*args, code=0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", *map(str, args)])
    assert (ended.value.code or 0) == code


# ---------------------------------------------------------------------------------------------- played by MettaGrid


@pytest.fixture(scope="module")
def evaluated(run) -> list[np.ndarray]:
    """The actions [steps, agents] of two episodes of `holdfast evaluate`."""
    steps = []
    step = MettaGridWorld.step

    def recorded(self, actions):
        steps.append(actions.copy())
        return step(self, actions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MettaGridWorld, "step", recorded)
        assert evaluate_run(run, episodes=2 * ROOMS, seed=SEED).episodes == 2 * ROOMS
    return np.split(np.stack(steps), 2, axis=1)


def test_what_is_written_and_printed(exported):
    bundle, out, played = exported
    assert {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()} == {
        "policy_spec.json",
        "policy.pt2",
        "holdfast_policy/__init__.py",
    }
    assert [path.name for path in bundle.parent.iterdir()] == ["small"]
    assert str(bundle) in out
    assert f"{len(played.actions)} steps of {ROOMS} agents" in out
    assert f"all {len(played.actions) * ROOMS} actions" in out


def test_mettagrid_plays_an_export_without_holdfast(bundle, env, evaluated, tmp_path):
    """MettaGrid's runner, in a process without Holdfast, takes the actions of `holdfast evaluate`, and shows the memory."""
    for number in range(2):
        config, seed = runner_episode(env, SEED, env=number)
        (tmp_path / f"{number}.job").write_text(json.dumps([config.model_dump(mode="json"), seed]))
    command = [sys.executable, "-B", "-c", THEIRS, tmp_path, bundle]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for number, actions in enumerate(evaluated):
        taken = json.loads((tmp_path / f"{number}.actions").read_text())
        replay = read_replay(tmp_path / f"{number}.json.z")
        names = np.array(replay["action_names"])[actions]
        assert np.array_equal(np.reshape(taken, actions.shape), names)
        agents = sorted((o for o in replay["objects"] if o.get("is_agent")), key=lambda o: o["agent_id"])
        for agent, chosen in zip(agents, names.T, strict=True):
            infos = over_time(agent["policy_infos"], len(actions))
            assert [info["action"] for info in infos] == list(chosen)
            assert all(0 < i["action_prob"] <= 1 and i["entropy"] > 0 and i["value"] != 0 for i in infos)
            assert all(i["policy_name"].startswith("small ") for i in infos)
            assert len({i["memory_norm"] for i in infos}) > 5, "memory does not move"
    assert any((np.diff(actions, axis=0) != 0).any() for actions in evaluated), "the same action always proves little"


def read_replay(path):
    return json.loads(zlib.decompress(path.read_bytes()))


def over_time(changes, steps) -> list[Any]:
    """Expand a field of a replay, a value or a list of [step, value], to one value per step."""
    if not (isinstance(changes, list) and changes and isinstance(changes[0], list)):
        return [changes] * steps
    values = dict(changes)
    found = [values[0]]
    for step in range(1, steps):
        found.append(values.get(step, found[-1]))
    return found


def test_vibes_and_teams(tmp_path):
    """A user's configuration. Changes of vibe are in an array of their own, in MettaGrid and in our world."""
    env = MettaGridConfigEnv(name=f"mettagrid:{TOYS}:teams")
    torch.manual_seed(4)
    policy = make_policy(load_settings(["env=memory"]).policy, env.describe())
    with torch.no_grad():
        policy.encoded_obs.weight.mul_(100)  # its actions depend strongly on what it sees
    write_bundle(tmp_path, policy, env, {"run": "r", "checkpoint": "c"})
    spec = PolicySpec(class_path=CLASS_PATH, data_path=str(tmp_path))
    played = Played(**play(spec, *runner_episode(env, SEED), most_steps=1000))
    assert compare(played, policy, env, SEED).value_difference < 1e-4
    names = policy.spec.actions.names
    taken = {names[action] for row in played.actions for action in row}
    assert {name.startswith("change_vibe") for name in taken} == {True, False}
    assert len(played.actions) == 25


@pytest.fixture(scope="module")
def played(exported) -> Played:
    return exported[2]


@pytest.fixture(scope="module")
def policy(run):
    return load_agent(run)[0].policy


def test_what_the_runner_played_is_compared_step_by_step(played, policy, env, monkeypatch):
    assert compare(played, policy, env, export.SEED).step == len(played.actions)
    torch.manual_seed(1)
    for wrong, text in [
        (changed(played, "observed", 3, lambda n: n + 1), "observations at step 3"),
        (changed(played, "actions", 4, lambda row: [row[0], (row[1] + 1) % 5, row[2]]), "step 4, agent 1 takes action"),
        (changed(played, "values", 5, lambda row: [*row[:2], row[2] + 1e-3]), "step 5, agent 2 predicts"),
        (cut(played, -1), f"ends after {len(played.actions) - 1} steps"),
        (Played(*(2 * rows for rows in vars(played).values())), f"{2 * len(played.actions)} steps instead of"),
    ]:
        with pytest.raises(HoldfastError, match=text):
            compare(wrong, policy, env, export.SEED)
    with pytest.raises(HoldfastError, match="observations at step 0"):
        compare(played, policy, env, export.SEED + 1)
    other = make_policy(load_settings(["env=memory", "policy.sees=[action]"]).policy, env.describe())
    with pytest.raises(HoldfastError, match="step 0, agent 0 predicts"):
        compare(played, other, env, export.SEED)
    monkeypatch.setattr(export, "MOST_STEPS", 2)
    assert compare(cut(played, 2), policy, env, export.SEED).step == 2


def test_of_two_equally_probable_actions_either_may_be_taken(played, policy, env, monkeypatch):
    monkeypatch.setattr(export, "TIE", 1e9)
    wrong = changed(played, "actions", len(played.actions) - 1, lambda row: [(action + 1) % 5 for action in row])
    assert compare(wrong, policy, env, export.SEED).ties == ROOMS


def changed(played, name, step, change):
    rows = list(getattr(played, name))
    rows[step] = change(rows[step])
    return replace(played, **{name: rows})


def cut(played, end):
    return Played(*(rows[:end] for rows in vars(played).values()))


# ------------------------------------------------------------------------------------------------------ the class


@pytest.fixture(scope="module")
def interface(env) -> PolicyEnvInterface:
    return PolicyEnvInterface.from_mg_cfg(runner_episode(env, SEED)[0])


def load(interface, data, **options):
    return initialize_or_load_policy(
        interface, PolicySpec(class_path=CLASS_PATH, data_path=data and str(data), init_kwargs=options)
    )


@pytest.fixture
def observations(env) -> list[AgentObservation]:
    return Simulator().new_simulation(*runner_episode(env, SEED)).observations()


def steps(agents, observations, count=6):
    """Actions and infos of some steps with the same observations, one agent after the other."""
    return [
        (agent.step(obs).name, agent.infos)
        for _ in range(count)
        for agent, obs in zip(agents, observations, strict=True)
    ]


def test_it_loads_by_class_path_from_the_file_or_the_folder(bundle, interface, observations):
    by_file, by_folder = (load(interface, path) for path in (bundle / "policy.pt2", bundle))
    agents = [[policy.agent_policy(i) for i in range(ROOMS)] for policy in (by_file, by_folder)]
    assert steps(agents[0], observations) == steps(agents[1], observations)


def test_agents_one_by_one_or_as_a_group(bundle, interface, observations):
    policy = load(interface, bundle)
    alone, group = ([policy.agent_policy(i) for i in range(ROOMS)] for _ in range(2))
    assert group[0].can_step_group(group)
    assert not group[0].can_step_group([*group, load(interface, bundle).agent_policy(0)])
    for _ in range(4):
        assert group[0].can_step_group(group)
        together = group[0].step_group(list(enumerate(observations)))
        for agent, other, action, obs in zip(alone, group, together, observations, strict=True):
            assert agent.step(obs) == action
            assert agent.infos["memory_norm"] == pytest.approx(other.infos["memory_norm"], abs=1e-5)


def test_memory_begins_anew_with_every_episode(bundle, interface, observations):
    agent = load(interface, bundle).agent_policy(0)
    first = steps([agent], observations[:1])
    assert first[0] != first[1], "no memory: the same observation again gives the same"
    assert steps([agent], observations[:1]) != first
    agent.reset()
    assert steps([agent], observations[:1]) == first


def test_samples_are_reproducible_and_differ_between_agents(bundle, interface, observations):
    policy = load(interface, bundle, sample=True, seed=3)

    def sampled(agent_id):
        agent = policy.agent_policy(agent_id)
        return tuple(agent.step(observations[0]).name for _ in range(20))

    first, other = sampled(0), sampled(1)
    assert (sampled(0), sampled(1)) == (first, other)
    policy.seed = 4
    different = sampled(0)
    policy.seed = None
    assert len({first, other, different, sampled(0), sampled(0)}) == 5
    policy.sample = False
    assert len(set(sampled(0))) < len(set(first))


def test_another_world_is_refused(bundle, interface):
    def changed_to(**change):
        return PolicyEnvInterface(**vars(interface) | change)

    features, actions, tags = interface.obs_features, interface.action_names, interface.tags
    renamed = features[0].model_copy(update={"name": "other"})
    for world, text in [
        (changed_to(egocentric_shape=(5, 5)), "window: 5 x 5 instead of 3 x 3"),
        (changed_to(observation_shape=(7, 3)), "tokens per observation: 7 x 3 instead of"),
        (changed_to(obs_features=[renamed, *features[1:]]), f"other features.*{features[0].name}, other"),
        (changed_to(obs_features=features[:-1]), f"other features.*: {features[-1].name}"),
        (changed_to(action_names=[*actions, "fly"]), "other actions.*: fly"),
        (changed_to(action_names=actions[::-1]), "other actions, or with other numbers"),
        (changed_to(tags=tags[:-1]), f"other tags.*: {tags[-1]}"),
    ]:
        assert re.search(text, difference(interface, world))
    assert not difference(interface, changed_to(num_agents=99))
    with pytest.raises(ValueError, match="for another world: window: 5 x 5"):
        load(changed_to(egocentric_shape=(5, 5)), bundle)


def test_misuse_is_a_clear_error(bundle, interface, observations, tmp_path):
    with pytest.raises(ValueError, match="no data: give data_path"):
        load(interface, None).agent_policy(0).step(observations[0])
    with pytest.raises(ValueError, match="exported for the CPU"):
        load(interface, bundle, device="cuda")
    torch.export.save(torch.export.export(torch.nn.Linear(1, 1), (torch.zeros(1, 1),)), tmp_path / "policy.pt2")
    with pytest.raises(ValueError, match="not exported with --mettagrid"):
        load(interface, tmp_path)
    extra = {"holdfast.json": ""}
    program = torch.export.load(bundle / "policy.pt2", extra_files=extra)
    metadata = json.loads(extra["holdfast.json"])
    metadata["inputs"] = json.dumps(json.loads(metadata["inputs"]) | {"last_reward": {"shape": ["batch"]}})
    torch.export.save(program, tmp_path / "policy.pt2", extra_files={"holdfast.json": json.dumps(metadata)})
    with pytest.raises(ValueError, match="reads last_reward, which MettaGrid does not give"):
        load(interface, tmp_path)


# ------------------------------------------------------------------------------------------------ what is refused


def test_bad_input_is_one_line_and_leaves_nothing(run, tmp_path, capsys):
    def refused(*args, text, lines=1):
        before = sorted(tmp_path.rglob("*"))
        command(*args, code=2)
        out, err = capsys.readouterr()
        assert text in err
        assert not out
        assert len(err.strip().splitlines()) <= lines, err
        assert sorted(tmp_path.rglob("*")) == before

    def with_config(name, *words):
        from holdfast.config import settings_to_yaml

        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(settings_to_yaml(load_settings([*words, f"run={name}"])))
        return tmp_path / name

    out = tmp_path / "out"
    refused(run, text="--mettagrid DIR")
    refused(with_config("new", "env=memory"), "--mettagrid", out, text="has no checkpoint")
    refused(with_config("gym", "env=gym:CartPole-v1"), "--mettagrid", out, text="env=gym:CartPole-v1")
    mine = Path(__file__).parents[2] / "examples" / "custom_policy.py"
    own = with_config("own", "env=memory", f"py_agent={mine}:MyPolicy")
    refused(own, "--mettagrid", out, text="--py-agent", lines=3)
    world = with_config("world", f"env=mettagrid:{TOYS}:config")
    refused(world, "--mettagrid", out, text="only the command line may name", lines=2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    refused(run, "--mettagrid", tmp_path / "full", text="holds something else")
    refused(run, "--mettagrid", run, text="holds something else")
    refused(run, "--mettagrid", tmp_path / "full" / "thesis.tex", text="not a folder")
    refused(run, "--mettagrid", tmp_path / "no" / "out", text="inside an existing folder")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    refused(run, "--mettagrid", tmp_path / "link", text="not a folder")


def test_what_mettagrid_does_not_give_to_policies():
    world = MemoryEnv(rooms=1).describe()
    for words, key in [(["policy.sees=[reward]"], "policy.sees"), (["policy.memory_scope=lifetime"], "memory_scope")]:
        policy = make_policy(load_settings(["env=memory", *words]).policy, world)
        with pytest.raises(SettingsError, match=key):
            refuse_policy(policy)


def stand_in_for_the_check(patch):
    patch.setattr(export, "play_in_runner", lambda *_: Played([0], [[0]], [[0.0]]))
    patch.setattr(export, "compare", lambda played, policy, *_: export.Follower(policy, played))


def test_a_failure_leaves_an_earlier_export_alone(run, env, bundle, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    shutil.copytree(bundle, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def left_alone(error, match):
        for target in (folder, tmp_path / "new"):
            with pytest.raises(error, match=match):
                export_mettagrid(run, target, env)
        assert list(tmp_path.iterdir()) == [folder]
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def other_policy(*_):
        raise HoldfastError("plays differently")

    def not_to_its_name(source, target):
        if str(source).endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error", str(target))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(export, "program_of", full)
        left_alone(CheckpointError, "no space left")
    monkeypatch.setattr(export, "program_of", lambda *_: b"new")
    with monkeypatch.context() as patch:
        patch.setattr(export, "play_in_runner", other_policy)
        left_alone(HoldfastError, "plays differently")
    stand_in_for_the_check(monkeypatch)
    rename = os.rename
    monkeypatch.setattr(os, "rename", not_to_its_name)
    left_alone(OSError, "Input/output error")


def test_an_earlier_export_is_replaced_and_an_empty_folder_filled(run, env, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "program_of", lambda *_: b"new")
    stand_in_for_the_check(monkeypatch)
    earlier, empty = tmp_path / "earlier", tmp_path / "empty"
    shutil.copytree(bundle, earlier)
    (earlier / "holdfast_policy" / "__pycache__").mkdir()
    empty.mkdir()
    for folder in (earlier, empty):
        export_mettagrid(run, folder, env)
        assert {p.name for p in folder.iterdir()} == {p.name for p in bundle.iterdir()}
        assert (folder / "policy.pt2").read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == [earlier, empty]
