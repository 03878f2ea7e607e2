"""Every example runs and trains with replay parity."""

import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
EXAMPLES = [path for path in FILES if "__main__" in path.read_text()]  # tests/audit tests broken_policies.py


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(path, tmp_path):
    done = subprocess.run([sys.executable, str(path), "2"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("parity")[1]) <= 1e-5
