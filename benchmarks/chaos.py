"""`make chaos`: one long run to which everything happens, again and again, until it is finished.

Workers are killed and stopped, the trainer is killed and told to stop, the newest checkpoint is damaged while the run is down, the
disk is full for a while. The run has to end by itself, with every update once and nothing left behind. Another run suffers only what
must not change a number, and has to end exactly like one that nobody touched.
"""

from __future__ import annotations

import argparse
import json
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

import psutil
from kills import digest

from holdfast.checkpoint import list_checkpoints, verify_checkpoint
from holdfast.errors import HoldfastError
from holdfast.runs import read_metrics

WORKER_TIMEOUT = 1.0
NOTICING_SECONDS = 30.0  # far more than it may take; the table shows what it took
LEAVING_SECONDS = 5.0  # for workers of a trainer that was killed
QUIET_SECONDS = 60.0  # between two lines of progress, unless somebody looks on
WORDS = [
    "settings=memory",
    "env.num_envs=4",
    "env.rooms=4",
    "policy.hidden=32",
    "seed=3",
    "progress=off",
    "trainer.num_workers=2",
    "trainer.schedule.lr.kind=constant",  # else the rate depends on how long a run is meant to be, which changes in the end
    "trainer.worker_failures=1000000",
    "trainer.checkpoint_interval=3",
]
BATCH = 4 * 4 * 32
DISK_FULL = ("file too large", "could not be written yet")  # what a run may say while the disk is full
ENDLESS = 10**9


class Run:
    """A run, and the process that is at it."""

    def __init__(self, folder: Path, name: str, steps: int, *words: str):
        self.path = folder / name
        self._words = [*WORDS, *words, f"run={name}", f"runs_dir={folder}"]
        self.steps = steps
        self._log = folder / f"{name}.txt"
        self.process: psutil.Popen | None = None
        self.ended: int | None = None  # exit code of the last process
        self._workers: list[psutil.Process] = []
        self._copier: threading.Thread | None = None
        self._told = time.monotonic()

    def start(self) -> None:
        words = [*self._words, f"trainer.total_timesteps={self.steps}"]
        command = [sys.executable, "-m", "holdfast", "train", *words]
        # A file as its output would be full with the disk, and lines would be cut.
        self.process = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._copier = threading.Thread(target=self._copy, args=(self.process.stdout,), daemon=True)
        self._copier.start()

    def _copy(self, output: IO[bytes]) -> None:
        with output, self._log.open("ab", buffering=0) as log:
            for line in output:
                log.write(line)

    def workers(self) -> list[psutil.Process]:
        """Processes that hold environments, not the one that Python keeps for shared memory."""
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
        file = self.path / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def wait_for_progress(self, updates: int, within: float = 120.0) -> bool:
        """Whether this many more lines of metrics come in time, before the run ends."""
        until = time.monotonic() + within
        began = self.updates()
        while self.is_up() and time.monotonic() < until:
            if self.updates() >= began + updates:
                return True
            time.sleep(0.02)
        return False

    def wait_for_end(self, within: float) -> float:
        """Seconds until its process ended; RuntimeError if it did not."""
        assert self.process is not None
        began = time.monotonic()
        while (left := began + within - time.monotonic()) > 0:
            with suppress(psutil.TimeoutExpired):
                self.ended = self.process.wait(min(left, QUIET_SECONDS))
                return time.monotonic() - began
            self.tell("on its way to its end")
        raise RuntimeError(f"the trainer has not ended after {within:.0f} s")

    def wait_for_workers(self) -> float:
        """Seconds until no worker of this or any earlier process is left."""
        began = time.monotonic()
        _, left = psutil.wait_procs(self._workers, timeout=LEAVING_SECONDS)
        if left:
            raise RuntimeError(f"{len(left)} workers are left {LEAVING_SECONDS:.0f} s after their trainer")
        self._workers.clear()
        return time.monotonic() - began

    def tell(self, what: str) -> None:
        """A line of progress on stderr: each on a terminal, one a minute in a log."""
        if sys.stderr.isatty() or time.monotonic() - self._told >= QUIET_SECONDS:
            self._told = time.monotonic()
            print(f"{self.path.name}: {self.updates()} updates, {what}", file=sys.stderr, flush=True)

    def log(self) -> str:
        """What it said, when all of its processes have ended."""
        if self._copier:
            self._copier.join(LEAVING_SECONDS)
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """Whatever became of it, leave no process."""
        left = [*self._workers, *([self.process] if self.process else [])]
        for process in left:
            if process.is_running():
                process.kill()
        psutil.wait_procs(left, timeout=10)


