"""Write recorded episodes as replays of MettaGrid, with what the policy computed, for MettaGrid's viewer MettaScope.

Each episode is played again in MettaGrid's own simulator, with the recorded actions, and must give the recorded observations
and rewards. MettaGrid's code writes the files.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.config.sections import EnvSection
from holdfast.envs.mettagrid.game import MettaGridEnv
from holdfast.errors import HoldfastError, SettingsError, printable, reason_of
from holdfast.policies import Policy
from holdfast.spec import keys
from holdfast.view.influence import spans
from holdfast.view.recording import Track

if TYPE_CHECKING:
    from mettagrid.simulator import Simulation
    from mettagrid.simulator.replay_log_writer import EpisodeReplay

    from holdfast.view.run_page import Seen

SHOWN_ACTIONS = 5  # the most probable ones
EMPTY = 255  # all bytes of a token that is not used
Infos = dict[str, Any]


def check_replays(folder: Path, env: EnvSection) -> MettaGridEnv:
    """Return `env`; raise SettingsError unless it is a MettaGrid world and replays can be written to `folder`."""
    if not isinstance(env, MettaGridEnv):
        raise SettingsError(
            f"--mettascope needs a MettaGrid world, but the world is env={printable(env.name, 100)}. "
            "To show it to others: --html FILE or --gif FILE."
        )
    shown = f"--mettascope {printable(str(folder), 150)}"
    try:
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
        if not existing.is_dir():
            raise SettingsError(f"{shown}: {printable(str(existing), 150)} is not a folder. Name another one.")
        if not os.access(existing, os.W_OK):
            raise SettingsError(f"{shown}: nothing can be written in {printable(str(existing), 150)}.")
    except OSError as error:
        raise SettingsError(f"{shown}: {reason_of(error)}.") from error
    return env


def write_replays(
    folder: Path, env: EnvSection, seed: int, seen: Seen, progress: Callable[[str], None] = lambda doing: None
) -> list[Path]:
    """Write one replay per recorded episode: env_0_episode_0.json.z and so on. Return the files.

    env, seed: with which `seen` was recorded. Files of these names are replaced, others kept.
    """
    world, recording, written = check_replays(folder, env), seen.recording, []
    name = f"{seen.data['run']['name']} {seen.data['run']['checkpoint']}"
    # MettaGrid numbers some features once per process: while a world is open, no other numbering is accepted
    with world.build(range(1)):
        for track, influence in zip(recording.tracks, seen.influences, strict=True):
            infos = infos_of(seen.policy, track, influence, name)
            for number in range(len(track.episodes)):
                progress(f"writing replay {len(written) + 1} of {recording.num_episodes}")
                replay = _replay(world, seed, seen.policy, track, number, infos)
                written.append(_write(replay, folder, f"env_{track.env}_episode_{number}"))
    return written


def replays_written(replays: Sequence[Path], seen: Seen) -> str:
    """Return what the command prints: what was written, and how to open it."""
    import mettagrid

    program = Path(mettagrid.__file__).parent / "nim" / "mettascope" / "src" / "mettascope.nim"
    folder, last = printable(str(replays[0].parent), 150), f" to {replays[-1].name}" if len(replays) > 1 else ""
    lines = [
        *seen.recording.notes,
        f"Replays of checkpoint {seen.data['run']['checkpoint']} in {folder}: {replays[0].name}{last}",
        "Drop one onto the window of MettaScope, or start it with one (needs Nim and the packages in mettascope.nimble):",
        shlex.join(["nim", "r", str(program), f"--replay={replays[0].absolute()}"]),
    ]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------ what agents carry


def infos_of(policy: Policy, track: Track, influence: np.ndarray, name: str) -> list[list[Infos]]:
    """Return what the policy computed, for each step and agent, within the size that MettaGrid allows."""
    names = policy.spec.actions.names  # pyright: ignore[reportAttributeAccessIssue]
    norm, change = memory_norms(policy, track)
    back, moved = strongest_past(policy, track, influence)
    return [
        [
            _within_limit(
                {
                    "policy_name": name,
                    "action": names[int(track.actions[t, a])],  # the replay itself says noop for a move that failed
                    "action_prob": _short(np.exp(track.log_probs[t, a])),
                    "value": _short(track.values[t, a]),
                    "influence_now": _short(influence[t, a, 0], 4),
                    "influence_earlier": _short(moved[t, a], 4),
                    "influence_steps_back": int(back[t, a]),
                }
                | ({"memory_norm": _short(norm[t, a]), "memory_change": _short(change[t, a])} if track.states else {}),
                _best(names, track.probabilities[t, a]),
            )
            for a in range(track.agents)
        ]
        for t in range(track.steps)
    ]


def memory_norms(policy: Policy, track: Track) -> tuple[np.ndarray, np.ndarray]:
    """Return [T, A] how large the memory is after each step, and how far the step moved it."""
    norm, change = np.zeros((2, track.steps, track.agents))
    for leaf in track.states:  # [T, layers, A, hidden]
        before = np.concatenate([np.zeros_like(leaf[:1]), leaf[:-1]])
        before[[start for start, _ in spans(track, policy)]] = 0
        norm += np.square(leaf, dtype=np.float64).sum((1, 3))
        change += np.square(leaf - before, dtype=np.float64).sum((1, 3))
    return np.sqrt(norm), np.sqrt(change)


def strongest_past(policy: Policy, track: Track, influence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return [T, A] how many steps back the earlier observation with the largest influence is, and its influence; 0, 0 if none has any."""
    earlier = np.round(influence[..., 1:], 4)
    if not earlier.shape[-1]:
        return np.zeros(influence.shape[:2], int), np.zeros(influence.shape[:2])
    largest = earlier.max(-1)
    return np.where(largest > 0, earlier.argmax(-1) + 1, 0), largest


