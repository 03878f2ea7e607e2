import io
import logging
import math
import os
import pty
import re
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from holdfast.cli.failures import log_to_stderr
from holdfast.trainer import progress as progress_module
from holdfast.trainer.progress import (
    SPARKS,
    Bars,
    Lines,
    NotebookBar,
    duration,
    make_progress_view,
    sparkline,
)

TITLE = "demo  memory  fast/lstm  seed 0"
FULL = {
    "agent_steps": 12_288,
    "wall_s": 1.5,
    "sps": 8412.4,
    "episode_return": 0.21,
    "episode_length": 7.0,
    "episodes": 1755,
    "policy_loss": -0.0123,
    "value_loss": 0.0312,
    "entropy": 1.55,
    "approx_kl": 0.0031,
    "clip_fraction": 0.083,
    "explained_variance": 0.71,
    "grad_norm": 0.412,
    "grad_norm_encoder": 0.215,
    "grad_norm_recurrence": 0.333,
    "grad_norm_heads": 0.111,
    "parity_max_abs_logratio": 2e-7,
    "parity_max_abs_value": 1e-3,
    "memory_norm": 3.21,
    "first_share": 0.142,
    "share_world": 0.41,
    "share_inference": 0.22,
    "share_learning": 0.37,
    "lr": 1e-3,
    "rss_mb": 412.0,
    "update": 12,
}
NOT_KNOWN_YET = [{}, dict.fromkeys(FULL), {key: math.nan for key in FULL if key != "agent_steps"}]


class Time:
    """A clock that tests move."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    time = Time()
    monkeypatch.setattr(progress_module, "monotonic", time)
    return time


class Screen(io.StringIO):
    """A stream that is a terminal or not, independent of where the tests run."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, is_terminal: bool = True):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.fixture
