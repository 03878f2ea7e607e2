"""Draw learning curves as SVG."""

from __future__ import annotations

from typing import Any

Runs = dict[str, list[dict[str, Any]]]  # by policy, a run per seed: its `steps` and `returns`

PANEL, HEIGHT, LEFT, TOP, RIGHT_EDGE, BOTTOM = 440, 270, 52, 46, 412, 224
STYLE = """
  text { font: 12px sans-serif; fill: #444 } .grid { stroke: #8884; stroke-width: 1 }
  polyline { fill: none; stroke-width: 2.5 } .seed { stroke-width: 1; opacity: 0.45 }
  .right { stroke: #1a7f5a } .broken { stroke: #c2410c }
  @media (prefers-color-scheme: dark) { text { fill: #bbb } .right { stroke: #4cc38a } .broken { stroke: #ff8b4d } }
"""


def picture(name: str, right: str, runs_of: dict[str, Runs]) -> str:
    """Return an SVG with the curves of a policy and of the correct one, a panel per study."""
    panels = [
        f'<g transform="translate({i * PANEL} 0)">\n{panel(name, right, study, runs)}\n</g>'
        for i, (study, runs) in enumerate(runs_of.items())
    ]
    legend = [
        f'<polyline class="{kind}" points="{x},12 {x + 22},12"/><text x="{x + 28}" y="16">{label}</text>'
        for x, kind, label in ((LEFT, "right", right), (LEFT + 90, "broken", name))
    ]
    title = f"Mean return over agent steps: {right} and {name}"
    size = f'viewBox="0 0 {PANEL * len(panels)} {HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">'
    body = "\n".join([*legend, *panels])
    return f"{head}\n<style>{STYLE}</style>\n{body}\n</svg>\n"


def panel(name: str, right: str, study: str, runs: Runs) -> str:
    """Draw mean return over steps of both policies: a thin line per seed and a thick one for the mean."""
    most = max(runs[right][0]["steps"])

    def line(kind: str, steps: list[int], returns: list[float]) -> str:
        places = (place(step, value, most) for step, value in zip(steps, returns, strict=True))
        return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'

    parts = axes(study, most)
    for kind, shown in (("right", runs[right]), ("broken", runs[name])):
        if len(shown) > 1:
            parts += [line(f"{kind} seed", run["steps"], run["returns"]) for run in shown]
        means = [sum(values) / len(values) for values in zip(*(run["returns"] for run in shown), strict=True)]
        parts.append(line(kind, shown[0]["steps"], means))
    return "\n".join(parts)


def place(step: float, value: float, most: int) -> tuple[float, float]:
    """Return the position of a step and a return (0 to 1) in a panel."""
    return LEFT + (RIGHT_EDGE - LEFT) * step / most, BOTTOM - (BOTTOM - TOP) * value


def axes(study: str, most: int) -> list[str]:
    parts = []
    for value in (0.0, 0.5, 1.0):
        _, y = place(0, value, most)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{RIGHT_EDGE}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:.1f}</text>')
    for step in range(0, most + 1, 50_000):
        x, _ = place(step, 0, most)
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{step:,}</text>')
    across, down = (LEFT + RIGHT_EDGE) / 2, (TOP + BOTTOM) / 2
    parts.append(f'<text x="{across}" y="{TOP - 10}" text-anchor="middle">{study}</text>')
    parts.append(f'<text x="{across}" y="{BOTTOM + 38}" text-anchor="middle">agent steps</text>')
    turned = f'transform="rotate(-90 14 {down})" text-anchor="middle"'
    return [*parts, f'<text x="14" y="{down}" {turned}>mean return</text>']