def _best(names: tuple[str, ...], probabilities: np.ndarray) -> list[tuple[str, Any]]:
    """Return the most probable actions, best first; empty for a policy that does not show probabilities."""
    order = np.argsort(-probabilities, kind="stable")[:SHOWN_ACTIONS]
    return [(names[i], _short(probabilities[i], 4)) for i in order.tolist()]


def _within_limit(infos: Infos, best: list[tuple[str, Any]]) -> Infos:
    """Add the most probable actions, as many as fit: MettaGrid drops the largest entry if there is more than it allows."""
    from mettagrid.simulator.replay_log_writer import METTASCOPE_POLICY_INFO_MAX_BYTES

    for count in range(len(best), 0, -1):
        found = infos | {"action_probs": dict(best[:count])}
        if len(json.dumps(found, separators=(",", ":"))) <= METTASCOPE_POLICY_INFO_MAX_BYTES:
            return found
    return infos


def _short(number: Any, digits: int = 6) -> float | str:
    """Return a number of few digits; as text if it is not finite, which JSON cannot hold."""
    return round(float(number), digits) if math.isfinite(number) else str(float(number))


# ------------------------------------------------------------------------------------------------ played in MettaGrid


def _replay(
    env: MettaGridEnv, seed: int, policy: Policy, track: Track, number: int, infos: list[list[Infos]]
) -> EpisodeReplay:
    """Play a recorded episode in MettaGrid's simulator and return its replay; raise HoldfastError unless it is the same."""
    from mettagrid.simulator import Simulator
    from mettagrid.simulator.interface import SimulatorEventHandler
    from mettagrid.simulator.replay_log_writer import InMemoryReplayWriter

    from holdfast.envs.mettagrid.runner import runner_episode

    episode = track.episodes[number]

    class EndWithRecording(SimulatorEventHandler):
        def on_step(self) -> None:
            if self._sim.current_step == episode.length and episode.ended == "not ended":
                self._sim.end_episode()

    config, own_seed = runner_episode(env, seed, track.env, number)
    simulator, writer = Simulator(), InMemoryReplayWriter()
    simulator.add_event_handler(writer)
    simulator.add_event_handler(EndWithRecording())
    simulation = simulator.new_simulation(config, own_seed)
    names = policy.spec.actions.names  # pyright: ignore[reportAttributeAccessIssue]
    agents = simulation.agents()
    for step in range(episode.start, episode.start + episode.length):
        if simulation.is_done():
            raise _difference(track, number, f"it ends after {simulation.current_step} steps")
        if not _same_observations(simulation, track.inputs[keys.OBS][step]):
            raise _difference(track, number, f"the observations at step {step - episode.start} are other ones")
        simulation._context["policy_infos"] = dict(enumerate(infos[step]))  # where MettaGrid's Rollout puts them
        for agent, action in zip(agents, track.actions[step].reshape(-1).tolist(), strict=True):
            agent.set_action(names[action])
        simulation.step()
        if not np.array_equal([agent.step_reward for agent in agents], track.rewards[step]):
            raise _difference(track, number, f"the rewards of step {step - episode.start} are other ones")
    if not simulation.is_done():
        raise _difference(track, number, f"it goes on after {simulation.current_step} steps")
    return writer.get_completed_replays()[0]


def _same_observations(simulation: Simulation, recorded: np.ndarray) -> bool:
    """Return whether all agents see the recorded tokens [A, tokens, 3]."""
    for found, row in zip(simulation.observations(), recorded, strict=True):
        used = np.array([token.raw_token for token in found.tokens], np.uint8).reshape(-1, 3)
        if not np.array_equal(used, row[: len(used)]) or (row[len(used) :] != EMPTY).any():
            return False
    return True


def _difference(track: Track, number: int, what: str) -> HoldfastError:
    return HoldfastError(
        f"--mettascope: MettaGrid plays episode {number} of environment {track.env} otherwise than recorded: {what}.\n"
        "A world whose configuration is not the same each time it is built cannot be replayed."
    )


def _write(replay: EpisodeReplay, folder: Path, name: str) -> Path:
    """Write a replay, such that its name never refers to half a file."""
    path, partial = folder / f"{name}.json.z", folder / f".{name}.{os.getpid()}.json.z"
    try:
        replay.write_replay(partial.absolute().as_uri())  # creates the folder, too
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise SettingsError(f"--mettascope {printable(str(path), 150)}: {reason_of(error)}.") from error
    return path
