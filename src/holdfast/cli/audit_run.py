"""The trained policy of a run, as a subject for the auditor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.sections import agent_names
from holdfast.errors import SettingsError
from holdfast.runs import find_run

if TYPE_CHECKING:
    from holdfast.audit import Subject


def subject_of_run(target: str, words: Sequence[str], runs_dir: Path, py_agent: str | None) -> Subject:
    """Load the newest checkpoint of a run."""
    try:
        folder = find_run(target, runs_dir)
    except SettingsError as error:
        _refuse_other_path(target)
        if target not in agent_names("py_agent"):
            raise
        raise SettingsError(f"{error}\nDid you mean py_agent={target}?") from None
    if words:
        raise SettingsError(f"{words[0]}: a run has its own settings, which an audit cannot change.")
    from holdfast.audit.adapters import ContractPolicy
    from holdfast.audit.sample_observations import observation_sampler
    from holdfast.evaluate import load_agent
    from holdfast.policies import MettaAgent

    agent, settings, checkpoint = load_agent(folder, py_agent=py_agent)
    return ContractPolicy(
        agent.policy,
        observation_sampler(settings.env),
        f"{folder} at checkpoint {checkpoint.name}",
        lambda: MettaAgent(settings.policy, agent.built_for).policy,
    )


def _refuse_other_path(target: str) -> None:
    """Refuse a path that exists and is not a run, with what was probably meant."""
    before_colon = target.rpartition(":")[0]
    if os.path.isdir(before_colon):  # os.path, because names that are too long are no error to it
        raise SettingsError(f"{before_colon}: is a folder, not a Python file. Name a file in it.")
    file = next((path for path in (target, before_colon) if os.path.isfile(path)), "")
    if file.endswith((".yaml", ".yml")):
        raise SettingsError(f"{file}: is not a Python file. Did you mean agent={file}?")
    if file:
        raise SettingsError(f"{file}: is not a Python file. Give your own policy as FILE.py:NAME.")
