"""A checkpoint is a folder with one `<group>.safetensors` per group of tensors, `facts.json` and `manifest.json`.

The folder is written under a hidden name and renamed once everything is synced to disk, so a checkpoint is complete or
absent. Only one process may write to a folder of checkpoints.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import torch
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

import holdfast
from holdfast.errors import CheckpointError, one_line, reason_of
from holdfast.files import Folder, write_error
from holdfast.runs.folder import CONFIG, MANIFEST, RUN_ID, run_id
from holdfast.runs.json_data import dump_json, find_non_json, parse_json

FORMAT = 1
FACTS = "facts.json"
MAX_MANIFEST_BYTES = 2**20
MAX_FACTS_BYTES = 2**22  # a few thousand are usual
MAX_HEADER_BYTES = 2**22  # of a group of tensors: about 40,000 names
MAX_FILES = 16

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_GROUP = re.compile(r"[a-z][a-z0-9_]{0,63}")


class _File(BaseModel, strict=True):
    bytes: int
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _Manifest(BaseModel, strict=True):
    files: dict[str, _File] = Field(max_length=MAX_FILES)
    versions: dict[str, Annotated[str, Field(pattern=r"^[ -~]{0,99}$")]]
    threads: int
    run: str = Field("", pattern=r"^[0-9a-f]{0,64}$")  # the id of the run that wrote the checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint. Tensors are on the CPU, and the caller may change them."""

    tensors: dict[str, dict[str, Tensor]]
    facts: dict[str, Any]
    manifest: dict[str, Any]


def save_checkpoint(
    folder: Path, name: str, tensors: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]
) -> Path:
    """Write the checkpoint folder/name and return its path, which exists only once everything is synced to disk."""
    if not NAME.fullmatch(name):
        raise ValueError(f"invalid checkpoint name: {name!r}")
    if invalid := [group for group in tensors if not _GROUP.fullmatch(group)]:
        raise ValueError(f"invalid tensor group name: {invalid[0]!r}")
    target = folder / name
    if problem := find_non_json(dict(facts)):
        raise CheckpointError(f"{target / FACTS}: not written: {problem}")
    facts_data = dump_json(dict(facts))
    if len(facts_data) > MAX_FACTS_BYTES:
        size = f"too large: {len(facts_data):,} bytes, but the limit is {MAX_FACTS_BYTES:,}"
        raise CheckpointError(f"{target / FACTS}: not written: {size}")
    copies = {group: _copy(target, group, members) for group, members in tensors.items()}
    partial = f".{name}.partial"
    try:
        with Folder.open(folder, inside=1, create=True) as checkpoints:
            if checkpoints.has(name) and not _is_empty(checkpoints, name):  # a rename may replace an empty folder
                raise CheckpointError(f"{target}: not written: a checkpoint with this name exists already")
            _remove_leftovers(checkpoints)
            try:
                with checkpoints.subfolder(partial, create=True) as files:
                    _fill(files, copies, facts_data, run_id(folder.parent))
                checkpoints.rename(partial, name)
            except BaseException:
                checkpoints.remove(partial)
                raise
            checkpoints.sync()
    except OSError as error:
        needed = sum(t.nbytes for members in copies.values() for t in members.values())
        raise write_error(target, error, needed) from error
    return target


def _is_empty(folder: Folder, name: str) -> bool:
    if not folder.is_folder(name):
        return False
    with folder.subfolder(name) as inner:
        return not inner.names()


def remove_leftovers(folder: Path) -> None:
    """Delete the partial checkpoints of a killed process. Call this only from the process that writes to the folder."""
    with suppress(FileNotFoundError), Folder.open(folder, inside=1) as checkpoints:
        _remove_leftovers(checkpoints)


def _remove_leftovers(checkpoints: Folder) -> None:
    for name in checkpoints.names():
        if name.startswith(".") and name.endswith((".partial", ".removed")):
            with suppress(OSError):
                checkpoints.remove(name)


def load_policy(path: Path) -> Checkpoint:
    """Read the policy of a checkpoint, and nothing that only training needs."""
    return load_checkpoint(path, {"policy"})


def load_checkpoint(path: Path, groups: Collection[str] | None = None) -> Checkpoint:
    """Read a checkpoint, or only these groups of tensors; every file is verified against its SHA-256 before it is parsed."""
    with _open(path) as files:
        manifest = _read_manifest(files)
        tensors = {
            name.removesuffix(".safetensors"): _parse_tensors(_read_listed(files, name, manifest), path / name)
            for name in manifest["files"]
            if name != FACTS and (groups is None or name.removesuffix(".safetensors") in groups)
        }
        return Checkpoint(tensors, _read_facts(files, manifest), manifest)


def read_facts(path: Path) -> dict[str, Any]:
    """Read and verify facts.json without reading the tensors."""
    with _open(path) as files:
        return _read_facts(files, _read_manifest(files))


def _open(path: Path) -> Folder:
    """Open a checkpoint. If it is in a run, neither its folder nor the folder of checkpoints may be a link."""
    path = Path(os.path.abspath(path))
    try:
        return Folder.open(path, inside=2 if _run_around(path) else 0)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: missing") from None
    except NotADirectoryError:
        raise CheckpointError(f"{path}: not a folder") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({reason_of(error)})") from error


def _run_around(path: Path) -> Path | None:
    """Return the folder of the run that contains the checkpoint; None if the checkpoint was copied out of its run."""
    run = path.parent.parent
    return run if any(os.path.lexists(run / name) for name in (RUN_ID, CONFIG)) else None


