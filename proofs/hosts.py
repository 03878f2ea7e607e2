"""`make hosts` (needs root, Linux): a run on two hosts, which are network namespaces with addresses of their own.

Trains the same run in one process, on two hosts, and on two hosts with a slow network between them (10 ms, 100 Mbit/s), and
compares the results bit for bit. Prints steps/s and what the network alone would take.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from kills import digest, figures

from holdfast.runs import read_metrics

HOSTS = ("holdfast-a", "holdfast-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SLOW = ("netem", "delay", "10ms", "rate", "100mbit")
ONLY_BANDWIDTH = ("tbf", "rate", "100mbit", "burst", "64kb", "latency", "50ms")
WORDS = ["settings=quickstart", "trainer.shards=2", "trainer.ranks=1", "progress=off", "trainer.rank_timeout=60"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two network namespaces, connected by a cable."""
    for host in HOSTS:
        ip("netns", "add", host)
    try:
        ip("link", "add", "hf-a", "netns", HOSTS[0], "type", "veth", "peer", "name", "hf-b", "netns", HOSTS[1])
        for host, address, link in zip(HOSTS, ADDRESSES, ("hf-a", "hf-b"), strict=True):
            ip("-n", host, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", host, "link", "set", link, "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield
    finally:
        for host in HOSTS:
            ip("netns", "del", host)


def slow_down() -> None:
    for host, link in zip(HOSTS, ("hf-a", "hf-b"), strict=True):
        command = ["tc", "-n", host, "qdisc", "replace", "dev", link, "root"]
        if subprocess.run([*command, *SLOW], capture_output=True).returncode:
            print("this kernel cannot delay packets (no netem): only the bandwidth is limited")
            subprocess.run([*command, *ONLY_BANDWIDTH], check=True)


def train_on_hosts(folder: Path, run: str, steps: int) -> Path:
    """Train with one rank on each host."""
    processes = []
    for number, host in enumerate(HOSTS):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        torchrun += [f"--node-rank={number}", f"--master-addr={ADDRESSES[0]}", "--master-port=29571"]
        words = [*WORDS, f"trainer.total_timesteps={steps}", f"runs_dir={folder}", f"run={run}"]
        link = ("hf-a", "hf-b")[number]
        processes.append(
            subprocess.Popen(
                ["ip", "netns", "exec", host, *torchrun, "-m", "holdfast", "train", *words],
                env={**os.environ, "GLOO_SOCKET_IFNAME": link, "OMP_NUM_THREADS": "1"},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for process in processes:
        _, err = process.communicate(timeout=3600)
        if process.returncode:
            sys.exit(f"exit code {process.returncode}:\n{err[-3000:]}")
    return folder / run


def seconds_per_update(run: Path) -> float:
    walls = [row["wall_s"] for row in read_metrics(run)]
    return statistics.median(later - earlier for earlier, later in pairwise(walls))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000, help="of the run on two hosts")
    parser.add_argument("--slow-steps", type=int, default=10_240, help="of the runs with the slow network")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("network namespaces need root: sudo make hosts")
    good = True
    with tempfile.TemporaryDirectory() as name, two_hosts():
        folder = Path(name)
        for kind, steps in (("", options.steps), ("slow ", options.slow_steps)):
            alone = [*WORDS, f"trainer.total_timesteps={steps}", f"runs_dir={folder}", f"run={kind.strip()}alone"]
            subprocess.run([sys.executable, "-m", "holdfast", "train", *alone], check=True, stdout=subprocess.DEVNULL)
            if kind:
                slow_down()
            run = train_on_hosts(folder, f"{kind.strip()}hosts", steps)
            one = folder / f"{kind.strip()}alone"
            equal = digest(run) == digest(one) and figures(run) == figures(one)
            good &= equal
            print(
                f"two hosts, {kind or 'fast '}network: {'identical' if equal else 'DIFFERS'}; median update "
                f"{1e3 * seconds_per_update(run):.0f} ms, one process {1e3 * seconds_per_update(one):.0f} ms",
                flush=True,
            )
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
