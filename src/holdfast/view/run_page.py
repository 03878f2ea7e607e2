"""The page of one run: play a checkpoint, measure what decided its actions and what its memory is worth."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
from holdfast.checkpoint import read_facts
from holdfast.config import load_run_settings
from holdfast.config.sections import EnvSection, PolicySection
from holdfast.deploy.loading import load_agent_for_world
from holdfast.errors import HoldfastError, SettingsError, one_line, printable, reason_of
from holdfast.evaluate import certify
from holdfast.evaluate.certificate import MEANINGS
from holdfast.evaluate.evaluation import check_numbers
from holdfast.files import Folder
from holdfast.outputs import write_output
from holdfast.policies import Policy
from holdfast.rollout.play import MAX_EPISODE_STEPS
from holdfast.runs.curves import read_curve
from holdfast.runs.folder import CONFIG
from holdfast.runs.resumable import flatten
from holdfast.threads import num_threads_for, num_threads_kept
from holdfast.view.content import content
from holdfast.view.influence import influences, lookback_of
from holdfast.view.page import render_page
from holdfast.view.recording import Recording, record
from holdfast.view.selection import opening

logger = logging.getLogger(__name__)

PAGE = "view.html"  # in the run folder
CURVE_POINTS = 500
CERTIFIED_EPISODES = 100
MAX_CERTIFIED_STEPS = 50_000  # of all slots in one figure of the certificate; it has about ten figures

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Seen:
    """What was recorded of a run, as the page shows it."""

    policy: Policy
    recording: Recording
    influences: list[np.ndarray]
    data: dict[str, Any]


def see_run(
    run_dir: Path,
    env: EnvSection,
    episodes: int = 20,
    greedy: bool = True,
    seed: int = 1_000_000,
    checkpoint: str | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
    py_agent: str | type[Policy] | None = None,
    certificate: bool = True,
    progress: Progress = lambda doing: None,
) -> Seen:
    """Play a run's newest usable checkpoint, or `checkpoint`, and return everything that its page shows.

    certificate: whether to measure what the memory is worth; left out anyway if episodes are long.
    progress: called with what is being done.
    """
    check_numbers(episodes, seed, max_steps)
    agent, settings, path = load_agent_for_world(run_dir, env, checkpoint, py_agent)
    policy, facts = agent.policy, _facts_of(path)  # now, because a run that trains removes its old checkpoints
    with num_threads_kept(num_threads_for(policy, CERTIFIED_EPISODES)):
        recording = record(
            policy, env, episodes, seed, greedy, max_steps, lambda step: progress(f"playing: step {step:,}")
        )
        total = sum(track.steps * track.agents for track in recording.tracks)
        moved = influences(
            policy,
            recording,
            lookback_of(recording, policy),
            lambda done: progress(f"what decided each action: {done:,} of {total:,}"),
        )
        worth = _certificate(policy, env, recording, greedy, seed, max_steps, progress) if certificate else None
    progress("drawing")
    run = {
        "name": run_dir.absolute().name,
        "world": policy.spec.name,
        "agent": _agent_of(settings.policy),
        "checkpoint": path.name,
        "steps": facts.get("agent_steps"),
        "how": "most probable actions" if greedy else "sampled actions",
        "version": holdfast.__version__,
    }
    data = content(
        policy,
        recording,
        moved,
        run,
        settings={key: str(value) for key, value in flatten(load_run_settings(run_dir / CONFIG).model_dump())},
        curve=_training_curve(run_dir),
        certificate=worth,
    )
    return Seen(policy, recording, moved, {**data, "start": opening(data)})


def write_page(seen: Seen, run_dir: Path, html: Path | None = None) -> tuple[Path, int]:
    """Write the page to `html`, or as view.html into the run folder; return its path and its size in bytes."""
    page = render_page(seen.data).encode()
    if html is not None:
        write_output("--html", html, page)
        return html, len(page)
    try:
        with Folder.open(run_dir) as files:
            files.replace(PAGE, page)
    except OSError as error:
        path = printable(str(run_dir / PAGE), 200)
        raise SettingsError(
            f"{path}: cannot be written ({reason_of(error)}). Name another file: --html FILE."
        ) from error
    return run_dir / PAGE, len(page)


def _facts_of(checkpoint: Path) -> dict[str, Any]:
    """Return the facts of a checkpoint that was just loaded; {} if it has been removed since."""
    try:
        return read_facts(checkpoint)
    except HoldfastError as error:
        logger.debug("no facts: %s", error)
        return {}


def _agent_of(settings: PolicySection) -> str:
    """Return the words that name the agent and its core."""
    core = getattr(settings, "core", "own")
    return settings.agent_word + (f" policy.core={core}" if core != "own" else "")


def _certificate(
    policy: Policy,
    env: EnvSection,
    recording: Recording,
    greedy: bool,
    seed: int,
    max_steps: int,
    progress: Progress,
) -> dict[str, Any] | None:
    """Return the memory certificate; None, with a note, for policies without memory and for worlds where it takes minutes."""
    if not policy.has_memory():
        return None
    if (env.num_ready or 2) * policy.spec.agents_per_env < 2:
        recording.notes.append("No memory certificate: it needs at least two slots.")
        return None
    steps = sum(track.steps * track.agents for track in recording.tracks) / max(recording.num_episodes, 1)
    if steps * CERTIFIED_EPISODES / policy.spec.agents_per_env > MAX_CERTIFIED_STEPS:
        recording.notes.append(
            "No memory certificate, because episodes are long: holdfast evaluate RUN --certificate measures it."
        )
        return None
    found = certify(
        policy,
        env,
        CERTIFIED_EPISODES,
        seed,
        greedy,
        max_steps,
        lambda name, _: progress(f"what the memory is worth: {name}"),
    )
    return {**found.to_dict(), "meanings": MEANINGS}


def _training_curve(run_dir: Path) -> dict[str, list[float]]:
    """Return the mean return over training; empty if metrics.jsonl is damaged, with a warning."""
    try:
        curve = read_curve(run_dir, "episode_return")[0].thinned(CURVE_POINTS)
    except HoldfastError as error:
        logger.warning("no training curve: %s", one_line(error))
        return {"steps": [], "episode_return": []}
    return {"steps": [*curve.steps], "episode_return": [*curve.values]}
