"""Render an audit as one self-contained HTML page: verdict, failures, maps of flags and dependencies, all checks."""

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
from holdfast.look import LOOK_CSS

# Names and evidence come from other people's code, so everything is escaped.
LOADER = FileSystemLoader(Path(__file__).parent)
TEMPLATES = Environment(loader=LOADER, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
KINDS = {
    "flags": (
        "Which output answers to which flag",
        "The flag of each step and slot was flipped, one at a time: set where no episode starts, cleared where one does. A cell "
        "shows how far the output in its column moved when the flag in its row was flipped. A flag may move outputs of "
        "its own slot, from its own step until the next flag. A row without blue is a flag without effect.",
    ),
    "changes": (
        "What moves when an input changes",
        "Inputs were changed one at a time. A cell shows how far the output in its column moved when the input in its "
        f"row changed (relative to the output's size if that is above 1). Differences up to {SAME:.0e} do not count. "
        "Rows named “start” are start states.",
    ),
    "gradients": (
        "What has a gradient",
        "Each output was differentiated with respect to each input. A cell shows the largest gradient between the two. "
        f"Gradients up to {NO_GRADIENT:.0e} of the largest allowed one do not count. Rows named “start” are start states.",
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
    pictures = [picture(found, report.declared) for found in (*report.flag_maps, *report.maps.values())]
    pictures.sort(key=lambda drawn: [*FORMS].index(drawn.form))
    galleries = [(*texts, [drawn for drawn in pictures if drawn.kind == kind]) for kind, texts in KINDS.items()]
    return TEMPLATES.get_template("page.html.j2").render(
        look=LOOK_CSS.read_text("utf-8"),
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
    """A map to draw: rows are inputs, columns are outputs, both sorted by slot, then by step."""

    kind: str
    form: str
    title: str  # the form, and the flag if there are two
    about: str  # describes the form
    inputs: list[str]  # the names of a slot's rows: steps, and the start state before them if the map has it
    starts: list[list[bool]]  # [T][B]: whether an episode starts
    cells: list[Cell]
    sentences: list[str]


def picture(found: DependencyMap, declared: frozenset[str]) -> Picture:
    masks = kinds_of_cells(found, declared)
    steps = [str(step) for step in range(len(found.first))]
    return Picture(
        found.kind,
        found.form,
        f"{found.form}, {found.flag}" if found.flag else found.form,
        FORMS[found.form],
        steps if found.kind == "flags" else ["start", *steps],
        found.first.bool().tolist(),
        _cells(found, masks),
        _sentences(found, masks, on_purpose(found, declared)),
    )


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
    T, flags = len(found.first), found.kind == "flags"
    strength = _strengths(found.size, masks["depends"])
    cells = []
    for name, mask in masks.items():
        for s, c, t, b in mask.nonzero().tolist():
            if flags and s == 0:
                continue  # a map of flags has no start states
            source = f"slot {c} {f'step {s - 1}' if s else 'start state'}"
            size = "not measured" if name == "unmeasured" else f"{float(found.size[s, c, t, b]):.2g}"
            text = f"output: slot {b} step {t}; {'flag' if flags else 'input'}: {source}; {size}"
            opacity = float(strength[s, c, t, b]) if name == "depends" else 1.0
            row = c * T + s - 1 if flags else c * (T + 1) + s
            cells.append(Cell(name, row, b * T + t, round(opacity, 2), text))
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
    if unmoved and found.kind == "flags":
        sentences.append(f"{unmoved} of {T * B} flags have no effect on the output of their own step.")
    elif unmoved:  # otherwise such a map would look clean
        sentences.append(
            f"At {unmoved} of {T * B} steps an output does not even depend on its own observation, so a leak would not "
            "show there."
        )
    if numbers["unmeasured"] and found.kind != "flags":
        sentences.append(f"{numbers['unmeasured']} cells were not measured.")
    if numbers["depends"]:
        sizes = found.size[masks["depends"]]
        sentences.append(f"Palest blue: {float(sizes.min()):.1g}; darkest: {float(sizes.max()):.1g}.")
    return sentences
