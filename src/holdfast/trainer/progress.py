"""What a run shows while it trains: bars in a terminal, plain lines elsewhere. It never stops a run."""

from __future__ import annotations

import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.trainer.figures import (
    History,
    Metrics,
    Pace,
    duration,
    fixed,
    number,
    parity,
    percent,
    short,
    tiny,
    whole,
)

REDRAW_S = 0.5  # a redraw takes about 5 ms
LINE_S = 5.0  # lines are at least this far apart; then one comes
LINE_SHARE = 0.05  # when the run has moved on by this much,
LONGEST_SILENCE_S = 60.0  # or when this much time has passed
WIDEST = 100
PARITY_LIMIT = 1e-5


def make_progress(
    kind: Literal["auto", "bars", "lines", "off"], title: str, total_steps: int, stream: TextIO | None = None
) -> Progress:
    """A view on `stream` (standard output if not given). auto: bars where somebody can watch them."""
    stream = stream or sys.stdout
    if kind == "off":
        return Quiet(title, total_steps, sys.stderr)
    if _has_signs(stream) and (kind == "bars" or (kind == "auto" and _can_redraw(stream))):
        return Bars(title, total_steps, stream)
    return Lines(title, total_steps, stream)


class Progress(ABC):
    """`with make_progress(...) as progress:`, then `progress.update(metrics)` after every update."""

    def __init__(self, title: str, total_steps: int, stream: TextIO | None):
        self.title = title
        self.total_steps = total_steps
        self.pace = Pace(total_steps)
        self._stream = stream  # None: nobody listens (Python has no stdout if it was closed before the start)
        self._latest: Metrics = {}
        self._shown: Metrics = self._latest
        self._shown_at = -math.inf

    def update(self, metrics: Metrics) -> None:
        """Show metrics, or keep them for the next redraw: this may be called many times a second."""
        now = monotonic()
        self._latest = dict(metrics)
        self.pace.update(metrics, now)
        if self._is_due(now - self._shown_at):
            self._show(now)

    def message(self, text: str) -> None:
        """Say something that stays readable; with bars it appears above them."""
        self._attempt(self._say, text)

    @abstractmethod
    def _is_due(self, waited_s: float) -> bool: ...

    @abstractmethod
    def _draw(self, metrics: Metrics) -> None: ...

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _stop(self) -> None: ...

    def _say(self, text: str) -> None:
        if self._stream is not None:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()

    def _show(self, now: float) -> None:
        self._shown, self._shown_at = self._latest, now
        self._attempt(self._draw, self._latest)

    def _attempt(self, output: Callable[..., object], *args: Any) -> None:
        """Write, unless nobody listens: a closed pipe, a lost terminal or a full disk must not end a run."""
        if self._stream is None:
            return
        try:
            output(*args)
        except OSError:
            self._go_quiet()
        except ValueError:
            if not self._stream.closed:
                raise
            self._go_quiet()

    def _go_quiet(self) -> None:
        stream, self._stream = self._stream, None
        with suppress(OSError, ValueError):  # a stream without a file of its own
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:  # whatever the program prints later, or Python flushes at its end, then succeeds too
                os.dup2(nowhere, stream.fileno() if stream else nowhere)
            finally:
                os.close(nowhere)
        with suppress(OSError, ValueError):
            self._stop()

    def __enter__(self) -> Self:
        self._attempt(self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not self._latest:
            self._show(monotonic())
        self._attempt(self._stop)


class Quiet(Progress):
    """No view. Warnings must still be heard: they go to standard error."""

    def _is_due(self, waited_s: float) -> bool:
        return False

    def _draw(self, metrics: Metrics) -> None: ...

    def _start(self) -> None: ...

    def _stop(self) -> None: ...


class Lines(Progress):
    """A plain line now and then, always for the first and the last update. No control codes."""

    def _is_due(self, waited_s: float) -> bool:
        moved = self.pace.steps - (number(self._shown, "agent_steps") or 0)
        return waited_s >= LONGEST_SILENCE_S or (waited_s >= LINE_S and moved >= LINE_SHARE * self.total_steps)

    def _draw(self, metrics: Metrics) -> None:
        pace, total = self.pace, f"{self.total_steps:,}"
        over = pace.steps >= self.total_steps
        words = [
            f"{pace.steps:>{len(total)},} / {total}  {pace.percent:>3}%",
            f"{whole(metrics, 'sps')} steps/s",
            f"return {short(number(metrics, 'episode_return'))}",
            f"length {fixed(metrics, 'episode_length', 1)}",
            f"entropy {fixed(metrics, 'entropy', 2)}",
            f"parity {tiny(parity(metrics))}",
            f"{duration(pace.elapsed_s)} in all" if over else f"{duration(pace.left_s)} left",
        ]
        self._say("  ".join(words))

    def _start(self) -> None:
        self._say(self.title)

    def _stop(self) -> None: ...


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # rich calls this while it handles the error, and on its own would end the process


class Bars(Progress):
    """A frame redrawn in place. Where there is no terminal, only its last state appears."""

    def __init__(self, title: str, total_steps: int, stream: TextIO | None):
        super().__init__(title, total_steps, stream)
        self._returns = History()
        self._console = _Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._frame)

    def update(self, metrics: Metrics) -> None:
        self._returns.add(number(metrics, "episode_return"))
        super().update(metrics)

    def _is_due(self, waited_s: float) -> bool:
        return waited_s >= REDRAW_S

    def _draw(self, metrics: Metrics) -> None:
        self._live.refresh()

    def _say(self, text: str) -> None:
        self._console.print(Text(text, style="yellow"))

    def _start(self) -> None:
        self._live.start(refresh=True)

    def _stop(self) -> None:
        self._live.stop()
        if not self._console.is_terminal:
            self._console.line()  # which rich adds only in a terminal

    def _frame(self) -> Panel:
        metrics, width = self._shown, min(self._console.width, WIDEST)
        inside = width - 6
        name, gap, rest = self.title.partition("  ")
        rows = [self._bar(), self._steps(metrics), "", self._return(metrics, inside), ""]
        return Panel(
            Padding(Group(*rows, _table(metrics, inside), "", self._time(metrics, inside)), (0, 1)),
            title=Text.assemble((name, "bold"), gap, rest),
            title_align="left",
            border_style="bright_black",
            width=width,
        )

    def _bar(self) -> Table:
        row = Table.grid(expand=True, padding=(0, 2, 0, 0))
        row.add_column(ratio=1)
        row.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(max(self.total_steps, 1), self.pace.steps, complete_style="cyan")
        row.add_row(bar, Text(f"{self.pace.percent:>3}%", style="bold"))
        return row

    def _steps(self, metrics: Metrics) -> Table:
        row = Table.grid(expand=True)
        for justify in ("left", "center", "right"):
            row.add_column(justify=justify, no_wrap=True)
        row.add_row(
            Text.assemble(f"{self.pace.steps:,}", (f" / {self.total_steps:,} steps", "dim")),
            Text.assemble((whole(metrics, "sps"), "bold"), (" steps/s", "dim")),
            Text.assemble(
                *(("elapsed ", "dim"), duration(self.pace.elapsed_s)),
                *(("   left ", "dim"), duration(self.pace.left_s)),
            ),
        )
        return row

    def _return(self, metrics: Metrics, width: int) -> Text:
        value = short(number(metrics, "episode_return"))
        line = Text.assemble(("return ", "dim"), (f"{value:>9}", "bold green"), "  ", no_wrap=True)
        return line.append(self._returns.sparkline(width - len(line)), style="green")

    def _time(self, metrics: Metrics, width: int) -> Text:
        """Where the time goes, in words and as a bar of that length."""
        parts = [("world", "blue"), ("inference", "magenta"), ("learning", "cyan")]
        line = Text("time  ", style="dim", no_wrap=True)
        for name, style in parts:
            line.append_text(Text.assemble((name, f"not dim {style}"), f" {percent(metrics, f'share_{name}', 0):<6}"))
        room = width - len(line)
        for name, style in parts:
            share = number(metrics, f"share_{name}")
            if share is not None and 0 <= share <= 1:
                line.append("━" * round(share * room), style=f"not dim {style}")
        return line


