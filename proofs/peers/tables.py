"""The tables of docs/speed.md, from the figures of `make bench-peers`."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"
GOALS = {
    ("holdfast", "goal"): "Holdfast, `settings=cartpole_no_velocity`",
    ("sb3", "goal-zoo"): "RecurrentPPO, the RL Zoo's settings",
    ("sb3", "goal"): "RecurrentPPO, its defaults",
}
Rows = list[dict[str, Any]]


def make_tables(result: dict[str, Any], titles: dict[str, str]) -> str:
    """Markdown of what was measured: seconds to 450, steps per second, versions."""
    rows: Rows = result["rows"]
    parts = [goal_table(rows), speed_table(rows, titles), failures(rows, titles), versions(result)]
    return "\n\n".join(part for part in parts if part)


def goal_table(rows: Rows) -> str:
    by_side = {side: [r for r in rows if (r["peer"], r["task"]) == side and "failed" not in r] for side in GOALS}
    by_side = {side: measured for side, measured in by_side.items() if measured}
    if not by_side:
        return ""
    ours = by_side.get(("holdfast", "goal"), [])
    lines = ["| settings | training seconds to 450, by seed | steps | time, in Holdfast's |", "|---|---|---|---|"]
    for side, measured in by_side.items():
        seconds = " / ".join(f"{r['seconds']:.1f}" if r["reached"] else f"not in {r['seconds']:.0f}" for r in measured)
        steps = " / ".join(f"{r['steps']:,}" for r in measured)
        lines.append(f"| {GOALS[side]} | {seconds} | {steps} | {goal_ratio(measured, ours)} |")
    return "\n".join(lines)


def goal_ratio(measured: Rows, ours: Rows) -> str:
    """Median seconds by Holdfast's; a lower bound where a seed has not reached the goal."""
    if not ours or not all(r["reached"] for r in ours):
        return ""
    ratio = statistics.median(r["seconds"] for r in measured) / statistics.median(r["seconds"] for r in ours)
    return f"{'' if all(r['reached'] for r in measured) else 'at least '}{ratio:.1f}x"


def speed_table(rows: Rows, titles: dict[str, str]) -> str:
    """Median steps/s over seeds, and in brackets Holdfast's steps/s by it (median over seeds)."""
    rows = [r for r in rows if r["task"] == "speed"]
    if not rows:
        return ""
    speeds: dict[tuple[str, int, int], float] = {
        (r["peer"], r["envs"], r["seed"]): r["steps_per_s"] for r in rows if "failed" not in r
    }
    counts = sorted({r["envs"] for r in rows})
    names = [name for name in titles if any(r["peer"] == name for r in rows)]
    lines = ["| | " + " | ".join(f"{n} environments" for n in counts) + " |", "|---" * (len(counts) + 1) + "|"]
    for name in names:
        cells = []
        for envs in counts:
            seeds = [s for peer, n, s in speeds if (peer, n) == (name, envs)]
            own = [speeds[name, envs, s] for s in seeds]
            ratios = [ours / speeds[name, envs, s] for s in seeds if (ours := speeds.get(("holdfast", envs, s)))]
            cell = f"{statistics.median(own):,.0f}" if own else "did not run"
            if ratios and name != "holdfast":
                cell += f" ({statistics.median(ratios):.2f}x; {min(ratios):.2f} to {max(ratios):.2f})"
            cells.append(cell)
        lines.append(f"| {titles[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def failures(rows: Rows, titles: dict[str, str]) -> str:
    reasons = {(r["peer"], r["envs"], r["failed"]): None for r in rows if "failed" in r}
    return "\n".join(f"- {titles[peer]} at {envs} environments: {reason}" for peer, envs, reason in reasons)


def versions(result: dict[str, Any]) -> str:
    found: dict[str, str] = {}
    for row in result["rows"]:
        found |= {
            name: v for name, v in row.get("versions", {}).items() if name != "gymnasium" or row["peer"] == "holdfast"
        }
    compiled = [row["compile_seconds"] for row in result["rows"] if "compile_seconds" in row]
    text = f"{result['machine']}; {', '.join(f'{name} {version}' for name, version in found.items())}."
    if compiled:
        text += f" Compiling the JAX program took {min(compiled):.0f} to {max(compiled):.0f} s, which are not counted."
    return text


def write_page(page: Path, text: str) -> None:
    """Replace what is between the two marks of the page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{page} has no {BEGIN} ... {END}: the tables were not written")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
