"""Save a run's checkpoints and metrics, handle write errors, and delete old checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import safetensors.torch
from torch import Tensor

from holdfast.checkpoint import (
    CheckpointError,
    first_few,
    list_checkpoints,
    move_checkpoint,
    read_facts,
    remove_checkpoint,
    remove_leftovers,
    return_of,
    save_checkpoint,
)
from holdfast.config.settings import Keep, Settings
from holdfast.errors import HoldfastError, reason_of
from holdfast.ranks import Shards
from holdfast.runs import RunFolder
from holdfast.trainer.signals import Stopped, StopSignals
from holdfast.trainer.snapshot import Snapshot

SKIPPED, REFUSED = "skipped", "refused"
MAX_KNOWN = 1000  # older checkpoints than these are left alone

logger = logging.getLogger(__name__)
SkippedStep = tuple[float, dict[str, Tensor]]  # loss and minibatch of a skipped gradient step


class SharedSaver:
    """The saver of a rank that does not write the run folder: it sends its part of each checkpoint to the rank that does."""

    def __init__(self, shards: Shards):
        self.pending: Snapshot | None = None
        self._shards = shards

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._saves_after(kind):
            self.write(last=True)

    def _saves_after(self, kind: type[BaseException] | None) -> bool:
        """Whether to save the last finished update when the run ends in this way."""
        # All ranks stop together on a signal. An error ends only one of them, and the others cannot wait for its part.
        return kind is not None and (self._shards.group.size == 1 or issubclass(kind, Stopped))

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Do nothing: all ranks compute the same metrics."""

    def write(self, last: bool = False) -> None:
        """Send this rank's part of the pending snapshot."""
        if self.pending is not None:
            self.pending.joined(self._shards)
            self.pending = None

    def dump_skipped(self, update: int, skipped: list[SkippedStep]) -> None:
        """Clear the list: rank 0 reports its part of the same minibatches."""
        skipped.clear()


class Saver(SharedSaver):
    """Writes snapshots into the run folder. `pending` is the newest snapshot that is not on disk yet.

    Checkpoints newer than the one the run was resumed from were unusable. They are moved to refused/, not deleted,
    because another version of Holdfast may be able to read them.
    """

    def __init__(self, run: RunFolder, settings: Settings, signals: StopSignals, shards: Shards | None = None):
        super().__init__(shards or Shards())
        self.run, self.settings = run, settings
        self._signals = signals
        remove_leftovers(run.checkpoints)  # save_checkpoint does this too, but a finished run writes no checkpoint
        found = saved_updates(run.checkpoints)[-MAX_KNOWN:]
        self._returns = {path.name: _saved_return(path) for path in found if int(path.name) <= run.saved}
        self._refused = [path for path in found if int(path.name) > run.saved]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Save the last finished update when an error or a signal ends the run."""
        self.run.end_unless_owner()
        if self._saves_after(kind):
            try:
                self.write(last=True)
            except HoldfastError as problem:
                logger.error("NOT SAVED: %s", problem)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write a line of metrics; a line that cannot be written is kept in memory and written before the next line."""
        try:
            self.run.log_metrics(metrics)
        except HoldfastError as error:
            self._handle_disk_error(error)

    def write(self, last: bool = False) -> None:
        """Write the pending snapshot as a checkpoint. With `last`, raise a write error instead of only reporting it."""
        if self.pending is None:
            return
        try:
            with self._signals.held():
                self._write(self.pending.joined(self._shards))
        except HoldfastError as error:
            if last:
                raise
            self._handle_disk_error(error)

    def dump_skipped(self, update: int, skipped: list[SkippedStep]) -> None:
        """Report skipped gradient steps, write their minibatches into the run folder, and clear the list."""
        for number, (loss, tensors) in enumerate(skipped):
            name = f"{update:08d}-{number}.safetensors"
            data = safetensors.torch.save({name: x.detach().cpu().contiguous() for name, x in tensors.items()})
            try:
                with self.run.folder.subfolder(SKIPPED, create=True) as folder:
                    folder.replace(name, data)
                where = f"its minibatch is in {folder.path / name}"
            except (OSError, CheckpointError) as error:
                reason = reason_of(error) if isinstance(error, OSError) else str(error)
                where = f"its minibatch could not be written ({reason})"
            step = f"update {update}: skipped a gradient step with a non-finite gradient (loss {loss:.4g})"
            logger.warning("%s; %s.", step, where)
        skipped.clear()

    def _handle_disk_error(self, error: HoldfastError) -> None:
        if self.settings.trainer.on_disk_error == "stop":
            raise error
        logger.error("NOT SAVED: %s. Training continues; to stop it instead, use trainer.on_disk_error=stop.", error)
        self._signals.raise_if_asked()

    def _write(self, snapshot: Snapshot) -> None:
        self.run.end_unless_owner()
        self.run.sync_metrics()
        messages = []
        while self._refused:
            moved = move_checkpoint(self._refused[-1], self.run.path / REFUSED)
            messages.append(f"{self._refused.pop()}: moved to {moved}, because this checkpoint is unusable")
        for message in first_few(messages):
            logger.warning(message)
        facts, update = asdict(snapshot.state), snapshot.state.update
        path = save_checkpoint(self.run.checkpoints, f"{update:08d}", snapshot.tensors, facts)
        self.pending, self.run.saved = None, update
        self._returns[path.name] = snapshot.state.episode_return
        for name in superfluous(self._returns, self.settings.trainer.keep):
            try:
                remove_checkpoint(self.run.checkpoints / name)
            except CheckpointError as error:
                logger.warning("%s; the run does not need this old checkpoint, so you can delete it", error)
            del self._returns[name]


def saved_updates(folder: Path) -> list[Path]:
    """List the checkpoints that a run wrote, oldest first. Folders whose name is not a number are left out."""
    return [path for path in list_checkpoints(folder) if path.name.isdigit()]


def superfluous(returns: dict[str, float | None], keep: Keep) -> list[str]:
    """Return the names of checkpoints to delete, oldest first. returns: mean return by name, None if unknown."""
    names = sorted(returns)
    stay = set(names[-keep.last :])
    known = {name: value for name, value in returns.items() if value is not None}
    if keep.best and known:
        stay.add(max(known, key=lambda name: (known[name], name)))
    if keep.every:
        stay |= {name for name in names if int(name) % keep.every == 0}
    return [name for name in names if name not in stay]


def _saved_return(path: Path) -> float | None:
    try:
        return return_of(read_facts(path))
    except CheckpointError:
        return None  # a damaged checkpoint is never the best