def _table(metrics: Metrics, width: int) -> Table:
    """Names and figures: episodes and memory; losses; gradients and the machine. As many columns as fit."""
    largest = parity(metrics)
    healthy = largest is None or largest <= PARITY_LIMIT
    columns = (
        (
            ("length", fixed(metrics, "episode_length", 1)),
            ("episodes", whole(metrics, "episodes")),
            ("episode starts", percent(metrics, "first_share")),
            ("memory norm", fixed(metrics, "memory_norm", 2)),
            ("parity", Text(tiny(largest), style="green" if healthy else "bold red")),
            ("update", whole(metrics, "update")),
        ),
        (
            ("policy loss", fixed(metrics, "policy_loss", 4)),
            ("value loss", fixed(metrics, "value_loss", 4)),
            ("entropy", fixed(metrics, "entropy", 3)),
            ("KL", fixed(metrics, "approx_kl", 4)),
            ("clipped", percent(metrics, "clip_fraction")),
            ("explained var", fixed(metrics, "explained_variance", 3)),
        ),
        (
            ("gradient", fixed(metrics, "grad_norm", 3)),
            ("  encoder", fixed(metrics, "grad_norm_encoder", 3)),
            ("  recurrence", fixed(metrics, "grad_norm_recurrence", 3)),
            ("  heads", fixed(metrics, "grad_norm_heads", 3)),
            ("learning rate", tiny(number(metrics, "lr"), 3)),
            ("process MB", whole(metrics, "rss_mb")),
        ),
    )[: max(width // 24, 1)]
    table = Table.grid(expand=True)
    for index in range(len(columns)):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", no_wrap=True, min_width=8)  # figures move, columns do not
        if index < len(columns) - 1:
            table.add_column(width=3)
    for entries in zip(*columns, strict=True):
        cells = [cell for name, value in entries for cell in (name, value, "")]
        table.add_row(*cells[:-1])
    return table


def _can_redraw(stream: TextIO | None) -> bool:
    """Whether somebody watches a terminal that understands cursor movements."""
    try:
        watched = stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
    return watched and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def _has_signs(stream: TextIO | None) -> bool:
    """Whether the stream can carry the signs that bars are made of."""
    return (getattr(stream, "encoding", None) or "").lower().startswith("utf")
