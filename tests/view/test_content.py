"""The data of a page, for every kind of observation, action and memory."""

import base64
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.config import load_settings
from holdfast.policies import MettaAgent
from holdfast.spec import BoxObs, DiscreteActions, DiscreteObs, ObsPart, WorldSpec
from holdfast.view.content import content, memory_pictures
from holdfast.view.influence import influences, lookback_of
from holdfast.view.observations import MAX_BYTES, MAX_STEP_BYTES, describe_parts, stored_bytes, stored_observations
from holdfast.view.page import render_page
from holdfast.view.recording import record

from . import synthetic
from .opened import colors

TOYS = Path(__file__).parents[1] / "envs" / "toys"
WORLDS = {
    "grid": ["env=memory"],
    "many resources": ["env=arena"],
    "vector": ["env=gym:CartPole-v1", "env.hide=[1,3]"],
    "lifetime memory": ["env=gym:CartPole-v1", "policy.memory_scope=lifetime"],
    "numbers": ["env=gym:Pendulum-v1", "policy.core=gru"],
    "symbols and masks": ["env=gym:Taxi-v4", "policy.core=mingru"],
    "no memory": ["env=gym:CartPole-v1", "policy.core=none"],
    "Dict, choices and numbers": [f"env={TOYS / 'toy_nested.py'}:Robot"],
    "several choices": [f"env={TOYS / 'toy_masks.py'}:Gate", "env.kwargs.parts=true", "env.action_mask=true"],
    "PettingZoo": ["env=pettingzoo:mpe2.simple_spread_v3"],
    "vector environment": ["env=gymvec:CartPole-v1"],
}


def recorded(words, episodes=2):
    settings = load_settings(words)
    torch.manual_seed(0)
    policy = MettaAgent(settings.policy, settings.env.describe()).policy
    return policy, record(policy, settings.env, episodes, max_steps=2000)


def read_page(page):
    """Return the data in a page, with arrays in place of their base64."""
    packed = re.search(r'id="data">([^<]*)<', page)[1]
    types = {"u8": "<u1", "i8": "<i1", "i16": "<i2", "i32": "<i4", "f32": "<f4"}

    def decode(entry):
        if {"type", "shape", "data"} == entry.keys():
            return np.frombuffer(base64.b64decode(entry["data"]), types[entry["type"]]).reshape(entry["shape"])
        return entry

    return json.loads(gzip.decompress(base64.b64decode(packed)), object_hook=decode)


@pytest.mark.parametrize("words", WORLDS.values(), ids=WORLDS)
def test_the_page_holds_what_was_recorded(words, monkeypatch):
    monkeypatch.setattr("holdfast.view.recording.MAX_STEPS", 240)
    policy, recording = recorded(words)
    lookback = lookback_of(recording, policy)
    moved = influences(policy, recording, lookback)
    data = read_page(render_page(content(policy, recording, moved, {"name": "x", "checkpoint": "y"})))
    options = sum(len(choice["options"]) for choice in data["choices"])
    assert data["lookback"] == lookback
    assert data["memory_scope"] == ("lifetime" if "policy.memory_scope=lifetime" in words else "episode")
    assert len(data["tracks"]) == len(recording.tracks)
    for track, shown in zip(recording.tracks, data["tracks"], strict=True):
        T, A = track.steps, track.agents
        assert [shown["steps"], shown["agents"]] == [T, A]
        assert shown["chosen"].shape == (T, A, len(data["choices"]))
        assert shown["probabilities"].shape == (T, A, options)
        assert shown["mean"].shape == shown["std"].shape == shown["number"].shape == (T, A, len(data["numbers"]))
        assert shown["influence"].shape == (T, A, lookback)
        assert shown["valid"].shape == shown["reward"].shape == shown["value"].shape == (T, A)
        assert sum(e["length"] for e in shown["episodes"]) == T
        np.testing.assert_allclose(shown["reward"], track.rewards, rtol=1e-6)
        assert len(shown["memory"]) == len(data["memory"])
        for picture, named in zip(shown["memory"], data["memory"], strict=True):
            assert picture.shape == (T, A, named["units"])
            assert picture.any()
        ends = np.cumsum([len(choice["options"]) for choice in data["choices"]])[:-1]
        for number, chances in enumerate(np.split(shown["probabilities"], ends, -1) if options else []):
            np.testing.assert_allclose(chances.astype(float).sum(-1), 255, atol=chances.shape[-1])
            chosen = np.take_along_axis(chances, shown["chosen"][..., number : number + 1].astype(int), -1)
            assert (chosen == chances.max(-1, keepdims=True)).all()


def test_grids_are_stored_as_changes():
    policy, recording = recorded(["env=memory"])
    data = content(policy, recording, influences(policy, recording, 1), {"name": "x"})
    types, vibes = ([entry["name"] for entry in data["scene"][key]] for key in ("types", "vibes"))
    assert data["scene"]["window"] == [3, 3]
    for track, shown in zip(recording.tracks, data["tracks"], strict=True):
        objects = {}
        for picture, move in zip(track.pictures, shown["scene"]["moves"], strict=True):
            objects = {} if move.get("full") else objects
            objects |= {entry[0]: entry for entry in move["objects"]}
            for number in move.get("gone", ()):
                del objects[number]
            now = {(o.id, o.kind, o.row, o.column, o.agent, o.vibe) for o in picture.objects}
            assert now == {(e[0], types[e[1]], e[2], e[3], e[4], vibes[e[6]]) for e in objects.values()}
        assert len(shown["scene"]["moves"][1]["objects"]) < len(track.pictures[1].objects) / 4


