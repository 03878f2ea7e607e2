"""Guarantee 13: the number of ranks changes no bit of a run. `make ranks` has the long version."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.runs import REPOSITORY, digest, figures

JOB = REPOSITORY / "proofs" / "rank_job.py"


def train_with(ranks: int, folder: Path) -> Path:
    """Train all runs of the job with this many ranks; return their folder."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    ran = subprocess.run([*torchrun, str(JOB), str(folder)], capture_output=True, text=True, timeout=550)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_runs_with_1_2_and_4_ranks_are_identical(tmp_path):
    folders = {ranks: train_with(ranks, tmp_path / str(ranks)) for ranks in (1, 2, 4)}
    runs = sorted(path.name for path in folders[1].iterdir())
    assert len(runs) >= 12
    for run in runs:
        alone = folders[1] / run
        assert len(figures(alone)) >= 4, run
        for ranks in (2, 4):
            assert digest(folders[ranks] / run) == digest(alone), f"{run} with {ranks} ranks"
            assert figures(folders[ranks] / run) == figures(alone), f"{run} with {ranks} ranks"
