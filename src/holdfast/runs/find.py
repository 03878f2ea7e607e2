"""Find the run folder a user means."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.runs.folder import CONFIG


def find_run(text: str, runs_dir: Path) -> Path:
    """Return the folder of a run, given its path or its name below `runs_dir`."""
    shown = text if text.isprintable() else repr(text)
    if len(Path(text).name) > 255:
        raise SettingsError(f"{shown[:40]}...: a folder name cannot have {len(Path(text).name)} characters.")
    named = runs_dir / text
    path = Path(text) if "/" in text or not (named / CONFIG).is_file() else named
    if (path / CONFIG).is_file():
        return path
    reason = f"has no {CONFIG}, so it is not a run" if path.is_dir() or named.is_dir() else "no such run"
    names = sorted(folder.parent.name for folder in runs_dir.glob(f"*/{CONFIG}"))
    near = get_close_matches(Path(text).name, names, n=5, cutoff=0.4) or names[-5:]
    there = f"Runs in {runs_dir}: {', '.join(near)}." if near else f"There are no runs in {runs_dir}."
    raise SettingsError(f"{shown}: {reason}.\n{there}")
