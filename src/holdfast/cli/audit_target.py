"""What a user asks to have audited: a run, words as for training, or something out of a Python file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.audit import Subject


def find_subject(target: str, words: Sequence[str], runs_dir: Path, seed: int, py_agent: str | None) -> Subject:
    """The subject that `holdfast audit TARGET WORDS` means."""
    if "=" in target.partition(":")[0]:
        return _of_words([target, *words], seed)
    file, _, name = target.rpartition(":")
    if file.endswith(".py") or target.endswith(".py"):
        return _of_file(target, file, name, words, seed)
    return _of_run(target, words, runs_dir, py_agent)


def _of_words(words: Sequence[str], seed: int) -> Subject:
    from holdfast.audit import subject_of
    from holdfast.config import load_settings

    return subject_of(load_settings([f"seed={seed}", *words]))


def _of_run(target: str, words: Sequence[str], runs_dir: Path, py_agent: str | None) -> Subject:
    from holdfast.cli.runs import find_run

    if words:
        raise SettingsError(f"{words[0]}: a run has its own settings, so nothing can be set.")
    folder = find_run(target, runs_dir)
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


def _of_file(target: str, file: str, name: str, words: Sequence[str], seed: int) -> Subject:
    from torch import nn

    from holdfast.audit import Subject
    from holdfast.policies import Policy
    from holdfast.policies.registry import load_file

    if target.endswith(".py"):
        raise SettingsError(f"{target}: name what is to be audited in it: {target}:NAME.")
    module = load_file(file, target)
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, Policy):
        return _of_words([f"py_agent={target}", *words], seed)
    if words:
        raise SettingsError(f"{words[0]}: settings are for policies in a world of Holdfast's; {name} brings its own.")
    if isinstance(found, nn.Module):
        raise SettingsError(
            f"{target}: is an nn.Module. Write a function that returns it in an adapter, such as BareRecurrent or\n"
            "StepFunction: docs/audit.md shows how."
        )
    try:
        made = found() if callable(found) and not isinstance(found, Subject) else found
    except (Exception, SystemExit) as error:
        raise SettingsError(f"{target}: cannot be made: {type(error).__name__}: {error}") from error
    if isinstance(made, Subject):
        return made
    usable = [key for key, value in vars(module).items() if _may_be_subject(value, module)]
    what = "there is nothing of that name" if found is None else f"{type(made).__name__} is no policy the auditor knows"
    raise SettingsError(
        f"{target}: {what}. Give a Policy, a Subject, or a function without arguments that returns a Subject.\n"
        f"In this file: {', '.join(usable) or 'none'}. docs/audit.md shows adapters for other libraries."
    )


def _may_be_subject(value: Any, module: ModuleType) -> bool:
    from holdfast.audit import Subject
    from holdfast.policies import Policy

    if isinstance(value, Subject):
        return True
    own = getattr(value, "__module__", "") == module.__name__
    return own and (
        isinstance(value, FunctionType) or (isinstance(value, type) and issubclass(value, Subject | Policy))
    )
