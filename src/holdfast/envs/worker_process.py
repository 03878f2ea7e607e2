"""What runs in a worker's process: it builds its share of the environments, then obeys one-byte commands.

Arrays are shared, so only commands and answers travel through pipes. The shared memory has no name in the file
system: nothing is left behind however a run ends.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from holdfast.config.sections import EnvSection
from holdfast.envs.failures import describe_error, last_lines
from holdfast.envs.world import Buffers, ReplayError, ReplayPoint, World
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.spec import WorldSpec

# A command is one byte; a replay point follows REPLAY. The answer is one byte; a report follows FAILED.
# Bare reads and writes: an empty step of two workers takes 100 us, with Connection.send_bytes 150.
STEP, REPLAY = b"s", b"p"
DONE, FAILED, ALIVE = b"d", b"f", b"a"  # alive: an episode that is lived again may take hours
ALIVE_SECONDS = 1.0

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # terminals and `timeout` signal the whole group: the parent decides
ERRORS = {kind.__name__: kind for kind in (HoldfastError, SettingsError, NonFiniteError, ReplayError)}


def serve(
    commands: Connection,
    answers: Connection,
    settings: EnvSection,
    env_ids: range,
    spec: WorldSpec,
    all_ids: range,
    memory: Any,
    point: ReplayPoint | None,
) -> None:
    """A worker's life: build its share, stand where it is told to, obey until the parent closes the pipe or is gone."""
    for number in SIGNALS:
        # a handler, not SIG_IGN: processes an environment starts must not inherit deafness
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_leave_with_parent, daemon=True).start()

    rows = slice(
        (env_ids.start - all_ids.start) * spec.agents_per_env,
        (env_ids.stop - all_ids.start) * spec.agents_per_env,
    )
    buffers = shared_buffers(memory, spec, len(all_ids) * spec.agents_per_env, rows)
    with contextlib.suppress(BrokenPipeError):  # the parent closed the world in the middle of a step
        try:
            with settings.build(env_ids, buffers) as world:
                _obey(commands, answers.fileno(), world, point)
        except BrokenPipeError:
            raise
        except Exception as error:
            os.write(answers.fileno(), FAILED)
            answers.send_bytes(_report(error))


def _obey(commands: Connection, answers: int, world: World, point: ReplayPoint | None) -> None:
    """Acknowledge once built, once the initial replay point (if any) is reached, and after each command."""
    world.on_replayed = _sign_of_life(answers)
    os.write(answers, DONE)
    if point is not None:
        world.replay_to(point)
        os.write(answers, DONE)
    while command := os.read(commands.fileno(), 1):
        if command == STEP:
            world.step(world.buffers.actions)
        else:
            world.replay_to(unpack(commands.recv_bytes(), world))
        os.write(answers, DONE)


def _sign_of_life(answers: int) -> Callable[[], None]:
    told = time.monotonic()

    def tell() -> None:
        nonlocal told
        if time.monotonic() - told > ALIVE_SECONDS:
            os.write(answers, ALIVE)
            told = time.monotonic()

    return tell


def pack(point: ReplayPoint) -> bytes:
    """Serialise a replay point for a worker, which knows how many environments it has."""
    numbers = np.concatenate([[point.seed, point.steps], point.episodes, point.lengths]).astype(np.int64)
    return numbers.tobytes() + point.actions.tobytes()


def unpack(data: bytes, world: World) -> ReplayPoint:
    count, spec = len(world.env_ids), world.world_spec
    numbers = np.frombuffer(data, np.int64, 2 + 2 * count)
    actions = np.frombuffer(data, spec.actions.dtype, offset=numbers.nbytes)
    shape = (-1, spec.agents_per_env, *spec.actions.shape)
    return ReplayPoint(
        int(numbers[0]), int(numbers[1]), numbers[2 : 2 + count], numbers[2 + count :], actions.reshape(shape)
    )


def _report(error: Exception) -> bytes:
    kind = type(error).__name__
    text = str(error)
    if kind not in ERRORS:
        kind, text = "HoldfastError", describe_error(error)
    return json.dumps([kind, text[:4000], last_lines(error)[-4000:]]).encode()


def _leave_with_parent() -> None:
    """Ends a worker whose parent was killed, also in the middle of a step that never returns."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def shared_buffers(memory: Any, spec: WorldSpec, num_slots: int, rows: slice = slice(None)) -> Buffers:
    """The arrays of all slots laid over shared memory, or these rows of them."""
    offset = 0
    arrays = {}
    for name, (shape, dtype) in Buffers.layout(spec).items():
        array = np.ndarray((num_slots, *shape), dtype, buffer=memory, offset=offset)
        offset += _aligned(array.nbytes)
        arrays[name] = array[rows]
    return Buffers(**arrays)


def shared_bytes(spec: WorldSpec, num_slots: int) -> int:
    """How much memory `shared_buffers` needs."""
    sizes = Buffers.allocate(spec, num_slots)
    return sum(_aligned(array.nbytes) for array in vars(sizes).values())


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64
