"""Python environments for other libraries: `.venv-NAME` in the root of the checkout, made on demand and ignored by git."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make_environment(name: str, requirements: Sequence[str], with_torch: bool = True) -> Path:
    """Return the Python of `.venv-NAME`, installed first if its requirements have changed.

    torch comes first, in the version that Holdfast runs on here: the comparison is between libraries, not kernels, and a
    library that finds torch installed does not bring another build with gigabytes of CUDA packages.
    """
    folder = ROOT / f".venv-{name}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    torch = [f"torch=={importlib.metadata.version('torch').split('+')[0]}"] if with_torch else []
    wanted = "\n".join([*torch, *requirements])
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"Installing {', '.join(requirements)} into {folder.name} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for packages in filter(None, (torch, requirements)):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python
