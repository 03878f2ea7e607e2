"""Environments of other packages are known by their names, without importing anything by hand."""

import importlib.util
import subprocess
import sys

import pytest

from holdfast.envs import GymEnv
from holdfast.errors import SettingsError

PROGRAM = """
import sys, gymnasium
from holdfast.envs.gymnasium_world import make_env
from holdfast.envs import GymEnv
from holdfast.errors import SettingsError

assert [name for name in sys.argv[1:] if name in gymnasium.registry] == ["HalfCheetah-v5"]
for name in sys.argv[1:]:
    make_env(GymEnv(name=f"gym:{name}")).close()
for wrong in ("popgym-RepeatPreviousEazy-v0", "RepeatPreviousEasy-v0"):
    try:
        make_env(GymEnv(name=f"gym:{wrong}"))
    except SettingsError as error:
        assert "popgym-RepeatPreviousEasy-v0" in str(error)
"""
NAMES = ("MiniGrid-MemoryS7-v0", "BabyAI-GoToObj-v0", "popgym-RepeatPreviousEasy-v0", "ALE/Pong-v5", "HalfCheetah-v5")


def test_they_are_registered_and_silent(tmp_path):
    if not all(map(importlib.util.find_spec, ("minigrid", "popgym", "ale_py", "mujoco"))):
        pytest.skip("needs the extra `worlds`")
    done = subprocess.run([sys.executable, "-c", PROGRAM, *NAMES], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("name", "package"), [("ALE/Nothing-v5", "ale-py"), ("BabyAI-Nothing-v0", "minigrid")])
def test_a_missing_package_is_named(monkeypatch, name, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError) as caught:
        GymEnv(name=f"gym:{name}").describe()
    assert str(caught.value).endswith(f"pip install {package}")
    assert "\n" not in str(caught.value)
