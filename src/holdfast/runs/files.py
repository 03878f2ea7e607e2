"""Write files atomically; read files and JSON with limits on type, size and depth."""

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

from holdfast.errors import CheckpointError, HoldfastError, one_line

MAX_JSON_DEPTH = 32  # levels of lists and mappings; Python's JSON parser fails near 1000


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and sync it to disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically: readers see the old or the new content, never a part, even after a crash."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write_durably(partial, data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder's list of entries to disk, so that new and renamed files survive a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_whole(path: Path, size: int | None = None, max_bytes: int | None = None) -> bytes:
    """Return the content of a regular file; its type and size are checked before anything is read.

    Links, pipes and devices are refused, because a link may point outside the run, and a pipe or device may never end.
    """
    try:
        refuse_unless_regular(path)
        size_found = os.lstat(path).st_size
        if size is not None and size_found != size:
            raise CheckpointError(f"{path}: damaged; it has {size_found:,} bytes instead of {size:,}")
        if max_bytes is not None and size_found > max_bytes:
            raise CheckpointError(f"{path}: too large: {size_found:,} bytes, but the limit is {max_bytes:,}")
        free = psutil.virtual_memory().available
        if size_found > free:
            needs = f"needs {size_found / 2**20:,.0f} MB of memory"
            raise CheckpointError(f"{path}: {needs}, but only {free / 2**20:,.0f} MB are free")
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: missing") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({reason_of(error)})") from error


def refuse_unless_regular(path: Path) -> None:
    """Raise CheckpointError for a link, pipe, device or folder: writing to a link could change a file outside the run."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise CheckpointError(f"{path}: not a regular file")


@contextmanager
def as_checkpoint_error(message: str) -> Iterator[None]:
    """Turn any error raised while applying a checkpoint into a one-line CheckpointError that begins with `message`."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:  # a malicious checkpoint can cause any exception
        raise CheckpointError(f"{message} ({f'{type(error).__name__}: {one_line(error)}'[:200]})") from error


def dump_json(value: Any) -> bytes:
    """Return a value as indented JSON with sorted keys."""
    return (json.dumps(value, allow_nan=False, indent=1, sort_keys=True) + "\n").encode()


def parse_json(data: bytes, path: Path) -> Any:
    """Parse JSON; raise CheckpointError if it is invalid, nested too deeply or contains NaN."""
    try:
        value = json.loads(data.decode("utf-8"))
    except RecursionError:
        raise CheckpointError(f"{path}: nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({one_line(error, 120)})") from None
    if problem := find_non_json(value):
        raise CheckpointError(f"{path}: {problem}")
    return value


def find_non_json(value: Any, where: str = "", depth: int = 0) -> str | None:
    """Describe the first value that JSON cannot represent ("a.b is nan, ..."), or return None. Tuples are allowed."""
    if depth > MAX_JSON_DEPTH:
        return f"nested deeper than {MAX_JSON_DEPTH} levels"
    if isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not isinstance(key, str):
                return f"{where or 'it'} has the key {key!r}, which is not text"
            inner = f"{where}[{key}]" if not isinstance(key, str) else f"{where}.{key}" if where else key
            if found := find_non_json(item, inner, depth + 1):
                return found
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where or 'it'} is {value}, which JSON cannot represent"
    if value is None or isinstance(value, bool | int | float | str):
        return None
    return f"{where or 'it'} is a {type(value).__name__}, which JSON cannot represent"


def write_error(path: Path, error: OSError, needed_bytes: int = 0) -> CheckpointError:
    """Return the error to raise for a failed write. If the disk is full, the message includes the space needed and free."""
    sizes = ""
    if needed_bytes and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(next(p for p in (path, *path.absolute().parents) if p.exists())).free
        sizes = f" (needs {needed_bytes / 2**20:.1f} MB; {free / 2**20:.1f} MB are free)"
    return CheckpointError(f"{path}: cannot be written: {reason_of(error)}{sizes}")


def reason_of(error: OSError) -> str:
    """Return the operating system's error message in lower case, such as "no space left on device"."""
    return (error.strerror or str(error) or type(error).__name__).lower()
