"""The walk of one observation stays as short as ARCHITECTURE.md says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_spine_is_at_most_15_functions_in_8_files_and_listed_in_the_architecture():
    traced = subprocess.run([sys.executable, ROOT / "proofs" / "walk.py"], capture_output=True, text=True, check=True)
    *names, _, last = traced.stdout.splitlines()
    found = re.fullmatch(r"spine: (\d+) functions in (\d+) files", last)
    assert found, traced.stdout
    assert int(found[1]) == len(names) <= 15
    assert int(found[2]) <= 8
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    assert last.removeprefix("spine: ") in architecture
    for name in names:
        function = name.split(": ")[1].split(".")[-1]
        assert f"`{function}" in architecture or f".{function}" in architecture, (
            f"ARCHITECTURE.md does not mention {name}"
        )
