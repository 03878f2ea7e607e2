"""Run `holdfast ...` commands in other processes.

Importing torch takes seconds. `Commands` imports everything once and forks for each command, so a test of forty commands
waits once. `holdfast_process` starts a fresh process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

# Audit events (sys.addaudithook) that must not occur while a file is read.
FORBIDDEN = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect")

SERVER = """
import json, os, signal, sys, tempfile, time, traceback
import holdfast.audit.adapters, holdfast.cli.audit_command, holdfast.evaluate, holdfast.trainer.loop
import holdfast.envs.gymnasium_world, holdfast.envs.mettagrid
from holdfast.cli import main

forbidden = json.loads(sys.argv[1])

def play(argv, cwd, out, err, seen):
    def hook(event, args):
        if event in forbidden:
            os.write(seen, f"{event} {args}\\n".encode())
    code = 70
    try:
        os.chdir(cwd)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.addaudithook(hook)
        main(argv)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

print("ready", flush=True)
for line in sys.stdin:
    ask = json.loads(line)
    files = [tempfile.TemporaryFile() for _ in range(3)]
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        play(ask["argv"], ask["cwd"], *(file.fileno() for file in files))
    pid = 0
    while not pid and time.perf_counter() - began < ask["limit"]:
        time.sleep(0.01)
        pid, status, used = os.wait4(child, os.WNOHANG)
    if not pid:
        os.kill(child, signal.SIGKILL)
        pid, status, used = os.wait4(child, 0)
    seconds = used.ru_utime + used.ru_stime
    for file in files:
        file.seek(0)
    out, err, seen = (file.read().decode("utf-8", "replace") for file in files)
    answer = dict(code=os.waitstatus_to_exitcode(status), out=out, err=err, seconds=seconds, seen=seen.splitlines())
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str
    seconds: float  # CPU time without the imports, so that a busy machine changes little
    seen: list[str] = field(default_factory=list)  # forbidden audit events

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


class Commands:
    """A process that has imported everything and forks for each command. Use it in a `with` block."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER, json.dumps(FORBIDDEN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"

    def __call__(self, *argv: str, cwd: Path, limit: float = 120.0) -> Done:
        """Run `holdfast argv` in the folder `cwd`; kill it (code -9) after `limit` seconds."""
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"argv": argv, "cwd": str(cwd), "limit": limit}) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._read())
        return Done(**answer)

    def _read(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().strip()

    def __enter__(self) -> Commands:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)


def holdfast_process(*argv: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start `holdfast argv` in a fresh process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-m", "holdfast", *argv], cwd=cwd, text=True, **pipes)
