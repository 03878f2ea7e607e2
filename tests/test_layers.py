"""Packages import only from lower layers, without exceptions."""

import ast
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
LAYERS = [
    {"errors", "streams", "threads", "look"},
    {"files", "outputs", "user_code"},
    {"spec", "custom_code", "ranks"},
    {"config"},
    {"recurrence", "runs"},
    {"envs", "policies", "ppo"},
    {"rollout", "checkpoint", "audit"},
    {"deploy"},
    {"trainer", "evaluate", "export"},
    {"view"},
    {"python_api", "sweeps"},
    {"cli", "pytest_plugin"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(ROOT.rglob("*.py"))


def imported_packages(source: str) -> set[str]:
    """Return the packages of holdfast that a file imports, also inside functions."""
    parts = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not checked: use absolute ones"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("holdfast."):
                parts.add(name.split(".")[1])
    return parts - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_are_from_lower_layers(path):
    relative = path.relative_to(ROOT)
    if len(relative.parts) == 1 and relative.name in ("__init__.py", "__main__.py"):
        assert imported_packages(path.read_text()) <= {"cli", "deploy", "errors", "export", "python_api"}
        return
    own = relative.parts[0].removesuffix(".py")
    for part in imported_packages(path.read_text()) - {own}:
        assert LEVEL[part] < LEVEL[own], f"{relative} imports {part}"


def test_every_package_has_a_layer():
    parts = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in FILES} - {"__init__", "__main__"}
    assert parts == set(LEVEL)


def test_imports_inside_functions_are_found():
    assert imported_packages("def f():\n    from holdfast.cli import main") == {"cli"}
    assert imported_packages("import holdfast.trainer.loop") == {"trainer"}
