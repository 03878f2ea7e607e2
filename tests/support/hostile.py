"""A run folder in the hands of a hostile writer, and what a command may do with it: nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.checkpoints import reseal
from support.commands import Done

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint-1"
COMMANDS = {
    "evaluate": ["evaluate", "victim", "--episodes", "1"],
    "audit": ["audit", "victim", "--quick"],
    "train": ["train", "run=victim", "trainer.total_timesteps=1e6", "progress=off"],
}
READ = ("evaluate", "audit", "train")
CPU_SECONDS = float(os.environ.get("CPU_SECONDS", "inf"))  # of a refusal; only `make hostile` sets a limit
TARGET = "precious.txt"  # a file of the user's outside the run folder
SECRET = "of_ten_years"  # a key in that file; a command that follows a link to the file might print it
PRECIOUS = f'{{"{SECRET}": "notes"}}\n'


@dataclass(frozen=True)
class Place:
    """Where a hostile writer works: a run, its newest checkpoint, and the file that must never appear."""

    run: Path
    marker: Path

    @property
    def checkpoint(self) -> Path:
        return next(iter((self.run / "checkpoints").iterdir()))

    def settings(self, change: Callable[[dict[str, Any]], Any]) -> None:
        tree = yaml.safe_load((self.run / "config.yaml").read_text())
        change(tree)
        (self.run / "config.yaml").write_text(yaml.safe_dump(tree))

    def facts(self, change: Callable[[dict[str, Any]], Any]) -> None:
        file = self.checkpoint / "facts.json"
        facts = json.loads(file.read_text())
        change(facts)
        file.write_text(json.dumps(facts))
        self.seal()

    def seal(self, change: Callable[[dict[str, Any]], Any] = lambda manifest: None) -> None:
        reseal(self.checkpoint, change)

    def tensors(self, name: str, data: bytes) -> None:
        (self.checkpoint / f"{name}.safetensors").write_bytes(data)
        self.seal()

    def text(self, name: str, data: str | bytes) -> None:
        (self.run / name).write_bytes(data if isinstance(data, bytes) else data.encode())

    def link(self, name: str) -> None:
        (self.run / name).unlink(missing_ok=True)
        (self.run / name).symlink_to(self.marker.parent / TARGET)

    def outside(self) -> dict[str, object]:
        """Everything around the run: names, modes, and the content of files and links."""
        top, around = self.marker.parent, []
        for folder, folders, files in os.walk(top):  # not rglob, which enters the run and fails if it is deep
            folders[:] = sorted(name for name in folders if Path(folder, name) != self.run)
            around += [Path(folder, name) for name in [*folders, *files]]
        return {str(path.relative_to(top)): _state(path) for path in around}

    def inside(self) -> dict[str, tuple[int, int, int]]:
        """The entries of the run itself, with what a write would change."""
        found = [(path.name, path.lstat()) for path in self.run.iterdir()]
        return {name: (status.st_mode, status.st_size, status.st_mtime_ns) for name, status in found}


def _state(path: Path) -> object:
    if path.is_symlink():
        return path.readlink()
    mode = path.lstat().st_mode
    return mode, path.read_bytes() if path.is_file() else None


def make_place(folder: Path) -> Place:
    """Copy the golden run into a folder that also holds a precious file."""
    shutil.copytree(GOLDEN, folder / "runs" / "victim")
    (folder / TARGET).write_text(PRECIOUS)
    return Place(folder / "runs" / "victim", folder / "marker")


def pipe(name: str) -> Callable[[Place], None]:
    def make(place: Place) -> None:
        (place.run / name).unlink(missing_ok=True)
        os.mkfifo(place.run / name)

    return make


def code_of(place: Place) -> Path:
    """Python that makes the marker, beside the run."""
    file = place.marker.parent / "evil.py"
    file.write_text(f"from holdfast.policies import BoxPolicy as Evil\nopen({str(place.marker)!r}, 'w')\n")
    return file


def check(done: Done, place: Place, max_lines: int = 4) -> None:
    """A refusal: in a few lines, and without any effect."""
    assert done.code in (1, 2), done.err[-3000:]
    assert 1 <= len(done.lines) <= max_lines, done.err[-3000:]
    assert done.seconds < CPU_SECONDS, done.err[-3000:]
    check_harmless(done, place)


def check_harmless(done: Done, place: Place) -> None:
    shown = f"code {done.code} after {done.seconds:.1f} s\n{done.err[-3000:]}"
    assert done.code in (0, 1, 2), shown
    assert "Traceback" not in done.err, shown
    assert all(line.isprintable() and len(line) < 600 for line in (done.err + done.out).split("\n")), shown
    assert done.seen == [], shown
    assert not place.marker.exists(), shown
    assert (place.marker.parent / TARGET).read_text() == PRECIOUS, shown
