"""Data for the page of `holdfast view` without a run: one function per kind of world."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from holdfast.view.content import grid_scene
from holdfast.view.grid_looks import AGENT_COLORS

MOVES = ["noop", "move_north", "move_south", "move_west", "move_east"]
CUES = ["cue_up", "cue_down"]
EPISODE = 8  # steps of an episode of the maze
CHOICE = EPISODE - 1  # the step of an episode at which the cue is needed


def maze(episodes: int = 6, corridor: int = 6, agents: int = 2) -> dict[str, Any]:
    """Each agent sees a cue, walks along a corridor, and goes through the door that the cue names."""
    rng = np.random.default_rng(0)
    types = ["wall", "agent", *CUES, "door_good", "door_bad"]
    tracks = []
    for env in range(2):
        moves: list[dict[str, Any]] = []
        entries, actions, steps_of_episode = [], [], []
        for number in range(episodes):
            cue = int(rng.integers(2))
            right = number % 4 != 3
            entries.append(_entry(len(moves), corridor + 2, agents, 1.0 if right else -1.0, int(rng.integers(10**6))))
            moves += _walk(types, corridor, agents, cue, right)
            turn = (1 if cue == 0 else 2) if right else (2 if cue == 0 else 1)
            actions += [4] * (corridor + 1) + [turn]
            steps_of_episode += list(range(corridor + 2))
        height, width = 5 * agents, corridor + 4
        track = _track(rng, env, agents, entries, len(MOVES), [64, 64], 16)
        track["chosen"] = np.repeat(np.array(actions, np.int16)[:, None, None], agents, 1)
        peaks = np.full((len(actions), agents, len(MOVES)), 3.0) + rng.random((len(actions), agents, len(MOVES))) * 20
        np.put_along_axis(peaks, track["chosen"].astype(int), 220.0, 2)
        track["probabilities"] = (peaks / peaks.sum(-1, keepdims=True) * 255).astype(np.uint8)
        influence = (rng.random((len(actions), agents, 16)) * 20).astype(np.uint8)
        influence[..., 0] = 120
        for t, since in enumerate(steps_of_episode):
            influence[t, :, since + 1 :] = 0
            if since == corridor + 1:
                influence[t, :, since] = 250
        track["influence"] = influence
        track["scene"] = {"height": height, "width": width, "moves": moves}
        tracks.append(track)
    return {
        **_about("mettagrid:cue_maze", agents),
        "choices": [{"name": "action", "options": MOVES}],
        "memory": _pictures(64, 64),
        "lookback": 16,
        "scene": grid_scene(types, ["heart", "ore"], [""], (3, 5)),
        "tracks": tracks,
    }


def _walk(types: list[str], corridor: int, agents: int, cue: int, right: bool) -> list[dict[str, Any]]:
    """One episode of the maze: objects and their positions at each step, one corridor above the other."""
    wall, agent, good, bad = (
        types.index("wall"),
        types.index("agent"),
        types.index("door_good"),
        types.index("door_bad"),
    )
    objects: list[list[Any]] = []
    width = corridor + 4
    for index in range(agents):
        top = 5 * index
        free = {(top + 2, col) for col in range(1, corridor + 2)} | {(top + 1, corridor + 1), (top + 3, corridor + 1)}
        free.add((top + 1, 1))
        for row in range(top, top + 5):
            objects += [[0, wall, row, col, -1, {}] for col in range(width) if (row, col) not in free]
        objects.append([0, types.index(CUES[cue]), top + 1, 1, -1, {}])
        objects.append([0, good if cue == 0 else bad, top + 1, corridor + 1, -1, {}])
        objects.append([0, bad if cue == 0 else good, top + 3, corridor + 1, -1, {}])
    objects = [[number, *rest[1:]] for number, rest in enumerate(objects)]
    first = len(objects)
    moves: list[dict[str, Any]] = [
        {
            "full": True,
            "objects": objects + [[first + i, agent, 5 * i + 2, 1, i, {}] for i in range(agents)],
            "gone": [],
        }
    ]
    for step in range(1, corridor + 2):
        held = {"1": step // 2, "0": int(right)} if step > 1 else {}
        col = min(1 + step, corridor + 1)
        moves.append({"objects": [[first + i, agent, 5 * i + 2, col, i, held] for i in range(agents)], "gone": []})
    return moves


def large_grid(side: int = 60, steps: int = 80) -> dict[str, Any]:
    """A world of many object types, two of them without a drawing of their own, in which four agents wander."""
    rng = np.random.default_rng(1)
    types = ["wall", "agent", "altar", "mine_red", "generator_red", "chest", "lasery", "qhzx", "charger"]
    agents = 4
    objects: list[list[Any]] = []
    for row in range(side):
        for col in range(side):
            edge = row in (0, side - 1) or col in (0, side - 1) or (row % 12 == 0 and col % 12 > 3)
            if edge:
                objects.append([len(objects), 0, row, col, -1, {}])
            elif rng.random() < 0.04:
                objects.append(
                    [len(objects), int(rng.integers(2, len(types))), row, col, -1, {"0": int(rng.integers(3))}]
                )
    first = len(objects)
    places = rng.integers(14, side - 14, (agents, 2))
    moves: list[dict[str, Any]] = []
    for step in range(steps):
        places = np.clip(places + rng.integers(-1, 2, (agents, 2)), 1, side - 2)
        here = [[first + i, 1, int(places[i, 0]), int(places[i, 1]), i, {"1": step}] for i in range(agents)]
        moves.append(
            {"full": True, "objects": objects + here, "gone": []} if step == 0 else {"objects": here, "gone": []}
        )
    track = _track(rng, 0, agents, [_entry(0, steps, agents, 2.0, 5)], 9, [128], 32)
    track["scene"] = {"height": side, "width": side, "moves": moves}
    return {
        **_about("mettagrid:arena", agents),
        "choices": [{"name": "action", "options": [*MOVES, "use", "attack", "put_item", "get_item"]}],
        "memory": _pictures(128),
        "lookback": 32,
        "scene": grid_scene(types, ["heart", "ore_red"], [""], (11, 11)),
        "tracks": [track],
    }


def frames(steps: int = 40) -> dict[str, Any]:
    """Rendered pictures and real-valued actions."""
    rng = np.random.default_rng(2)
    images = []
    for step in range(0, steps, 2):
        picture = np.full((80, 120, 3), (235, 240, 246), np.uint8)
        picture[60:] = (160, 140, 120)
        x = 10 + step * 2
        picture[48:60, x : x + 16] = (23, 104, 156)
        picture[20:48, x + 7 : x + 10] = (179, 92, 0)
        images.append(png(picture))
    track = _track(
        rng, 0, 1, [_entry(0, steps // 2, 1, 20, 7), _entry(steps // 2, steps // 2, 1, 12, 8)], 0, [32, 32], 16
    )
    track["mean"] = np.sin(np.arange(steps)[:, None, None] / 4 + np.arange(2)).astype(np.float32)
    track["std"] = np.full((steps, 1, 2), 0.3, np.float32)
    track["number"] = track["mean"] + 0.2 * rng.standard_normal((steps, 1, 2)).astype(np.float32)
    track["scene"] = {"index": (np.arange(steps) // 2).astype(np.int32)}
    return {
        **_about("gym:Pendulum-v1", 1),
        "notes": ["every 2nd frame is drawn"],
        "numbers": [{"name": "0", "low": -2, "high": 2}, {"name": "1", "low": None, "high": None}],
        "memory": _pictures(32, 32),
        "lookback": 16,
        "scene": {"kind": "frames", "width": 120, "height": 80, "images": images},
        "tracks": [track],
    }


def observation(steps: int = 60) -> dict[str, Any]:
    """An image, a vector, a small grid and a number as observation; two choices per action."""
    rng = np.random.default_rng(3)
    image = np.zeros((steps, 1, 16, 16, 3), np.float32)
    for t in range(steps):
        image[t, 0, 4:12, t % 16] = (255, 160, 40)
        image[t, 0, t % 16, :] += (20, 80, 160)
    vector = rng.standard_normal((steps, 1, 6)).astype(np.float32)
    patch = rng.integers(0, 5, (steps, 1, 3, 3)).astype(np.float32)
    clock = (np.arange(steps) % 5).astype(np.float32)[:, None, None]
    parts = [image.clip(0, 255).reshape(steps, 1, -1), vector, patch.reshape(steps, 1, -1), clock]
    track = _track(rng, 0, 1, [_entry(0, 25, 1, 3, 7), _entry(25, 35, 1, 4, 8, "not ended")], 5, [48], 16)
    track["chosen"] = np.concatenate([track["chosen"] % 3, track["chosen"] % 2], 2)
    track["scene"] = {"values": np.concatenate(parts, 2)}
    return {
        **_about("own:lookout", 1),
        "choices": [
            {"name": "move", "options": ["left", "stay", "right"]},
            {"name": "speak", "options": ["no", "yes"]},
        ],
        "memory": _pictures(48),
        "lookback": 16,
        "scene": {
            "kind": "observation",
            "parts": [
                {"name": "camera", "shape": [16, 16, 3]},
                {"name": "speed", "shape": [6]},
                {"name": "patch", "shape": [3, 3]},
                {"name": "clock", "shape": []},
            ],
        },
        "tracks": [track],
    }


def without_memory(steps: int = 30) -> dict[str, Any]:
    """A policy that has no memory, and a world that shows one number."""
    rng = np.random.default_rng(4)
    track = _track(rng, 0, 1, [_entry(0, steps, 1, 1, 7)], 4, [], 8)
    track["scene"] = {"values": rng.integers(0, 7, (steps, 1)).astype(np.int32)}
    about = _about("toy:recall", 1)
    return {
        **about,
        "certificate": None,
        "curve": {"steps": [], "episode_return": []},
        "choices": [{"name": "action", "options": ["a", "b", "c", "d"]}],
        "lookback": 8,
        "scene": {"kind": "observation", "parts": [{"name": "x", "shape": []}]},
        "tracks": [track],
    }


def long(steps: int = 500, units: int = 128) -> dict[str, Any]:
    """Long episodes and large memories, for the speed of scrubbing."""
    rng = np.random.default_rng(5)
    data = large_grid(30, steps)
    entries = [_entry(0, 180, 4, 1, 1), _entry(180, steps - 180, 4, 2, 2, "truncated")]
    scene = data["tracks"][0]["scene"]
    track = _track(rng, 0, 4, entries, 9, [units, units], 64)
    return {**data, "memory": _pictures(units, units), "lookback": 64, "tracks": [{**track, "scene": scene}]}


def png(picture: np.ndarray) -> str:
    """Return picture [H, W, 3] as base64 of a PNG."""
    height, width, _ = picture.shape
    rows = b"".join(b"\0" + row.tobytes() for row in picture)
    chunks = [
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _about(world: str, agents: int) -> dict[str, Any]:
    """Everything that is not recorded per step."""
    rng = np.random.default_rng(6)
    steps = np.linspace(0, 200_704, 120)
    certificate = {name: _estimate(mean) for name, mean in (("intact", 0.98), ("wiped", 0.43), ("frozen", 0.97))}
    return {
        "format": 1,
        "run": {
            "name": "maze",
            "world": world,
            "agent": "lstm",
            "checkpoint": "step_000200704",
            "steps": 200_704,
            "how": "most probable actions",
            "version": "0.1.0",
        },
        "settings": {"env": world, "trainer.gamma": "0.99", "policy.core": "lstm", "num_agents": str(agents)},
        "curve": {
            "steps": steps.tolist(),
            "episode_return": (1 / (1 + np.exp(-(steps - 80_000) / 20_000)) + 0.05 * rng.standard_normal(120)).tolist(),
        },
        "certificate": {
            **certificate,
            "swapped": _estimate(0.33),
            "averaged": _estimate(0.02, 0.01),
            "steps_back": [
                {"steps": k, **_estimate(m)} for k, m in ((0, 0.02), (1, 0.04), (2, 0.43), (3, 0.97), (4, 0.98))
            ],
            "meanings": {name: f"memory {name}" for name in ("intact", "wiped", "frozen", "swapped", "averaged")},
            "needs_steps": 3,
            "needs_memory": True,
            "episodes": 100,
            "sentence": "Needs at least 3 steps of memory: return 0.98 with it, 0.43 without, 0.33 with that of another episode.",
        },
        "notes": [],
        "choices": [],
        "numbers": [],
        "memory": [],
        "memory_scope": "episode",
        "smallest_influence": 0.05,
        "agent_colors": AGENT_COLORS,
    }


def _estimate(mean: float, margin: float = 0.06) -> dict[str, float]:
    return {"mean": mean, "low": mean - margin, "high": mean + margin}


def _entry(start: int, length: int, agents: int, reward: float, seed: int, ended: str = "terminated") -> dict[str, Any]:
    return {"start": start, "length": length, "seed": seed, "returns": [reward] * agents, "ended": ended}


def _pictures(*units: int) -> list[dict[str, Any]]:
    return [
        {"name": f"{'hc'[i]}, layer 1", "units": count, "order": [*range(count)][::-1], "scale": 1.0 + i}
        for i, count in enumerate(units)
    ]


def _track(
    rng: np.random.Generator,
    env: int,
    agents: int,
    episodes: list[dict[str, Any]],
    options: int,
    units: list[int],
    lookback: int,
) -> dict[str, Any]:
    """A track without its scene: random figures of the right shapes, smooth within an episode."""
    steps = episodes[-1]["start"] + episodes[-1]["length"]
    since = np.concatenate([np.arange(episode["length"]) for episode in episodes])
    reward = np.zeros((steps, agents), np.float32)
    value = np.zeros((steps, agents), np.float32)
    for episode in episodes:
        end = episode["start"] + episode["length"]
        reward[end - 1] = episode["returns"]
        rising = np.linspace(0.3, 1, episode["length"])[:, None] * np.array(episode["returns"])
        value[episode["start"] : end] = rising + 0.05 * rng.standard_normal((episode["length"], agents))
    logits = rng.standard_normal((steps, agents, options)) * 1.5
    odds = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True) if options else logits
    influence = (rng.random((steps, agents, lookback)) ** 6 * 200).astype(np.uint8)
    influence[since[:, None, None] < np.arange(lookback) + np.zeros((1, agents, 1), int)] = 0
    memory = []
    for count in units:
        phase, speed = rng.random((agents, count)) * 6, np.sort(rng.random(count)) * 0.8
        wave = np.sin(since[:, None, None] * speed + phase) * (1 - np.exp(-(since + 1) / 5))[:, None, None]
        memory.append((wave * 127).astype(np.int8))
    chosen = odds.argmax(-1)[..., None] if options else np.zeros((steps, agents, 0))
    return {
        "env": env,
        "agents": agents,
        "steps": steps,
        "episodes": episodes,
        "chosen": chosen.astype(np.int16),
        "probabilities": (odds * 255).astype(np.uint8),
        "number": np.zeros((steps, agents, 0), np.float32),
        "mean": np.zeros((steps, agents, 0), np.float32),
        "std": np.zeros((steps, agents, 0), np.float32),
        "value": value,
        "reward": reward,
        "valid": np.ones((steps, agents), np.uint8),
        "memory": memory,
        "influence": influence,
    }
