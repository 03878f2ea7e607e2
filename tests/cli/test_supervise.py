"""A command ends, with the right exit code, whatever custom code left running and wherever its output goes."""

import os
import subprocess
import sys
import threading

import pytest

from holdfast.cli import audit_command
from holdfast.cli.audit_command import Progress, time_limited
from holdfast.cli.failures import Output

LEAVES_A_THREAD = """
import sys, threading
from holdfast.cli import supervise

supervise.ENDING_SECONDS = 0.0
with supervise.exit_despite_threads():
    threading.Thread(target=threading.Event().wait, name="left over").start()
    HOW
"""


@pytest.mark.parametrize(("end", "code"), [("raise ValueError('mine')", 1), ("sys.exit(3)", 3)])
def test_a_command_does_not_wait_for_threads(end, code):
    script = LEAVES_A_THREAD.replace("HOW", end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert "left over" in done.stderr


@pytest.mark.parametrize("output", list(Output))
def test_an_audit_that_times_out_ends_even_if_stdout_is_broken(output, monkeypatch):
    codes = []
    monkeypatch.setattr(audit_command, "leave", codes.append)
    timers = []
    monkeypatch.setattr(threading, "Timer", lambda seconds, call: timers.append(call) or threading.Thread())
    monkeypatch.setattr(threading.Thread, "cancel", lambda self: None, raising=False)
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(os, "dup", lambda handle: full)
    with time_limited(1.0, Progress(), "", output):
        timers[0]()
    assert codes == [2]
