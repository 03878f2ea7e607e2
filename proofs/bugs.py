"""`make bugs`: what state bugs cost. Trains the correct policy and the broken ones of examples/ on the quick start.

Writes docs/bugs/curves.json, one picture per bug beside it, and the figures of docs/bugs.md.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import dropwhile, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from curves import Runs, picture

from holdfast.audit import Report, audit, subject_from_settings
from holdfast.config import load_settings
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train
from holdfast.user_code import load_file

ROOT = Path(__file__).parents[1]
POLICIES = ROOT / "examples" / "broken_policies.py"
PICTURES = ROOT / "docs" / "bugs"
CURVES = PICTURES / "curves.json"
PAGE = ROOT / "docs" / "bugs.md"
RIGHT, GOAL, CHANCE = "Fast", 0.9, 0.5
# The quick start as it is; and with segments shorter than its episodes, in batches of the same size.
STUDIES = {
    "segments of 16 steps": ["settings=quickstart"],
    "segments of 8 steps": ["settings=quickstart", "trainer.horizon=8", "env.num_envs=16"],
}

Run = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="broken policies to train again, next to the correct one (default: all)"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--draw", action="store_true", help="train nothing: update pictures and figures from the last run"
    )
    options = parser.parse_args()
    broken = {kind.__name__: kind for kind in load_file(str(POLICIES), "bugs").BROKEN}
    if not options.draw:
        measure([RIGHT, *(options.names or broken)], options.seeds, options.processes)
    runs_of: dict[str, Runs] = json.loads(CURVES.read_text())
    for name in next(iter(runs_of.values())).keys() - {RIGHT}:
        (PICTURES / f"{name}.svg").write_text(picture(name, RIGHT, runs_of))
    write_page(runs_of, broken)


# ---------------------------------------------------------------------------------------------------- measuring


def measure(names: list[str], num_seeds: int, processes: int) -> None:
    """Train each policy with each seed, on one thread per run, and replace the curves of these policies."""
    jobs = [(study, name, seed) for study in STUDIES for seed in range(num_seeds) for name in names]
    runs_of: dict[str, Runs] = {study: {name: [] for name in names} for study in STUDIES}
    PICTURES.mkdir(exist_ok=True)
    # Spawned, because torch's threads do not survive a fork.
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        runs = pool.map(learn, *zip(*jobs, strict=True), repeat(folder))
        for (study, name, seed), run in zip(jobs, runs, strict=True):
            runs_of[study][name].append(run)
            reached = f"{run['steps_to_goal']:,}" if run["steps_to_goal"] else "never"
            print(f"{study}  {name:20} seed {seed}  return {run['return_last']:.2f}  {GOAL} at {reached}", flush=True)
    before: dict[str, Runs] = json.loads(CURVES.read_text()) if CURVES.exists() else {}
    merged = {study: before.get(study, {}) | runs for study, runs in runs_of.items()}
    CURVES.write_text(json.dumps(merged) + "\n")


def word_of(name: str) -> str:
    return "py_agent=fast" if name == RIGHT else f"py_agent={POLICIES}:{name}"


def learn(study: str, name: str, seed: int, folder: str) -> Run:
    """Train one run and summarise its metrics.jsonl."""
    words = [*STUDIES[study], word_of(name), f"seed={seed}", "trainer.threads=1", "audit=off", "progress=off"]
    words += [f"runs_dir={folder}", f"run={name}-{list(STUDIES).index(study)}-{seed}"]
    rows = read_metrics(train(load_settings(words)).run)
    late = dropwhile(lambda row: row["episodes"] < 100 or row["episode_return"] < GOAL, rows)
    since = [(row["agent_steps"], row["episode_return"]) for row in late]
    shown = rows[:: max(1, len(rows) // 65)] + rows[-1:]
    return {
        "seed": seed,
        "steps_to_goal": since[0][0] if since else None,
        "lowest_since": min(value for _, value in since) if since else None,
        "return_last": rows[-1]["episode_return"],
        "parity_first": rows[0]["parity_max_abs_logratio"],
        "parity_largest": max(row["parity_max_abs_logratio"] for row in rows),
        "entropy_last": rows[-1]["entropy"],
        "kl_mean": sum(row["approx_kl"] for row in rows) / len(rows),
        "clip_fraction_mean": sum(row["clip_fraction"] for row in rows) / len(rows),
        "steps": [row["agent_steps"] for row in shown],
        "returns": [round(row["episode_return"] or 0.0, 3) for row in shown],
    }


# ------------------------------------------------------------------------------------------------- into the page


def write_page(runs_of: dict[str, Runs], broken: dict[str, Any]) -> None:
    """Write the figures of docs/bugs.md: two tables, and in each section what the bug cost and what the auditor finds."""
    names = lowest_first(runs_of)
    page = PAGE.read_text(encoding="utf-8")
    page = replaced(page, r"\| bug \| seen (?:at|in) .*\n(\|.*\n)*", costs_table(names, runs_of, broken))
    page = replaced(page, r"\| +\| parity, first .*\n(\|.*\n)*", metrics_table(names, next(iter(runs_of.values()))))
    for name, kind in broken.items():
        if name not in names:
            continue
        head, section, rest = split_section(page, name)
        section = replaced(section, r"^(?:Return at the end|Final return) .*\n", cost_of(name, runs_of))
        section = replaced(section, r"^`\w+` (finds it|fails): .*\n", audit_of(kind))
        page = head + section + rest
    PAGE.write_text(page, encoding="utf-8")


def lowest_first(runs_of: dict[str, Runs]) -> list[str]:
    """Return the correct policy, then the others by their mean final return."""

    def rank(name: str) -> tuple[bool, float]:
        return name != RIGHT, sum(run["return_last"] for runs in runs_of.values() for run in runs[name])

    return sorted(next(iter(runs_of.values())), key=rank)


def costs_table(names: list[str], runs_of: dict[str, Runs], broken: dict[str, Any]) -> str:
    columns = [f"{study}: {what}" for study in runs_of for what in ("final return", "steps to 0.9")]
    lines = [f"| bug | seen in | {' | '.join(columns)} | fell back | check |", "|---" * (len(columns) + 4) + "|"]
    for name in names:
        bug = broken.get(name)
        title, seen, check = (
            (f"[{name}](#{name.lower()})", bug.seen, f"`{bug.caught_by}`") if bug else (f"none: `{name}`", "", "")
        )
        figures = [
            each(runs[name], key, form)
            for runs in runs_of.values()
            for key, form in (("return_last", ".2f"), ("steps_to_goal", ","))
        ]
        lines.append(f"| {title} | {seen} | {' | '.join(figures)} | {fell_back(name, runs_of)} | {check} |")
    return "\n".join(lines) + "\n"


def fell_back(name: str, runs_of: dict[str, Runs]) -> str:
    """Count the runs that fell below chance after they had reached the goal."""
    lows = [run["lowest_since"] for runs in runs_of.values() for run in runs[name] if run["lowest_since"] is not None]
    return f"{sum(low < CHANCE for low in lows)} of {len(lows)}" if lows else "-"


def metrics_table(names: list[str], runs: Runs) -> str:
    columns = {
        "parity, first update": ("parity_first", ".0e"),
        "largest in the run": ("parity_largest", ".0e"),
        "final entropy": ("entropy_last", ".2f"),
        "mean `approx_kl`": ("kl_mean", ".4f"),
        "mean `clip_fraction`": ("clip_fraction_mean", ".3f"),
    }
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in names:
        figures = [each(runs[name], key, form) for key, form in columns.values()]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def cost_of(name: str, runs_of: dict[str, Runs]) -> str:
    parts = []
    for study, runs in runs_of.items():
        said = f"with {study} {each(runs[name], 'return_last', '.2f')}"
        lows = [run["lowest_since"] for run in runs[name] if run["lowest_since"] is not None]
        if lows and min(lows) < CHANCE:
            said += f" (down to {min(lows):.2f} after it had reached {GOAL})"
        parts.append(said)
    return f"Final return {', '.join(parts)}.\n"


def audit_of(kind: Any) -> str:
    """Audit a broken policy before any training."""
    return describe_audit(
        kind, audit(subject_from_settings(load_settings([word_of(kind.__name__), "settings=quickstart"])))
    )


def describe_audit(kind: Any, report: Report) -> str:
    """Return the evidence of the bug's own check, and the number of other checks that fail."""
    said = next(found.evidence for found in report.failures if found.check.name == kind.caught_by)
    others = len(report.failures) - 1
    more = {0: "No other check fails", 1: "1 other check fails"}.get(others, f"{others} other checks fail")
    like = f" Reported as {' or '.join(bug.name for bug in report.known_bugs)}." if report.known_bugs else ""
    return f"`{kind.caught_by}` fails: {said}. {more}.{like}\n"


def each(runs: list[Run], key: str, form: str) -> str:
    """One figure per seed."""
    return ", ".join("never" if run[key] is None else format(run[key], form) for run in runs)


def split_section(page: str, name: str) -> tuple[str, str, str]:
    head, title, rest = page.partition(f"### {name}\n")
    end = re.search(r"^##", rest, re.MULTILINE)
    cut = end.start() if end else len(rest)
    return head + title, rest[:cut], rest[cut:]


def replaced(text: str, pattern: str, new: str) -> str:
    found, number = re.subn(pattern, lambda _: new, text, flags=re.MULTILINE)
    if number != 1:
        raise SystemExit(f"docs/bugs.md has {number} places that match {pattern}; it needs exactly one.")
    return found


if __name__ == "__main__":
    main()
