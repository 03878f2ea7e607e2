"""Registries of the classes that a setting selects by name: worlds, agents and recurrent cells.

A class registers itself where it is defined:

    @CELLS.register("gru")
    class GRU(Core): ...

Settings are checked before torch or the library of a world is imported, because these imports take seconds. So the
built-in names are read from the decorators in the source of Holdfast, and a module is imported when its class is used.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
Class = TypeVar("Class", bound=type)


class Registry(Mapping[str, Any]):
    """Classes by name, in alphabetical order. `variable` is the registry's variable name, used in decorators."""

    def __init__(self, variable: str, *folders: str):
        self._variable, self._folders = variable, folders
        self._classes: dict[str, type] = {}

    def register(self, name: str) -> Callable[[Class], Class]:
        """Return a class decorator that registers the class under `name`."""

        def add(cls: Class) -> Class:
            module = self._modules.get(name, cls.__module__)
            if module != cls.__module__ or self._classes.get(name, cls).__qualname__ != cls.__qualname__:
                raise ValueError(f"{self._variable}: {name!r} is already registered; choose another name")
            self._classes[name] = cls
            return cls

        return add

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Map each built-in name to the module that defines its class."""
        decorator = re.compile(rf'^@{self._variable}\.register\("([^"]+)"\)', re.MULTILINE)
        modules = {}
        for path in sorted(path for folder in self._folders for path in (ROOT / folder).glob("*.py")):
            module = ".".join((ROOT.name, *path.relative_to(ROOT).with_suffix("").parts))
            modules |= dict.fromkeys(decorator.findall(path.read_text("utf-8")), module)
        return modules

    def __getitem__(self, name: str) -> Any:
        if name not in self._classes:
            importlib.import_module(self._modules[name])
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._modules, *self._classes}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


# settings for each world; "gym:" matches every name with that prefix, ".py:" every FILE.py:NAME
WORLDS = Registry("WORLDS", "envs/worlds")
POLICIES = Registry("POLICIES", "policies")  # settings for each kind of policy
AGENTS = Registry("AGENTS", "policies/plain")  # policy classes, selected by py_agent
CELLS = Registry("CELLS", "recurrence")  # recurrent cells, selected by policy.core


def lazy_exports(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package: it imports each module only when a name from that module is first used.

    This way, modules that do not need torch or gymnasium can be imported without them. The exported names are read from the
    imports under `if TYPE_CHECKING:` in the source of the package, which must be one line each.
    """
    source = Path(sys.modules[package].__file__ or "").read_text("utf-8")
    imports = re.findall(r"^    from (\S+) import (.+)$", source, re.MULTILINE)
    modules = {name: module for module, names in imports for name in names.split(", ")}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return get
