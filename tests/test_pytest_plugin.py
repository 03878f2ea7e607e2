"""`pytest --holdfast-audit` in a project of somebody else's: a folder with policies, tests and settings."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
POLICIES = """
import torch
from holdfast.audit.adapters import StepFunction


def resetting(obs, state, first):
    h = torch.tanh(obs + 0.5 * state[0][0] * (first == 0)[:, None])
    return {"logits": h}, (h.unsqueeze(0),)


def leaking(obs, state, first):
    h = torch.tanh(obs + 0.5 * state[0][0])
    return {"logits": h}, (h.unsqueeze(0),)


def subject_sound():
    return StepFunction(resetting, lambda B: (torch.zeros(1, B, 3),), obs_shape=(3,))


def subject_broken():
    return StepFunction(leaking, lambda B: (torch.zeros(1, B, 3),), obs_shape=(3,))


def subject_that_raises():
    raise ValueError("not today")


def main():
    raise SystemExit("a function of another name is not called")
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "policies.py").write_text(POLICIES)
    (tmp_path / "test_own.py").write_text("def test_one():\n    pass\n")
    return tmp_path


def run_pytest(project, *words):
    # By name, and not as it is installed, so that this file is the one that is tested.
    plugin = ["-p", "no:holdfast", "-p", "holdfast.pytest_plugin", "-p", "no:importnb", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-rA", *plugin, *words]
    # Not as a worker of this test session, and without its coverage.
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "SLIPCOVER_"))}
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=300)


def test_every_policy_of_a_file_is_one_test_beside_the_project_s_own(project):
    ran = run_pytest(project, "--holdfast-audit", "policies.py", "--holdfast-audit", "policies.py:nobody")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    for line in (
        "PASSED test_own.py::test_one",
        "PASSED policies.py::subject_sound",
        "FAILED policies.py::subject_broken",
        "FAILED policies.py::subject_that_raises",
        "subject_that_raises: cannot be created: ValueError: not today at policies.py:",
        "policies.py:nobody: no such name in the file. ",
        "leaking is not sound: ",
        "reset_inside_sequence: ",
        "Look at policies.py:11.",
    ):
        assert line in ran.stdout
    assert "3 failed, 2 passed" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_one_policy_with_its_settings_and_a_selection(project):
    file = ROOT / "examples" / "custom_policy.py"
    wanted = f"{file}:MyPolicy env=gym:CartPole-v1"
    ran = run_pytest(
        project, "--holdfast-audit", "policies.py:subject_broken", "--holdfast-audit", wanted, "-k", "MyPolicy"
    )
    assert ran.returncode == 0, ran.stdout
    assert "::MyPolicy" in ran.stdout
    assert "1 passed, 2 deselected" in ran.stdout


def test_files_that_cannot_be_audited_are_errors(project):
    (project / "empty.py").write_text("import holdfast.audit\n\nANSWER = 42\n")
    (project / "raising.py").write_text("1 / 0\n")
    files = ("empty.py", "raising.py", "nothing.py")
    ran = run_pytest(project, *(f"--holdfast-audit={file}" for file in files))
    assert ran.returncode == 2, ran.stdout
    for said in (
        "empty.py: no policy found",
        "the file cannot be run: ZeroDivisionError: division by zero at raising.py:1",
        "nothing.py",
    ):
        assert said in ran.stdout
    assert "3 errors during collection" in ran.stdout
    assert "Traceback" not in ran.stdout
    ran = run_pytest(project, "--holdfast-audit", "folder")
    assert ran.returncode == 4
    assert "--holdfast-audit folder: give FILE.py or FILE.py:NAME" in ran.stderr


def test_it_is_in_the_help_and_costs_nothing_unused(project):
    assert "--holdfast-audit=FILE.py[:NAME]" in run_pytest(project, "--help").stdout
    (project / "test_own.py").write_text("import sys\n\ndef test_one():\n    assert 'torch' not in sys.modules\n")
    assert run_pytest(project).returncode == 0


def test_pytest_finds_it_once_holdfast_is_installed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ((name, value),) = settings["project"]["entry-points"]["pytest11"].items()
    assert callable(EntryPoint(name, value, "pytest11").load().pytest_addoption)
