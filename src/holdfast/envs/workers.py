"""Environments spread over processes that write into one shared set of arrays, in lockstep.

Every worker holds a contiguous share of the environments, and an environment's seeds follow its number, so
the result does not depend on the number of workers. The shared arrays have no name in the file system, so
nothing is left behind however a run ends.
"""

from __future__ import annotations

import contextlib
import itertools
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
from holdfast.envs.failures import describe_error, last_lines, numbered
from holdfast.envs.make import build, describe
from holdfast.envs.world import Buffers, ReplayError, Standing, World
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.spec import WorldSpec

# A command is one byte; where to stand follows STAND. The answer is one byte; a report follows FAILED.
# Bare reads and writes: an empty step of two workers takes 100 us, with Connection.send_bytes 150.
STEP, STAND = b"s", b"p"
DONE, FAILED = b"d", b"f"

HEARTBEAT_MS = 250  # a silent worker's process is looked at: its own children may hold its pipe open
CLOSING_SECONDS = 2.0  # time for workers to leave by themselves; then they are killed
FAILING_SECONDS = 0.5  # the same when one has failed: the others may be busy, and the error should not wait
SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
)  # terminals and `timeout` signal the whole group: the parent decides

_ERRORS = {kind.__name__: kind for kind in (HoldfastError, SettingsError, NonFiniteError, ReplayError)}
_spawn = multiprocessing.get_context("spawn")


class WorkerWorld(World):
    """The same world as in one process, stepped by `num_workers` processes."""

    def __init__(self, settings: EnvSection, num_workers: int, env_ids: range):
        if num_workers > len(env_ids):
            raise SettingsError(
                f"trainer.num_workers={num_workers} is more than env.num_envs={len(env_ids)}: "
                f"every worker needs an environment.\nUse at most trainer.num_workers={len(env_ids)}."
            )
        spec = describe(settings)
        num_slots = len(env_ids) * spec.agents_per_env
        memory = _spawn.RawArray("b", _shared_bytes(spec, num_slots))
        super().__init__(spec, env_ids, shared_buffers(memory, spec, num_slots))
        self._workers: list[Worker] = []
        self._by_file: dict[int, Worker] = {}
        # runs at close, when the world is collected, or at exit before multiprocessing waits for its children
        self._stop = util.Finalize(self, stop_workers, (self._workers,), exitpriority=100)
        self._poll = select.poll()
        try:
            for number, share in enumerate(split(env_ids, num_workers)):
                worker = Worker(number, share, settings, spec, env_ids, memory)
                self._workers.append(worker)
                self._by_file[worker.answers.fileno()] = worker
                self._poll.register(worker.answers, select.POLLIN)
            self._gather()
        except BaseException:
            self.close()
            raise

    def _stand(self, standing: Standing) -> None:
        shares = [worker.share_of(standing, self.env_ids) for worker in self._workers]
        self._run(STAND, [pack(share) for share in shares])

    def _step(self, envs: range) -> None:
        self._run(STEP)

    def _start(self, index: int, seed: int) -> None:
        raise NotImplementedError  # workers start their own

    def _check_finite(self) -> None:
        """Workers have checked their own rows."""

    def _run(self, command: bytes, details: list[bytes] | None = None) -> None:
        if self.closed:
            raise HoldfastError(f"{self.world_spec.name}: this world is closed; make a new one.")
        try:
            for worker in self._workers:
                worker.send(command, details[worker.number] if details else None)
            self._gather()
        except BaseException:
            # after an interrupt too: what is left of this step's answers would pass for the next one's
            stop_workers(self._workers, FAILING_SECONDS)
            self.close()
            raise

    def _gather(self) -> None:
        """Wait for every worker. A death is told at once; of several errors, the first in slot order."""
        waiting = set(self._by_file)
        failed: list[Worker] = []
        while waiting:
            ready = self._poll.poll(HEARTBEAT_MS)
            for file, _ in ready:
                worker = self._by_file[file]
                if not worker.finished():
                    failed.append(worker)
                    self._poll.unregister(file)  # it leaves now, and that is no death
                waiting.discard(file)
            if not ready:
                for file in waiting:
                    self._by_file[file].check_alive()
        if failed:
            raise min(failed, key=lambda worker: worker.number).failure()

    def close_extras(self, **kwargs: Any) -> None:
        self._stop()


