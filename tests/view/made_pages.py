"""Data of a page that is made by hand, so that it is known what its pictures show."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from holdfast.view.content import grid_scene
from holdfast.view.grid_looks import AGENT_COLORS

SIZE = 5  # of the grid


def page_data(
    lengths: tuple[int, ...] = (8, 8),
    agents: int = 1,
    kind: str = "grid",
    units: int = 40,
    cue_back: int = 4,
    **others: Any,
) -> dict[str, Any]:
    """Return the data of one track. In each episode, the action at step `cue_back` + 1 is decided by the observation of step 1.

    That action is 0 in the first episode, 1 in the second, and so on by turns.
    """
    steps, starts = sum(lengths), np.cumsum([0, *lengths])[:-1].tolist()
    influence = np.zeros((steps, agents, cue_back + 3), np.uint8)
    chosen = np.full((steps, agents, 1), 2, np.int16)
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        if length > cue_back + 1:
            influence[start + cue_back + 1, :, cue_back] = 204
            chosen[start + cue_back + 1] = number % 2
    probabilities = np.full((steps, agents, 3), 25, np.uint8)
    np.put_along_axis(probabilities, chosen.astype(np.int64), 204, -1)
    memory = np.where(np.arange(units) % 2, 127, -127) * np.ones((steps, agents, units))
    scene, of_track = _scene(kind, steps, agents, starts)
    track = {
        "env": 0,
        "agents": agents,
        "steps": steps,
        "episodes": [
            {"start": start, "length": length, "seed": 1, "returns": [1.0] * agents, "ended": "terminated"}
            for start, length in zip(starts, lengths, strict=True)
        ],
        "chosen": chosen,
        "probabilities": probabilities,
        "number": np.zeros((steps, agents, 0), np.float32),
        "mean": np.zeros((steps, agents, 0), np.float32),
        "std": np.zeros((steps, agents, 0), np.float32),
        "value": np.zeros((steps, agents), np.float32),
        "reward": np.ones((steps, agents), np.float32),
        "valid": np.ones((steps, agents), np.uint8),
        "memory": [memory.astype(np.int8)] if units else [],
        "influence": influence,
        "scene": of_track,
    }
    return {
        "run": {"name": "made", "world": "by hand", "agent": "py_agent=fast"},
        "choices": [{"name": "action", "options": ["move_north", "move_south", "noop"]}],
        "numbers": [],
        "memory": [{"name": "h", "units": units, "order": [*range(units)], "scale": 1.0}] if units else [],
        "memory_scope": "episode",
        "lookback": influence.shape[-1],
        "smallest_influence": 0.05,
        "agent_colors": AGENT_COLORS,
        "scene": scene,
        "tracks": [track],
        **others,
    }


def _scene(kind: str, steps: int, agents: int, starts: list[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    if kind == "observation":
        return {"kind": kind, "parts": []}, {"values": np.linspace(-1, 1, steps * agents * 4).reshape(steps, agents, 4)}
    if kind == "frames":
        images = []
        for number in range(steps):
            written = io.BytesIO()
            Image.new("RGB", (30, 20), (200, 5 * number, 0)).save(written, "png")
            images.append(base64.b64encode(written.getvalue()).decode())
        return {"kind": kind, "width": 30, "height": 20, "images": images}, {"index": np.arange(steps)}
    moves = []
    for step in range(steps):
        within = step - max(start for start in starts if start <= step)
        walkers = [[1 + a, 1, a, within % SIZE, a, {"0": within} if within else {}, 0] for a in range(agents)]
        others = [[100, 0, 4, 0, -1, {}, 0], [101, 2, 4, 2, -1, {}, 1], [102, 3, 4, 4, -1, {}, 0]]
        moves.append({"full": True, "objects": walkers + others} if not within else {"objects": walkers, "gone": []})
    scene = grid_scene(["wall", "agent", "cue", "altar"], ["heart"], ["", "up"], (3, 3))
    return scene, {"height": SIZE, "width": SIZE, "moves": moves}
