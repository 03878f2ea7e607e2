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
import time
from collections.abc import Callable
from multiprocessing import util
from typing import Any

import numpy as np

from holdfast.config.settings import EnvSection
from holdfast.envs.failures import numbered
from holdfast.envs.make import describe
from holdfast.envs.worker_handle import FAILING_SECONDS, Failure, Worker, spawn, stop_workers
from holdfast.envs.worker_process import STAND, STEP, pack, shared_buffers, shared_bytes
from holdfast.envs.world import Standing, World
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError

HEARTBEAT_SECONDS = 0.25  # a silent worker's process is looked at: its own children may hold its pipe open
BUILDING_SECONDS = 60.0  # the least a worker has for being built, or for standing where it is told to


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
        self._episodes = np.zeros(len(env_ids), np.int64)  # before this step: a dying worker may write anything
        self._lost: np.ndarray | None = None  # [slots] of the last step, where any were
        self._workers: list[Worker] = []
        self._by_file: dict[int, Worker] = {}
        # runs at close, when the world is collected, or at exit before multiprocessing waits for its children
        self._stop = util.Finalize(self, stop_workers, (self._workers,), exitpriority=100)
        self._poll = select.poll()
        self._heartbeat = min(HEARTBEAT_SECONDS, timeout)
        self._clock = 0.0  # seconds this process has waited for workers
        try:
            for number, share in enumerate(split(env_ids, num_workers)):
                worker = Worker(number, share, settings, spec, env_ids, memory)
                self._workers.append(worker)
                worker.start(self._clock, self._building_seconds)
                self._watch(worker)
            self._gather()
        except BaseException:
            self.close()
            raise

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        answer = super().step(actions)
        if self._lost is not None:
            answer[-1]["lost"] = self._lost
        return answer

    def _stand(self, standing: Standing) -> None:
        self._lost = None
        self._episodes[:] = standing.episodes
        shares = [standing.share(worker.envs.start, worker.envs.stop) for worker in self._workers]
        for worker, share in zip(self._workers, shares, strict=True):
            worker.since, worker.failures = share.episodes, 0
        # every step of an episode that is lived again may take as long as a step
        seconds = max(BUILDING_SECONDS, self._timeout) * (1 + int(standing.lengths.max()))
        self._run(seconds, STAND, [pack(share) for share in shares])

    def _step(self, envs: range) -> None:
        b = self.buffers
        if self._lost is not None:  # as its worker left them: not every world writes its flags in every step
            b.truncated[self._lost], b.valid[self._lost] = False, True
            self._lost = None
        self._run(self._timeout, STEP)
        if self._lost is not None:  # its worker has written the rest: no reward, the first observation
            b.truncated[self._lost], b.valid[self._lost] = True, False
        self._episodes[:] = b.episode[:: self.world_spec.agents_per_env]

    def _start(self, index: int, seed: int) -> None:
        raise NotImplementedError  # workers start their own

    def _check_finite(self) -> None:
        """Workers have checked their own rows."""

    def _run(self, seconds: float, command: bytes, details: list[bytes] | None = None) -> None:
        if self.closed:
            raise HoldfastError(f"{self.world_spec.name}: this world is closed; make a new one.")
        try:
            for worker in self._workers:
                worker.send(self._clock, seconds, command, details[worker.number] if details else None)
            self._gather(survive=command == STEP)
        except BaseException:
            # after an interrupt too: what is left of this step's answers would pass for the next one's
            stop_workers(self._workers, FAILING_SECONDS)
            self.close()
            raise

    def _gather(self, survive: bool = False) -> None:
        """Wait for every worker, and for those that replace others.

        What stops the run: a death or a hang at once; of several errors, the first in slot order.
        """
        waiting = set(self._workers)
        stopping: dict[int, HoldfastError] = {}
        now = time.monotonic()
        while waiting:
            ready = self._poll.poll(self._heartbeat * 1000)
            before, now = now, time.monotonic()
            # at most a heartbeat: a Ctrl-Z stops this process together with its workers, and they are not late then
            self._clock += min(now - before, self._heartbeat)
            if ready:
                answers = [(worker := self._by_file[file], worker.read_answer()) for file, _ in ready]
            else:
                answers = [(worker, self._look_at(worker)) for worker in waiting]
            for worker, failure in answers:
                if failure is None:
                    if worker.owes == 0:
                        waiting.discard(worker)
                elif survive and self._is_survived(worker, failure):
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

    def _look_at(self, worker: Worker) -> Failure | None:
        """What is wrong with a worker that is silent."""
        if not worker.is_alive():
            return worker.death()
        return worker.hang() if worker.is_late(self._clock) else None

    def _is_survived(self, worker: Worker, failure: Failure) -> bool:
        """Counts the failure, too."""
        if isinstance(failure.error, NonFiniteError | SettingsError):
            return False
        if not worker.returning and (self._episodes[worker.envs] > worker.since).any():
            worker.failures = 0
        worker.failures += 1
        return worker.failures <= self._failures

    def _replace(self, worker: Worker, failure: Failure) -> None:
        """A new process for the same environments, at the start of their next episodes."""
        if not worker.returning:
            worker.since = self._episodes[worker.envs] + 1
        elif worker.owes == 1:  # built, and then it failed: these episodes may have no beginning
            worker.since = worker.since + 1
        pid = worker.process.pid
        self._forget(worker)
        worker.kill()
        standing = Standing.at_the_start(self.seed, self.world_spec, worker.since, self.steps)
        worker.start(self._clock, self._building_seconds, standing)
        self._watch(worker)
        if self._lost is None:
            self._lost = np.zeros(self.num_slots, bool)
        self._lost[worker.slots] = True
        cut = numbered("episode", range(int(worker.since.min()) - 1, int(worker.since.max())))
        self._on_failure(
            f"{worker} (pid {pid}) {failure.what}\nRestarted as pid {worker.process.pid}, failure {worker.failures} of "
            f"at most {self._failures} in a row. Thrown away: {cut}."
        )

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
