"""A checkpoint is a folder: `<group>.safetensors` per group, `facts.json`, and `manifest.json`, written last.

It is built under a hidden name beside its own and renamed when everything is on the disk, so it is whole or
absent. A folder of checkpoints has one writer.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

import holdfast
from holdfast.runs.files import (
    CheckpointError,
    dump_json,
    find_impure,
    parse_json,
    read_whole,
    reason_of,
    sync_folder,
    write_durably,
    write_error,
)

FORMAT = 1
MANIFEST = "manifest.json"
FACTS = "facts.json"
LARGEST_MANIFEST = 2**20
LARGEST_FACTS = 2**26

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_GROUP = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Checkpoint:
    """What was read back. Tensors are on the CPU and belong to the caller."""

    tensors: dict[str, dict[str, Tensor]]
    facts: dict[str, Any]
    manifest: dict[str, Any]


def save_checkpoint(
    folder: Path, name: str, tensors: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]
) -> Path:
    """Write folder/name and return it. Nothing is visible under the name before all of it is on the disk."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a checkpoint cannot be named {name!r}")
    for group in tensors:
        if not _GROUP.fullmatch(group):
            raise ValueError(f"a group of tensors cannot be named {group!r}")
    target = folder / name
    impure = find_impure(dict(facts))
    if impure:
        raise CheckpointError(f"{target / FACTS}: not written: {impure}")
    facts_data = dump_json(dict(facts))
    if len(facts_data) > LARGEST_FACTS:
        raise CheckpointError(
            f"{target / FACTS}: not written: {len(facts_data):,} bytes, at most {LARGEST_FACTS:,} are read"
        )
    copies = {group: _copy(target, group, members) for group, members in tensors.items()}
    partial = folder / f".{name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if target.exists() and not _is_empty(target):
            raise CheckpointError(f"{target}: not written: a checkpoint of this name exists")
        clear_left_overs(folder)
        partial.mkdir()
        try:
            _fill(partial, copies, facts_data)
            os.rename(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_folder(folder)
    except OSError as error:
        needed = sum(t.nbytes for members in copies.values() for t in members.values())
        raise write_error(target, error, needed) from error
    return target


def clear_left_overs(folder: Path) -> None:
    """Remove what a process that was killed while it wrote, or removed, has left; for the folder's one writer."""
    for pattern in (".*.partial", ".*.removed"):
        for left_over in folder.glob(pattern):
            shutil.rmtree(left_over, ignore_errors=True)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, every byte of it verified before it is interpreted."""
    manifest = _read_manifest(path)
    tensors: dict[str, dict[str, Tensor]] = {}
    facts: dict[str, Any] = {}
    for name in manifest["files"]:
        data = _read_listed(path, name, manifest)
        if name == FACTS:
            facts = _read_mapping(data, path / name)
        else:
            tensors[name.removesuffix(".safetensors")] = _parse_tensors(data, path / name)
    return Checkpoint(tensors, facts, manifest)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, verified."""
    return _read_mapping(_read_listed(path, FACTS, _read_manifest(path)), path / FACTS)


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint; a crash on the way leaves none of it under its name."""
    try:
        gone = path.with_name(f".{path.name}.removed")
        os.rename(path, gone)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be removed: {reason_of(error)}") from error
    shutil.rmtree(gone, ignore_errors=True)


def move_checkpoint(path: Path, folder: Path) -> Path:
    """Put a checkpoint into another folder, under its name or a free one like it, and return it there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = (path.name if n == 1 else f"{path.name}-{n}" for n in itertools.count(1))
        target = next(folder / name for name in names if not (folder / name).exists())
        os.rename(path, target)
        sync_folder(folder)
        sync_folder(path.parent)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be moved to {folder}: {reason_of(error)}") from error
    return target


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files all have the size and SHA-256 it says."""
    manifest = _read_manifest(path)
    for name in manifest["files"]:
        _read_listed(path, name, manifest)
    return manifest


def list_checkpoints(folder: Path) -> list[Path]:
    """Every checkpoint of a folder, oldest first (by name, numbers as numbers), unverified.

    What has lost its manifest is a damaged one: it was written whole.
    """
    try:
        found = [p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir() and _has_parts(p)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read ({reason_of(error)})") from error
    return sorted(found, key=lambda p: _by_numbers(p.name))


def newest_checkpoint(folder: Path, on_damaged: Callable[[CheckpointError], None] | None = None) -> Path | None:
    """The newest checkpoint that verifies; `on_damaged` hears of each newer one that does not."""
    for path in reversed(list_checkpoints(folder)):
        try:
            verify_checkpoint(path)
        except CheckpointError as error:
            if on_damaged is not None:
                on_damaged(error)
        else:
            return path
    return None


def return_of(facts: Mapping[str, Any]) -> float | None:
    """The mean return when a checkpoint was saved; None if no episode had ended."""
    value = facts.get("episode_return")
    return float(value) if isinstance(value, int | float) else None


def best_checkpoint(folder: Path, on_damaged: Callable[[CheckpointError], None] | None = None) -> Path | None:
    """The checkpoint with the highest mean return among those that verify, the newest of equals; None if there is none."""
    best: tuple[float, Path] | None = None
    for path in list_checkpoints(folder):
        try:
            verify_checkpoint(path)
            value = return_of(read_facts(path))
        except CheckpointError as error:
            if on_damaged is not None:
                on_damaged(error)
            continue
        if value is not None and (best is None or value >= best[0]):
            best = value, path
    return best[1] if best else None


def _copy(target: Path, group: str, members: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as the format wants them: dense, on the CPU, each with storage of its own."""
    copies = {}
    for key, tensor in members.items():
        copies[key] = tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)
        if _has_nan(copies[key]):
            raise CheckpointError(f"{target}: not written: {group} {key} holds NaN")
    return copies


