"""Python environments for other libraries: `.venv-NAME` in the root of the checkout, made on demand and ignored by git."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = {
    "sb3": ("sb3-contrib==2.9.2", "gymnasium==1.4.0"),
    "skrl": ("skrl==2.1.1", "gymnasium==1.4.0"),
    "torchrl": ("torchrl==0.14.1", "gymnasium==1.4.0"),
    "rl_games": ("rl-games==1.6.5", "gymnasium==1.4.0"),
    "rsl_rl": ("rsl-rl-lib==5.5.1",),
    "puffer": ("einops>=0.8", "gymnasium==1.4.0"),  # and PufferLib, without what it requires
    "samplefactory": ("sample-factory==2.1.1",),
    "jax": ("jax==0.10.2", "jaxlib==0.10.2"),
}


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
