"""The progress view of a run: bars in a terminal, plain lines elsewhere. An output error never stops a run."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any, Self, SupportsFloat, TextIO, cast

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn
from rich.text import Text

from holdfast.runs.folder import HEALTHY_PARITY
from holdfast.streams import SafeStream

REDRAW_S = 0.5  # a redraw takes about 5 ms
LINE_S = 5.0  # minimum time between two lines
LINE_SHARE = 0.05  # print a line after this fraction of the run,
MAX_SILENCE_S = 60.0  # or after this time
MAX_WIDTH = 90  # a wider table would have four columns
SPARKS = "▁▂▃▄▅▆▇█"
PARITY = "parity_max_abs_logratio"  # as in the last line of a run
TABLE = (  # rows of (label, metric, format); columns: episodes and memory; losses; gradients and process
    (("length", "episode_length", ",.1f"), ("policy loss", "policy_loss", ".4f"), ("gradient", "grad_norm", ".3f")),
    (("episodes", "episodes", ",.0f"), ("value loss", "value_loss", ".4f"), ("  encoder", "grad_norm_encoder", ".3f")),
    (("resets", "first_share", ".1%"), ("entropy", "entropy", ".3f"), ("  recurrence", "grad_norm_recurrence", ".3f")),
    (("memory norm", "memory_norm", ",.2f"), ("KL", "approx_kl", ".4f"), ("  heads", "grad_norm_heads", ".3f")),
    (("parity", PARITY, ".1g"), ("clipped", "clip_fraction", ".1%"), ("learning rate", "lr", ".3g")),
    (("update", "update", ",.0f"), ("explained var", "explained_variance", ".3f"), ("process MB", "rss_mb", ",.0f")),
)


def make_progress_view(kind: str, title: str, total_steps: int, stream: TextIO | None = None) -> Lines:
    """Return a view that writes to `stream` (default: stdout). kind: bars, lines, off, or auto (bars in a terminal)."""
    stream = stream or sys.stdout
    if kind == "off" or stream is None:  # sys.stdout is None if it was closed before Python started
        return Lines(title, total_steps, Console(quiet=True))
    console = Console(file=cast(TextIO, SafeStream(stream)), highlight=False)
    is_terminal = not stream.closed and stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown", "")
    if kind == "auto" and "ipykernel" in sys.modules and not is_terminal:
        return NotebookBar(title, total_steps, console)
    bars = console.encoding.startswith("utf") and (kind == "bars" or (kind == "auto" and is_terminal))
    return (Bars if bars else Lines)(title, total_steps, console)


class Lines:
    """Print a plain line, without control codes, from time to time and always for the first and the last update.

    Use `with make_progress_view(...) as view:` and call `view.update(metrics)` after every update.
    """

    def __init__(self, title: str, total_steps: int, console: Console):
        self.title, self.console = title, console
        self.metrics: dict[str, float] = {}
        self._returns: dict[int, float] = {}  # keyed by progress in half percents
        self._progress = Progress(BarColumn(None), TaskProgressColumn(), expand=True, get_time=monotonic)
        self._progress.add_task(title, total=total_steps)
        self.task = self._progress.tasks[0]
        self._shown, self._shown_at, self._shown_steps = self.metrics, -math.inf, 0.0

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Store the metrics, and print them if the last output is old enough. May be called many times a second."""
        self.metrics = {key: float(value) for key, value in metrics.items() if isinstance(value, SupportsFloat)}
        self._progress.update(self.task.id, completed=self.metrics.get("agent_steps", self.task.completed))
        if math.isfinite(value := self.metrics.get("episode_return", math.nan)):
            self._returns[int(200 * self.task.completed / (self.task.total or 1))] = value
        if self._is_due(monotonic() - self._shown_at):
            self._show()

    def _show(self) -> None:
        self._shown, self._shown_at, self._shown_steps = self.metrics, monotonic(), self.task.completed
        self._draw()

    def __enter__(self) -> Self:
        self.console.out(self.title)
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown is not self.metrics:
            self._show()

    def _is_due(self, waited_s: float) -> bool:
        moved = (self.task.completed - self._shown_steps) / (self.task.total or 1)
        return waited_s >= MAX_SILENCE_S or (waited_s >= LINE_S and moved >= LINE_SHARE)

    def _draw(self) -> None:
        total, (elapsed, left) = f"{self.task.total:,.0f}", self._times()
        steps = f"{self.task.completed:>{len(total)},.0f} / {total}  {self.task.percentage:>3.0f}%"
        episodes = f"return {self._text('episode_return', ',.3f')}  length {self._text('episode_length', ',.1f')}"
        policy = f"entropy {self._text('entropy', ',.2f')}  parity {self._text(PARITY, '.1g')}"
        time = f"{elapsed} in total" if self.task.finished else f"{left} left"
        self.console.out(steps, f"{self._text('sps', ',.0f')} steps/s", episodes, policy, time, sep="  ")

    def _text(self, key: str, spec: str) -> str:
        """Format a metric in at most 9 characters; "-" if the metric is missing."""
        value = self.metrics.get(key)
        text = "-" if value is None else format(value, spec)
        return text if len(text) <= 8 else f"{value:.3g}"

    def _times(self) -> tuple[str, str]:
        """Return the time since the run began and the time left at the current speed, as text."""
        left, rate = self.task.time_remaining, self.metrics.get("sps")
        if left is None and rate:  # rich estimates it only after two updates
            left = (self.task.remaining or 0) / rate
        return duration(self.metrics.get("wall_s")), duration(left)