def test_frames_are_stored_once():
    policy, recording = recorded(["env=gym:FrozenLake-v1"])
    data = content(policy, recording, influences(policy, recording, 1), {"name": "x"})
    assert data["scene"]["kind"] == "frames"
    images = data["scene"]["images"]
    assert len(set(images)) == len(images)
    assert len(data["tracks"]) > 1, "environments share their frames"
    assert set(np.concatenate([shown["scene"]["index"] for shown in data["tracks"]])) == set(range(len(images)))
    assert base64.b64decode(images[0])[:4] == b"RIFF"


def test_a_few_large_units_do_not_hide_the_others():
    policy, recording = recorded(["env=gym:CartPole-v1"])
    for track in recording.tracks:
        track.states[1][:] = np.random.default_rng(0).normal(size=track.states[1].shape)
        track.states[1][..., :3] *= 1000
    pictures, layers = memory_pictures(policy, recording)
    assert [layer["name"] for layer in layers] == ["h", "c"]
    assert layers[1]["scale"] < 20
    assert np.median(np.abs(pictures[0][1])) > 5


def test_rows_of_a_picture_are_the_units_in_its_order():
    policy, recording = recorded(["env=gym:CartPole-v1"])
    pictures, layers = memory_pictures(policy, recording)
    for track, drawn in zip(recording.tracks, pictures, strict=True):
        for leaf, (picture, layer) in enumerate(zip(drawn, layers, strict=True)):
            activity = track.states[leaf][:, 0][..., layer["order"]] / layer["scale"]
            np.testing.assert_allclose(picture / 127, activity.clip(-1, 1), atol=0.5 / 127 + 1e-6)


def spec_of(obs, agents=1):
    return WorldSpec("made", obs, DiscreteActions(("a", "b")), agents)


CAMERA, SPEED = ObsPart("camera", (120, 160, 3), 0), ObsPart("speed", (6,), 57_600)
LARGE = {  # observation, agents, the parts that are stored
    "image": (BoxObs((210, 160, 3), "uint8"), 1, [("observation, 1 of 4 pixels", [105, 80, 3])]),
    "stacked images": (BoxObs((4, 200, 200), "uint8"), 1, [("observation, 1 of 9 pixels", [4, 67, 67])]),
    "image of floats": (BoxObs((100, 100), "float32"), 1, [("observation, 1 of 4 pixels", [50, 50])]),
    "vector": (BoxObs((100_000,), "float64"), 1, [("first 7,500 numbers", [7_500])]),
    "image and vector": (
        BoxObs((57_606,), "float32", (CAMERA, SPEED)),
        1,
        [("camera, 1 of 9 pixels", [40, 54, 3]), ("speed", [6])],
    ),
    "many agents": (BoxObs((30, 30, 3), "uint8"), 64, [("observation, 1 of 4 pixels", [15, 15, 3])]),
    "small": (BoxObs((84, 84, 4), "uint8"), 1, [("observation", [84, 84, 4])]),
    "symbol": (DiscreteObs(7), 3, [("observation", [])]),
}


@pytest.mark.parametrize(("obs", "agents", "parts"), LARGE.values(), ids=LARGE)
def test_large_observations_are_reduced(obs, agents, parts):
    spec = spec_of(obs, agents)
    values = np.arange(2 * agents * max(1, int(np.prod(obs.shape)))).reshape(2, agents, *obs.shape).astype(obs.dtype)
    stored = stored_observations(spec, values)
    assert [(part["name"], part["shape"]) for part in describe_parts(spec)] == parts
    assert stored[0, 0].size == sum(np.prod(shape) for _, shape in parts)
    assert stored_bytes(spec) == stored[0].nbytes <= min(MAX_BYTES * agents, MAX_STEP_BYTES)


def test_a_reduced_image_is_still_that_image():
    image = np.arange(120 * 160 * 3, dtype=np.float32).reshape(120, 160, 3)
    values = np.concatenate([image.reshape(-1), np.arange(6)])[None, None]
    stored = stored_observations(spec_of(LARGE["image and vector"][0]), values)[0, 0]
    np.testing.assert_array_equal(stored[:-6].reshape(40, 54, 3), image[::3, ::3])
    np.testing.assert_array_equal(stored[-6:], np.arange(6))


@pytest.mark.parametrize("name", LARGE)
def test_a_page_of_large_observations_opens_and_is_small(name, show):
    obs, agents, _ = LARGE[name]
    spec, steps = spec_of(obs, agents), 100  # as few as a page holds of large observations
    data = synthetic.without_memory(steps)
    (track,) = data["tracks"]
    for key, value in track.items():
        if isinstance(value, np.ndarray):
            track[key] = np.repeat(value, agents, axis=1)
    values = np.random.default_rng(0).integers(0, 7, (steps, agents, *obs.shape)).astype(obs.dtype)
    track.update(agents=agents, scene={"values": stored_observations(spec, values)})
    data["scene"]["parts"] = describe_parts(spec)
    assert len(render_page(data)) < 10_000_000
    assert colors(show(data), "#world") > 2
