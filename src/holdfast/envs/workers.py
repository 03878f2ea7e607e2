"""Environments spread over processes that write into one shared set of arrays, in lockstep.

Every worker holds a contiguous share of the environments, and an environment's seeds follow its number, so
the result does not depend on the number of workers.

A worker that dies, hangs or reports an error in the middle of a run is replaced: its environments go on with their
next episodes, and the step in which that happened says so in `info["lost"]` [slots]. NaN and Inf stop the run.
"""

from __future__ import annotations

import itertools
import select
import sys
from collections.abc import Callable
from multiprocessing import util
from typing import Any

import numpy as np

from holdfast.config.sections import EnvSection
from holdfast.envs.failures import numbered
from holdfast.envs.make import describe
from holdfast.envs.worker_handle import FAILING_SECONDS, Failure, Worker, spawn, stop_workers
from holdfast.envs.worker_process import REPLAY, STEP, pack, shared_buffers, shared_bytes
from holdfast.envs.world import ReplayPoint, World
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError

HEARTBEAT_SECONDS = 0.25  # a silent worker's process is looked at: its own children may hold its pipe open
BUILDING_SECONDS = 60.0  # minimum time limit for building a worker or replaying its episodes


class WorkerWorld(World):
    """The same world as in one process, stepped by `num_workers` processes.

    A worker is hung when a step takes it longer than `timeout` seconds. `failures` in a row of one worker are
    survived, and `on_failure` is told of each; an episode that ends regularly ends the row.
    """

    def __init__(
        self,
        settings: EnvSection,
        num_workers: int,
        env_ids: range,
        *,
        timeout: float,
        failures: int,
        on_failure: Callable[[str], None] | None = None,
    ):
        if num_workers > len(env_ids):
            raise SettingsError(
                f"trainer.num_workers={num_workers} is more than env.num_envs={len(env_ids)}: "
                f"every worker needs an environment.\nUse at most trainer.num_workers={len(env_ids)}."
            )
        spec = describe(settings)
        num_slots = len(env_ids) * spec.agents_per_env
        memory = spawn.RawArray("b", shared_bytes(spec, num_slots))
        super().__init__(spec, env_ids, shared_buffers(memory, spec, num_slots))
        self._timeout = timeout
        self._failures = failures
        self._on_failure = on_failure or _print
        # on few cores, workers that are built at the same time wait for each other
        self._building_seconds = max(BUILDING_SECONDS, timeout) * num_workers
        self._episodes = np.zeros(num_slots, np.int64)  # before this step: a dying worker may write anything
        # copied as bare memory in every step, which takes less than 1 us; numpy's copyto takes 5
        self._episodes_here, self._episodes_shared = self._episodes.data, self.buffers.episode.data
        self._workers: list[Worker] = []
        self._by_file: dict[int, Worker] = {}
        # runs at close, when the world is collected, or at exit before multiprocessing waits for its children
        self._stop = util.Finalize(self, stop_workers, (self._workers,), exitpriority=100)
        self._poll = select.poll()
        self._heartbeat = min(HEARTBEAT_SECONDS, timeout)
        self._clock = 0.0  # seconds in which all workers were silent
        try:
            for number, share in enumerate(split(env_ids, num_workers)):
                worker = Worker(number, share, settings, spec, env_ids, memory)
                self._workers.append(worker)
                worker.start()
                self._watch(worker)
            self._gather(self._building_seconds)
        except BaseException:
            self.close()
            raise

    def _replay_to(self, point: ReplayPoint) -> None:
        self.lost = None
        shares = [point.of_envs(worker.envs.start, worker.envs.stop) for worker in self._workers]
        for worker, share in zip(self._workers, shares, strict=True):
            worker.since, worker.failures = share.episodes, 0
        # it gives signs of life, step by step
        self._run(max(BUILDING_SECONDS, self._timeout), REPLAY, [pack(share) for share in shares])
        self._episodes_here[:] = self._episodes_shared

    def _step(self, envs: range) -> None:
        b = self.buffers
        if self.lost is not None:  # as its worker left them: not every world writes its flags in every step
            b.truncated[self.lost], b.valid[self.lost] = False, True
            self.lost = None
        self._run(self._timeout, STEP)
        if self.lost is not None:  # its worker has written the rest: no reward, the first observation
            b.truncated[self.lost], b.valid[self.lost] = True, False
        self._episodes_here[:] = self._episodes_shared

    def _check_finite(self) -> None:
        """Workers have checked their own rows."""

    def _run(self, seconds: float, command: bytes, details: list[bytes] | None = None) -> None:
        if self.closed:
            raise HoldfastError(f"{self.world_spec.name}: this world is closed; make a new one.")
        try:
            for worker in self._workers:
                worker.send(command, details[worker.number] if details else None)
            self._gather(seconds, survive=command == STEP)
        except BaseException:
            # after an interrupt too: what is left of this step's answers would pass for the next one's
            stop_workers(self._workers, FAILING_SECONDS)
            self.close()
            raise

    def _gather(self, seconds: float, survive: bool = False) -> None:
        """Wait for every worker, at most so long, and for those that replace others.

        What stops the run: a death or a hang at once; of several errors, the first in slot order.
        """
        waiting = set(self._workers)
        stopping: dict[int, HoldfastError] = {}
        began = self._clock
        while waiting:
            ready = self._poll.poll(self._heartbeat * 1000)
            failed: list[tuple[Worker, Failure]] = []
            for file, _ in ready:
                worker = self._by_file[file]
                if failure := worker.read_answer():
                    failed.append((worker, failure))
                elif worker.answered:
                    waiting.discard(worker)
                else:
                    began = self._clock  # somebody is at work; whether others hang is seen when nobody is
            if not ready:
                # A heartbeat, whatever a clock says: Ctrl-Z stops this process and its workers, and they are not late then
                self._clock += self._heartbeat
                failed = [(worker, failure) for worker in waiting if (failure := self._look_at(worker, began, seconds))]
            for worker, failure in failed:
                if survive and self._is_survived(worker, failure):
                    self._replace(worker, failure)
                    waiting.add(worker)
                elif failure.reported:
                    stopping[worker.number] = failure.error
                    waiting.discard(worker)
                    self._forget(worker)  # it leaves now, and that is no death
                else:
                    raise failure.error
        if stopping:
            raise stopping[min(stopping)]

    def _look_at(self, worker: Worker, began: float, seconds: float) -> Failure | None:
        """What is wrong with a silent worker that has this long to answer."""
        if worker.returning:
            began, seconds = worker.restarted, self._building_seconds
        if not worker.is_alive():
            return worker.death()
        return worker.hang(seconds) if self._clock - began >= seconds else None

    def _is_survived(self, worker: Worker, failure: Failure) -> bool:
        """Counts the failure, too."""
        if isinstance(failure.error, NonFiniteError | SettingsError):
            return False
        if not worker.returning and (self._episodes_of(worker) > worker.since).any():
            worker.failures = 0
        worker.failures += 1
        return worker.failures <= self._failures

    def _replace(self, worker: Worker, failure: Failure) -> None:
        """A new process for the same environments, at the start of their next episodes."""
        if not worker.returning:
            worker.since = self._episodes_of(worker) + 1
        elif worker.returning == 1:  # built, and then it failed: these episodes may have no beginning
            worker.since = worker.since + 1
        pid = worker.process.pid
        self._forget(worker)
        worker.kill()
        point = ReplayPoint.at_episode_start(self.seed, self.world_spec, worker.since, self.steps)
        worker.start(point)
        worker.restarted = self._clock
        self._watch(worker)
        if self.lost is None:
            self.lost = np.zeros(self.num_slots, bool)
        self.lost[worker.slots] = True
        cut = numbered("episode", range(int(worker.since.min()) - 1, int(worker.since.max())))
        self._on_failure(
            f"{worker} (pid {pid}) {failure.what}\nRestarted as pid {worker.process.pid}, failure {worker.failures} of "
            f"at most {self._failures} in a row. Thrown away: {cut}."
        )

    def _episodes_of(self, worker: Worker) -> np.ndarray:
        return self._episodes[worker.slots][:: self.world_spec.agents_per_env]

    def _watch(self, worker: Worker) -> None:
        self._by_file[worker.answers.fileno()] = worker
        self._poll.register(worker.answers, select.POLLIN)

    def _forget(self, worker: Worker) -> None:
        del self._by_file[worker.answers.fileno()]
        self._poll.unregister(worker.answers)

    def close_extras(self, **kwargs: Any) -> None:
        self._stop()


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def split(env_ids: range, parts: int) -> list[range]:
    """Contiguous shares whose sizes differ by at most one."""
    cuts = [len(env_ids) * part // parts for part in range(parts + 1)]
    return [env_ids[start:stop] for start, stop in itertools.pairwise(cuts)]
