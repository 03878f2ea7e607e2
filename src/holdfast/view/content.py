"""What a page shows of a recording: plain data and NumPy arrays. docs/view.md describes each entry."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from holdfast.envs.picture import GridPicture
from holdfast.policies import Policy
from holdfast.spec import (
    BoxActions,
    DiscreteActions,
    MixedActions,
    MultiDiscreteActions,
    TokenObs,
    WorldSpec,
    keys,
)
from holdfast.view.grid_looks import AGENT_COLORS, looks_of, mark_of_vibe
from holdfast.view.observations import describe_parts, stored_observations
from holdfast.view.recording import MAX_UNITS, Recording, Track
from holdfast.view.units import order_of_units

FORMAT = 1
LEAF_NAMES = ("h", "c")
LARGEST = 0.99  # quantile of a unit's absolute activity that counts as its largest
SMALLEST_INFLUENCE = 0.05  # of an earlier observation that is pointed out
NO_CURVE: Mapping[str, Any] = {"steps": [], "episode_return": []}


def content(
    policy: Policy,
    recording: Recording,
    influences: Sequence[np.ndarray],
    run: Mapping[str, Any],
    settings: Mapping[str, str] | None = None,
    curve: Mapping[str, Any] = NO_CURVE,
    certificate: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the data of a page. run: who plays."""
    pictures, layers = memory_pictures(policy, recording)
    scene, scenes = _scenes(policy.spec, recording)
    return {
        "format": FORMAT,
        "run": dict(run),
        "settings": dict(settings or {}),
        "curve": dict(curve),
        "certificate": certificate,
        "notes": recording.notes,
        "choices": choices_of(policy.spec),
        "numbers": numbers_of(policy.spec),
        "memory": layers,
        "memory_scope": policy.memory_scope,
        "lookback": influences[0].shape[-1],
        "smallest_influence": SMALLEST_INFLUENCE,
        "agent_colors": AGENT_COLORS,
        "scene": scene,
        "tracks": [
            _track(policy.spec, track, influence, of_track, drawn)
            for track, influence, of_track, drawn in zip(recording.tracks, influences, pictures, scenes, strict=True)
        ],
    }


def choices_of(spec: WorldSpec) -> list[dict[str, Any]]:
    """Return the choices that an action consists of, with the names of their options."""
    actions = spec.actions
    if isinstance(actions, DiscreteActions):
        return [{"name": "action", "options": list(actions.names)}]
    if isinstance(actions, MultiDiscreteActions) and actions.arguments:
        pairs = [f"{kind}, {i}" for kind, count in enumerate(actions.arguments) for i in range(count)]
        return [{"name": "type, argument", "options": pairs}]
    return [
        {"name": f"choice {number}", "options": [str(i) for i in range(size)]}
        for number, size in enumerate(actions.sizes)
    ]


def numbers_of(spec: WorldSpec) -> list[dict[str, Any]]:
    """Return the real numbers of an action, with their limits."""
    if not isinstance(spec.actions, BoxActions | MixedActions):
        return []
    limits = zip(spec.actions.low, spec.actions.high, strict=True)
    return [{"name": f"number {i}", "low": low, "high": high} for i, (low, high) in enumerate(limits)]


def memory_pictures(policy: Policy, recording: Recording) -> tuple[list[list[np.ndarray]], list[dict[str, Any]]]:
    """Return pictures [T, A, units] int8 of each layer per track, and what they show: name, units, order and scale."""
    layers: list[dict[str, Any]] = []
    pictures: list[list[np.ndarray]] = [[] for _ in recording.tracks]
    for leaf, (num_layers, _) in enumerate(policy.state_shapes):
        name = LEAF_NAMES[leaf] if leaf < len(LEAF_NAMES) else f"state {leaf}"
        for layer in range(num_layers):
            activity = [track.states[leaf][:, layer] for track in recording.tracks]  # [T, A, units]
            flat = np.concatenate([each.reshape(-1, each.shape[-1]) for each in activity])
            order = order_of_units(flat, MAX_UNITS)
            scale = _scale(np.quantile(np.abs(flat[:, order]), LARGEST, axis=0))
            for kept, each in zip(pictures, activity, strict=True):
                kept.append(np.round(np.clip(each[..., order] / scale, -1, 1) * 127).astype(np.int8))
            layers.append(
                {
                    "name": name if num_layers == 1 else f"{name}, layer {layer + 1}",
                    "units": len(order),
                    "order": order.tolist(),
                    "scale": scale,
                }
            )
    return pictures, layers


def _scale(largest: np.ndarray) -> float:
    """Return the activity that is drawn with the strongest colour, given the largest of each unit.

    A few units of a cell state may count to hundreds; the others should still be visible.
    """
    moving = largest[largest > 1e-6]
    return float(min(moving.max(), 2 * np.median(moving))) if moving.size else 1.0


