"""An audit as a page of HTML that needs nothing else: verdict, failures, dependency maps as pictures, all checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from torch import Tensor

from holdfast.audit.audit import Report
from holdfast.audit.dependence import DependencyMap
from holdfast.audit.findings import NO_GRADIENT, SAME, excuses_form
from holdfast.audit.script import ACTING, SEQUENCE, STEPPING
from holdfast.audit.subject import ACROSS_EPISODES, DEVIATIONS

# Names and evidence come from policies and files of anyone, so everything is escaped.
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
        "Each input was changed, one at a time. A cell is how far the output of its column moved, relative to its size "
        f"where that is above 1. Up to {SAME:.0e} counts as still.",
    ),
    "gradients": (
        "What gradients reach",
        "Each output was differentiated by each input. A cell is the largest of the gradients between the two. "
        f"Up to {NO_GRADIENT:.0e} of the largest gradient that is allowed counts as none.",
    ),
}
FORMS = {
    STEPPING: "one step at a time, with the state handed in and out",
    SEQUENCE: "one call for all steps, as learning does it",
    ACTING: "one step at a time, from the memory the policy keeps",
}
CELL = 16  # units of the picture, as all that follows; the template draws its signs for this size
LEFT, TOP, REST = 96, 66, 8  # margins; labels go into the first two
PALEST = 0.3  # opacity of the smallest movement: still apart from a cell that did not move


def report_page(report: Report) -> str:
    """The whole page."""
    return TEMPLATES.get_template("page.html.j2").render(
        report=report,
        counts=[(number, verdict) for verdict, number in report.counts().items() if number],
        declared=[(name, DEVIATIONS[name]) for name in sorted(report.declared)],
        galleries=_galleries(report),
    )


# -------------------------------------------------------------------------------------------------------- pictures


@dataclass(frozen=True)
class Cell:
    """One square. kind: answers | silent | forbidden | declared | unmeasured. Squares that rightly stay still have none."""

    kind: str
    x: int
    y: int
    strength: float  # opacity
    says: str


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str
    begins: bool = False  # an episode begins at this step


@dataclass(frozen=True)
class Picture:
    """A dependency map, laid out: rows are sources and columns outputs, both slot by slot."""

    kind: str
    form: str
    about: str  # what the form is
    width: int
    height: int
    cells: list[Cell]
    rows: list[Label]
    columns: list[Label]
    row_slots: list[Label]
    column_slots: list[Label]
    grid: str  # paths: the squares, the lines between slots, the lines between episodes of a slot
    slots: str
    episodes: str
    sentences: list[str]

    @property
    def title(self) -> str:
        return f"{self.kind}, {self.form}"


def picture(found: DependencyMap, declared: frozenset[str]) -> Picture:
    """Lay a map out."""
    T, B = found.first.shape
    masks = kinds_of_cells(found, declared)
    begins = found.first.bool().tolist()
    return Picture(
        kind=found.kind,
        form=found.form,
        about=FORMS.get(found.form, ""),
        width=LEFT + B * T * CELL + REST,
        height=TOP + B * (T + 1) * CELL + REST,
        cells=_cells(found, masks),
        rows=[
            Label(LEFT - 6, _row(T, c, s) + CELL / 2, f"{s - 1}" if s else "start", s > 0 and begins[s - 1][c])
            for c in range(B)
            for s in range(T + 1)
        ],
        columns=[Label(_column(T, b, t) + CELL / 2, TOP - 9, f"{t}", begins[t][b]) for b in range(B) for t in range(T)],
        row_slots=[Label(LEFT - 44, _row(T, c, 0) + (T + 1) * CELL / 2, f"slot {c}") for c in range(B)],
        column_slots=[Label(_column(T, b, 0) + T * CELL / 2, TOP - 34, f"slot {b}") for b in range(B)],
        grid=_ruled(T, B, range(B * T + 1), range(B * (T + 1) + 1)),
        slots=_ruled(T, B, range(0, B * T + 1, T), range(0, B * (T + 1) + 1, T + 1)),
        episodes=_episode_lines(found.first),
        sentences=_sentences(found, masks, on_purpose(found, declared)),
    )


def _galleries(report: Report) -> list[tuple[str, str, list[Picture]]]:
    """Heading, explanation and pictures of each kind of map there is."""
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
    """Lines down before these columns and across before these rows."""
    down = [f"M{LEFT + i * CELL} {TOP}v{B * (T + 1) * CELL}" for i in columns]
    across = [f"M{LEFT} {TOP + i * CELL}h{B * T * CELL}" for i in rows]
    return "".join(down + across)


def _episode_lines(first: Tensor) -> str:
    """Where an episode begins, across the square in which its slot meets itself: nothing may reach over both lines."""
    T = len(first)
    lines = []
    for t, b in first.nonzero().tolist():
        lines.append(f"M{_column(T, b, t)} {_row(T, b, 0)}v{(T + 1) * CELL}")
        lines.append(f"M{_column(T, b, 0)} {_row(T, b, t + 1)}h{T * CELL}")
    return "".join(lines)


# ------------------------------------------------------------------------------------------------- what a map shows


def on_purpose(found: DependencyMap, declared: frozenset[str]) -> Tensor:
    """[1 + T, B, T, B]: cells that reach over an episode start of their slot, where the policy declares that it does so."""
    meant = any(name in declared and excuses_form(name, found.form) for name in ACROSS_EPISODES)
    return found.across_a_start if meant else torch.zeros_like(found.allowed)


def kinds_of_cells(found: DependencyMap, declared: frozenset[str]) -> dict[str, Tensor]:
    """Masks [1 + T, B, T, B]. No cell is in two; those in none stayed still, as they have to."""
    moved = found.measured & (found.size > found.limit)
    excused = on_purpose(found, declared)
    return {
        "answers": found.allowed & moved,
        "silent": found.allowed & found.measured & ~moved,
        "declared": excused & moved,
        "forbidden": ~found.allowed & ~excused & moved,
        "unmeasured": ~found.measured,
    }


def _cells(found: DependencyMap, masks: dict[str, Tensor]) -> list[Cell]:
    T = len(found.first)
    strength = _strengths(found.size, masks["answers"])
    cells = []
    for name, mask in masks.items():
        for s, c, t, b in mask.nonzero().tolist():
            source = f"slot {c} {f'step {s - 1}' if s else 'start state'}"
            size = "not measured" if name == "unmeasured" else f"{float(found.size[s, c, t, b]):.2g}"
            says = f"slot {b} step {t}, by {source}: {size}"
            opacity = float(strength[s, c, t, b]) if name == "answers" else 1.0
            cells.append(Cell(name, _column(T, b, t), _row(T, c, s), round(opacity, 2), says))
    return cells


def _strengths(size: Tensor, answers: Tensor) -> Tensor:
    """Opacities: from the smallest movement to the largest, by their logarithms, since memory fades in factors."""
    logs = size.clamp(max=torch.finfo(size.dtype).max).where(answers, 1.0).log10()
    if not answers.any():
        return logs
    low, high = logs[answers].min(), logs[answers].max()
    return PALEST + (1 - PALEST) * (logs - low) / (high - low).clamp(min=1e-12)


def _sentences(found: DependencyMap, masks: dict[str, Tensor], excused: Tensor) -> list[str]:
    """The picture in words, for those who do not see it and those who do."""
    numbers = {name: int(mask.sum()) for name, mask in masks.items()}
    bound = int((~found.allowed & found.measured & ~excused).sum())
    sentences = [f"Nothing moved that must stay still ({bound} cells)."]
    if numbers["forbidden"]:
        size, output, source = found.largest(masks["forbidden"])
        sentences = [
            f"{numbers['forbidden']} of the {bound} cells that must stay still did not.",
            f"The largest: {output} answers to {source} ({size:.2g}).",
        ]
    if numbers["declared"]:
        sentences.append(f"{numbers['declared']} reach over an episode start, as declared.")
    if numbers["silent"]:
        sentences.append(f"{numbers['silent']} of those that may move did not.")
    T, B = found.first.shape
    unmoved = sum(int(masks["silent"][t + 1, b, t, b]) for t in range(T) for b in range(B))
    if unmoved:  # such a map looks clean whatever observations do, and has to say so
        sentences.append(
            f"At {unmoved} of {T * B} steps not even its own observation moved an output: there, a leak of observations "
            "would hardly show."
        )
    if numbers["unmeasured"]:
        sentences.append(f"{numbers['unmeasured']} were not measured.")
    if numbers["answers"]:
        sizes = found.size[masks["answers"]]
        sentences.append(f"Palest blue: {float(sizes.min()):.1g}; fullest: {float(sizes.max()):.1g}.")
    return sentences
