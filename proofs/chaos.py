"""`make chaos`: inject failures into a long training run, again and again, until it has finished.

Workers are killed and suspended, the trainer is killed and terminated, the newest checkpoint is damaged while the trainer is
down, the disk is full for a while. The run must still finish, with each update logged once and nothing left behind. A second run
gets only the failures that must not change a number, and must end identical to an undisturbed run. So must a third, without
workers, whose world changes the working directory and prints in every step and fails in close(), while the trainer's stdout is
closed, full or a pipe that nobody reads, another one after every stop.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import gymnasium
import numpy as np
import psutil
from kills import digest
from soak import count_updates

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.errors import HoldfastError
from holdfast.runs import read_metrics

WORKER_TIMEOUT = 1.0
NOTICE_SECONDS = 30.0  # limit for noticing a failure; the table shows the time it took
EXIT_SECONDS = 5.0  # limit for workers to exit after their trainer was killed
QUIET_SECONDS = 60.0  # between two progress lines, unless stderr is a terminal
WORDS = [
    "settings=memory",
    "env.num_envs=4",
    "env.rooms=4",
    "policy.hidden=32",
    "seed=3",
    "progress=off",
    "trainer.num_workers=2",
    "trainer.schedule.lr.kind=constant",  # a schedule would depend on total_timesteps, which changes at the end
    "trainer.worker_failures=1000000",
    "trainer.checkpoint_interval=3",
]
BATCH = 4 * 4 * 32
DISK_FULL = (
    "file too large",
    "could not be written yet",
    "only part of a line was written",
)  # messages allowed while the disk is full
ENDLESS = 10**9


ROWDY = [
    "env=gym:chaos:Rowdy-v0",
    "env.num_envs=16",
    "trainer.horizon=32",
    "trainer.batch_size=512",
    *(
        word
        for word in WORDS
        if word.startswith(("seed", "progress", "trainer.sched", "trainer.check", "policy.hidden"))
    ),
]
OUTPUTS = ("closed", "full", "nobody reads it")


class Rowdy(gymnasium.Env):
    """A world that does not care about its process; with `calm`, the same one without that."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, calm: bool = False):
        self.calm, self.t = calm, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.random(3).astype(np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        if not self.calm:
            os.chdir(("/", "/proc", "/dev")[self.t % 3])
            print("a line of a world", flush=True)
        return self.np_random.random(3).astype(np.float32), float(action), False, self.t == 20, {}

    def close(self) -> None:
        if not self.calm:
            time.sleep(3600)


gymnasium.register("Rowdy-v0", entry_point=f"{__name__}:Rowdy")


class Run:
    """A run folder and the process that trains it."""

    def __init__(self, folder: Path, name: str, steps: int, *words: str, settings: list[str] = WORDS):
        self.path = folder / name
        self._words = [*settings, *words, f"run={name}", f"runs_dir={folder}"]
        self.output = ""  # one of OUTPUTS; "": the log
        self.steps = steps
        self._log = folder / f"{name}.txt"
        self.process: psutil.Popen | None = None
        self.ended: int | None = None  # exit code of the last process
        self._workers: list[psutil.Process] = []
        self._copier: threading.Thread | None = None
        self._reported = time.monotonic()

    def start(self) -> None:
        words = [*self._words, f"trainer.total_timesteps={self.steps}"]
        command = [sys.executable, "-m", "holdfast", "train", *words]
        redirect = {"closed": ">&-", "full": ">/dev/full", "nobody reads it": "> >(exec true)"}.get(self.output, "")
        shell = ["bash", "-c", f'exec "$0" "$@" 3>&1 2>&3 3>&- {redirect}', *command]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        # Through a pipe: a file would hit the size limit too, and lines would be cut.
        self.process = psutil.Popen(shell, stdout=subprocess.PIPE, env=env)
        self._copier = threading.Thread(target=self._copy, args=(self.process.stdout,), daemon=True)
        self._copier.start()

    def _copy(self, output: IO[bytes]) -> None:
        with output, self._log.open("ab", buffering=0) as log:
            for line in output:
                log.write(line)

    def workers(self) -> list[psutil.Process]:
        """Processes that run environments, without the one that Python starts for shared memory."""
        assert self.process is not None
        try:
            found = [p for p in self.process.children() if "spawn_main" in " ".join(p.cmdline())]
        except psutil.Error:
            return []
        self._workers += [p for p in found if p not in self._workers]
        return found

    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def updates(self) -> int:
        return count_updates(self.path)

    def wait_for_progress(self, updates: int, within: float = 120.0) -> bool:
        """Wait for this many more lines of metrics; false if the run ends or they do not come in time."""
        until = time.monotonic() + within
        began = self.updates()
        while self.is_up() and time.monotonic() < until:
            if self.updates() >= began + updates:
                return True
            time.sleep(0.02)
        return False

    def wait_for_end(self, within: float) -> float:
        """Wait for the process to end and return the seconds it took; RuntimeError if it does not."""
        assert self.process is not None
        began = time.monotonic()
        while (left := began + within - time.monotonic()) > 0:
            with suppress(psutil.TimeoutExpired):
                self.ended = self.process.wait(min(left, QUIET_SECONDS))
                return time.monotonic() - began
            self.report("finishing")
        raise RuntimeError(f"the trainer did not end within {within:.0f} s")

    def wait_for_workers(self) -> float:
        """Wait until all workers of this and earlier trainers are gone; return the seconds it took."""
        began = time.monotonic()
        _, left = psutil.wait_procs(self._workers, timeout=EXIT_SECONDS)
        if left:
            raise RuntimeError(f"{len(left)} workers are still running {EXIT_SECONDS:.0f} s after their trainer ended")
        self._workers.clear()
        return time.monotonic() - began

    def report(self, what: str) -> None:
        """Print progress to stderr: every line on a terminal, one a minute in a log."""
        if sys.stderr.isatty() or time.monotonic() - self._reported >= QUIET_SECONDS:
            self._reported = time.monotonic()
            print(f"{self.path.name}: {self.updates()} updates, {what}", file=sys.stderr, flush=True)

    def log(self) -> str:
        """Everything the run has printed; call it when its processes have ended."""
        if self._copier:
            self._copier.join(EXIT_SECONDS)
        return self._log.read_text(errors="replace")

    def kill_all(self) -> None:
        """Kill what is left of the trainer and its workers."""
        left = [*self._workers, *([self.process] if self.process else [])]
        for process in left:
            if process.is_running():
                process.kill()
        psutil.wait_procs(left, timeout=10)


class Chaos:
    """Failures to inject into a run.

    Each method returns the seconds until the run had noticed or recovered, None if the failure could not be injected now, and
    raises RuntimeError if the run did not recover.
    """

    def __init__(self, run: Run, rng: random.Random):
        self.run, self.rng = run, rng
        self.injected: Counter[str] = Counter()
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def inject(self, name: str) -> None:
        took = EVENTS[name](self)
        if took is not None:
            self.injected[name] += 1
            self.seconds[name].append(took)
            self.run.report(f"{self.injected.total()} failures; the last: {name}, {took:.2f} s")

    def kill_worker(self) -> float | None:
        return self._harm_worker(lambda worker: worker.kill())

    def stop_worker(self) -> float | None:
        return self._harm_worker(lambda worker: worker.suspend())

    def _harm_worker(self, harm: Callable[[psutil.Process], None]) -> float | None:
        """Harm a worker and return the seconds until it is replaced."""
        workers = self.run.workers()
        if len(workers) < 2:
            return None
        worker = self.rng.choice(workers)
        harm(worker)
        began = time.monotonic()
        while self.run.is_up():
            now = self.run.workers()
            if worker not in now and len(now) == 2:
                return time.monotonic() - began
            if time.monotonic() - began > NOTICE_SECONDS:
                raise RuntimeError(f"a lost worker was not replaced within {NOTICE_SECONDS:.0f} s")
            time.sleep(0.005)
        return None  # the trainer ended with it

    def kill_trainer(self) -> float:
        self._signal_trainer(signal.SIGKILL)
        left = self.run.wait_for_workers()
        self.run.start()
        return left

    def stop_trainer(self) -> float:
        return self._stop_trainer(signal.SIGTERM)

    def hang_up(self) -> float:
        return self._stop_trainer(signal.SIGHUP)

    def break_output(self) -> float:
        """Stop the trainer and restart it with another kind of broken stdout."""
        self.run.output = OUTPUTS[(self.injected["stdout broken"] + 1) % len(OUTPUTS)]
        return self._stop_trainer(signal.SIGTERM)

    def _stop_trainer(self, number: signal.Signals) -> float:
        took = self._signal_trainer(number)
        if self.run.ended not in (128 + number, 0):  # 0: it had just finished
            raise RuntimeError(f"exit code {self.run.ended} after {number.name}")
        self.run.wait_for_workers()
        if (self.run.path / "lock").exists():
            raise RuntimeError(f"the lock was left behind after {number.name}")
        self.run.start()
        return took

    def damage_checkpoint(self) -> float | None:
        """Kill the trainer, damage its newest checkpoint and restart it: it must fall back to an older one."""
        took = self._signal_trainer(signal.SIGKILL)
        self.run.wait_for_workers()
        good = [path for path in list_checkpoints(self.run.path / "checkpoints") if is_whole(path)]
        if len(good) < 2:  # with a single one, nothing would be left to resume from
            self.run.start()
            return None
        file = self.rng.choice(sorted(p for p in good[-1].iterdir() if p.is_file()))
        how = self.rng.choice(["a bit", "half", "gone"])
        data = bytearray(file.read_bytes())
        if how == "a bit":
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            file.write_bytes(data)
        elif how == "half":
            file.write_bytes(data[: len(data) // 2])
        else:
            file.unlink()
        if is_whole(good[-1]):
            raise RuntimeError(f"{file} was damaged ({how}), but the checkpoint still verifies")
        self.run.start()
        return took

    def fill_disk(self) -> float | None:
        """Limit the file size for a while: writes fail, and must be made up for afterwards."""
        process = self.run.process
        assert process is not None
        began = time.monotonic()
        try:
            _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (self.rng.choice([0, 100, 4096]), hard))
            time.sleep(self.rng.uniform(0.5, 2.5))
            process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY if hard < 0 else hard, hard))
        except psutil.NoSuchProcess:
            return None  # it had just finished
        return time.monotonic() - began

    def _signal_trainer(self, number: int) -> float:
        assert self.run.process is not None
        self.run.workers()
        self.run.process.send_signal(number)
        return self.run.wait_for_end(NOTICE_SECONDS)


