"""Render an audit as one self-contained HTML page: verdict, failures, dependency maps, all checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from torch import Tensor

from holdfast.audit.audit import Report
from holdfast.audit.dependence import DependencyMap
from holdfast.audit.findings import NO_GRADIENT, SAME, excuses_call
from holdfast.audit.script import ACT, SEQUENCE, STEP
from holdfast.audit.subject import ACROSS_EPISODES, DEVIATIONS

# Names and evidence come from other people's code, so everything is escaped.
LOADER = FileSystemLoader(Path(__file__).parent)
TEMPLATES = Environment(loader=LOADER, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
KINDS = {
    "changes": (
        "What moves when an input changes",
        "Inputs were changed one at a time. A cell shows how far the output in its column moved when the input in its "
        f"row changed (relative to the output's size if that is above 1). Differences up to {SAME:.0e} do not count.",
    ),
    "gradients": (
        "What has a gradient",
        "Each output was differentiated with respect to each input. A cell shows the largest gradient between the two. "
        f"Gradients up to {NO_GRADIENT:.0e} of the largest allowed one do not count.",
    ),
}
FORMS = {
    STEP: "one step at a time, with the state as argument and result",
    SEQUENCE: "one call for all steps, as in learning",
    ACT: "one step at a time, from the policy's own memory",
}
MIN_OPACITY = 0.3  # of the weakest dependence, to tell it from none


def report_page(report: Report) -> str:
    """Render the page."""
    pictures = {key: picture(found, report.declared) for key, found in report.maps.items()}
    galleries = [
        (*texts, [pictures[kind, form] for form in FORMS if (kind, form) in pictures]) for kind, texts in KINDS.items()
    ]
    return TEMPLATES.get_template("page.html.j2").render(
        report=report,
        counts=[(number, verdict) for verdict, number in report.counts().items() if number],
        declared=[(name, DEVIATIONS[name]) for name in sorted(report.declared)],
        galleries=[gallery for gallery in galleries if gallery[-1]],
    )


class Cell(NamedTuple):
    """A square that is not empty. kind: depends | unused | forbidden | declared | unmeasured."""

    kind: str
    row: int
    column: int
    strength: float  # opacity
    text: str


@dataclass(frozen=True)
class Picture:
    """A dependency map to draw: rows are inputs, columns are outputs, both sorted by slot, then by step."""

    kind: str
    form: str
    about: str  # describes the form
    starts: list[list[bool]]  # [T][B]: whether an episode starts
    cells: list[Cell]
    sentences: list[str]


def picture(found: DependencyMap, declared: frozenset[str]) -> Picture:
    masks = kinds_of_cells(found, declared)
    sentences = _sentences(found, masks, on_purpose(found, declared))
    starts = found.first.bool().tolist()
    return Picture(found.kind, found.form, FORMS.get(found.form, ""), starts, _cells(found, masks), sentences)


def on_purpose(found: DependencyMap, declared: frozenset[str]) -> Tensor:
    """Return the cells [1 + T, B, T, B] that cross an episode start if a declared deviation allows that, else none."""
    meant = any(name in declared and excuses_call(name, found.form) for name in ACROSS_EPISODES)
    return found.across_reset if meant else torch.zeros_like(found.allowed)


def kinds_of_cells(found: DependencyMap, declared: frozenset[str]) -> dict[str, Tensor]:
    """Return a mask [1 + T, B, T, B] per kind. Cells outside `allowed` that show no dependence are in no mask."""
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
            text = f"output: slot {b} step {t}; input: {source}; {size}"
            opacity = float(strength[s, c, t, b]) if name == "depends" else 1.0
            cells.append(Cell(name, c * (T + 1) + s, b * T + t, round(opacity, 2), text))
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
    sentences = [f"No forbidden dependence ({bound} cells checked)."]
    if numbers["forbidden"]:
        size, output, source = found.largest(masks["forbidden"])
        sentences = [
            f"{numbers['forbidden']} of {bound} forbidden cells show a dependence.",
            f"The largest: {output} depends on {source} ({size:.2g}).",
        ]
    if numbers["declared"]:
        sentences.append(f"{numbers['declared']} cells cross an episode start, as declared.")
    if numbers["unused"]:
        sentences.append(f"{numbers['unused']} allowed cells show no dependence.")
    T, B = found.first.shape
    unmoved = sum(int(masks["unused"][t + 1, b, t, b]) for t in range(T) for b in range(B))
    if unmoved:  # otherwise such a map would look clean
        sentences.append(
            f"At {unmoved} of {T * B} steps an output does not even depend on its own observation, so a leak would not "
            "show there."
        )
    if numbers["unmeasured"]:
        sentences.append(f"{numbers['unmeasured']} cells were not measured.")
    if numbers["depends"]:
        sizes = found.size[masks["depends"]]
        sentences.append(f"Palest blue: {float(sizes.min()):.1g}; darkest: {float(sizes.max()):.1g}.")
    return sentences
