"""The policy of a run, as a subject of the auditor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.runs import find_run
from holdfast.config.settings import GRID_AGENTS
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.audit import Subject


def subject_of_run(target: str, words: Sequence[str], runs_dir: Path, py_agent: str | None) -> Subject:
    if words:
        raise SettingsError(f"{words[0]}: a run has its own settings, so nothing can be set.")
    try:
        folder = find_run(target, runs_dir)
    except SettingsError as error:
        if target not in (*GRID_AGENTS, "box"):
            raise
        raise SettingsError(f"{error}\nDid you mean py_agent={target}?") from None
    from holdfast.audit.adapters import ContractPolicy
    from holdfast.audit.observe import observer
    from holdfast.evaluate import load_agent
    from holdfast.policies import MettaAgent

    agent, settings, checkpoint = load_agent(folder, py_agent=py_agent)
    return ContractPolicy(
        agent.policy,
        observer(settings.env),
        f"{folder} at checkpoint {checkpoint.name}",
        lambda: MettaAgent(settings.policy, agent.built_for).policy,
    )
