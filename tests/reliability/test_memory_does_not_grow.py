"""Short looks at what `make soak` watches for thousands of updates: resident memory, file handles, threads, shared memory.

Each run has a process of its own, which tells what it holds after every update.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow

RUN = """
import json, sys
import psutil
from holdfast.config import load_settings
from holdfast.policies import BoxPolicy
from holdfast.runs import RunFolder
from holdfast.trainer import train

process, rss, held = psutil.Process(), [], []
log = RunFolder.log_metrics

def look(run, row):
    log(run, row)
    rss.append(row["rss_mb"])
    if len(rss) % 25 == 0:  # the list of mappings takes a while
        shared = sum("/pym-" in m.path or m.path.startswith("/dev/shm") for m in process.memory_maps(grouped=False))
        held.append([process.num_fds(), process.num_threads(), shared])

if sys.argv[1] == "keeps its graph":
    unroll, kept = BoxPolicy.unroll, []

    def keeping(policy, *args, **kwargs):
        kept.append(unroll(policy, *args, **kwargs))  # as a state that is handed on without being detached
        return kept[-1]

    BoxPolicy.unroll = keeping
RunFolder.log_metrics = look
train(load_settings(json.loads(sys.argv[2])))
print(json.dumps([rss, held]))
"""
TINY = ["env=gym:CartPole-v1", "env.num_envs=4", "trainer.horizon=8", "policy.hidden=16", "policy.encoder=[16]"]
TINY += ["trainer.checkpoint_interval=50", "progress=off", "run=r"]
BATCH = 32
WARM_UP = 100
MOST_KIB = 15.0  # per update; what is left of an allocator's noise in so few of them. `make soak` allows 1 in 3,000


def watched(folder, kind: str, updates: int, *words: str) -> tuple[float, np.ndarray]:
    """(growth of resident memory in KiB per update, [looks, 3] file handles, threads and shared mappings), warm."""
    given = [*TINY, *words, f"trainer.total_timesteps={updates * BATCH}", f"runs_dir={folder}"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, kind, json.dumps(given)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rss, held = json.loads(done.stdout)
    settled = rss[WARM_UP:]
    return float(np.polyfit(np.arange(len(settled)), settled, 1)[0] * 1024), np.array(held[WARM_UP // 25 :])


def test_nothing_grows(tmp_path):
    slope, held = watched(tmp_path, "sound", 300)
    assert slope < MOST_KIB
    assert (np.ptp(held, axis=0) == 0).all(), held


@pytest.mark.slow
def test_nothing_grows_with_workers(tmp_path):
    slope, held = watched(tmp_path, "sound", 300, "trainer.num_workers=2")
    assert slope < MOST_KIB
    assert (np.ptp(held, axis=0) == 0).all(), held
    assert held[0, 2] > 0  # the measure sees what workers share


def test_the_measure_sees_a_policy_that_keeps_its_graph(tmp_path):
    slope, _ = watched(tmp_path, "keeps its graph", 200)
    assert slope > 5 * MOST_KIB  # 130 KiB per update was measured
