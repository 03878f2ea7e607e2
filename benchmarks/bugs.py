"""`make bugs`: what state bugs cost. Trains the right policy and the broken ones of examples/ on the quick start.

Writes docs/bugs/curves.json and one picture per bug beside it, and prints the tables of docs/bugs.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from holdfast.audit import audit, subject_of
from holdfast.config import load_settings
from holdfast.policies.registry import load_file
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train

ROOT = Path(__file__).parents[1]
POLICIES = ROOT / "examples" / "broken_policies.py"
PICTURES = ROOT / "docs" / "bugs"
CURVES = PICTURES / "curves.json"
RIGHT, GOAL = "Fast", 0.9
# The quick start, cut short: the right policy reaches 0.9 at 21,504 and 37,888 steps with seeds 0 and 1.
WORDS = ["settings=quickstart", "trainer.total_timesteps=60_000"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="broken policies to train beside the right one (all by default)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--draw", action="store_true", help="train nothing: pictures and tables of the last run")
    options = parser.parse_args()
    broken = {kind.__name__: kind for kind in load_file(str(POLICIES), "bugs").BROKEN}
    if not options.draw:
        measure(options.names or list(broken), options.seeds)
    runs = json.loads(CURVES.read_text())
    for name in runs.keys() - {RIGHT}:
        draw(name, runs)
    print_tables(runs, broken)
    print_audits([broken[name] for name in runs if name != RIGHT])


# ---------------------------------------------------------------------------------------------------- measuring


def measure(names: list[str], num_seeds: int) -> None:
    """Train each with each seed; the curves so far are written after every run."""
    runs: dict[str, list[dict[str, Any]]] = {}
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(num_seeds):
            for name in [RIGHT, *names]:
                run = learn(name, seed, folder)
                runs.setdefault(name, []).append(run)
                CURVES.write_text(json.dumps(runs) + "\n")
                reached = f"{run['steps_to_goal']:,}" if run["steps_to_goal"] else "never"
                print(f"{name:20} seed {seed}  return {run['returns'][-1]:.2f}  {GOAL} at {reached}", flush=True)


def word_of(name: str) -> str:
    return "py_agent=fast" if name == RIGHT else f"py_agent={POLICIES}:{name}"


def learn(name: str, seed: int, folder: str) -> dict[str, Any]:
    """One whole run, as the columns of its metrics.jsonl show it."""
    words = [word_of(name), *WORDS, f"seed={seed}", "trainer.threads=1", "audit=off", "progress=off"]
    words += [f"runs_dir={folder}", f"run={name}-{seed}"]
    rows = read_metrics(train(load_settings(words)).run)
    there = next((row for row in rows if row["episodes"] >= 100 and row["episode_return"] >= GOAL), None)
    return {
        "seed": seed,
        "steps_to_goal": there["agent_steps"] if there else None,
        "parity_first": rows[0]["parity_max_abs_logratio"],
        "parity_largest": max(row["parity_max_abs_logratio"] for row in rows),
        "entropy_last": rows[-1]["entropy"],
        "kl_mean": sum(row["approx_kl"] for row in rows) / len(rows),
        "clip_fraction_mean": sum(row["clip_fraction"] for row in rows) / len(rows),
        "steps": [row["agent_steps"] for row in rows],
        "returns": [round(row["episode_return"] or 0.0, 3) for row in rows],
    }


def print_tables(runs_of: dict[str, list[dict[str, Any]]], broken: dict[str, Any]) -> None:
    """In Markdown, as docs/bugs.md has them."""
    print("\n| bug | seen at | return at the end | steps to 0.9 | check |\n|---|---|---|---|---|")
    for name, runs in runs_of.items():
        returns = ", ".join(f"{run['returns'][-1]:.2f}" for run in runs)
        steps = ", ".join(f"{run['steps_to_goal']:,}" if run["steps_to_goal"] else "never" for run in runs)
        bug = broken.get(name)
        print(f"| {name} | {bug.seen if bug else ''} | {returns} | {steps} | {bug.caught_by if bug else ''} |")
    print("\n| | parity, first update | largest | entropy at the end | mean kl | mean clip fraction |")
    print("|---|---|---|---|---|---|")
    for name, runs in runs_of.items():
        cells = [
            ", ".join(format(run[key], form) for run in runs)
            for key, form in (
                ("parity_first", ".0e"),
                ("parity_largest", ".0e"),
                ("entropy_last", ".2f"),
                ("kl_mean", ".4f"),
                ("clip_fraction_mean", ".3f"),
            )
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def print_audits(kinds: list[Any]) -> None:
    """What the auditor says of each before any training: how many checks fail, and the evidence of the one that names it."""
    for kind in kinds:
        failures = audit(subject_of(load_settings([word_of(kind.__name__), "settings=quickstart"]))).failures
        said = next((found.evidence for found in failures if found.check.name == kind.caught_by), "NOT CAUGHT")
        print(f"\n{kind.__name__}: {len(failures)} checks fail\n{kind.caught_by}  {said}", flush=True)


# ------------------------------------------------------------------------------------------------------ drawing

WIDTH, HEIGHT, LEFT, TOP, RIGHT_EDGE, BOTTOM = 560, 260, 52, 30, 530, 214
STYLE = """
  text { font: 12px sans-serif; fill: #444 } .grid { stroke: #8884; stroke-width: 1 }
  polyline { fill: none; stroke-width: 2.5 } .seed { stroke-width: 1; opacity: 0.45 }
  .right { stroke: #1a7f5a } .broken { stroke: #c2410c }
  @media (prefers-color-scheme: dark) { text { fill: #bbb } .right { stroke: #4cc38a } .broken { stroke: #ff8b4d } }
"""


def draw(name: str, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Mean return over steps, right and broken: a thin line per seed and a thick one for their mean."""
    most = max(runs[RIGHT][0]["steps"])

    def line(kind: str, steps: list[int], returns: list[float]) -> str:
        places = (place(step, value, most) for step, value in zip(steps, returns, strict=True))
        return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'

    parts = [*axes(most)]
    for kind, shown in (("right", runs[RIGHT]), ("broken", runs[name])):
        if len(shown) > 1:
            parts += [line(f"{kind} seed", run["steps"], run["returns"]) for run in shown]
        means = [sum(values) / len(values) for values in zip(*(run["returns"] for run in shown), strict=True)]
        parts.append(line(kind, shown[0]["steps"], means))
    for x, kind, label in ((LEFT, "right", RIGHT), (LEFT + 90, "broken", name)):
        parts.append(f'<polyline class="{kind}" points="{x},14 {x + 22},14"/><text x="{x + 28}" y="18">{label}</text>')
    body = "\n".join(parts)
    title = f"Mean return over agent steps: {RIGHT} and {name}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    (PICTURES / f"{name}.svg").write_text(f"{head}\n<style>{STYLE}</style>\n{body}\n</svg>\n")


def place(step: float, value: float, most: int) -> tuple[float, float]:
    """Where a step and a return (0 to 1) are in the picture."""
    return LEFT + (RIGHT_EDGE - LEFT) * step / most, BOTTOM - (BOTTOM - TOP) * value


def axes(most: int) -> list[str]:
    parts = []
    for value in (0.0, 0.5, 1.0):
        _, y = place(0, value, most)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{RIGHT_EDGE}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:.1f}</text>')
    for step in range(0, most + 1, 20_000):
        x, _ = place(step, 0, most)
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{step:,}</text>')
    middle = (TOP + BOTTOM) / 2
    parts.append(f'<text x="{(LEFT + RIGHT_EDGE) / 2}" y="{BOTTOM + 38}" text-anchor="middle">agent steps</text>')
    turned = f'transform="rotate(-90 14 {middle})" text-anchor="middle"'
    return [*parts, f'<text x="14" y="{middle}" {turned}>mean return</text>']


if __name__ == "__main__":
    main()