EVENTS: dict[str, Callable[[Chaos], float | None]] = {
    "kill -9 a worker": Chaos.kill_worker,
    "SIGSTOP a worker": Chaos.stop_worker,
    "kill -9 the trainer": Chaos.kill_trainer,
    "SIGTERM the trainer": Chaos.stop_trainer,
    "SIGHUP the trainer": Chaos.hang_up,
    "newest checkpoint damaged": Chaos.damage_checkpoint,
    "disk full": Chaos.fill_disk,
    "stdout broken": Chaos.break_output,
}
MEASURED = {
    "kill -9 a worker": "until replaced",
    "SIGSTOP a worker": f"until replaced; {WORKER_TIMEOUT:g} s is the limit",
    "kill -9 the trainer": "until its workers are gone",
    "SIGTERM the trainer": "until saved and gone",
    "SIGHUP the trainer": "until saved and gone",
}
HARMLESS = (
    "kill -9 the trainer",
    "SIGTERM the trainer",
    "SIGHUP the trainer",
    "newest checkpoint damaged",
    "disk full",
)


def inject_failures(run: Run, names: tuple[str, ...], seconds: float, rng: random.Random) -> tuple[Chaos, list[str]]:
    """Inject these failures for `seconds`, each at least once, then let the run finish; return also what went wrong."""
    chaos, trouble = Chaos(run, rng), []
    run.start()
    until = time.monotonic() + seconds
    waiting: list[str] = []
    try:
        while time.monotonic() < until or len(chaos.injected) < len(names):
            if not run.wait_for_progress(rng.randint(1, 6)):
                code = run.process.poll() if run.process else None
                raise RuntimeError("no progress for 120 s" if code is None else f"it ended early with exit code {code}")
            if not waiting:  # all in random order, then all again
                waiting = rng.sample(names, len(names))
            chaos.inject(waiting.pop())
        # Restart with a total a few updates ahead, so that it finishes.
        run.wait_for_progress(1)
        if run.process:
            run.process.send_signal(signal.SIGTERM)
        run.wait_for_end(NOTICE_SECONDS)
        run.wait_for_workers()
        run.steps = (run.updates() + 5) * BATCH
        run.start()
        run.wait_for_end(300)
        run.wait_for_workers()
    except (RuntimeError, HoldfastError, psutil.Error) as error:
        trouble.append(str(error))
    finally:
        run.kill_all()
    return chaos, trouble or find_faults(run)


