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
from holdfast.view.content import content, memory_pictures
from holdfast.view.influence import influences, lookback_of
from holdfast.view.page import render_page
from holdfast.view.recording import record

TOYS = Path(__file__).parents[1] / "envs" / "toys"
WORLDS = {
    "grid": ["env=memory"],
    "many resources": ["env=arena"],
    "vector": ["env=gym:CartPole-v1", "env.hide=[1,3]"],
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
    types, vibes = data["scene"]["types"], data["scene"]["vibes"]
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
    assert len(shown["scene"]["moves"][1]["objects"]) < len(picture.objects) / 4


def test_frames_are_stored_once():
    policy, recording = recorded(["env=gym:FrozenLake-v1"])
    data = content(policy, recording, influences(policy, recording, 1), {"name": "x"})
    assert data["scene"]["kind"] == "frames"
    for shown in data["tracks"]:
        images, index = shown["scene"]["images"], shown["scene"]["index"]
        assert len(set(images)) == len(images)
        assert set(index.tolist()) == set(range(len(images)))
        assert base64.b64decode(images[0])[:4] == b"RIFF"


def test_a_few_large_units_do_not_hide_the_others():
    policy, recording = recorded(["env=gym:CartPole-v1"])
    for track in recording.tracks:
        track.states[1][:] = np.random.default_rng(0).normal(size=track.states[1].shape)
        track.states[1][..., :3] *= 1000
    pictures, names, scales = memory_pictures(policy, recording)
    assert names == ["h", "c"]
    assert scales[1] < 20
    assert np.median(np.abs(pictures[0][1])) > 5
