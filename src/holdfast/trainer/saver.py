"""Checkpoints of a run: what is written, when the disk says no, and which of them stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import safetensors.torch
from torch import Tensor

from holdfast.checkpoint import (
    CheckpointError,
    clear_left_overs,
    list_checkpoints,
    move_checkpoint,
    read_facts,
    remove_checkpoint,
    return_of,
    save_checkpoint,
)
from holdfast.config.settings import Keep, Settings
from holdfast.errors import HoldfastError
from holdfast.policies import MettaAgent
from holdfast.runs import RunFolder
from holdfast.runs.files import reason_of, replace_durably
from holdfast.trainer.signals import StopSignals
from holdfast.trainer.snapshot import Snapshot

SKIPPED, REFUSED = "skipped", "refused"


class Saver:
    """Writes snapshots into the run folder. `behind` is the newest snapshot that is not on the disk.

    Checkpoints of later updates than the one the run goes on from could not be used. They make room, but are not lost: another
    Holdfast, or a disk that reads again, may make sense of them.
    """

    def __init__(
        self,
        run: RunFolder,
        agent: MettaAgent,
        settings: Settings,
        signals: StopSignals,
        say: Callable[[str], None],
    ):
        self.run, self.settings, self.say = run, settings, say
        self._signals = signals
        self._agent = agent
        clear_left_overs(run.checkpoints)  # the run may be done, and write none any more
        found = saved_updates(run.checkpoints)
        self._returns = {path.name: _return_of(path) for path in found if int(path.name) <= run.saved}
        self._refused = [path for path in found if int(path.name) > run.saved]
        self.behind: Snapshot | None = None

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """However a run ends, nothing that was finished is lost."""
        if error is not None and self.behind is not None:
            try:
                with self._signals.held():
                    self._write(self.behind)
            except HoldfastError as problem:
                self.say(f"NOT SAVED: {problem}")

    def log(self, metrics: Mapping[str, Any]) -> None:
        """A line of metrics; if the disk says no it is kept, and written before the next one."""
        try:
            self.run.log_metrics(metrics)
        except HoldfastError as error:
            self._complain(error)

    def offer(self, snapshot: Snapshot) -> None:
        self.behind = snapshot

    def write(self, last: bool = False) -> None:
        """Write what is behind. A disk that says no at the last one ends the run with that error."""
        if self.behind is None:
            return
        try:
            with self._signals.held():
                self._write(self.behind)
        except HoldfastError as error:
            if last:
                raise
            self._complain(error)

    def keep_skipped(self, update: int, skipped: list[tuple[float, dict[str, Tensor]]]) -> Iterator[str]:
        """Put the minibatches of gradient steps that were not taken aside, to be looked at; empties the list."""
        for number, (loss, tensors) in enumerate(skipped):
            file = self.run.path / SKIPPED / f"{name_of(update)}-{number}.safetensors"
            try:
                file.parent.mkdir(exist_ok=True)
                data = safetensors.torch.save({name: x.detach().cpu().contiguous() for name, x in tensors.items()})
                replace_durably(file, data)
                kept = f"its minibatch is in {file}"
            except OSError as error:
                kept = f"its minibatch could not be kept ({reason_of(error)})"
            yield f"update {update}: a gradient was not finite (loss {loss:.4g}), so that step was not taken; {kept}."
        skipped.clear()

    def _complain(self, error: HoldfastError) -> None:
        if self.settings.trainer.on_disk_error == "stop":
            raise error
        self.say(f"NOT SAVED: {error}. Training goes on; trainer.on_disk_error=stop would end it.")
        self._signals.raise_if_asked()

    def _write(self, snapshot: Snapshot) -> None:
        self.run.sync_metrics()
        facts = {
            **snapshot.facts,
            "world": self._agent.built_for.to_json(),
            "policy": self.settings.policy.model_dump(mode="json"),
            "agent": self._agent.facts(),
        }
        while self._refused:
            moved = move_checkpoint(self._refused[-1], self.run.path / REFUSED)
            self.say(f"{self._refused.pop()}: now in {moved}")
        path = save_checkpoint(self.run.checkpoints, name_of(snapshot.update), snapshot.tensors, facts)
        self.behind, self.run.saved = None, snapshot.update
        self._returns[path.name] = return_of(facts)
        for name in superfluous(self._returns, self.settings.trainer.keep):
            try:
                remove_checkpoint(self.run.checkpoints / name)
            except CheckpointError as error:
                self.say(f"{error}; it takes room, and harms nothing")
            del self._returns[name]


def name_of(update: int) -> str:
    return f"{update:08d}"


def saved_updates(folder: Path) -> list[Path]:
    """The checkpoints a run wrote, oldest first. Copies under names of a user's own are the user's."""
    return [path for path in list_checkpoints(folder) if path.name.isdigit()]


def superfluous(returns: dict[str, float | None], keep: Keep) -> list[str]:
    """Names that need not stay, oldest first. returns: the mean return of each checkpoint, None where no episode had ended."""
    names = sorted(returns)
    stay = set(names[-keep.last :])
    known = {name: value for name, value in returns.items() if value is not None}
    if keep.best and known:
        stay.add(max(known, key=lambda name: (known[name], name)))
    if keep.every:
        stay |= {name for name in names if int(name) % keep.every == 0}
    return [name for name in names if name not in stay]


def _return_of(path: Path) -> float | None:
    try:
        return return_of(read_facts(path))
    except CheckpointError:
        return None  # damaged: neither best nor, before long, among the newest
