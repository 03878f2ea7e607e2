"""`make view-proof`: what `holdfast view` shows is right, its pages are small, and scrubbing is fast.

Trains the quick start and CartPole, or takes a folder with them; needs Chromium and playwright, as the tests of the pages do.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.config import load_run_world, load_settings
from holdfast.deploy.loading import load_agent_for_world
from holdfast.evaluate import certify
from holdfast.runs.folder import CONFIG
from holdfast.trainer import train
from holdfast.view.influence import influences, lookback_of
from holdfast.view.page import render_page
from holdfast.view.recording import record
from holdfast.view.run_page import see_run
from support.chromium import find_chromium, launch

EPISODES = 100
CARTPOLE = ["env=gym:CartPole-v1", "trainer.total_timesteps=100_000", "audit=off"]
SEEKS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="folder for the runs; those that are there are not trained again")
    parser.add_argument("--seeds", type=int, default=3, help="of CartPole")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = options.runs or Path(folder)
        maze = trained(runs, "maze", ["settings=quickstart"])
        figures: dict[str, Any] = {"cue": cue(maze), "maze": certified(maze), "page": page(maze, Path(folder))}
        figures["cartpole"] = [
            certified(trained(runs, f"cartpole-{seed}", [*CARTPOLE, f"seed={seed}"])) for seed in range(options.seeds)
        ]
    maze_found, shown = figures["maze"], figures["page"]
    checks = {
        "the largest past influence on the rewarded action is the cue's, >= 95%": figures["cue"]["share"] >= 0.95,
        "the maze's certificate: intact >= 0.95": maze_found["intact"] >= 0.95,
        "the maze's certificate: wiped <= 0.6": maze_found["wiped"] <= 0.6,
        "the curve jumps where the cue is": maze_found["needs_steps"] == figures["cue"]["steps_back"],
        "CartPole: memory is not needed": not any(found["needs_memory"] for found in figures["cartpole"]),
        "the page of 20 episodes: made in < 30 s": shown["seconds"] < 30,
        "the page: < 10 MB": shown["bytes"] < 10e6,
        "the page: first paint < 1 s": shown["first_paint_ms"] < 1000,
        "scrubbing: >= 30 frames per second": shown["frames_per_second"] >= 30,
    }
    print(json.dumps(figures, indent=1))
    for what, met in checks.items():
        print(f"{'met   ' if met else 'MISSED'}  {what}")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "checks": checks}, indent=1) + "\n")
    sys.exit(0 if all(checks.values()) else 1)


def trained(runs: Path, name: str, words: list[str]) -> Path:
    if not (runs / name / "summary.json").exists():
        train(load_settings([*words, f"run={name}", f"runs_dir={runs}", "progress=off"]))
    return runs / name


def cue(run: Path) -> dict:
    """Return in how many episodes the cue is the past observation that decided the rewarded action."""
    env = load_run_world(run / CONFIG)
    policy = load_agent_for_world(run, env)[0].policy
    recording = record(policy, env, EPISODES)
    found, steps_back = [], []
    moved = influences(policy, recording, lookback_of(recording, policy))
    for track, influence in zip(recording.tracks, moved, strict=True):
        for episode in track.episodes:
            for agent in range(track.agents):
                steps = slice(episode.start, episode.start + episode.length)
                decision = int(track.rewards[steps, agent].argmax())  # the cue is the episode's first observation
                past = influence[episode.start + decision, agent, 1:]
                found.append(int(past.argmax()) + 1 == decision)
                steps_back.append(decision)
    return {"episodes": len(found), "share": float(np.mean(found)), "steps_back": int(np.median(steps_back))}


def certified(run: Path) -> dict:
    env = load_run_world(run / CONFIG)
    found = certify(load_agent_for_world(run, env)[0].policy, env, EPISODES)
    means = {name: getattr(found, name).mean for name in ("intact", "wiped", "frozen", "swapped", "averaged")}
    curve = {point.steps: point.mean for point in found.steps_back}
    imitation = None if found.imitation is None else found.imitation.mean
    return {
        **means,
        "imitation": imitation,
        "curve": curve,
        "needs_memory": found.needs_memory,
        "needs_steps": found.needs_steps,
    }


def page(run: Path, folder: Path) -> dict:
    """Make the page of 20 episodes, and scrub through it in Chromium."""
    from playwright.sync_api import sync_playwright

    began = time.perf_counter()
    written = render_page(see_run(run, load_run_world(run / CONFIG)).data).encode()
    seconds = time.perf_counter() - began
    file = folder / "page.html"
    file.write_bytes(written)
    with sync_playwright() as playwright:
        browser = launch(playwright, find_chromium())
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(file.as_uri())
        tab.wait_for_function("() => document.documentElement.dataset.ready === '1'")
        paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        per_second = tab.evaluate(
            """async count => {
                const frame = () => new Promise(requestAnimationFrame);
                await frame();
                const began = performance.now();
                for (let i = 0; i < count; i++) { window.holdfast.seek(0, i % 50, i % 8); await frame(); }
                return 1000 * count / (performance.now() - began);
            }""",
            SEEKS,
        )
        browser.close()
    return {"seconds": seconds, "bytes": len(written), "first_paint_ms": paint, "frames_per_second": per_second}


if __name__ == "__main__":
    main()
