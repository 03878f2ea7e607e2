#!/usr/bin/env python3
"""Write docs/api.md from the docstrings of what users import: `make api`. A test compares the page with the code."""

import inspect
import re
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
PUBLIC = {
    "Train": ["holdfast.train", "holdfast.Run", "holdfast.trainer.callback.UpdateInfo"],
    "Evaluate": ["holdfast.evaluate.EvaluationResult"],
    "Act": ["holdfast.load", "holdfast.Agent", "holdfast.deploy.Normal", "holdfast.AgentInputError"],
    "Export": [
        "holdfast.export.export_onnx",
        "holdfast.export.export_torch",
        "holdfast.export.check",
        "holdfast.export.Proof",
    ],
    "Your own policies": ["holdfast.policies.LSTMWrapper", "holdfast.policies.Policy"],
    "Your own environments": ["holdfast.envs.python_env"],
    "Audit": ["holdfast.audit.audit", "holdfast.audit.assertions.assert_sound"],
    "Errors": ["holdfast.HoldfastError", "holdfast.SettingsError"],
}
ARGUMENT = re.compile(r"([a-z_]+(?:, [a-z_]+)*): (.*)")
INTRODUCTION = """# API reference

What programs import. The pages about [Python](python.md), [policies](policies.md) and [the auditor](audit.md) explain how it is used; the
settings are listed by `holdfast settings`. This page is written by `make api`.
"""


def main() -> None:
    PAGE.write_text(page(), "utf-8")


def page() -> str:
    parts = [INTRODUCTION]
    for title, names in PUBLIC.items():
        parts.append(f"## {title}\n")
        parts += [describe(name) for name in names]
    return "\n".join(parts)


def describe(name: str) -> str:
    """Return the entry of a class or function: its signature, its docstring, and its public methods and properties."""
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    entry = [f"### {name}\n", code(f"{attribute}{signature(value)}"), markdown(value)]
    if isinstance(value, type):
        for member, found in vars(value).items():
            found = getattr(found, "__func__", found)  # of a classmethod or staticmethod
            getter = getattr(found, "fget", None) or getattr(found, "func", None)  # of a property
            if member.startswith("_") or not inspect.getdoc(found) or not (getter or inspect.isroutine(found)):
                continue
            shown = f": {annotation(getter.__annotations__['return'])}" if getter else signature(found)
            entry += [f"#### {attribute}.{member}\n", code(f"{member}{shown}"), markdown(found)]
    return "\n".join(entry)


def signature(function: Any) -> str:
    """Return `(a: int, b: str = "x") -> bool`, with an argument per line if that is long."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    shown, star = [], False
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        kind = "" if parameter.annotation is parameter.empty else f": {annotation(parameter.annotation)}"
        made = "<factory>" in repr(parameter.default)
        default = "" if parameter.default is parameter.empty else " = ..." if made else f" = {parameter.default!r}"
        shown.append(f"{stars}{parameter.name}{kind}{default}")
    returns = (
        "" if found.return_annotation in (found.empty, None, "None") else f" -> {annotation(found.return_annotation)}"
    )
    line = f"({', '.join(shown)}){returns}"
    return line if len(line) < 90 else "(\n    " + ",\n    ".join(shown) + f",\n){returns}"


def annotation(found: Any) -> str:
    found = getattr(found, "__forward_arg__", found)
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def code(text: str) -> str:
    return f"```py\n{text}\n```\n"


def markdown(value: Any) -> str:
    """Return the docstring as Markdown: what it says of arguments becomes a list, nested as in the docstring."""
    lines: list[str] = []
    for line in (inspect.getdoc(value) or "").splitlines():
        depth, item = (len(line) - len(line.lstrip())) // 4, ARGUMENT.match(line.strip())
        if item:
            if lines and lines[-1] and not lines[-1].lstrip().startswith("- `"):
                lines.append("")
            lines.append(f"{'  ' * depth}- `{item[1]}`: {item[2]}")
        elif lines and lines[-1].lstrip().startswith("- `") and line.strip():
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(map(fill, lines)) + "\n"


def fill(line: str) -> str:
    """Wrap a line of text as the other pages are wrapped."""
    indent = " " * (len(line) - len(line.lstrip()) + 2 * line.lstrip().startswith("- "))
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
