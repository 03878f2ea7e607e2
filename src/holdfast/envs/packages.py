"""Gymnasium environments of other packages, which are registered when their package is imported."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from functools import cache

import gymnasium

from holdfast.errors import SettingsError, printable

logger = logging.getLogger(__name__)

# Start of an environment's id: the package to import. Known here, so that a run in such a world can be resumed without
# naming code again: only names in a run folder are not trusted.
PACKAGES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid", "popgym-": "popgym", "ALE/": "ale_py"}


def register_package(name: str, env_id: str) -> None:
    """Import the package of an environment that Gymnasium does not know yet; raise SettingsError if it is not installed.

    If the start of the id is not in the table, import every package that is installed, for the nearest names.
    """
    if ":" in env_id:
        return
    if spec := gymnasium.registry.get(env_id):
        if str(spec.entry_point).startswith("gymnasium.envs.mujoco") and importlib.util.find_spec("mujoco"):
            _quieten_mujoco()
        return
    package = next((package for start, package in PACKAGES.items() if env_id.startswith(start)), None)
    if package and not importlib.util.find_spec(package):
        missing = package.replace("_", "-")
        raise SettingsError(f"env={printable(name)}: needs {missing}, which is not installed: pip install {missing}")
    for needed in [package] if package else dict.fromkeys(PACKAGES.values()):
        if importlib.util.find_spec(needed):
            _import_quietly(needed)


def _import_quietly(package: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(package)
    if package == "ale_py":  # prints its version for every environment otherwise
        module.ALEInterface.setLoggerMode(module.LoggerMode.Error)


def _quieten_mujoco() -> None:
    """Log a warning of MuJoCo once; otherwise each environment prints it and writes it to a file in the working directory."""
    mujoco = importlib.import_module("mujoco")
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log_once)


@cache
def _log_once(text: str) -> None:
    if "deprecated" not in text:  # in the models of Gymnasium, which the user cannot change
        logger.warning("MuJoCo: %s", text)
