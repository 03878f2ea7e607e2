"""Short looks at what `make soak` watches for thousands of updates: resident memory, file handles, threads, shared memory.

Each run has a process of its own, which tells what it and its workers hold after every update. What would grow without
workers grows in one of them.
"""

import json
import subprocess
import sys
from pathlib import Path

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

family, rss, held = [psutil.Process()], [], []
log = RunFolder.log_metrics

def look(run, row):
    log(run, row)
    if not rss:
        family.extend(family[0].children(recursive=True))
    rss.append([row["rss_mb"], sum(child.memory_info().rss for child in family[1:]) / 2**20])
    if len(rss) % 25 == 0:  # the list of mappings takes a while
        paths = [mapped.path for member in family for mapped in member.memory_maps(grouped=False)]
        shared = sum("/pym-" in path or path.startswith("/dev/shm") for path in paths)
        held.append([sum(p.num_fds() for p in family), sum(p.num_threads() for p in family), shared])

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
TINY = ["env.num_envs=4", "trainer.horizon=8", "policy.hidden=16", "policy.encoder=[16]", "trainer.num_workers=2"]
TINY += ["trainer.update_epochs=1", "trainer.checkpoint_interval=25", "progress=off", "run=r"]
BATCH = 32
WARM_UP = 50
# Per update. Allocators still settle in so few of them: 3 was measured for the trainer, 0 for its workers. `make soak` allows
# 1 in 3,000.
MOST_KIB = 15.0


def watched(folder: Path, kind: str, env: str, updates: int) -> tuple[np.ndarray, np.ndarray]:
    """What was held, warm: ([2] growth of the trainer and of its workers in KiB per update, [looks, 3] handles, threads, shares)."""
    given = [f"env={env}", *TINY, f"trainer.total_timesteps={updates * BATCH}", f"runs_dir={folder}"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, kind, json.dumps(given)],
        cwd=Path(__file__).parents[1],  # where `support` is
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rss, held = json.loads(done.stdout)
    settled = np.array(rss[WARM_UP:])
    return np.polyfit(np.arange(len(settled)), settled, 1)[0] * 1024, np.array(held[WARM_UP // 25 :])


def test_nothing_grows(tmp_path):
    slopes, held = watched(tmp_path, "sound", "gym:CartPole-v1", 150)
    assert slopes.max() < MOST_KIB, slopes
    assert (np.ptp(held, axis=0) == 0).all(), held
    assert held[0, 2] > 0  # the measure sees what workers share


def test_the_measure_sees_a_policy_that_keeps_its_graph_and_a_leak_in_a_worker(tmp_path):
    slopes, _ = watched(tmp_path, "keeps its graph", "gym:support.leaking:Leaking-v0", 80)
    assert (slopes > 5 * MOST_KIB).all(), slopes  # 130 KiB per update were measured for each
