"""Real processes, real signals: nobody outlives the program, nothing stays behind.

Here the first failure stops the run; `test_worker_failures.py` has those that are survived.
"""

import os
import signal
import threading
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import psutil
import pytest
from toy_processes import comes_true, gone, pids, run_parent, shared_files

from holdfast.envs import GymEnv, make_world
from holdfast.envs.worker_handle import Worker
from holdfast.envs.workers import WorkerWorld
from holdfast.errors import HoldfastError


def odd(fault: str = "none", num_workers: int = 2) -> WorkerWorld:
    settings = GymEnv(name="gym:toy_gym:Odd-v0", num_envs=4, kwargs={"fault": fault})
    world = make_world(settings, num_workers, worker_failures=0)
    assert isinstance(world, WorkerWorld)
    world.reset(seed=0)
    return world


def idle(world: WorkerWorld) -> None:
    world.step(np.zeros(4, int))


def test_a_killed_worker_is_named_with_its_environments():
    """Worker 0 sleeps for a minute in its step: the death of worker 1 may not wait for it."""
    with odd("sleep") as world:
        workers = pids(world)
        threading.Timer(0.3, os.kill, (workers[1], signal.SIGKILL)).start()
        with pytest.raises(HoldfastError, match=r"worker 1 with environments 2 to 3 \(pid \d+\) was killed by SIGKILL"):
            world.step(np.array([3, 0, 0, 0]))
        assert gone(workers, 0)


@pytest.mark.slow
def test_a_worker_killed_between_steps_is_noticed():
    with odd() as world:
        os.kill(pids(world)[0], signal.SIGKILL)
        world._workers[0].process.join()
        with pytest.raises(HoldfastError, match=r"worker 0 .* was killed by SIGKILL"):
            idle(world)


@pytest.mark.slow
def test_a_worker_that_exits_is_told_with_its_code():
    with odd("exit") as world, pytest.raises(HoldfastError, match=r"worker 0 .* exited with code 7"):
        world.step(np.array([0, 3, 0, 0]))


@pytest.mark.slow
@pytest.mark.timeout(40)
def test_a_dead_worker_whose_pipe_stays_open_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its environment's own child holds the pipe: no end of file tells of the death."""
    note = tmp_path / "orphan"
    monkeypatch.setenv("ORPHAN", str(note))
    try:
        with odd("orphan") as world, pytest.raises(HoldfastError, match=r"worker 0 .* killed by SIGKILL"):
            world.step(np.array([0, 3, 0, 0]))
        assert psutil.pid_exists(int(note.read_text()))
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)


def test_signals_to_the_group_are_the_parents_business():
    with odd() as world:
        workers = pids(world)
        for pid in workers:
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
        for _ in range(20):
            idle(world)
    assert gone(workers, 0)


@pytest.mark.slow
def test_an_interrupt_in_the_middle_of_a_step_leaves_no_worker():
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    world = odd("sleep")
    workers = pids(world)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            world.step(np.array([3, 0, 0, 0]))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert gone(workers, 0)
    with pytest.raises(HoldfastError, match="closed"):
        idle(world)


@pytest.mark.slow
def test_a_stopped_worker_does_not_keep_the_world_open():
    world = odd()
    workers = pids(world)
    os.kill(workers[0], signal.SIGSTOP)
    world.close()
    assert gone(workers, 0)


@pytest.mark.slow
def test_a_forgotten_world_takes_its_workers_with_it():
    world = odd()
    workers = pids(world)
    del world
    assert gone(workers, 5)


@pytest.mark.slow
def test_no_files_handles_or_processes_stay_behind():
    odd().close()  # starts the resource tracker of multiprocessing, which stays
    files, handles, threads = shared_files(), psutil.Process().num_fds(), threading.active_count()
    children = len(psutil.Process().children())
    with odd() as world:
        idle(world)
        assert comes_true(lambda: shared_files() <= files, 5)  # not even while it lives
    assert psutil.Process().num_fds() <= handles
    assert len(psutil.Process().children()) == children
    assert threading.active_count() == threads


@pytest.mark.parametrize("ending", ["hang", pytest.param("step", marks=pytest.mark.slow)])
def test_workers_of_a_killed_program_leave_by_themselves(ending: str):
    """With `hang`, one worker is in the middle of a step that takes a minute."""
    files = shared_files()
    parent, workers = run_parent(ending)
    assert len(workers) == 2
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    assert gone(workers, 5)
    assert comes_true(lambda: shared_files() <= files, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "code"), [("leave", 0), ("fail", 1)])
def test_a_program_that_forgets_to_close_still_ends(ending: str, code: int):
    parent, workers = run_parent(ending)
    _, errors = parent.communicate(timeout=20)
    assert parent.returncode == code
    assert gone(workers, 0)
    assert ("something else went wrong" in errors) == (ending == "fail")
    assert "leaked" not in errors
    assert errors.count("Traceback") == code


def test_a_signal_waits_until_a_worker_is_started(monkeypatch: pytest.MonkeyPatch):
    """The system may give it to any thread, and Python then calls the handler in the main one, in the middle of anything."""

    class InterruptedByTestError(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise InterruptedByTestError

    done, start = threading.Event(), SpawnProcess.start

    def start_signalled(process: SpawnProcess) -> None:
        assert bystander.ident is not None
        signal.pthread_kill(bystander.ident, signal.SIGTERM)
        time.sleep(0.2)
        start(process)

    bystander = threading.Thread(target=done.wait, daemon=True)
    bystander.start()
    monkeypatch.setattr(SpawnProcess, "start", start_signalled)
    before = signal.signal(signal.SIGTERM, interrupt)
    started: list[object] = []
    monkeypatch.setattr(Worker, "kill", lambda worker, kill=Worker.kill: (started.append(worker.process), kill(worker)))
    try:
        with pytest.raises(InterruptedByTestError):
            make_world(GymEnv(name="gym:toy_gym:Dice-v0", num_envs=1), 1)
    finally:
        signal.signal(signal.SIGTERM, before)
        done.set()
    assert started[0] is not None, "there was a whole process to end"
