"""Load objects from Python files of the user, named FILE.py:NAME on the command line."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.errors import SettingsError, first_line, name_some, place_of, printable

NUM_NAMED = 8

_loaded: dict[Path, tuple[tuple[int, ...], ModuleType]] = {}  # by file: its version on disk, its module


def load_name(file: str, name: str, asked: str, usable: Callable[[Any], bool], noun: str) -> Any:
    """Execute a file and return its object NAME; raise SettingsError if there is none, with the names that are `usable`.

    asked: the command-line argument; noun: what `usable` objects are, such as "Environments". Both are for messages.
    """
    module = load_file(file, asked)
    try:
        found = hasattr(module, name)
    except Exception as error:  # a __getattr__ of the module
        raise SettingsError(f"{asked}: reading {name} raised {type(error).__name__}: {first_line(error)}") from error
    if not found:
        own = [key for key, value in vars(module).items() if is_defined_in(module, value) and usable(value)]
        nearest_first = [*get_close_matches(name, own), *own]
        raise SettingsError(
            f"{asked}: the file has no {name}. {noun} in the file: {name_some(nearest_first, NUM_NAMED) or 'none'}."
        )
    return getattr(module, name)


def load_file(file: str, asked: str) -> ModuleType:
    """Execute a Python file and return its module; a file that has not changed is executed once per process.

    The file can import modules in its folder, like a script (`import helper`) or relatively (`from .helper import x`).
    asked: the command-line argument, for error messages.
    """
    path = Path(os.path.abspath(os.path.expanduser(file)))
    if not os.path.isfile(path):  # os.path, because pathlib raises if a name is too long
        raise SettingsError(f"{printable(asked, 80)}: no such file: {printable(file, 80)}.{_nearest_file(path)}")
    version, module = _loaded.get(path, (None, None))
    if module is None or version != _version(path):
        version, module = _version(path), _execute(path, asked)
        _loaded[path] = version, module
    return module


def code_name(code: Any) -> str:
    """Return FILE.py:NAME for a class or function, which names it on the command line. Without a file: MODULE.py:NAME."""
    name = getattr(code, "__name__", "")
    name = name if name.isidentifier() else "environment"  # "<lambda>"
    try:
        file = inspect.getsourcefile(code) or ""
    except (TypeError, OSError):  # defined in an interactive session
        file = ""
    if not file.endswith(".py") or not file.isprintable():
        return f"{code.__module__.rpartition('.')[2]}.py:{name}"
    return f"{os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file}:{name}"


def is_defined_in(module: ModuleType, value: Any) -> bool:
    """Return whether a class or function was defined in this module, not imported into it."""
    return getattr(value, "__module__", None) == module.__name__


def _execute(path: Path, asked: str) -> ModuleType:
    folder = str(path.parent)
    name = f"{_package(folder)}.{path.stem.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up their module
    # First in sys.path while the file runs, so that it can import modules in its folder like a script; last afterwards.
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        said = f"{type(error).__name__}: {first_line(error)}{place_of(error)}"
        raise SettingsError(f"{asked}: the file cannot be run: {said}") from error
    finally:
        if folder in sys.path:  # the file may have removed it
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
    return module


def _package(folder: str) -> str:
    """Return the name of a package whose modules are the files in `folder`: relative imports need one."""
    name = f"holdfast_user_{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [folder]
        sys.modules[name] = importlib.util.module_from_spec(spec)
    return name


def _version(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _nearest_file(path: Path) -> str:
    try:
        beside = [name for name in os.listdir(path.parent) if name.endswith(".py")]
    except OSError:
        return ""
    near = get_close_matches(path.name, beside, n=1)
    return f" Did you mean {printable(near[0])}?" if near else ""
