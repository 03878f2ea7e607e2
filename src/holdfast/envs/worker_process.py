"""The code that runs in a worker process: build a share of the environments, then execute one-byte commands.

Arrays are in shared memory, so pipes carry only commands and answers. The shared memory has no name in the file
system, so it is freed even if the run is killed.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TextIO, cast

import numpy as np

from holdfast.config.sections import EnvSection
from holdfast.envs import closing
from holdfast.envs.failures import describe_error, last_lines
from holdfast.envs.world import Buffers, ReplayError, ReplayPoint, World
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.spec import WorldSpec
from holdfast.streams import SafeStream

# A command is one byte; a replay point follows REPLAY. The answer is one byte; a report follows FAILED and CLOSE_FAILED.
# INFOS, followed by World.episode_infos as JSON, comes before DONE if there are any.
# With os.read and os.write, an empty step of two workers takes 100 us; with Connection.send_bytes, 150 us.
STEP, REPLAY = b"s", b"p"
DONE, FAILED, CLOSE_FAILED, INFOS = b"d", b"f", b"c", b"i"
ALIVE = b"a"  # sent while episodes are replayed, which may take hours
ALIVE_SECONDS = 1.0

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # sent to all processes of the group; only the parent reacts
ERRORS = {kind.__name__: kind for kind in (HoldfastError, SettingsError, NonFiniteError, ReplayError)}


def serve(
    commands: Connection,
    answers: Connection,
    settings: EnvSection,
    env_ids: range,
    spec: WorldSpec,
    memory: Any,
    num_slots: int,
    rows: slice,
    point: ReplayPoint | None,
) -> None:
    """Build the environments, replay to `point`, and execute commands until the parent closes the pipe or dies."""
    for number in SIGNALS:
        # a handler instead of SIG_IGN, which processes started by an environment would inherit
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_exit_with_parent, daemon=True).start()

    if sys.stdout is not None:
        sys.stdout = cast(TextIO, SafeStream(sys.stdout))  # an environment that prints survives a full disk

    buffers = shared_buffers(memory, spec, num_slots, rows)
    with contextlib.suppress(BrokenPipeError):  # the parent closed the world during a step
        try:
            with settings.build(env_ids, buffers) as world:
                _execute_commands(commands, answers, world, point)
            if failed := closing.failed_close(settings.name):
                os.write(answers.fileno(), CLOSE_FAILED)
                answers.send_bytes(failed[:4000].encode())
        except BrokenPipeError:
            raise
        except Exception as error:
            os.write(answers.fileno(), FAILED)
            answers.send_bytes(_report(error))


def _execute_commands(commands: Connection, connection: Connection, world: World, point: ReplayPoint | None) -> None:
    """Execute commands. Send DONE at the start, after replaying to `point` (if given), and after each command."""
    answers = connection.fileno()
    world.on_replayed = _heartbeat(answers)
    os.write(answers, DONE)
    if point is not None:
        world.replay_to(point)
        os.write(answers, DONE)
    while command := os.read(commands.fileno(), 1):
        if command == STEP:
            world.step(world.buffers.actions)
            if world.episode_infos:
                os.write(answers, INFOS)
                connection.send_bytes(json.dumps(world.episode_infos).encode())
        else:
            world.replay_to(commands.recv())
        os.write(answers, DONE)


def _heartbeat(answers: int) -> Callable[[], None]:
    """Return a function that sends ALIVE, at most once per ALIVE_SECONDS."""
    sent = time.monotonic()

    def send() -> None:
        nonlocal sent
        if time.monotonic() - sent > ALIVE_SECONDS:
            os.write(answers, ALIVE)
            sent = time.monotonic()

    return send


def _report(error: Exception) -> bytes:
    kind, text = type(error).__name__, str(error)
    if kind not in ERRORS:
        kind, text = "HoldfastError", describe_error(error)
    return json.dumps([kind, text[:4000], last_lines(error)[-4000:]]).encode()


def _exit_with_parent() -> None:
    """Wait until the parent process ends, then exit, even during a step that never returns."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def shared_buffers(memory: Any, spec: WorldSpec, num_slots: int, rows: slice = slice(None)) -> Buffers:
    """Return arrays in shared memory for all `num_slots` slots, or views of the given `rows`."""
    offset = 0
    arrays = {}
    for name, (shape, dtype) in Buffers.layout(spec).items():
        array = np.ndarray((num_slots, *shape), dtype, buffer=memory, offset=offset)
        offset += _aligned(array.nbytes)
        arrays[name] = array[rows]
    return Buffers(**arrays)


def shared_bytes(spec: WorldSpec, num_slots: int) -> int:
    """Return the number of bytes of shared memory that `shared_buffers` needs."""
    return sum(_aligned(array.nbytes) for array in vars(Buffers.allocate(spec, num_slots)).values())


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64
