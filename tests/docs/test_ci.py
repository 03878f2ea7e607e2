"""The CI script runs make targets, and nothing is left out; the GitHub workflow runs the script, the pre-commit hooks its checks."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def prerequisites(target: str) -> list[str]:
    found = re.search(rf"^{target}:([^#\n]*)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"no make target {target}"
    return found[1].split()


def read_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_ci_runs_checks_tests_and_docs():
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in script if line.startswith("make")] == ["make check", "make test", "make docs"]
    assert "export HOLDFAST_REQUIRE_BROWSER=1" in script


def test_check_runs_no_test():
    """`make test` runs all of them, so none runs twice in CI."""
    assert prerequisites("check") == ["format", "lint", "types"]


def test_the_workflow_runs_the_ci_script():
    (job,) = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_the_workflow_tests_every_version_that_has_mettagrid():
    (job,) = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert any("mettagrid" in need and "python_version < '3.13'" in need for need in project["dependencies"])
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12"]


def test_the_hooks_are_local_and_run_check():
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == [f"make {name}" for name in prerequisites("check")]
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in repository["hooks"])