class Chaos:
    """Things that happen to a run. Each returns the seconds until it was noticed or over; RuntimeError if it went wrong.

    None: it could not happen now, and is not counted.
    """

    def __init__(self, run: Run, rng: random.Random):
        self.run, self.rng = run, rng
        self.happened: Counter[str] = Counter()
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def hit(self, name: str) -> None:
        took = EVENTS[name](self)
        if took is not None:
            self.happened[name] += 1
            self.seconds[name].append(took)
            self.run.tell(f"{self.happened.total()} events; the last: {name}, {took:.2f} s")

    def kill_worker(self) -> float | None:
        return self._harm_worker(lambda worker: worker.kill())

    def stop_worker(self) -> float | None:
        return self._harm_worker(lambda worker: worker.suspend())

    def _harm_worker(self, harm: Callable[[psutil.Process], None]) -> float | None:
        """Seconds until another process is there for a worker that came to harm."""
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
            if time.monotonic() - began > NOTICING_SECONDS:
                raise RuntimeError(f"a worker that came to harm was not replaced within {NOTICING_SECONDS:.0f} s")
            time.sleep(0.005)
        return None  # the trainer ended with it

    def kill_trainer(self) -> float:
        self._bring_down(signal.SIGKILL)
        left = self.run.wait_for_workers()
        self.run.start()
        return left

    def stop_trainer(self) -> float:
        took = self._bring_down(signal.SIGTERM)
        if self.run.ended not in (143, 0):  # 0: it was just finished
            raise RuntimeError(f"exit code {self.run.ended} after SIGTERM")
        self.run.wait_for_workers()
        if (self.run.path / "lock").exists():
            raise RuntimeError("the lock is left after SIGTERM")
        self.run.start()
        return took

    def damage(self) -> float | None:
        """Bring the trainer down, damage its newest checkpoint, continue: an older one has to do."""
        took = self._bring_down(signal.SIGKILL)
        self.run.wait_for_workers()
        good = [path for path in list_checkpoints(self.run.path / "checkpoints") if is_whole(path)]
        if len(good) < 2:  # of a single one nothing would be left to go on from
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
            raise RuntimeError(f"{file} was damaged ({how}), and nobody can tell")
        self.run.start()
        return took

    def fill_disk(self) -> float | None:
        """No file may grow for a while: what is written in that time is not, and has to be afterwards."""
        process = self.run.process
        assert process is not None
        began = time.monotonic()
        try:
            _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (self.rng.choice([0, 100, 4096]), hard))
            time.sleep(self.rng.uniform(0.5, 2.5))
            process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY if hard < 0 else hard, hard))
        except psutil.NoSuchProcess:
            return None  # it was just finished
        return time.monotonic() - began

    def _bring_down(self, number: int) -> float:
        assert self.run.process is not None
        self.run.workers()
        self.run.process.send_signal(number)
        return self.run.wait_for_end(NOTICING_SECONDS)


EVENTS: dict[str, Callable[[Chaos], float | None]] = {
    "kill -9 a worker": Chaos.kill_worker,
    "SIGSTOP a worker": Chaos.stop_worker,
    "kill -9 the trainer": Chaos.kill_trainer,
    "SIGTERM the trainer": Chaos.stop_trainer,
    "newest checkpoint damaged": Chaos.damage,
    "disk full": Chaos.fill_disk,
}
MEASURED = {
    "kill -9 a worker": "until replaced",
    "SIGSTOP a worker": f"until replaced; {WORKER_TIMEOUT:g} s is the limit",
    "kill -9 the trainer": "until its workers are gone",
    "SIGTERM the trainer": "until saved and gone",
}
HARMLESS = ("kill -9 the trainer", "SIGTERM the trainer", "newest checkpoint damaged", "disk full")


