"""holdfast view --mettascope: replays that MettaScope reads, the recorded episodes in them, and episodes that cannot be replayed."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import json
import os
import subprocess
import sys
import zlib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.config.sections import EnvSection
from holdfast.envs.worlds.mettagrid import MettaGridConfigEnv
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import keys
from holdfast.view import recording as recording_module
from holdfast.view.mettascope import infos_of, write_replays
from holdfast.view.run_page import Seen
from support.replays import LOOKBACK, SEED, TOYS, WORLDS, read, see

if find_spec("mettagrid") is None:
    pytest.skip("needs mettagrid", allow_module_level=True)

import mettagrid
from mettagrid.simulator import Simulator
from mettagrid.simulator.replay_log_writer import METTASCOPE_POLICY_INFO_MAX_BYTES, EpisodeReplay

from holdfast.envs.mettagrid.adapter import MettaGridWorld
from holdfast.envs.mettagrid.runner import runner_episode

SCOPE = Path(mettagrid.__file__).parent / "nim" / "mettascope"

# Loads a replay with MettaScope's library, which then finds no display to open its window on.
LOAD = f"""
import sys, zlib
sys.path.insert(0, {str(SCOPE / "bindings" / "generated")!r})
import mettascope
mettascope.init({str(SCOPE / "data")!r}, "", zlib.decompress(open(sys.argv[1], "rb").read()).decode(), False)
"""


@pytest.fixture(scope="module", params=WORLDS)
def written(request, tmp_path_factory) -> tuple[EnvSection, Seen, list[Path]]:
    env, folder = WORLDS[request.param], tmp_path_factory.mktemp("replays") / "new" / "folder"
    seen = see(env, episodes=5, greedy=request.param == "memory")  # two episodes in each track
    return env, seen, write_replays(folder, env, SEED, seen)


def agents_of(replay: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted((o for o in replay["objects"] if o.get("is_agent")), key=lambda o: o["agent_id"])


def over_time(changes: Any, steps: int) -> list[Any]:
    """Expand a field of a replay, a value or a list of [step, value], to one value per step."""
    if not (isinstance(changes, list) and changes and isinstance(changes[0], list)):
        return [changes] * steps
    values = dict(changes)
    found = [values[0]]
    for step in range(1, steps):
        found.append(values.get(step, found[-1]))
    return found


def episodes_of(seen: Seen) -> list[tuple[Any, np.ndarray, int, Any]]:
    """Return track, influence, number and episode for every file."""
    return [
        (track, influence, number, episode)
        for track, influence in zip(seen.recording.tracks, seen.influences, strict=True)
        for number, episode in enumerate(track.episodes)
    ]


# ------------------------------------------------------------------------------------------------ what is written


def test_one_file_per_episode_of_this_mettagrids_version(written):
    env, seen, files = written
    config, own_seed = runner_episode(env, SEED)
    version = EpisodeReplay(Simulator().new_simulation(config, own_seed)).replay_data["version"]
    assert [f.name for f in files] == [f"env_{t.env}_episode_{n}.json.z" for t, _, n, _ in episodes_of(seen)]
    assert sorted(files) == sorted(files[0].parent.iterdir()), "nothing else is left behind"
    for path, (track, _, _, episode) in zip(files, episodes_of(seen), strict=True):
        replay = read(path)
        assert replay["version"] == version
        assert replay["num_agents"] == len(agents_of(replay)) == track.agents
        assert replay["max_steps"] == episode.length
        assert replay["infos"]["attributes"]["seed"] == episode.seed
        walls = [o.kind for o in track.pictures[episode.start].objects].count("wall")
        assert [o["type_name"] for o in replay["objects"]].count("wall") == walls


def test_rewards_and_places_are_those_of_the_recording(written):
    _, seen, files = written
    rewarded = 0
    for path, (track, _, _, episode) in zip(files, episodes_of(seen), strict=True):
        replay = read(path)
        assert replay["infos"]["episode_rewards"] == pytest.approx(episode.returns)
        rewarded += np.count_nonzero(episode.returns)
        for a, agent in enumerate(agents_of(replay)):
            rewards = over_time(agent["current_reward"], episode.length)
            assert sum(rewards) == pytest.approx(episode.returns[a])
            places = over_time(agent["location"], episode.length)
            for step in range(1, episode.length):  # a replay shows the world after each step
                (there,) = (o for o in track.pictures[episode.start + step].objects if o.agent == a)
                assert tuple(places[step - 1]) == (there.column, there.row)
    assert rewarded or seen.policy.spec.name != "collect"


def test_each_agent_carries_the_figures_of_the_recording_at_each_step(written):
    _, seen, files = written
    names = seen.policy.spec.actions.names
    for path, (track, influence, _, episode) in zip(files, episodes_of(seen), strict=True):
        for a, agent in enumerate(agents_of(read(path))):
            infos = over_time(agent["policy_infos"], episode.length)
            for step, found in enumerate(infos):
                t = episode.start + step
                assert found["policy_name"] == "small 00000007"
                assert found["action"] == names[track.actions[t, a]]
                assert found["action_prob"] == pytest.approx(np.exp(track.log_probs[t, a]), abs=1e-5)
                assert found["value"] == pytest.approx(track.values[t, a], abs=1e-5)
                best = sorted(track.probabilities[t, a].tolist(), reverse=True)[:5]
                assert sorted(found["action_probs"].values(), reverse=True) == pytest.approx(best, abs=1e-4)
                for name, probability in found["action_probs"].items():
                    assert probability == pytest.approx(track.probabilities[t, a, names.index(name)], abs=1e-4)
                before = [leaf[t - 1, :, a] if step else 0 * leaf[t, :, a] for leaf in track.states]
                moved = [(leaf[t, :, a] - x).ravel() for leaf, x in zip(track.states, before, strict=True)]
                assert found["memory_change"] == pytest.approx(np.linalg.norm(np.concatenate(moved)), rel=1e-3)
                assert found["influence_now"] == pytest.approx(influence[t, a, 0], abs=1e-4)
                assert found["influence_earlier"] == pytest.approx(influence[t, a, 1:].max(), abs=1e-4)
                if back := found["influence_steps_back"]:
                    assert 0 < back <= min(step, LOOKBACK - 1)
                    assert influence[t, a, back] == pytest.approx(influence[t, a, 1:].max(), abs=1e-4)
                else:
                    assert influence[t, a, 1:].max() < 1e-4


def test_the_memory_and_the_influence_vary(written):
    """Otherwise the comparison above would prove little."""
    _, _, files = written
    infos = [info for _, info in agents_of(read(files[0]))[0]["policy_infos"]]
    assert len({info["memory_change"] for info in infos}) > 3
    assert any(info["influence_steps_back"] for info in infos)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MettaScope would open a window")
def test_mettascope_itself_reads_the_files(written, tmp_path):
    """Its library loads the replay, and only then looks for a display. Another version of the format is refused earlier."""
    other = read(written[2][0])
    other["version"] += 1
    (tmp_path / "other.json.z").write_bytes(zlib.compress(json.dumps(other).encode()))
    said = []
    for path in (written[2][0], tmp_path / "other.json.z"):
        env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")} | {"HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", LOAD, path], capture_output=True, text=True, timeout=120, env=env)
        said.append(done.stdout)
    assert "Error opening X11 display" in said[0]
    assert "replay" not in said[0]
    assert "Unsupported replay version" in said[1]


def test_an_episode_that_the_recording_cuts_short(monkeypatch, tmp_path):
    monkeypatch.setattr(recording_module, "MIN_STEPS", 5)
    monkeypatch.setattr(recording_module, "MAX_STEPS", 15)
    env = WORLDS["memory"]
    seen = see(env, episodes=6)
    assert seen.recording.tracks[0].episodes[-1].ended == "not ended"
    for path, (_, _, _, episode) in zip(write_replays(tmp_path, env, SEED, seen), episodes_of(seen), strict=True):
        assert read(path)["max_steps"] == episode.length


def test_infos_fit_into_mettagrids_limit_and_are_json():
    """MettaGrid drops the largest entry if there is too much; so fewer probabilities are shown. NaN is written as text."""
    seen = see(WORLDS["memory"])
    track = replace(seen.recording.tracks[0], values=np.full_like(seen.recording.tracks[0].values, np.nan))
    names = ["a" * 250, "b" * 250, *(letter * 80 for letter in "cde")]
    actions = replace(seen.policy.spec.actions, names=tuple(names))
    seen.policy.spec = replace(seen.policy.spec, actions=actions)
    for t, row in enumerate(infos_of(seen.policy, track, seen.influences[0], "small")):
        for a, infos in enumerate(row):
            text = json.dumps(infos, separators=(",", ":"), allow_nan=False)
            assert len(text) <= METTASCOPE_POLICY_INFO_MAX_BYTES
            assert EpisodeReplay._budget_policy_infos(infos) == infos
            assert infos["value"] == "nan"
            assert next(iter(infos["action_probs"])) == names[track.probabilities[t, a].argmax()]
            assert len(infos["action_probs"]) < 5


def test_a_policy_without_memory_that_hides_its_probabilities():
    seen = see(WORLDS["memory"])
    track = seen.recording.tracks[0]
    track = replace(track, states=(), probabilities=track.probabilities[..., :0])
    infos = infos_of(seen.policy, track, 0 * seen.influences[0], "small")[3][0]
    assert infos["action_prob"] == pytest.approx(np.exp(track.log_probs[3, 0]), abs=1e-5)
    assert (infos["influence_earlier"], infos["influence_steps_back"]) == (0, 0)
    assert not {"action_probs", "memory_norm", "memory_change"} & set(infos)


# ------------------------------------------------------------------------------------------------ what differs


def test_a_world_that_cannot_be_replayed(tmp_path):
    env = MettaGridConfigEnv(name=f"mettagrid:{TOYS}:forgetful")
    seen = see(env, episodes=1)
    with pytest.raises(HoldfastError, match=r"episode 0 of environment 0.*observations at step 0"):
        write_replays(tmp_path, env, SEED, seen)


def test_other_rewards_observations_or_lengths_than_recorded_are_noticed(tmp_path):
    env = WORLDS["teams"]
    seen = see(env, episodes=1)
    (track,) = seen.recording.tracks
    (episode,) = track.episodes
    rewards = track.rewards.copy()
    rewards[3, 1] += 0.5
    obs = {**track.inputs, keys.OBS: track.inputs[keys.OBS].copy()}
    obs[keys.OBS][2, 0, 0, 2] ^= 1
    longer = replace(episode, length=episode.length - 2)
    for changed, what in [
        (replace(track, rewards=rewards), "rewards of step 3"),
        (replace(track, inputs=obs), "observations at step 2"),
        (replace(track, episodes=[longer]), f"goes on after {episode.length - 2} steps"),
    ]:
        other = replace(seen, recording=replace(seen.recording, tracks=[changed]))
        with pytest.raises(HoldfastError, match=what):
            write_replays(tmp_path, env, SEED, other)
    assert not [*tmp_path.iterdir()]


def test_an_open_world_that_needs_other_ids_is_not_mixed_up(tmp_path):
    env = MettaGridConfigEnv(name=f"mettagrid:{TOYS}:silent")
    seen = see(env, episodes=1)
    with (
        MettaGridWorld(MettaGridConfigEnv(name=f"mettagrid:{TOYS}:moved"), range(1)),
        pytest.raises(SettingsError, match="one process"),
    ):
        write_replays(tmp_path, env, SEED, seen)
