"""An audit as one self-contained HTML page: verdict, failures, dependency maps, all checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from torch import Tensor

from holdfast.audit.audit import Report
from holdfast.audit.dependence import DependencyMap
from holdfast.audit.findings import NO_GRADIENT, SAME, excuses_call
from holdfast.audit.script import ACT, SEQUENCE, STEP
from holdfast.audit.subject import ACROSS_EPISODES, DEVIATIONS

# Names and evidence come from other people's code, so everything is escaped.
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
KINDS = {
    "changes": (
        "What moves when an input changes",
        "Each input was changed, one at a time. A cell shows how far the output of its column moved, relative to its size "
        f"if that is above 1. Differences up to {SAME:.0e} do not count.",
    ),
    "gradients": (
        "What has a gradient",
        "Each output was differentiated by each input. A cell shows the largest gradient between the two. "
        f"Gradients up to {NO_GRADIENT:.0e} of the largest allowed one do not count.",
    ),
}
FORMS = {
    STEP: "one step at a time, with the state as argument and result",
    SEQUENCE: "one call for all steps, as in learning",
    ACT: "one step at a time, from the policy's own memory",
}
CELL = 16  # SVG units, like all sizes below; the template draws its symbols for this size
LEFT, TOP, REST = 96, 66, 8  # margins; the first two hold labels
MIN_OPACITY = 0.3  # of the weakest dependence, to tell it from none


def report_page(report: Report) -> str:
    """Render the page."""
    return TEMPLATES.get_template("page.html.j2").render(
        report=report,
        counts=[(number, verdict) for verdict, number in report.counts().items() if number],
        declared=[(name, DEVIATIONS[name]) for name in sorted(report.declared)],
        galleries=_galleries(report),
    )


# -------------------------------------------------------------------------------------------------------- pictures


@dataclass(frozen=True)
class Cell:
    """One square. kind: depends | unused | forbidden | declared | unmeasured. Empty squares have no Cell."""

    kind: str
    x: int
    y: int
    strength: float  # opacity
    text: str


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str
    starts: bool = False  # an episode starts at this step


@dataclass(frozen=True)
class Picture:
    """The layout of a dependency map: rows are inputs, columns are outputs, both slot by slot."""

    kind: str
    form: str
    about: str  # describes the form
    width: int
    height: int
    cells: list[Cell]
    rows: list[Label]
    columns: list[Label]
    row_slots: list[Label]
    column_slots: list[Label]
    grid: str  # SVG paths: the squares, the lines between slots, and those between episodes of a slot
    slots: str
    episodes: str
    sentences: list[str]

    @property
    def title(self) -> str:
        return f"{self.kind}, {self.form}"


def picture(found: DependencyMap, declared: frozenset[str]) -> Picture:
    """Compute the layout of a map."""
    T, B = found.first.shape
    masks = kinds_of_cells(found, declared)
    starts = found.first.bool().tolist()
    return Picture(
        kind=found.kind,
        form=found.form,
        about=FORMS.get(found.form, ""),
        width=LEFT + B * T * CELL + REST,
        height=TOP + B * (T + 1) * CELL + REST,
        cells=_cells(found, masks),
        rows=[
            Label(LEFT - 6, _row(T, c, s) + CELL / 2, f"{s - 1}" if s else "start", s > 0 and starts[s - 1][c])
            for c in range(B)
            for s in range(T + 1)
        ],
        columns=[Label(_column(T, b, t) + CELL / 2, TOP - 9, f"{t}", starts[t][b]) for b in range(B) for t in range(T)],
        row_slots=[Label(LEFT - 44, _row(T, c, 0) + (T + 1) * CELL / 2, f"slot {c}") for c in range(B)],
        column_slots=[Label(_column(T, b, 0) + T * CELL / 2, TOP - 34, f"slot {b}") for b in range(B)],
        grid=_ruled(T, B, range(B * T + 1), range(B * (T + 1) + 1)),
        slots=_ruled(T, B, range(0, B * T + 1, T), range(0, B * (T + 1) + 1, T + 1)),
        episodes=_episode_lines(found.first),
        sentences=_sentences(found, masks, on_purpose(found, declared)),
    )


def _galleries(report: Report) -> list[tuple[str, str, list[Picture]]]:
    """Return heading, explanation and pictures of each kind of map."""
    order = list(FORMS)
    galleries = []
    for kind, (heading, about) in KINDS.items():
        found = [(form, one) for (of_kind, form), one in report.maps.items() if of_kind == kind]
        found.sort(key=lambda entry: order.index(entry[0]))
        if found:
            galleries.append((heading, about, [picture(one, report.declared) for _, one in found]))
    return galleries


def _column(T: int, b: int, t: int) -> int:
    return LEFT + (b * T + t) * CELL


def _row(T: int, c: int, s: int) -> int:
    return TOP + (c * (T + 1) + s) * CELL


def _ruled(T: int, B: int, columns: range, rows: range) -> str:
    """Return the path of vertical lines before these columns and horizontal lines before these rows."""
    down = [f"M{LEFT + i * CELL} {TOP}v{B * (T + 1) * CELL}" for i in columns]
    across = [f"M{LEFT} {TOP + i * CELL}h{B * T * CELL}" for i in rows]
    return "".join(down + across)


def _episode_lines(first: Tensor) -> str:
    """Return the path of the lines between episodes, drawn in the block where a slot meets itself."""
    T = len(first)
    lines = []
    for t, b in first.nonzero().tolist():
        lines.append(f"M{_column(T, b, t)} {_row(T, b, 0)}v{(T + 1) * CELL}")
        lines.append(f"M{_column(T, b, 0)} {_row(T, b, t + 1)}h{T * CELL}")
    return "".join(lines)


# ------------------------------------------------------------------------------------------------- what a map shows


def on_purpose(found: DependencyMap, declared: frozenset[str]) -> Tensor:
    """Return the cells [1 + T, B, T, B] that cross an episode start, if the policy declares that it does so."""
    meant = any(name in declared and excuses_call(name, found.form) for name in ACROSS_EPISODES)
    return found.across_reset if meant else torch.zeros_like(found.allowed)


def kinds_of_cells(found: DependencyMap, declared: frozenset[str]) -> dict[str, Tensor]:
    """Return disjoint masks [1 + T, B, T, B]; cells in none of them must not depend, and do not."""
    moved = found.measured & (found.size > found.limit)
    excused = on_purpose(found, declared)
    return {
        "depends": found.allowed & moved,
        "unused": found.allowed & found.measured & ~moved,
        "declared": excused & moved,
        "forbidden": ~found.allowed & ~excused & moved,
        "unmeasured": ~found.measured,
    }


def _cells(found: DependencyMap, masks: dict[str, Tensor]) -> list[Cell]:
    T = len(found.first)
    strength = _strengths(found.size, masks["depends"])
    cells = []
    for name, mask in masks.items():
        for s, c, t, b in mask.nonzero().tolist():
            source = f"slot {c} {f'step {s - 1}' if s else 'start state'}"
            size = "not measured" if name == "unmeasured" else f"{float(found.size[s, c, t, b]):.2g}"
            text = f"slot {b} step {t}, by {source}: {size}"
            opacity = float(strength[s, c, t, b]) if name == "depends" else 1.0
            cells.append(Cell(name, _column(T, b, t), _row(T, c, s), round(opacity, 2), text))
    return cells


def _strengths(size: Tensor, depends: Tensor) -> Tensor:
    """Return opacities on a logarithmic scale, because memory decays exponentially."""
    logs = size.clamp(max=torch.finfo(size.dtype).max).where(depends, 1.0).log10()
    if not depends.any():
        return logs
    low, high = logs[depends].min(), logs[depends].max()
    return MIN_OPACITY + (1 - MIN_OPACITY) * (logs - low) / (high - low).clamp(min=1e-12)


def _sentences(found: DependencyMap, masks: dict[str, Tensor], excused: Tensor) -> list[str]:
    """Describe the picture in sentences."""
    numbers = {name: int(mask.sum()) for name, mask in masks.items()}
    bound = int((~found.allowed & found.measured & ~excused).sum())
    sentences = [f"No forbidden dependence ({bound} cells)."]
    if numbers["forbidden"]:
        size, output, source = found.largest(masks["forbidden"])
        sentences = [
            f"{numbers['forbidden']} of {bound} cells depend on something they must not.",
            f"The largest: {output} depends on {source} ({size:.2g}).",
        ]
    if numbers["declared"]:
        sentences.append(f"{numbers['declared']} cross an episode start, as declared.")
    if numbers["unused"]:
        sentences.append(f"{numbers['unused']} cells may depend, but do not.")
    T, B = found.first.shape
    unmoved = sum(int(masks["unused"][t + 1, b, t, b]) for t in range(T) for b in range(B))
    if unmoved:  # otherwise such a map would look clean
        sentences.append(
            f"At {unmoved} of {T * B} steps an output does not even depend on its own observation: a leak would not show "
            "there."
        )
    if numbers["unmeasured"]:
        sentences.append(f"{numbers['unmeasured']} cells were not measured.")
    if numbers["depends"]:
        sizes = found.size[masks["depends"]]
        sentences.append(f"Palest blue: {float(sizes.min()):.1g}; darkest: {float(sizes.max()):.1g}.")
    return sentences