class NotebookBar(Lines):
    """Redraw one plain line, which is all that the output of a notebook cell can do without widgets."""

    def _is_due(self, waited_s: float) -> bool:
        return waited_s >= REDRAW_S

    def _draw(self) -> None:
        done = int(20 * self.task.completed / (self.task.total or 1))
        steps = f"{self.task.completed:,.0f}/{self.task.total:,.0f}"
        elapsed, left = self._times()
        time = f"{elapsed} in total" if self.task.finished else f"{left} left"
        episodes = f"return {self._text('episode_return', ',.3f')}  {self._text('sps', ',.0f')} steps/s"
        line = f"{self.task.percentage:>3.0f}% |{'#' * done:<20}| {steps}  {episodes}  {time}"
        self.console.file.write(f"\r{line:<90}")
        self.console.file.flush()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.console.file.write("\n")


class Bars(Lines):
    """Show a panel that is redrawn in place. Without a terminal, print only the final panel."""

    def __enter__(self) -> Self:
        # Live also redirects stdout and stderr, so that log messages appear above the panel.
        self._live = Live(console=self.console, auto_refresh=False, get_renderable=self._panel)
        self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._live.stop()
        if not self.console.is_terminal:
            self.console.line()  # rich ends the panel with a line break only in a terminal

    def _is_due(self, waited_s: float) -> bool:
        return waited_s >= REDRAW_S

    def _draw(self) -> None:
        self._live.refresh()

    def _panel(self) -> Panel:
        width = min(self.console.width, MAX_WIDTH)
        elapsed, left = self._times()
        steps = f"{self.task.completed:,.0f} [dim]/ {self.task.total:,.0f} steps[/]"
        speed = f"[bold]{self._text('sps', ',.0f')}[/] [dim]steps/s[/]"
        time = f"[dim]elapsed[/] {elapsed}  [dim]left[/] {left}"
        sparks = sparkline([*self._returns.values()], width - 22)
        value = f"[dim]return[/] [bold green]{self._text('episode_return', ',.3f'):>9}[/]  [green]{sparks}[/]"
        styles = {PARITY: "green" if self.metrics.get(PARITY, 0.0) <= HEALTHY_PARITY else "bold red"}
        table = [
            f"[dim]{label:<13}[/] [{styles.get(key, 'default')}]{self._text(key, spec):>8}[/]"
            for column in zip(*TABLE, strict=True)
            for label, key, spec in column
        ]
        colors = {"world": "blue", "inference": "magenta", "learning": "cyan"}
        shares = [f"[{color}]{part}[/] {self._text(f'share_{part}', '.0%'):<6}" for part, color in colors.items()]
        rows = Group(
            self._progress.make_tasks_table([self.task]),
            Columns([steps, speed, time], padding=(0, 3)),
            f"\n{value}\n",
            Columns(table, expand=True, column_first=True),
            f"\n[dim]time[/]  {''.join(shares)}",
        )
        return Panel(rows, title=Text(self.title, "bold"), title_align="left", border_style="bright_black", width=width)


def duration(seconds: float | None) -> str:
    """Format a duration, such as 0:01:05; "-" for None or a non-finite number."""
    return "-" if seconds is None or not math.isfinite(seconds) else str(timedelta(seconds=int(seconds)))


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the values as a line of block characters; if there are more than `width`, draw an evenly spaced selection."""
    count = min(max(width, 0), len(values))
    picked = [values[i * (len(values) - 1) // max(count - 1, 1)] for i in range(count)]
    low, high = min(picked, default=0.0), max(picked, default=0.0)
    scale = (len(SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKS[round((value - low) * scale)] for value in picked)