def is_whole(checkpoint: Path) -> bool:
    try:
        load_checkpoint(checkpoint)
    except HoldfastError:
        return False
    return True


def find_faults(run: Run) -> list[str]:
    """List what is wrong with a run that has ended."""
    trouble = [] if run.ended == 0 else [f"exit code {run.ended}"]
    try:
        updates = run.steps // BATCH
        rows = [row["update"] for row in read_metrics(run.path)]
        if rows != list(range(1, updates + 1)):
            trouble.append(f"metrics do not contain each of the {updates} updates exactly once")
        newest = list_checkpoints(run.path / "checkpoints")[-1]
        load_checkpoint(newest)
        if int(newest.name) != updates:
            trouble.append(f"the last checkpoint is from update {int(newest.name)}, not {updates}")
        summary = json.loads((run.path / "summary.json").read_text())
        if (summary["updates"], summary["agent_steps"]) != (updates, run.steps):
            trouble.append(f"the summary says {summary['updates']} updates, {summary['agent_steps']} steps")
    except (HoldfastError, OSError, LookupError, ValueError) as error:
        trouble.append(f"{type(error).__name__}: {error}")
    trouble += [f"{p.name} was left behind" for p in run.path.rglob("*") if p.name[0] == "." or p.name == "lock"]
    unsaved = [line for line in run.log().splitlines() if "NOT SAVED" in line]
    trouble += [line for line in unsaved if not any(reason in line for reason in DISK_FULL)][:1]
    if "Traceback" in run.log():
        trouble.append("its output contains a traceback")
    return trouble


