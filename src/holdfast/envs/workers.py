"""Environments spread over processes that write into one shared set of arrays, in lockstep.

Every worker holds a contiguous share of the environments, and an environment's seeds follow its number, so the
result does not depend on the number of workers. The shared arrays have no name in the file system: nothing is
left behind however a run ends.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import select
import signal
import threading
import time
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from holdfast.config.settings import EnvSection
from holdfast.envs.failures import describe_error, last_lines, span
from holdfast.envs.make import build, describe
from holdfast.envs.world import Buffers, World
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.spec import WorldSpec

STEP = b"s"
RESET = b"r"  # followed by the seed, 8 bytes
DONE = b""

HEARTBEAT_MS = 250  # how often a silent worker's process is looked at, should its pipe outlive it in a grandchild
CLOSING_SECONDS = 2.0  # time to leave by itself; then it is killed
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # sent to the whole group by terminals and `timeout`: the parent decides

_ERRORS = {kind.__name__: kind for kind in (HoldfastError, SettingsError, NonFiniteError)}
_spawn = multiprocessing.get_context("spawn")


class WorkerWorld(World):
    """The same world as in one process, stepped by `num_workers` processes."""

    def __init__(self, settings: EnvSection, num_workers: int, env_ids: range):
        if num_workers > len(env_ids):
            raise SettingsError(
                f"trainer.num_workers={num_workers} is more than env.num_envs={len(env_ids)}: every worker needs an "
                f"environment.\nUse at most trainer.num_workers={len(env_ids)}."
            )
        spec = describe(settings)
        num_slots = len(env_ids) * spec.agents_per_env
        memory = _spawn.RawArray("b", _shared_bytes(spec, num_slots))
        super().__init__(spec, env_ids, shared_buffers(memory, spec, num_slots))
        self._workers: list[Worker] = []
        # runs at close, when the world is collected, or at exit before multiprocessing waits for its children
        self._stop = util.Finalize(self, stop_workers, (self._workers,), exitpriority=100)
        self._poll = select.poll()
        try:
            for number, share in enumerate(split(env_ids, num_workers)):
                self._workers.append(Worker(number, share, settings, spec, env_ids, memory))
                self._poll.register(self._workers[-1].connection, select.POLLIN)
            self._gather()
        except BaseException:
            self.close()
            raise

    def _reset(self, seed: int) -> None:
        self._run(RESET + seed.to_bytes(8, "little"))

    def _step(self) -> None:
        self._run(STEP)

    def _check_finite(self) -> None:
        """Workers have checked their own rows."""

    def _run(self, command: bytes) -> None:
        if self.closed:
            raise HoldfastError(f"{self.world_spec.name}: this world is closed; make a new one.")
        try:
            for worker in self._workers:
                worker.send(command)
            self._gather()
        except HoldfastError:
            self.close()
            raise

    def _gather(self) -> None:
        """Wait for every worker; a death is told at once, an error when all are done (the first in slot order)."""
        waiting = {worker.connection.fileno(): worker for worker in self._workers}
        failed: dict[int, bytes] = {}
        while waiting:
            ready = self._poll.poll(HEARTBEAT_MS)
            for file, _ in ready:
                worker = waiting.pop(file)
                reply = worker.receive()
                if reply != DONE:
                    failed[worker.number] = reply
            if not ready:
                for worker in waiting.values():
                    worker.check_alive()
        if failed:
            number = min(failed)
            raise self._workers[number].failure(failed[number])

    def close_extras(self, **kwargs: Any) -> None:
        self._stop()


class Worker:
    """The parent's side of one process."""

    def __init__(
        self, number: int, env_ids: range, settings: EnvSection, spec: WorldSpec, all_ids: range, memory: Any
    ):
        self.number = number
        self.env_ids = env_ids
        self.connection, theirs = _spawn.Pipe()
        self.process = _spawn.Process(
            target=serve,
            args=(theirs, settings, env_ids, spec, all_ids, memory),
            name=f"holdfast-worker-{number}",
        )
        # inherited: a Ctrl-C while the worker still imports must not end it; `serve` unblocks them
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()

    def send(self, command: bytes) -> None:
        try:
            self.connection.send_bytes(command)
        except OSError:
            raise self.death() from None

    def receive(self) -> bytes:
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            raise self.death() from None

    def check_alive(self) -> None:
        if not self.process.is_alive():
            raise self.death()

    def death(self) -> HoldfastError:
        """The error for a process that is gone without a word."""
        self.process.join(CLOSING_SECONDS)
        code = self.process.exitcode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"exited with code {code}"
        hint = "\nSIGKILL without anybody sending it usually means: out of memory." if code == -signal.SIGKILL else ""
        return HoldfastError(f"{self} (pid {self.process.pid}) {how}.{hint}")

    def failure(self, reply: bytes) -> HoldfastError:
        """The error a worker sent, of the kind it was."""
        kind, text, origin = json.loads(reply)
        return _ERRORS[kind](f"{text}\nIn {self}:\n{origin}")

    def __str__(self) -> str:
        plural = "" if len(self.env_ids) == 1 else "s"
        return f"worker {self.number} with environment{plural} {span(self.env_ids)}"