def _track(
    spec: WorldSpec, track: Track, influence: np.ndarray, memory: list[np.ndarray], scene: Any
) -> dict[str, Any]:
    chosen, number = _split_actions(spec, track)
    return {
        "env": track.env,
        "agents": track.agents,
        "steps": track.steps,
        "episodes": [
            {"start": e.start, "length": e.length, "seed": e.seed, "returns": e.returns, "ended": e.ended}
            for e in track.episodes
        ],
        "chosen": chosen.astype(np.int16),
        "probabilities": np.round(track.probabilities * 255).astype(np.uint8),
        "number": number.astype(np.float32),
        "mean": track.mean.astype(np.float32),
        "std": track.std.astype(np.float32),
        "value": track.values.astype(np.float32),
        "reward": track.rewards.astype(np.float32),
        "valid": track.valid.astype(np.uint8),
        "memory": memory,
        "influence": np.round(influence * 255).astype(np.uint8),
        "scene": scene,
    }


def _split_actions(spec: WorldSpec, track: Track) -> tuple[np.ndarray, np.ndarray]:
    """Return the chosen options [T, A, choices] and the real numbers [T, A, numbers] of the actions."""
    actions = track.actions.reshape(track.steps, track.agents, -1)
    if (arguments := getattr(spec.actions, "arguments", ())) and actions.shape[-1] == 2:
        starts = np.concatenate([[0], np.cumsum(arguments)[:-1]])
        return (starts[actions[..., 0]] + actions[..., 1])[..., None], actions[..., :0]
    choices = len(spec.actions.sizes)
    return actions[..., :choices], actions[..., choices:]


# ------------------------------------------------------------------------------------------------ the world


def _scenes(spec: WorldSpec, recording: Recording) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return how the world is drawn, and what there is to draw in each track."""
    first = recording.tracks[0].pictures[0]
    if isinstance(first, GridPicture):
        return _grid_scenes(spec, recording)
    if first is not None:
        return _frame_scenes(recording)
    return _observation_scenes(spec, recording)


def _grid_scenes(spec: WorldSpec, recording: Recording) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kinds, resources, vibes = _Numbers(), _Numbers(), _Numbers()
    vibes[""]  # number 0: none
    scenes = []
    for track in recording.tracks:
        starts, moves = {e.start for e in track.episodes}, []
        before: dict[int, list[Any]] = {}
        for step, picture in enumerate(track.pictures):
            now = {
                o.id: [
                    o.id,
                    kinds[o.kind],
                    o.row,
                    o.column,
                    o.agent,
                    {str(resources[name]): amount for name, amount in o.inventory.items()},
                    vibes[o.vibe],
                ]
                for o in picture.objects
            }
            if step in starts:
                moves.append({"full": True, "objects": [*now.values()]})
            else:
                changed = [entry for number, entry in now.items() if before.get(number) != entry]
                moves.append({"objects": changed, "gone": [number for number in before if number not in now]})
            before = now
        scenes.append({"height": track.pictures[0].height, "width": track.pictures[0].width, "moves": moves})
    window = list(spec.obs.window) if isinstance(spec.obs, TokenObs) else [0, 0]
    return grid_scene(kinds, resources, vibes, window), scenes


def grid_scene(
    types: Iterable[str], resources: Iterable[str], vibes: Iterable[str], window: Sequence[int]
) -> dict[str, Any]:
    """Return what all tracks of a grid world share. window: rows and columns that an agent observes; 0, 0 if unknown."""
    return {
        "kind": "grid",
        "window": [*window],
        "types": [asdict(look) for look in looks_of([*types])],
        "resources": [*resources],
        "vibes": [{"name": vibe, "mark": mark_of_vibe(vibe)} for vibe in vibes],
    }


def _frame_scenes(recording: Recording) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    frames, numbers, scenes = recording.frames, _Numbers(), []
    for track in recording.tracks:
        shown = frames.thinned(track.pictures, [e.start for e in track.episodes])
        scenes.append({"index": np.array([numbers[number] for number in shown], np.int32)})
    images = [base64.b64encode(frames.image(number)).decode() for number in numbers]
    width, height = frames.size
    return {"kind": "frames", "width": width, "height": height, "images": images}, scenes


def _observation_scenes(spec: WorldSpec, recording: Recording) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    scenes = [{"values": stored_observations(spec, track.inputs[keys.OBS])} for track in recording.tracks]
    return {"kind": "observation", "parts": describe_parts(spec)}, scenes


class _Numbers(dict[Any, int]):
    """Number keys in the order in which they are first asked for."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]