def screen(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    return Screen()


def run(clock, kind: Any, seconds: float, updates: int, stream=None) -> list[str]:
    """The lines of a run of 300,000 steps that takes that long."""
    stream = stream or Screen(is_terminal=False)
    with make_progress_view(kind, TITLE, 300_000, stream) as view:
        for update in range(1, updates + 1):
            clock.now += seconds / updates
            steps = 300_000 * update // updates
            view.update({**FULL, "agent_steps": steps, "wall_s": seconds * update / updates})
    return stream.getvalue().splitlines()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


# ------------------------------------------------------------------------------------------------------ lines


def test_a_line_says_what_matters(clock):
    stream = Screen(is_terminal=False)
    with make_progress_view("lines", TITLE, 300_000, stream) as view:
        view.update(FULL)
        assert stream.getvalue().splitlines() == [  # shown at once, not when the run ends
            TITLE,
            " 12,288 / 300,000    4%  8,412 steps/s  return 0.210  length 7.0  entropy 1.55  parity 2e-07  0:00:34 left",
        ]


def test_first_and_last_update_are_always_shown(clock):
    lines = run(clock, "lines", seconds=2, updates=40)
    assert [line.split("%")[0].split()[-1] for line in lines[1:]] == ["2", "100"]
    assert lines[-1].endswith("0:00:02 in total")


def test_the_last_update_is_not_shown_twice(clock):
    assert len(run(clock, "lines", seconds=2, updates=1)) == 2


def test_lines_are_neither_a_flood_nor_a_drought(clock):
    assert len(run(clock, "lines", seconds=20, updates=400)) in range(5, 8)  # every 5 seconds
    assert len(run(clock, "lines", seconds=1000, updates=2_000)) in range(20, 24)  # every 5 percent
    assert len(run(clock, "lines", seconds=36_000, updates=7_200)) in range(590, 610)  # every minute


def test_lines_hold_no_control_codes_even_in_a_terminal(clock, screen):
    run(clock, "lines", 20, 100, screen)
    assert re.search(r"[^\x20-\x7e\n]", screen.getvalue()) is None


@pytest.mark.parametrize("metrics", NOT_KNOWN_YET)
@pytest.mark.parametrize("kind", ["lines", "bars", "off"])
def test_figures_may_be_missing(clock, screen, kind, metrics):
    with make_progress_view(kind, TITLE, 300_000, screen) as view:
        for _ in range(3):
            clock.now += 10
            view.update(metrics)
    if kind != "off":
        assert "Traceback" not in screen.getvalue()
        assert "return" in screen.getvalue()
    if kind == "lines" and None in metrics.values():
        assert "return -  length -  entropy -  parity -  - left" in screen.getvalue()


def test_numbers_of_other_libraries_are_shown(clock):
    stream = Screen(is_terminal=False)
    with make_progress_view("lines", TITLE, 300_000, stream) as view:
        view.update({"agent_steps": np.int64(30_000), "episode_return": np.float32(0.5)})
    assert "30,000 / 300,000   10%" in stream.getvalue()
    assert "return 0.500" in stream.getvalue()


def test_characters_a_stream_cannot_encode_are_replaced():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    view = make_progress_view("bars", "öde  memory → here", 10, stream)
    assert type(view) is Lines
    with view:
        pass
    assert raw.getvalue() == b"?de  memory ? here\n"


# ------------------------------------------------------------------------------------------------------- bars


@pytest.mark.parametrize("columns", [80, 120])
def test_bars_show_every_figure_within_the_width(clock, screen, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Screen(is_terminal=False)  # only the last frame
    with make_progress_view("bars", TITLE, 300_000, stream) as view:
        for steps, value in ((4_096, 0.1), (8_192, 0.5), (12_288, 0.21)):
            view.update({**FULL, "agent_steps": steps, "episode_return": value})
    frame = stream.getvalue()
    assert all(cell_len(line) <= columns for line in frame.splitlines())
    assert frame.endswith("╯\n")
    flat = re.sub(r"[\s│]+", " ", frame)
    for part in (
        TITLE.replace("  ", " "),
        "4%",
        "12,288 / 300,000 steps",
        "8,412 steps/s",
        "elapsed 0:00:01 left 0:00:34",
        "return 0.210 ▁█▃",
        "length 7.0",
        "episodes 1,755",
        "resets 14.2%",
        "memory norm 3.21",
        "parity 2e-07",
        "update 12",
        "policy loss -0.0123",
        "value loss 0.0312",
        "entropy 1.550",
        "KL 0.0031",
        "clipped 8.3%",
        "explained var 0.710",
        "gradient 0.412",
        "encoder 0.215",
        "recurrence 0.333",
        "heads 0.111",
        "learning rate 0.001",
        "process MB 412",
        "time world 41% inference 22% learning 37%",
    ):
        assert part in flat, part


@pytest.mark.parametrize("columns", [1, 5, 20, 40, 60])
def test_bars_survive_a_narrow_terminal(clock, screen, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with make_progress_view("bars", TITLE, 300_000, screen) as view:
        view.update(FULL)
    assert all(cell_len(line) <= columns for line in plain(screen.getvalue()).splitlines())


def test_bars_are_redrawn_in_place_and_seldom(clock, screen):
    with make_progress_view("auto", TITLE, 300_000, screen) as view:
        frames = []
        for update in range(200):  # ten seconds
            clock.now += 0.05
            before = len(screen.getvalue())
            view.update({**FULL, "update": update})
            frames.append(len(screen.getvalue()) > before)
    assert sum(frames) in range(18, 22)
    assert frames[0]
    assert "\x1b[1A" in screen.getvalue()
    last = plain(screen.getvalue())
    assert "199" in last[last.rindex("╭") :]


@pytest.mark.parametrize("in_command", [True, False], ids=["command", "library"])
def test_log_messages_stay_above_the_bars(clock, screen, monkeypatch, in_command):
    """With the handler of the commands, and with Python's own, which prints warnings where logging is not set up."""
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(logging.getLogger("holdfast"), "propagate", False)  # leave out pytest's handlers
    with log_to_stderr() if in_command else nullcontext(), make_progress_view("bars", TITLE, 300_000, screen) as view:
        view.update(FULL)
        logging.getLogger("holdfast.trainer.test").warning("PARITY BREACH: [brackets] are not markup")
        clock.now += 1
        view.update(FULL)
    text = plain(screen.getvalue())
    assert text.count("PARITY BREACH: [brackets] are not markup") == 1
    assert text.index("PARITY BREACH") < text.rindex("╭")


def test_a_broken_parity_is_red(clock, screen):
    with make_progress_view("bars", TITLE, 300_000, screen) as view:
        view.update(FULL)
        assert "\x1b[1;31m" not in screen.getvalue()
        clock.now += 1
        view.update({**FULL, "parity_max_abs_logratio": 0.02})
        assert re.search(r"\x1b\[1;31m *0\.02", screen.getvalue())
        clock.now += 1
        view.update({**FULL, "parity_max_abs_logratio": math.nan})
        assert re.search(r"\x1b\[1;31m *nan", screen.getvalue())


def test_the_terminal_is_given_back_when_training_fails(clock, screen):
    stdout = sys.stdout
    with pytest.raises(ZeroDivisionError), make_progress_view("bars", TITLE, 300_000, screen):
        raise ZeroDivisionError
    assert sys.stdout is stdout
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


# -------------------------------------------------------------------------------------------- who is watching


def test_auto_takes_bars_only_where_they_can_be_seen(screen, monkeypatch):
    assert isinstance(make_progress_view("auto", TITLE, 10, screen), Bars)
    assert type(make_progress_view("auto", TITLE, 10, Screen(is_terminal=False))) is Lines
    for term in ("dumb", "unknown", ""):
        monkeypatch.setenv("TERM", term)
        assert type(make_progress_view("auto", TITLE, 10, screen)) is Lines
    monkeypatch.delenv("TERM")
    assert type(make_progress_view("auto", TITLE, 10, screen)) is Lines
    monkeypatch.setenv("TERM", "xterm")
    screen.close()
    assert type(make_progress_view("auto", TITLE, 10, Screen(is_terminal=False))) is Lines


def test_auto_in_a_real_terminal_and_in_a_pipe(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    main, other = pty.openpty()
    with os.fdopen(main, "rb"), os.fdopen(other, "w", encoding="utf-8") as terminal:
        assert isinstance(make_progress_view("auto", TITLE, 10, terminal), Bars)
    read, write = os.pipe()
    with os.fdopen(read, "rb"), os.fdopen(write, "w", encoding="utf-8") as pipe:
        assert type(make_progress_view("auto", TITLE, 10, pipe)) is Lines


def test_off_shows_nothing(clock, screen, capsys):
    for stream in (None, screen):
        with make_progress_view("off", TITLE, 300_000, stream) as view:
            view.update(FULL)
    assert capsys.readouterr() == ("", "")
    assert screen.getvalue() == ""


SCRIPT = """
import sys
from holdfast.trainer import progress as module
module.LINE_S = module.REDRAW_S = module.LINE_SHARE = 0.0
with module.make_progress_view(sys.argv[1], "demo  memory", 1000) as view:
    for step in range(1000):
        view.update({"agent_steps": step})
print("a summary for nobody")
open(sys.argv[2], "w").write("trained to the end")
"""


@pytest.mark.parametrize("kind", ["lines", "bars"])
@pytest.mark.parametrize("shell", ["{} | head -1", "{} | true", "{} >&-", "{} > /dev/full"])
def test_training_goes_on_when_nobody_listens(tmp_path, kind, shell):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = f"set -o pipefail; {shell.format(f'{sys.executable} {script} {kind} {tmp_path}/done')}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert (tmp_path / "done").read_text() == "trained to the end"
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_bug_of_ours_is_not_taken_for_a_closed_pipe(monkeypatch):
    def mistaken(self):
        raise ValueError("a mistake")

    monkeypatch.setattr(Lines, "_draw", mistaken)
    view = make_progress_view("lines", TITLE, 10, Screen(is_terminal=False))
    with pytest.raises(ValueError, match="a mistake"):
        view.update(FULL)


def test_a_stream_closed_by_somebody_else():
    stream = Screen(is_terminal=False)
    with make_progress_view("lines", TITLE, 10, stream) as view:
        stream.close()
        view.update(FULL)


# ---------------------------------------------------------------------------------------------------- figures


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(-5, 60))
def test_a_sparkline_fits_its_width_and_rises_with_its_values(values, width):
    line = sparkline(values, width)
    assert len(line) == min(max(width, 0), len(values))
    assert set(line) <= set(SPARKS)
    rising = sparkline(sorted(values), width)
    assert list(rising) == sorted(rising, key=SPARKS.index)


def test_a_sparkline_shows_the_whole_course():
    line = sparkline([float(value) for value in range(1000)], 20)
    assert (line[0], line[-1]) == (SPARKS[0], SPARKS[-1])
    assert sparkline([3.0, 3.0], 10) == SPARKS[0] * 2


def test_the_history_of_returns_covers_the_whole_run_in_bounded_space(clock):
    view = make_progress_view("off", TITLE, 10_000)
    for value in range(10_000):
        for found in (float(value), None, math.nan):
            view.update({"agent_steps": value, "episode_return": found})
    kept = [*view._returns.values()]
    assert len(kept) == 200
    assert kept[0] < 50
    assert kept[-1] > 9_900
    assert {b - a for a, b in pairwise(kept)} == {50}  # evenly picked


def test_time_left_follows_the_mean_speed_not_the_last_update(clock):
    view = make_progress_view("lines", TITLE, 1000, Screen(is_terminal=False))
    view.update({"agent_steps": 100, "sps": 10.0, "wall_s": 1.0})
    assert view._times() == ("0:00:01", "0:01:30")
    clock.now += 10
    view.update({"agent_steps": 300, "sps": 1e9, "wall_s": 11.0})
    assert view._times() == ("0:00:11", "0:00:35")
    assert view.task.percentage == 30
    view.update({"agent_steps": 1024})
    assert view.task.percentage == 100
    assert view._times()[1] == "0:00:00"


def test_a_resumed_run_does_not_count_earlier_steps_as_speed(clock):
    view = make_progress_view("lines", TITLE, 1000, Screen(is_terminal=False))
    clock.now += 1
    view.update({"agent_steps": 500, "sps": 10.0})
    assert view._times()[1] == "0:00:50"
    clock.now += 10
    view.update({"agent_steps": 600, "sps": 1e9})
    assert view._times()[1] == "0:00:40"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00:00"), (65.9, "0:01:05"), (90_000, "1 day, 1:00:00"), (None, "-"), (math.inf, "-")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.2134, "0.213"), (-21.789, "-21.789"), (12_345.6, "1.23e+04"), (None, "-")]
)
def test_figures_fit_their_column(value, text):
    view = make_progress_view("off", TITLE, 10)
    view.update({"episode_return": value})
    assert view._text("episode_return", ",.3f") == text


def test_in_a_notebook_one_line_is_redrawn(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    monkeypatch.setattr(progress_module, "REDRAW_S", 0.0)
    out = io.StringIO()
    with make_progress_view("auto", TITLE, 24_576, out) as view:
        assert isinstance(view, NotebookBar)
        view.update(FULL)
        view.update({**FULL, "agent_steps": 24_576})
    title, bar = out.getvalue().split("\n")[:2]
    assert title == TITLE
    _, half, whole = bar.split("\r")
    assert half.startswith(" 50% |##########          | 12,288/24,576  return 0.210  8,412 steps/s")
    assert whole.startswith("100% |####################|")
    assert not isinstance(make_progress_view("lines", TITLE, 24_576, out), NotebookBar)