class Worker:
    """The parent's side of one process."""

    def __init__(self, number: int, env_ids: range, settings: EnvSection, spec: WorldSpec, all_ids: range, memory: Any):
        self.number = number
        self.env_ids = env_ids
        commands, self.commands = _spawn.Pipe(duplex=False)
        self.answers, answers = _spawn.Pipe(duplex=False)
        self.process = _spawn.Process(
            target=serve,
            args=(commands, answers, settings, env_ids, spec, all_ids, memory),
            name=f"holdfast-worker-{number}",
        )
        # inherited: a Ctrl-C while the worker still imports must not end it; `serve` unblocks them
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            commands.close()
            answers.close()

    def send(self, command: bytes, detail: bytes | None = None) -> None:
        try:
            os.write(self.commands.fileno(), command)
            if detail is not None:
                self.commands.send_bytes(detail)
        except OSError:
            raise self.death() from None

    def finished(self) -> bool:
        """Read the answer: True when all went well, False when `failure` has the reason."""
        answer = os.read(self.answers.fileno(), 1)
        if not answer:
            raise self.death()
        return answer == DONE

    def check_alive(self) -> None:
        if not self.process.is_alive():
            raise self.death()

    def death(self) -> HoldfastError:
        """The error for a process that is gone without a word."""
        self.process.join(0.5)
        code = self.process.exitcode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"exited with code {code}"
        hint = "\nA SIGKILL that nobody sent means: out of memory." if code == -signal.SIGKILL else ""
        return HoldfastError(f"{self} (pid {self.process.pid}) {how}.{hint}")

    def failure(self) -> HoldfastError:
        """The error a worker reported, of the kind it was."""
        try:
            kind, text, origin = json.loads(self.answers.recv_bytes())
        except (EOFError, OSError):
            return self.death()
        return _ERRORS[kind](f"{text}\nIn {self}" + (f":\n{origin}" if origin else "."))

    def share_of(self, standing: Standing, all_ids: range) -> Standing:
        return standing.share(self.env_ids.start - all_ids.start, self.env_ids.stop - all_ids.start)

    def __str__(self) -> str:
        return f"worker {self.number} with {numbered('environment', self.env_ids)}"


def stop_workers(workers: list[Worker], seconds: float = CLOSING_SECONDS) -> None:
    """End all processes: by themselves when their pipe closes, by force when that takes too long."""
    for worker in workers:
        worker.commands.close()
    deadline = time.monotonic() + seconds
    try:
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:  # an impatient Ctrl-C lands above, and leaves nobody behind either
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            worker.process.close()
            worker.answers.close()
        workers.clear()


def serve(
    commands: Connection,
    answers: Connection,
    settings: EnvSection,
    env_ids: range,
    spec: WorldSpec,
    all_ids: range,
    memory: Any,
) -> None:
    """A worker's life: build its share, then obey until the parent closes the pipe or is gone."""
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
            with build(settings, env_ids, buffers) as world:
                _obey(commands, answers.fileno(), world)
        except BrokenPipeError:
            raise
        except Exception as error:
            os.write(answers.fileno(), FAILED)
            answers.send_bytes(_report(error))


def _obey(commands: Connection, answers: int, world: World) -> None:
    """Answer once for being ready and once per command."""
    os.write(answers, DONE)
    while command := os.read(commands.fileno(), 1):
        if command == STEP:
            world.step(world.buffers.actions)
        else:
            world.stand(unpack(commands.recv_bytes(), world))
        os.write(answers, DONE)


def pack(standing: Standing) -> bytes:
    """A standing as bytes for a worker that knows how many environments it has."""
    numbers = np.concatenate([[standing.seed, standing.steps], standing.episodes, standing.lengths]).astype(np.int64)
    return numbers.tobytes() + standing.actions.tobytes()


def unpack(data: bytes, world: World) -> Standing:
    count, spec = len(world.env_ids), world.world_spec
    numbers = np.frombuffer(data, np.int64, 2 + 2 * count)
    actions = np.frombuffer(data, spec.actions.dtype, offset=numbers.nbytes)
    shape = (-1, spec.agents_per_env, *spec.actions.shape)
    return Standing(
        int(numbers[0]), int(numbers[1]), numbers[2 : 2 + count], numbers[2 + count :], actions.reshape(shape)
    )


def _report(error: Exception) -> bytes:
    kind = type(error).__name__
    text = str(error)
    if kind not in _ERRORS:
        kind, text = "HoldfastError", describe_error(error)
    return json.dumps([kind, text[:4000], last_lines(error)[-4000:]]).encode()


def _leave_with_parent() -> None:
    """Ends a worker whose parent was killed, also in the middle of a step that never returns."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def split(env_ids: range, parts: int) -> list[range]:
    """Contiguous shares whose sizes differ by at most one."""
    cuts = [len(env_ids) * part // parts for part in range(parts + 1)]
    return [env_ids[start:stop] for start, stop in itertools.pairwise(cuts)]


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
