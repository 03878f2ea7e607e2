"""Files that are whole or absent, and JSON that is read within limits."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from holdfast.errors import HoldfastError

DEEPEST_JSON = 32  # levels of lists and mappings; Python's own parser gives up near 1000


class CheckpointError(HoldfastError):
    """A checkpoint cannot be written, or cannot be trusted: one line with the file and the reason."""


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write_durably(partial, data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names; systems that cannot open a folder need no such call."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_whole(path: Path, size: int | None = None, most_bytes: int | None = None) -> bytes:
    """The content of a regular file, of that size if one is given, looked at before anything is read.

    Links, pipes and devices are refused: they lead elsewhere or never end.
    """
    try:
        refuse_unless_regular(path)
        found = os.lstat(path)
        if size is not None and found.st_size != size:
            raise CheckpointError(f"{path}: damaged, {found.st_size:,} bytes instead of {size:,}")
        if most_bytes is not None and found.st_size > most_bytes:
            raise CheckpointError(f"{path}: {found.st_size:,} bytes, at most {most_bytes:,} are read")
        free = psutil.virtual_memory().available
        if found.st_size > free:
            raise CheckpointError(
                f"{path}: needs {found.st_size / 2**20:,.0f} MB of memory, has {free / 2**20:,.0f} MB"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: missing") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({reason_of(error)})") from error


def refuse_unless_regular(path: Path) -> None:
    """CheckpointError for a link, a pipe or a device in a file's place: written to, it is somebody else's file. Absent is fine."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise CheckpointError(f"{path}: not a regular file")


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """Whatever goes wrong while something out of a checkpoint is put to use is the checkpoint's fault, told in one line."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:  # hostile facts raise whatever the code they reach raises: all of it means the same
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        raise CheckpointError(f"{what} ({reason})") from error


def dump_json(value: Any) -> bytes:
    """Deterministic text for a file that people may open."""
    return (json.dumps(value, allow_nan=False, indent=1, sort_keys=True) + "\n").encode()


def parse_json(data: bytes, path: Path) -> Any:
    """JSON that `find_impure` accepts, or a CheckpointError."""
    try:
        value = json.loads(data.decode("utf-8"))
    except RecursionError:
        raise CheckpointError(f"{path}: nested deeper than {DEEPEST_JSON} levels") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({' '.join(str(error).split())[:120]})") from None
    impure = find_impure(value)
    if impure:
        raise CheckpointError(f"{path}: {impure}")
    return value


def find_impure(value: Any, where: str = "", depth: int = 0) -> str | None:
    """The first thing JSON would not give back ("a.b is nan"), or None. Tuples pass: they return as lists."""
    if depth > DEEPEST_JSON:
        return f"nested deeper than {DEEPEST_JSON} levels"
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{where or 'it'} has the key {key!r}, which is not text"
            found = find_impure(item, f"{where}.{key}" if where else key, depth + 1)
            if found:
                return found
        return None
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            found = find_impure(item, f"{where}[{index}]", depth + 1)
            if found:
                return found
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where or 'it'} is {value}, which JSON cannot hold"
    if value is None or isinstance(value, bool | int | float | str):
        return None
    return f"{where or 'it'} is a {type(value).__name__}, which JSON cannot hold"


def write_error(path: Path, error: OSError, needed_bytes: int) -> CheckpointError:
    """What to tell the user when the disk said no."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(next(p for p in (path, *path.absolute().parents) if p.exists())).free
        sizes = f"needs {needed_bytes / 2**20:.1f} MB, has {free / 2**20:.1f} MB"
        return CheckpointError(f"{path}: cannot be written: {reason_of(error)} ({sizes})")
    return CheckpointError(f"{path}: cannot be written: {reason_of(error)}")


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
