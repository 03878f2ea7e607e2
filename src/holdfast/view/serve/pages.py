"""The page of one run, made by a child process: `holdfast view RUN --html FILE`. One child at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.errors import for_terminal, one_line, printable
from holdfast.files import Folder

LIMIT_S = 600.0
STOP_S = 5.0  # between asking a child to end and killing it
MAX_PAGES = 20  # kept on disk, up to 10 MB each
MAX_PAGE = 2**26
TAIL = 4_000  # bytes of a child's output that are read
Command = Callable[[Path, Path, str], Sequence[str]]  # of a run, the file to write and a checkpoint


def view_command(run: Path, page: Path, checkpoint: str) -> list[str]:
    return ["view", str(run.absolute()), "--html", str(page), "--checkpoint", checkpoint]


@dataclass
class Page:
    """A page that is wanted, being made, ready, or that could not be made. text: the last output, or the error."""

    run: Path
    checkpoint: str
    number: int  # of all pages, in the order in which they were asked for
    state: Literal["waiting", "making", "ready", "failed"] = "waiting"
    text: str = ""
    began: float = 0.0

    @property
    def file(self) -> str:
        return f"{self.number}.html"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began if self.state == "making" else 0.0


class Pages:
    """Makes pages in a temporary folder, and keeps the newest. A page belongs to a run's id and a checkpoint."""

    def __init__(self, command: Command = view_command, limit_s: float = LIMIT_S):
        self._command, self.limit_s = command, limit_s
        self._pages: OrderedDict[tuple[str, ...], Page] = OrderedDict()
        self._count = 0
        self._change = threading.Condition()
        self._closed = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._worker: threading.Thread | None = None

    def ask(self, key: tuple[str, ...], run: Path, checkpoint: str, again: bool = False) -> tuple[Page, int]:
        """Return a page, and how many others are made before it. Make it if it is new, or if it failed and `again`."""
        with self._change:
            page = self._pages.get(key)
            if page is None or (again and page.state == "failed"):
                self._count += 1
                page = self._pages[key] = Page(run, checkpoint, self._count)
                self._start()
                self._change.notify_all()
            self._pages.move_to_end(key)
            waiting = [p for p in self._pages.values() if p.state in ("waiting", "making")]
            before = sum(p.number < page.number for p in waiting)
            return page, before

    def read(self, key: tuple[str, ...]) -> bytes | None:
        """Return a page's HTML, None if it is not ready."""
        with self._change:
            page = self._pages.get(key)
            if page is None or page.state != "ready" or self._folder is None:
                return None
            with Folder.open(Path(self._folder.name)) as folder:
                return folder.read(page.file, max_bytes=MAX_PAGE)

    def close(self) -> None:
        """Stop the child, and delete all pages."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._worker is not None:
            self._worker.join()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._worker is None:
            self._folder = tempfile.TemporaryDirectory(prefix="holdfast-view-")
            self._worker = threading.Thread(target=self._work, args=[Path(self._folder.name)], daemon=True)
            self._worker.start()

    def _work(self, folder: Path) -> None:
        while True:
            with self._change:
                while not self._closed and self._next() is None:
                    self._change.wait()
                page = self._next()
                if self._closed or page is None:
                    return
                page.state, page.began = "making", time.monotonic()
            try:
                error = self._make(page, folder)
            except Exception as problem:  # this thread makes the next page, too
                error = f"The page could not be made: {type(problem).__name__}: {one_line(problem)}"
            with self._change:
                page.state, page.text = ("failed", error) if error else ("ready", "")
                self._forget_old(folder)

    def _next(self) -> Page | None:
        waiting = [page for page in self._pages.values() if page.state == "waiting"]
        return min(waiting, key=lambda page: page.number, default=None)

    def _make(self, page: Page, folder: Path) -> str:
        """Make a page; return the error as text, "" if there is none."""
        output = f"{page.file}.log"
        with Folder.open(folder) as place, place.append(output) as log:
            reader, pipe = os.pipe()  # see cli/child.py: the child ends with this process
            words = self._command(page.run, folder / page.file, page.checkpoint)
            try:
                child = subprocess.Popen(
                    [sys.executable, "-m", "holdfast.cli.child", str(reader), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[reader],
                    process_group=0,
                )
            except BaseException:
                os.close(pipe)
                raise
            finally:
                os.close(reader)
            try:
                in_time = self._watch(child, page, log.fileno())
            finally:
                _end(child)
                os.close(pipe)
            text = _tail(log.fileno())
            place.remove(output)
            if self._closed:
                return "The server has stopped."
            if not in_time:
                return f"Not finished after {self.limit_s:.0f} s. To make it without this limit, run: {_shown(words)}\n{text}"
            if child.returncode != 0:
                return text or f"{_shown(words)} failed with exit code {child.returncode}."
            return "" if place.size(page.file) else f"{_shown(words)} wrote no page.\n{text}"

    def _watch(self, child: subprocess.Popen[bytes], page: Page, log: int) -> bool:
        """Wait for the child; return whether it ended within the limit."""
        while child.poll() is None:
            if self._closed or page.seconds > self.limit_s:
                return False
            page.text = _tail(log)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.1)
        return True

    def _forget_old(self, folder: Path) -> None:
        done = [key for key, page in self._pages.items() if page.state in ("ready", "failed")]
        with Folder.open(folder) as place:
            for key in done[: max(0, len(done) - MAX_PAGES)]:
                place.remove(self._pages.pop(key).file)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child and all processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):  # it has ended
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_S)


def _tail(log: int) -> str:
    size = os.fstat(log).st_size
    text = os.pread(log, TAIL, max(0, size - TAIL)).decode("utf-8", "replace").replace("\r", "\n")
    return for_terminal("\n".join(line for line in text.splitlines() if line.strip()))


def _shown(words: Sequence[str]) -> str:
    return "holdfast " + " ".join(printable(word, 200) for word in words)
