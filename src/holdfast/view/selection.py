"""Which steps of a recording pictures and clips show, and which of them are decisive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.errors import SettingsError

LONG = 150  # steps of an episode that is shown alone


@dataclass(frozen=True)
class Episode:
    """An episode of a page's data. number: counted from 0 over all tracks, track by track."""

    number: int
    track: dict[str, Any]
    start: int
    length: int


@dataclass(frozen=True)
class Selection:
    """Episodes of one agent, one after the other. A position counts the steps of all of them."""

    data: dict[str, Any]
    episodes: list[Episode]
    agent: int

    @cached_property
    def steps(self) -> int:
        return sum(episode.length for episode in self.episodes)

    @cached_property
    def starts(self) -> list[int]:
        """Return the position at which each episode starts."""
        return np.cumsum([0, *(episode.length for episode in self.episodes)])[:-1].tolist()

    def at(self, position: int) -> tuple[Episode, int]:
        """Return the episode at a position, and the step in it."""
        which = int(np.searchsorted(self.starts, position, side="right")) - 1
        return self.episodes[which], position - self.starts[which]

    def of_step(self, key: str, position: int) -> np.ndarray:
        """Return an entry of a track, such as "value", at a position."""
        episode, step = self.at(position)
        return episode.track[key][episode.start + step, self.agent]

    def influence(self, position: int) -> np.ndarray:
        """Return the influence on the action of the present observation, and of those 1, 2, ... steps earlier."""
        episode, step = self.at(position)
        return _influence(self.data, episode, self.agent)[step]

    def strongest_past(self, position: int) -> tuple[int, float] | None:
        """Return how many steps ago the past observation was that moved the action most, and its influence."""
        past = self.influence(position)[1:]
        if not past.size or past.max() < self.data["smallest_influence"]:
            return None
        return int(past.argmax()) + 1, float(past.max())

    def earlier(self, position: int, back: int) -> tuple[Episode, int]:
        """Return the episode and the step in it `back` steps before a position: an earlier episode with lifetime memory."""
        episode, step = self.at(position)
        at = episode.start + step - back
        found = (other for other in _episodes(self.data) if other.track is episode.track)
        return next((other, at - other.start) for other in found if other.start <= at < other.start + other.length)

    def position_of(self, episode: Episode, step: int) -> int | None:
        """Return the position of a step; None if it is not shown."""
        for start, shown in zip(self.starts, self.episodes, strict=True):
            if shown.number == episode.number and step < shown.length:
                return start + step
        return None

    @cached_property
    def decisive(self) -> list[int]:
        """Return one position per episode: where a past observation moved the action most."""
        return [
            start + decisive_step(self.data, episode, self.agent)
            for start, episode in zip(self.starts, self.episodes, strict=True)
        ]


def decisive_step(data: dict[str, Any], episode: Episode, agent: int) -> int:
    """Return the step of an episode at which a past observation moved the action most."""
    return int(_influence(data, episode, agent)[:, 1:].max(-1, initial=0).argmax())


def opening(data: dict[str, Any]) -> dict[str, int]:
    """Return where a page opens: at the step of the first episode at which the past moved the action most."""
    first = _episodes(data)[0]
    return {"track": 0, "step": first.start + decisive_step(data, first, 0), "agent": 0}


def _influence(data: dict[str, Any], episode: Episode, agent: int) -> np.ndarray:
    """Return the influence [steps of the episode, lookback] of earlier observations; 0 of those that memory cannot hold."""
    rows = slice(episode.start, episode.start + episode.length)
    found = episode.track["influence"][rows, agent] / 255
    kept = np.arange(episode.length) + (episode.start if data["memory_scope"] == "lifetime" else 0)
    measured = np.arange(found.shape[-1]) <= kept[:, None]
    played = episode.track["valid"][rows, agent] > 0
    return found * measured * played[:, None]


def select(data: dict[str, Any], agent: int = 0, episode: int | None = None, whole: bool = False) -> Selection:
    """Return what to show of a page's data: one episode, or the first and one in which the agent decides otherwise.

    whole: also show the end of episodes in which the agent does nothing anymore.
    """
    check_agent(agent, data["tracks"][0]["agents"])
    found = _episodes(data)
    if episode is not None:
        if episode >= len(found):
            recorded = f"{len(found)} episode{'s' * (len(found) > 1)}"
            raise SettingsError(f"--episode {episode}: {recorded} recorded, counted from 0. Raise --episodes.")
        return Selection(data, [found[episode] if whole else _until_idle(data, found[episode], agent)], agent)
    first = found[0]
    short = [other for other in found[1:] if max(first.length, other.length) <= LONG]
    differs = [other for other in short if _decision(data, other, agent) != _decision(data, first, agent)]
    chosen = [first, *(differs or short)[:1]]
    return Selection(data, chosen if whole else [_until_idle(data, each, agent) for each in chosen], agent)


def check_agent(agent: int, agents: int) -> None:
    """Raise SettingsError unless the world has this agent."""
    if agent >= agents:
        raise SettingsError(f"--agent {agent}: the world has {agents} agent{'s' * (agents > 1)}, counted from 0.")


def check_step(selection: Selection, step: int) -> int:
    """Return the position of this step of the first episode."""
    if step >= (length := selection.episodes[0].length):
        raise SettingsError(
            f"--step {step}: episode {selection.episodes[0].number} has {length} steps, counted from 0. "
            "--episode N names another one."
        )
    return step


def _episodes(data: dict[str, Any]) -> list[Episode]:
    found = []
    for track in data["tracks"]:
        for episode in track["episodes"]:
            found.append(Episode(len(found), track, episode["start"], episode["length"]))
    return found


def _until_idle(data: dict[str, Any], episode: Episode, agent: int) -> Episode:
    """Return the episode without the steps at its end in which the agent of a grid neither moves nor earns anything."""
    if data["scene"]["kind"] != "grid":
        return episode
    rows = slice(episode.start, episode.start + episode.length)
    moves = episode.track["scene"]["moves"][rows]
    changes = [any(entry[4] == agent for entry in move["objects"]) for move in moves]
    rewarded = (episode.track["reward"][rows, agent] != 0).tolist()
    busy = [step for step in range(episode.length) if changes[step] or rewarded[step]]
    last = max([*busy, decisive_step(data, episode, agent)])
    return replace(episode, length=min(episode.length, last + 2))


def _decision(data: dict[str, Any], episode: Episode, agent: int) -> list[int]:
    return episode.track["chosen"][episode.start + decisive_step(data, episode, agent), agent].tolist()
