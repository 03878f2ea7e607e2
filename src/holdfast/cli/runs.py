"""Which run folder a user means."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from holdfast.errors import SettingsError

SETTINGS_FILE = "config.yaml"


def find_run(text: str, runs_dir: Path) -> Path:
    """The folder of a run, given its path or its name below `runs_dir`."""
    shown = text if text.isprintable() else repr(text)
    if len(Path(text).name) > 255:
        raise SettingsError(f"{shown[:40]}...: no folder has a name of {len(Path(text).name)} letters.")
    named = runs_dir / text
    path = Path(text) if "/" in text or not (named / SETTINGS_FILE).is_file() else named
    if (path / SETTINGS_FILE).is_file():
        return path
    reason = f"has no {SETTINGS_FILE}, so it is not a run" if path.is_dir() or named.is_dir() else "no such run"
    names = sorted(folder.parent.name for folder in runs_dir.glob(f"*/{SETTINGS_FILE}"))
    near = get_close_matches(Path(text).name, names, n=5, cutoff=0.4) or names[-5:]
    there = f"Runs in {runs_dir}: {', '.join(near)}." if near else f"There are no runs in {runs_dir}."
    raise SettingsError(f"{shown}: {reason}.\n{there}")
