"""Read settings that a Python program passes as values: keywords and nested mappings with the keys of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from holdfast.config.describe import mappings
from holdfast.config.values import MAX_DEPTH, MAX_DIGITS
from holdfast.config.words import SHORT, Given
from holdfast.errors import SettingsError, printable

NAMES = {**SHORT, "policy": "policy.py_agent", "env_kwargs": "env.kwargs", "policy_kwargs": "policy.kwargs"}


def read_keywords(keywords: Mapping[str, Any], first: int) -> list[Given]:
    """Return the keys of nested mappings as if they were words. first: the number of words before them."""
    return [
        Given(key, value, printable(f"{typed}={value!r}", 100), order)
        for order, (typed, key, value) in enumerate(_flatten(keywords), first)
    ]


def _flatten(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield the name of each setting as it was written, its key, and its value."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if not isinstance(name, str):
            raise SettingsError(f"{printable(repr(name))}: the name of a setting must be a str, such as 'trainer'.")
        full = key if isinstance(value, Mapping) and key in ("env", "policy") else NAMES.get(key, key)
        if isinstance(value, Mapping) and full not in mappings():
            yield from _flatten(value, f"{full}.")
        else:
            yield key, full, _plain(full, value)


def _plain(key: str, value: Any, depth: int = 0) -> Any:
    """Return a value as config.yaml can hold it: paths as text, tuples and arrays as lists, NumPy's numbers as Python's."""
    if depth > MAX_DEPTH:
        raise SettingsError(f"{printable(key, 60)}: nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise SettingsError(f"{printable(key)}: its keys must be text, not {printable(repr(odd[0]))}.")
        return {_plain(key, name): _plain(f"{key}.{name}", entry, depth + 1) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(key, entry, depth + 1) for entry in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:  # Python cannot print numbers of thousands of digits
        raise SettingsError(f"{printable(key, 60)}: a number of more than {MAX_DIGITS} digits.")
    # Also subclasses, such as the members of an IntEnum or a StrEnum.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    advice = "\nPass a function that makes the environment instead." if key.startswith("env.kwargs") else ""
    raise SettingsError(
        f"{printable(key)}: needs numbers, text, lists and dicts, because config.yaml must hold them, not an object of type "
        f"{type(value).__name__}.{advice}"
    )
