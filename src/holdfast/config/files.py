"""Read and write settings files: ready-made files, custom files, and the config.yaml of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from holdfast.config.nearest import did_you_mean
from holdfast.config.settings import Settings
from holdfast.config.values import SafeSettingsDumper, check_yaml, parse_yaml
from holdfast.errors import CheckpointError, SettingsError, printable
from holdfast.files import Folder, read_named

READY = Path(__file__).parent / "ready"
MAX_BYTES = 100_000


def ready_names() -> list[str]:
    return sorted(path.stem for path in READY.glob("*.yaml"))


def describe_ready() -> dict[str, str]:
    """Return the first line of each ready-made settings file, which says what the file trains, by file name."""
    firsts = {name: (READY / f"{name}.yaml").read_text("utf-8").split("\n", 1)[0] for name in ready_names()}
    return {name: first.lstrip("# ") for name, first in firsts.items()}


def find_settings_file(text: str) -> Path:
    """Return `text` as a path if it has a slash or ends in .yaml, else the path of the ready-made file named `text`."""
    text = text.strip()
    if "/" in text or text.endswith((".yaml", ".yml")):
        return Path(text).expanduser()
    if text not in ready_names():
        raise SettingsError(
            f"settings={printable(text)}: no such settings file.{did_you_mean(text, ready_names())}\n"
            f"Ready-made: {', '.join(ready_names())}. To use a custom file, give its path with .yaml."
        )
    return READY / f"{text}.yaml"


def read_settings_file(path: Path) -> dict[str, Any]:
    """Read the mapping in a settings file that the user named. The file may be a link."""
    name = printable(str(path), 200)
    try:
        data = read_named(path, MAX_BYTES)
    except FileNotFoundError as error:
        raise SettingsError(
            f"settings file {name}: no such file.{did_you_mean(path.stem, ready_names())}\n"
            f"Ready-made files (write the name without .yaml): {', '.join(ready_names())}."
        ) from error
    except OSError as error:
        raise SettingsError(f"settings file {name}: cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise SettingsError(f"settings file {name}: {error}.") from error
    return _parse(data, path)


def read_run_config(path: Path) -> dict[str, Any]:
    """Read the mapping in the config.yaml of a run, which must not be a link."""
    try:
        with Folder.open(path.parent) as run:
            return _parse(run.read(path.name, max_bytes=MAX_BYTES), path)
    except CheckpointError as error:
        raise SettingsError(f"{error}.") from error
    except OSError as error:
        raise SettingsError(f"{printable(str(path), 200)}: cannot be read: {error.strerror or error}.") from error


def _parse(data: bytes, path: Path) -> dict[str, Any]:
    """Parse a settings file. References, environment variables and code in it are not evaluated."""
    name = printable(str(path), 200)
    try:
        text = data.decode("utf-8")
        if not check_yaml(text):
            raise ValueError("must contain keys and values, such as `seed: 1`")
        return parse_yaml(text)
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {name}: not a UTF-8 text file. Save it as UTF-8.") from error
    except ValueError as error:
        raise SettingsError(f"settings file {name}: {error}.") from error


def settings_to_yaml(settings: Settings) -> str:
    """Return all settings as YAML, including defaults; `load_run_settings` reads the text back as equal Settings."""
    return _dump(settings.model_dump())


def check_storable(settings: Settings) -> None:
    """Raise SettingsError if config.yaml would not give these settings back: a run with them could not be resumed.

    Only keyword arguments of environments and policies can be such values; all other settings have limits of their own.
    """
    size = 0
    for section in ("env", "policy"):
        for name, value in getattr(getattr(settings, section), "kwargs", {}).items():
            if reason := _why_not_storable({section: {"kwargs": {name: value}}}):
                raise SettingsError(
                    f"{section}.kwargs.{printable(name)}: config.yaml cannot store this value: {reason}."
                )
            size += len(str(value))
    if size > MAX_BYTES / 2 and (size := len(settings_to_yaml(settings).encode())) > MAX_BYTES:
        raise SettingsError(
            f"env.kwargs, policy.kwargs: config.yaml would have {size:,} bytes; the limit is {MAX_BYTES:,}."
        )


def _why_not_storable(tree: Mapping[str, Any]) -> str:
    """Return why this mapping cannot be written and read back, "" if it can."""
    try:
        text = _dump(tree)
        if len(text.encode()) > MAX_BYTES:
            return f"it has {len(text):,} characters; the limit is {MAX_BYTES:,}"
        return "" if _dump(parse_yaml(text)) == text else "it would be read back as another value"
    except UnicodeEncodeError:
        return "the text is not valid Unicode"
    except ValueError as error:
        return re.sub(r"^Line \d+: ", "", str(error))


def _dump(tree: Mapping[str, Any]) -> str:
    return yaml.dump(tree, Dumper=SafeSettingsDumper, allow_unicode=True, sort_keys=False)
