#!/usr/bin/env python3
"""The same as `holdfast train`: ./tools/train.py py_agent=fast run=demo trainer.total_timesteps=5000"""

import os
import sys
from pathlib import Path


def start(words: "list[str]") -> None:
    try:
        from holdfast.cli import main
    except ModuleNotFoundError as missing:
        start_in_venv(words)
        hint = "run `make train` once, or install this folder with pip"
        sys.exit(f"{missing.name} is not installed for {sys.executable}: {hint}.")
    sys.argv[1:] = ["train", *words]
    main()


def start_in_venv(words: "list[str]") -> None:
    """Restart in the project's .venv, if there is one and this is another interpreter."""
    venv = Path(__file__).resolve().parent.parent / ".venv"
    python = venv / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != venv.resolve():
        os.execv(str(python), [str(python), __file__, *words])


if __name__ == "__main__":
    start(sys.argv[1:])