def _read_facts(files: Folder, manifest: dict[str, Any]) -> dict[str, Any]:
    return _read_mapping(_read_listed(files, FACTS, manifest), files.path / FACTS)


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint. It is renamed to a hidden name first, so that a crash never leaves a partial checkpoint."""
    gone = f".{path.name}.removed"
    try:
        with Folder.open(path.parent, inside=1) as checkpoints:
            checkpoints.rename(path.name, gone)
            with suppress(OSError):
                checkpoints.remove(gone)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be removed: {reason_of(error)}") from error


def move_checkpoint(path: Path, folder: Path) -> Path:
    """Move a checkpoint to another folder of the run, as NAME-2 if the name is taken, and return its new path."""
    try:
        with Folder.open(path.parent, inside=1) as here, Folder.open(folder, inside=1, create=True) as there:
            names = (path.name if n == 1 else f"{path.name}-{n}" for n in itertools.count(1))
            name = next(name for name in names if not there.has(name))
            here.rename(path.name, name, there)
            there.sync()
            here.sync()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be moved to {folder}: {reason_of(error)}") from error
    return folder / name


def _copy(target: Path, group: str, members: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to the CPU, contiguous and without shared storage, as safetensors requires."""
    copies = {}
    for key, tensor in members.items():
        copies[key] = tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)
        _refuse_nan(copies[key], f"{target}: not written: {group} {key}")
    return copies


def _fill(folder: Folder, tensors: Mapping[str, dict[str, Tensor]], facts_data: bytes, run: str) -> None:
    files = {}

    def write(name: str, data: bytes) -> None:
        folder.write(name, data)
        files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    for group, members in tensors.items():
        data = safetensors.torch.save(members)
        if int.from_bytes(data[:8], "little") > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"{folder.path}: not written: {group} has {len(members):,} tensors, which is too many"
            )
        write(f"{group}.safetensors", data)
    write(FACTS, facts_data)
    versions = {"holdfast": holdfast.__version__, "torch": torch.__version__, "python": platform.python_version()}
    manifest = {"format": FORMAT, "run": run, "files": files, "versions": versions, "threads": torch.get_num_threads()}
    folder.write(MANIFEST, _seal(manifest))
    folder.sync()


def _read_manifest(files: Folder) -> dict[str, Any]:
    file = files.path / MANIFEST
    data = files.read(MANIFEST, max_bytes=MAX_MANIFEST_BYTES)
    manifest = _read_mapping(data, file)
    version = manifest.get("format")
    if type(version) is not int or version < 1:
        raise CheckpointError(f"{file}: the format version is missing or invalid")
    if version != FORMAT:
        raise CheckpointError(
            f"{file}: format {version}, but Holdfast {holdfast.__version__} reads format {FORMAT}; use a newer Holdfast"
        )
    manifest.pop("sha256", None)
    if data != _seal(manifest):
        raise CheckpointError(f"{file}: damaged; its content does not match the SHA-256 that it contains")
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise CheckpointError(f"{file}: {where[:80]!r} is missing or invalid") from None
    run, other = _run_around(files.path), manifest.get("run", "")
    own = run_id(run) if run else ""
    if own not in ("", other):
        ids = f"its id is {other[:8] or 'missing'}, this run has {own[:8]}"
        raise CheckpointError(f"{files.path}: a checkpoint of another run ({ids})")
    if FACTS not in manifest["files"]:
        raise CheckpointError(f"{file}: damaged; it does not list {FACTS}")
    for name in manifest["files"]:
        if name != FACTS and not is_tensor_file(name):
            raise CheckpointError(f"{file}: not from Holdfast; it lists {name[:80]!r}, which is not a checkpoint file")
    return manifest


def _read_listed(files: Folder, name: str, manifest: dict[str, Any]) -> bytes:
    """Read one file that the manifest lists, and verify its size and SHA-256."""
    entry = manifest["files"][name]
    data = files.read(name, entry["bytes"], MAX_FACTS_BYTES if name == FACTS else None)
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{files.path / name}: damaged; it does not match its SHA-256 in {MANIFEST}")
    return data


def _read_mapping(data: bytes, file: Path) -> dict[str, Any]:
    value = parse_json(data, file)
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: contains a {type(value).__name__}, not a mapping")
    return value


def _parse_tensors(data: bytes, file: Path) -> dict[str, Tensor]:
    if int.from_bytes(data[:8], "little") > MAX_HEADER_BYTES:
        raise CheckpointError(f"{file}: its header has more than {MAX_HEADER_BYTES:,} bytes")
    try:
        tensors = safetensors.torch.load(data)
        for key, tensor in tensors.items():
            _refuse_nan(tensor, f"{file}: {key[:80]!r}")
    except CheckpointError:
        raise
    except Exception as error:  # a malicious header can cause any exception, also when the tensors are used
        raise CheckpointError(f"{file}: not a valid safetensors file ({one_line(error, 120)})") from error
    return tensors


def _refuse_nan(tensor: Tensor, what: str) -> None:
    if tensor.is_floating_point() and tensor.isnan().any():
        raise CheckpointError(f"{what} contains NaN")


def _seal(manifest: dict[str, Any]) -> bytes:
    """Return the bytes of manifest.json, with a SHA-256 of the other entries added."""
    return dump_json({**manifest, "sha256": hashlib.sha256(dump_json(manifest)).hexdigest()})


def is_tensor_file(name: str) -> bool:
    group, dot, kind = name.partition(".")
    return dot + kind == ".safetensors" and bool(_GROUP.fullmatch(group))
