"""Every example runs and trains with replay parity."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config import load_settings
from holdfast.trainer import train

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").glob("*.py"))
EXAMPLES = [path for path in FILES if "__main__" in path.read_text()]  # tests/audit tests broken_policies.py


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(path, tmp_path):
    done = subprocess.run([sys.executable, str(path), "2"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("parity")[1]) <= 1e-5


def classes(source: str) -> dict[str, str]:
    """Return the code of each class, without docstrings and comments."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not isinstance(part, ast.Expr)]
            found[node.name] = ast.unparse(node)
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/policies.md"])
def test_the_example_trains_the_policy_of_the_page(page):
    block = next(
        text for text in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL) if "MyPolicy(" in text
    )
    assert classes(block)["MyPolicy"] == classes((ROOT / "examples" / "custom_policy.py").read_text())["MyPolicy"]


@pytest.mark.slow
def test_the_command_of_the_example_learns(tmp_path, monkeypatch):
    """At chance the return is about 20; half of the settings' steps give about 100."""
    [command] = re.findall(r"holdfast train (.*)", (ROOT / "examples" / "custom_policy.py").read_text())
    assert "settings=cartpole_no_velocity py_agent=./mine.py:MyPolicy" in (ROOT / "README.md").read_text()
    monkeypatch.chdir(ROOT)
    words = [*command.split(), "trainer.total_timesteps=49152", f"runs_dir={tmp_path}", "progress=off", "audit=off"]
    assert train(load_settings(words)).summary["episode_return_mean"] > 50
