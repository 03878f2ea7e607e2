"""Adapters for other people's libraries do not need them."""

import subprocess
import sys


def test_importing_the_adapters_imports_nobody_s_library():
    code = "import sys, holdfast.audit.adapters; print({n.split('.')[0] for n in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for name in (
        "stable_baselines3",
        "sb3_contrib",
        "pufferlib",
        "cleanrl",
        "mettagrid",
        "skrl",
        "rl_games",
        "rsl_rl",
        "torchrl",
    ):
        assert f"'{name}'" not in loaded