def suffer(run: Run, names: tuple[str, ...], seconds: float, rng: random.Random) -> tuple[Chaos, list[str]]:
    """Let these things happen to a run for so long, each at least once; then let it finish. And what went wrong."""
    chaos, trouble = Chaos(run, rng), []
    run.start()
    until = time.monotonic() + seconds
    waiting: list[str] = []
    try:
        while time.monotonic() < until or len(chaos.happened) < len(names):
            if not run.wait_for_progress(rng.randint(1, 6)):
                code = run.process.poll() if run.process else None
                raise RuntimeError("no progress for 120 s" if code is None else f"it ended too early, with code {code}")
            if not waiting:  # all of them in a random order, then all of them again
                waiting = rng.sample(names, len(names))
            chaos.hit(waiting.pop())
        # a finished run of as many updates as it has now, and some
        run.wait_for_progress(1)
        if run.process:
            run.process.send_signal(signal.SIGTERM)
        run.wait_for_end(NOTICING_SECONDS)
        run.wait_for_workers()
        run.steps = (run.updates() + 5) * BATCH
        run.start()
        run.wait_for_end(300)
        run.wait_for_workers()
    except (RuntimeError, HoldfastError, psutil.Error) as error:
        trouble.append(str(error))
    finally:
        run.end()
    return chaos, trouble or look(run)


def is_whole(checkpoint: Path) -> bool:
    try:
        verify_checkpoint(checkpoint)
    except HoldfastError:
        return False
    return True


def look(run: Run) -> list[str]:
    """What is wrong with a run that has ended."""
    trouble = [] if run.ended == 0 else [f"exit code {run.ended}"]
    try:
        updates = run.steps // BATCH
        rows = [row["update"] for row in read_metrics(run.path)]
        if rows != list(range(1, updates + 1)):
            trouble.append(f"metrics do not have each of {updates} updates once")
        newest = list_checkpoints(run.path / "checkpoints")[-1]
        verify_checkpoint(newest)
        if int(newest.name) != updates:
            trouble.append(f"the last checkpoint is of update {int(newest.name)}, not {updates}")
        summary = json.loads((run.path / "summary.json").read_text())
        if (summary["updates"], summary["agent_steps"]) != (updates, run.steps):
            trouble.append(f"the summary says {summary['updates']} updates, {summary['agent_steps']} steps")
    except (HoldfastError, OSError, LookupError, ValueError) as error:
        trouble.append(f"{type(error).__name__}: {error}")
    trouble += [f"{p.name} is left" for p in run.path.rglob("*") if p.name[0] == "." or p.name == "lock"]
    unsaved = [line for line in run.log().splitlines() if "NOT SAVED" in line]
    trouble += [line for line in unsaved if not any(reason in line for reason in DISK_FULL)][:1]
    if "Traceback" in run.log():
        trouble.append("a traceback is in its output")
    return trouble


def compare(run: Run, folder: Path) -> list[str]:
    """How a run differs from one that nobody touched."""
    untouched = Run(folder, "untouched", run.steps)
    untouched.start()
    try:
        untouched.wait_for_end(1800)
    finally:
        untouched.end()
    wanted, found = digest(untouched.path), digest(run.path)
    return look(untouched) + [
        f"{part} differs from the untouched run's" for part in wanted if found[part] != wanted[part]
    ]


def table(chaos: Chaos) -> str:
    lines = [f"  {'what happened':<28}{'times':>6}   seconds: mean, worst"]
    for name, times in chaos.happened.items():
        took = chaos.seconds[name]
        shown = f"{sum(took) / len(took):.2f}, {max(took):.2f} {MEASURED[name]}" if took and name in MEASURED else ""
        lines.append(f"  {name:<28}{times:>6}   {shown}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of harm in all; finishing and comparing come on top"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what happens when")
    parser.add_argument("--keep", type=Path, help="a folder to keep the runs in")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with its runs
    folder = options.keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    try:
        for name, events, share in (("everything", tuple(EVENTS), 0.6), ("harmless", HARMLESS, 0.4)):
            began = time.monotonic()
            # A short limit finds stopped workers soon; a worker of the other run may be slow for as long as it likes.
            words = [f"trainer.worker_timeout={WORKER_TIMEOUT}"] if name == "everything" else []
            run = Run(folder, name, ENDLESS // BATCH * BATCH, *words)
            chaos, trouble = suffer(run, events, share * options.minutes * 60, rng)
            if name == "harmless" and not trouble:
                trouble = compare(run, folder)
            same = ", identical to the untouched run" if name == "harmless" else ""
            verdict = f"FAILED: {'; '.join(trouble)}" if trouble else f"whole{same}"
            minutes = (time.monotonic() - began) / 60
            print(
                f"{name}: {chaos.happened.total()} events, {run.updates()} updates, {minutes:.1f} minutes\n{table(chaos)}"
            )
            print(f"  {verdict}", flush=True)
            if trouble:
                print("  its last lines:", *run.log().splitlines()[-8:], sep="\n    ")
            failed |= bool(trouble)
    finally:
        if options.keep is None and not failed:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"FAILED; the runs are in {folder}" if failed else "everything was survived")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