def stop_workers(workers: list[Worker]) -> None:
    """End all processes: by themselves when their pipe closes, by force when they do not."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + CLOSING_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.process.close()


def serve(
    connection: Connection, settings: EnvSection, env_ids: range, spec: WorldSpec, all_ids: range, memory: Any
) -> None:
    """A worker's life: build its share, then obey until the parent closes the pipe or is gone."""
    for number in SIGNALS:
        # a handler, not SIG_IGN: processes an environment starts must not inherit deafness
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_leave_with_parent, daemon=True).start()

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            rows = slice(
                (env_ids.start - all_ids.start) * spec.agents_per_env,
                (env_ids.stop - all_ids.start) * spec.agents_per_env,
            )
            buffers = shared_buffers(memory, spec, len(all_ids) * spec.agents_per_env, rows)
            with build(settings, env_ids, buffers) as world:
                connection.send_bytes(DONE)
                _obey(connection, world)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            connection.send_bytes(_report(error))


def _obey(connection: Connection, world: World) -> None:
    while True:
        command = connection.recv_bytes()
        if command == STEP:
            world.step(world.buffers.actions)
        else:
            world.reset(seed=int.from_bytes(command[1:], "little"))
        connection.send_bytes(DONE)


def _report(error: Exception) -> bytes:
    kind = type(error).__name__
    text = str(error)
    if kind not in _ERRORS:
        kind, text = "HoldfastError", describe_error(error)
    return json.dumps([kind, text, last_lines(error)]).encode()


def _leave_with_parent() -> None:
    """Ends a worker whose parent was killed, also in the middle of a step that never returns."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def split(env_ids: range, parts: int) -> list[range]:
    """Contiguous shares whose sizes differ by at most one."""
    cuts = [len(env_ids) * part // parts for part in range(parts + 1)]
    return [env_ids[start:stop] for start, stop in zip(cuts, cuts[1:], strict=False)]


def shared_buffers(memory: Any, spec: WorldSpec, num_slots: int, rows: slice = slice(None)) -> Buffers:
    """The arrays of all slots laid over shared memory, or these rows of them."""
    offset = 0
    arrays = {}
    for name, (shape, dtype) in Buffers.layout(spec).items():
        array = np.ndarray((num_slots, *shape), dtype, buffer=memory, offset=offset)
        offset += _aligned(array.nbytes)
        arrays[name] = array[rows]
    return Buffers(**arrays)


def _shared_bytes(spec: WorldSpec, num_slots: int) -> int:
    sizes = Buffers.allocate(spec, num_slots)
    return sum(_aligned(array.nbytes) for array in vars(sizes).values())


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64