def _fill(folder: Path, tensors: Mapping[str, dict[str, Tensor]], facts_data: bytes) -> None:
    files = {}

    def write(name: str, data: bytes) -> None:
        write_durably(folder / name, data)
        files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    for group, members in tensors.items():
        write(f"{group}.safetensors", safetensors.torch.save(members))
    write(FACTS, facts_data)
    manifest = {
        "format": FORMAT,
        "files": files,
        "versions": {
            "holdfast": holdfast.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "threads": torch.get_num_threads(),
    }
    write_durably(folder / MANIFEST, _seal(manifest))
    sync_folder(folder)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        reason = "a checkpoint is a folder, this is a file" if path.exists() else "missing"
        raise CheckpointError(f"{path}: {reason}")
    file = path / MANIFEST
    data = read_whole(file, most_bytes=LARGEST_MANIFEST)
    manifest = _read_mapping(data, file)
    version = manifest.get("format")
    if type(version) is not int or version < 1:
        raise CheckpointError(f"{file}: no format version")
    if version != FORMAT:
        raise CheckpointError(
            f"{file}: format {version}, Holdfast {holdfast.__version__} reads {FORMAT}: use a newer Holdfast"
        )
    manifest.pop("sha256", None)
    if data != _seal(manifest):
        raise CheckpointError(f"{file}: damaged, its SHA-256 is not the one it states")
    files = manifest.get("files")
    if not isinstance(files, dict) or FACTS not in files:
        raise CheckpointError(f"{file}: does not list {FACTS}")
    for name, entry in files.items():
        if name != FACTS and not _is_tensor_file(name):
            raise CheckpointError(f"{file}: lists {name[:80]!r}, which is no file of a checkpoint")
        if not (
            isinstance(entry, dict)
            and type(entry.get("bytes")) is int
            and isinstance(entry.get("sha256"), str)
            and _SHA256.fullmatch(entry["sha256"])
        ):
            raise CheckpointError(f"{file}: no size and SHA-256 for {name}")
    versions = manifest.get("versions")
    if not isinstance(versions, dict) or not all(_is_short_text(version) for version in versions.values()):
        raise CheckpointError(f"{file}: no versions")
    if type(manifest.get("threads")) is not int:
        raise CheckpointError(f"{file}: no number of threads")
    return manifest


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) < 100 and value.isprintable()


def _read_listed(path: Path, name: str, manifest: dict[str, Any]) -> bytes:
    """One file's bytes, if they are the ones that were written."""
    file, entry = path / name, manifest["files"][name]
    data = read_whole(file, entry["bytes"], LARGEST_FACTS if name == FACTS else None)
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{file}: damaged, its SHA-256 is not the one in {MANIFEST}")
    return data


def _read_mapping(data: bytes, file: Path) -> dict[str, Any]:
    value = parse_json(data, file)
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: holds a {type(value).__name__}, not a mapping")
    return value


def _parse_tensors(data: bytes, file: Path) -> dict[str, Tensor]:
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # a hostile header raises whatever the parser meets: all of it means the same
        raise CheckpointError(f"{file}: not safetensors ({' '.join(str(error).split())[:120]})") from error
    for key, tensor in tensors.items():
        if _has_nan(tensor):
            raise CheckpointError(f"{file}: {key!r} holds NaN")
    return tensors


def _has_nan(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and bool(tensor.isnan().any())


def _seal(manifest: dict[str, Any]) -> bytes:
    """The file of a manifest, with a checksum of its own: nothing else vouches for it."""
    return dump_json({**manifest, "sha256": hashlib.sha256(dump_json(manifest)).hexdigest()})


def _is_tensor_file(name: str) -> bool:
    group, dot, kind = name.partition(".")
    return dot + kind == ".safetensors" and bool(_GROUP.fullmatch(group))


def _has_parts(path: Path) -> bool:
    try:
        return any(file.name in (MANIFEST, FACTS) or _is_tensor_file(file.name) for file in path.iterdir())
    except FileNotFoundError:
        return False  # removed while we looked
    except OSError:
        return True  # reading it will say what is wrong


def _is_empty(path: Path) -> bool:
    """An empty folder: nothing is lost when a rename puts another in its place."""
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _by_numbers(name: str) -> list[tuple[int, int, str]]:
    """Sort key: step-9 before step-10, and a copy called best before every number: it is not what came last."""
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in re.split(r"([0-9]+)", name) if p]
