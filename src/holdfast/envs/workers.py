"""Step environments in several worker processes, in lockstep. All workers write into the same shared arrays.

Every worker has a contiguous share of the environments. Seeds depend on the number of the environment, not on the
worker, so results do not depend on the number of workers.

A worker that dies, hangs or reports an error during a run is replaced: its environments continue with their next
episodes, and `info["lost"]` [slots] is true for their slots in that step. NaN and Inf stop the run.
"""

from __future__ import annotations

import itertools
import logging
import select
from collections.abc import Callable
from multiprocessing import util
from typing import Any

import numpy as np

from holdfast.config.sections import EnvSection
from holdfast.envs.failures import numbered
from holdfast.envs.worker_handle import FAILING_SECONDS, Failure, Worker, spawn, stop_workers
from holdfast.envs.worker_process import REPLAY, STEP, shared_buffers, shared_bytes
from holdfast.envs.world import ReplayPoint, World
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 0.25  # interval of checks for dead workers, as a child process may keep a dead worker's pipe open
BUILDING_SECONDS = 60.0  # minimum time limit for building a worker or replaying its episodes


class WorkerWorld(World):
    """A world whose environments are stepped by `num_workers` processes, with the same results as in one process.

    A worker fails if it dies, reports an error, or needs more than `timeout` seconds for a step. It is restarted up to
    `failures` times in a row, and `on_failure` is called each time; an episode that ends normally resets the count.
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
                f"trainer.num_workers={num_workers}: more workers than environments (env.num_envs={len(env_ids)}).\n"
                f"Use at most trainer.num_workers={len(env_ids)}, or set env.num_envs to at least {num_workers}."
            )
        spec = settings.describe()
        num_slots = len(env_ids) * spec.agents_per_env
        size = shared_bytes(spec, num_slots)
        try:
            memory = spawn.RawArray("b", size)
        except OSError as error:  # no space left, or a read-only file system
            raise SettingsError(
                f"env={settings.name} with trainer.num_workers={num_workers}: {size / 2**20:.1f} MB of shared memory cannot "
                f"be created: {error.strerror or error}.\nUse trainer.num_workers=0, or make room in /dev/shm."
            ) from error
        super().__init__(spec, env_ids, shared_buffers(memory, spec, num_slots))
        self._timeout, self._failures = timeout, failures
        self._on_failure = on_failure or logger.warning
        # with few cores, workers that are built at the same time slow each other down
        self._building_seconds = max(BUILDING_SECONDS, timeout) * num_workers
        self._episodes = np.zeros(num_slots, np.int64)  # before this step; a dying worker may corrupt the shared array
        # copied through memoryviews in every step, which takes less than 1 us; numpy's copyto takes 5 us
        self._episodes_here, self._episodes_shared = self._episodes.data, self.buffers.episode.data
        self._workers: list[Worker] = []
        self._by_file: dict[int, Worker] = {}
        # runs at close(), at garbage collection, or at exit before multiprocessing joins its children
        self._stop = util.Finalize(self, stop_workers, (self._workers,), exitpriority=100)
        self._poll = select.poll()
        self._heartbeat = min(HEARTBEAT_SECONDS, timeout)
        self._clock = 0.0  # seconds during which all workers were silent
        try:
            for number, share in enumerate(split(env_ids, num_workers)):
                worker = Worker(number, share, settings, spec, env_ids, memory)
                self._workers.append(worker)
                worker.start()
                self._watch(worker)
            self._gather(self._building_seconds)
        except BaseException:
            stop_workers(self._workers, FAILING_SECONDS, report=False)
            self.close()
            raise

    def _replay_to(self, point: ReplayPoint) -> None:
        self.lost = None
        shares = [point.of_envs(worker.envs.start, worker.envs.stop) for worker in self._workers]
        for worker, share in zip(self._workers, shares, strict=True):
            worker.since, worker.failures = share.episodes, 0
        # workers send ALIVE while they replay, so this limits only the time between two answers
        self._run(max(BUILDING_SECONDS, self._timeout), REPLAY, shares)
        self._episodes_here[:] = self._episodes_shared

    def _step(self, envs: range) -> None:
        b = self.buffers
        if self.lost is not None:  # undo the flags set below, because not every world writes its flags in every step
            b.truncated[self.lost], b.valid[self.lost] = False, True
            self.lost = None
        self._run(self._timeout, STEP)
        for worker in self._workers:
            if worker.infos:
                self.episode_infos += [(worker.slots.start + slot, numbers) for slot, numbers in worker.infos]
                worker.infos = []
        if self.lost is not None:  # the new worker wrote the other arrays: reward 0, first observation
            b.truncated[self.lost], b.valid[self.lost] = True, False
        self._episodes_here[:] = self._episodes_shared

    def _check_finite(self) -> None:
        """Do nothing, because every worker checks its own rows."""

    def _run(self, seconds: float, command: bytes, points: list[ReplayPoint] | None = None) -> None:
        if self.closed:
            raise HoldfastError(f"{self.world_spec.name}: this world is closed; create a new one.")
        try:
            for worker in self._workers:
                worker.send(command, points[worker.number] if points else None)
            self._gather(seconds, survive=command == STEP)
        except BaseException:
            # even after an interrupt, because late answers to this command would be read as answers to the next one
            stop_workers(self._workers, FAILING_SECONDS, report=False)
            self.close()
            raise

    def _gather(self, seconds: float, survive: bool = False) -> None:
        """Wait up to `seconds` for every worker to answer. `survive`: restart workers that fail, and wait for them too.

        If a worker that may not be restarted dies or hangs, raise at once. If workers report errors, wait for the
        others, then raise the error of the first worker.
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
                    began = self._clock  # ALIVE: restart the time limit
            if not ready:
                # Count timeouts instead of measuring time; otherwise all workers would seem late after Ctrl-Z and fg
                self._clock += self._heartbeat
                failed = [
                    (worker, failure) for worker in waiting if (failure := self._check_silent(worker, began, seconds))
                ]
            for worker, failure in failed:
                if survive and self._may_restart(worker, failure):
                    self._replace(worker, failure)
                    waiting.add(worker)
                elif failure.reported:
                    stopping[worker.number] = failure.error
                    waiting.discard(worker)
                    self._forget(worker)  # after a report the worker exits, which is not a second failure
                else:
                    raise failure.error
        if stopping:
            raise stopping[min(stopping)]

    def _check_silent(self, worker: Worker, began: float, seconds: float) -> Failure | None:
        """Return the failure if the worker died or did not answer within `seconds`, else None."""
        if worker.returning:
            began, seconds = worker.restarted, self._building_seconds
        if not worker.process.is_alive():
            return worker.death()
        return worker.hang(seconds) if self._clock - began >= seconds else None

    def _may_restart(self, worker: Worker, failure: Failure) -> bool:
        """Count the failure and return whether the worker may be restarted."""
        if isinstance(failure.error, NonFiniteError | SettingsError):
            return False
        if not worker.returning and (self._episodes_of(worker) > worker.since).any():
            worker.failures = 0
        worker.failures += 1
        return worker.failures <= self._failures

    def _replace(self, worker: Worker, failure: Failure) -> None:
        """Start a new process for the same environments, at the start of their next episodes."""
        if not worker.returning:
            worker.since = self._episodes_of(worker) + 1
        elif worker.returning == 1:  # the worker failed while starting these episodes, so skip them
            worker.since = worker.since + 1
        pid = worker.process.pid
        self._forget(worker)
        worker.kill()
        worker.infos = []
        point = ReplayPoint.at_episode_start(self.seed, self.world_spec, worker.since, self.steps)
        worker.start(point)
        worker.restarted = self._clock
        self._watch(worker)
        if self.lost is None:
            self.lost = np.zeros(self.num_slots, bool)
        self.lost[worker.slots] = True
        cut = numbered("episode", range(int(worker.since.min()) - 1, int(worker.since.max())))
        self._on_failure(
            f"{worker} (pid {pid}) {failure.what}\nRestarted as pid {worker.process.pid} (failure {worker.failures} of "
            f"at most {self._failures} in a row). Discarded: {cut}."
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


def split(env_ids: range, parts: int) -> list[range]:
    """Split `env_ids` into contiguous shares whose sizes differ by at most 1."""
    cuts = [len(env_ids) * part // parts for part in range(parts + 1)]
    return [env_ids[start:stop] for start, stop in itertools.pairwise(cuts)]