def compare(run: Run, folder: Path, *words: str, settings: list[str] = WORDS) -> list[str]:
    """List the differences from an undisturbed run."""
    undisturbed = Run(folder, f"{run.path.name}-undisturbed", run.steps, *words, settings=settings)
    undisturbed.start()
    try:
        undisturbed.wait_for_end(1800)
    finally:
        undisturbed.kill_all()
    wanted, found = digest(undisturbed.path), digest(run.path)
    return find_faults(undisturbed) + [
        f"{part} differs from the undisturbed run's" for part in wanted if found[part] != wanted[part]
    ]


def table(chaos: Chaos) -> str:
    lines = [f"  {'failure':<28}{'times':>6}   seconds: mean, worst"]
    for name, times in chaos.injected.items():
        took = chaos.seconds[name]
        shown = f"{sum(took) / len(took):.2f}, {max(took):.2f} {MEASURED[name]}" if took and name in MEASURED else ""
        lines.append(f"  {name:<28}{times:>6}   {shown}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="minutes of failures; finishing and comparing take extra time"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed for the order and timing of failures")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its runs are killed too
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and the runs would inherit that
    folder = options.keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    try:
        # A short timeout finds suspended workers soon; the other runs must not lose a slow worker to it.
        impatient = [*WORDS, f"trainer.worker_timeout={WORKER_TIMEOUT}"]
        kinds = (
            ("everything", impatient, tuple(EVENTS), 0.5, None),
            ("harmless", WORDS, HARMLESS, 0.3, []),
            ("rowdy", ROWDY, ("stdout broken", *HARMLESS), 0.2, ["env.kwargs.calm=true"]),
        )
        for name, settings, events, share, calm in kinds:
            began = time.monotonic()
            run = Run(folder, name, ENDLESS // BATCH * BATCH, settings=settings)
            chaos, trouble = inject_failures(run, events, share * options.minutes * 60, rng)
            if calm is not None and not trouble:
                trouble = compare(run, folder, *calm, settings=settings)
            same = ", identical to the undisturbed run" if calm is not None else ""
            verdict = f"FAILED: {'; '.join(trouble)}" if trouble else f"intact{same}"
            minutes = (time.monotonic() - began) / 60
            print(
                f"{name}: {chaos.injected.total()} failures, {run.updates()} updates, {minutes:.1f} minutes\n{table(chaos)}"
            )
            print(f"  {verdict}", flush=True)
            if trouble:
                print("  its last lines:", *run.log().splitlines()[-8:], sep="\n    ")
            failed |= bool(trouble)
    finally:
        if options.keep is None and not failed:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"FAILED; the runs are in {folder}" if failed else "all failures survived")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
