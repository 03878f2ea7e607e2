"""`make worlds`: does it work in other people's environments? Each is trained, killed, resumed and evaluated.

A run of 2,000 steps is killed with SIGKILL in the middle and resumed. The result must be identical to that of an uninterrupted
run, unless the run itself says that the environment cannot be replayed. Then the agent plays two episodes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL
from subprocess import run

sys.path.insert(0, str(Path(__file__).parent))

from kills import digest, run_forked, run_killed

STEPS = 2000
WORDS = [
    f"trainer.total_timesteps={STEPS}",
    "trainer.horizon=16",
    "trainer.update_epochs=1",
    "trainer.checkpoint_interval=2",
]
WORDS += ["progress=off", "trainer.threads=1", "env.num_envs=4"]
LONGEST = 20_000  # steps of an episode that is evaluated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only worlds whose name contains this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of worlds at a time")
    parser.add_argument("--write", type=Path, help="also write the table to this Markdown file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(try_world(options.one)))
        return
    names = [name for name in worlds() if options.only in name]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = []
        for name, row in zip(names, pool.map(in_own_process, names), strict=True):
            rows.append((name, *row))
            print(f"{name:52}", *(f"{cell:>20}" for cell in row[:-1]), row[-1], flush=True)
    passed = sum(row[1:4] == ("trained", "identical", "evaluated") for row in rows)
    closing = f"{passed} of {len(rows)} trained, resumed bit for bit and evaluated"
    if options.write:
        head = (
            "| world | observation -> action | training | resume after a kill | evaluation |\n|---|---|---|---|---|\n"
        )
        lines = [f"| `{name}` | {spaces} | {' | '.join(cells)} |" for name, *cells, spaces in rows]
        options.write.write_text(f"{head}{chr(10).join(lines)}\n\n{closing}.\n", "utf-8")
    print(closing)
    raise SystemExit(passed != len(rows))


def worlds() -> list[str]:
    """Return the words after `env=`, taken from the registries of the installed packages."""
    import gymnasium
    import minigrid  # noqa: F401  (registers its environments)
    import popgym  # noqa: F401

    families = ("popgym-", "MiniGrid-Memory", "MiniGrid-DoorKey", "MiniGrid-RedBlueDoors", "BabyAI-GoTo")
    found = [name for family in families for name in gymnasium.registry if name.startswith(family)]
    found += ["Blackjack-v1", "Taxi-v4", "FrozenLake-v1", "ALE/Pong-v5", "HalfCheetah-v5"]
    games = ["mpe2.simple_spread_v3", "pettingzoo.classic.tictactoe_v3"]
    return [f"gym:{name}" for name in found] + [f"pettingzoo:{name}" for name in games]


def in_own_process(name: str) -> tuple[str, ...]:
    """A process per world: some packages change global state when they are imported."""
    done = run([sys.executable, __file__, "--one", name], capture_output=True, text=True)
    try:
        return tuple(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return ("failed", "", "", (done.stderr.strip().splitlines() or ["no message"])[-1])


def try_world(name: str) -> tuple[str, str, str, str]:
    """Return the outcome of training, of resuming and of evaluating, and the spaces of the world."""
    from holdfast.config import load_settings
    from holdfast.evaluate import evaluate_run
    from holdfast.trainer import train

    with tempfile.TemporaryDirectory() as folder:
        words = [f"env={name}", *WORDS, f"runs_dir={folder}"]
        spec = load_settings(words).env.describe()
        spaces = f"{_short(spec.obs)} -> {_short(spec.actions)}"

        def forked(work: Callable[[], object]) -> bool:
            return run_forked(work) == 0

        if not forked(lambda: train(load_settings([*words, "run=whole"]))):
            return "failed", "", "", spaces
        killed = run_forked(lambda: run_killed(words, "cut", "rollout", 18)) == -SIGKILL
        resumed = killed and forked(lambda: train(load_settings([*words, "run=cut"])))
        same = resumed and digest(Path(folder, "cut")) == digest(Path(folder, "whole"))
        exact = json.loads(Path(folder, "cut", "summary.json").read_text())["exact"] if resumed else False
        outcome = "identical" if same else "not replayable" if resumed and not exact else "differs"
        env = load_settings(words).env
        played = forked(lambda: evaluate_run(Path(folder, "whole"), 2, max_steps=LONGEST, env=env))
        return "trained", outcome, "evaluated" if played else "failed", spaces


def _short(spec: object) -> str:
    kind, shape = type(spec).__name__, list(getattr(spec, "shape", ()))
    return f"{kind}{shape or ''}"


if __name__ == "__main__":
    main()
