"""What a user asks to have audited in so many words: words as for training, or something out of a Python file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from holdfast.audit.adapters.contract import ContractPolicy
from holdfast.audit.failing import UnusableError
from holdfast.audit.observe import observer
from holdfast.audit.subject import Subject
from holdfast.config import load_settings
from holdfast.config.nearest import did_you_mean
from holdfast.config.settings import Settings
from holdfast.envs import describe
from holdfast.errors import HoldfastError, SettingsError, first_line, place_of
from holdfast.policies import MettaAgent, Policy
from holdfast.policies.registry import load_file

MOST_NAMED = 8


def find_subject(target: str, words: Sequence[str], seed: int) -> Subject | None:
    """The subject that TARGET WORDS mean; None if TARGET is neither a word nor in a file, so maybe the name of a run."""
    if "=" in target.partition(":")[0]:
        return _of_words([target, *words], seed)
    file, _, name = (target, "", "") if target.endswith(".py") else target.rpartition(":")
    if not file.endswith(".py"):
        return None
    if os.path.isdir(os.path.expanduser(file)):  # a name that is too long is no error to it
        raise SettingsError(f"{file}: is a folder and not a Python file. Name a file in it.")
    if not name:
        raise SettingsError(f"{file}: name what is to be audited in it: {file}:NAME.")
    return _of_file(target, file, name, words, seed)


def subject_of(settings: Settings) -> ContractPolicy:
    """A fresh policy in its world, as training would begin with it."""
    spec = describe(settings.env)

    def make(seed: int) -> Policy:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return MettaAgent(settings.policy, spec).policy

    name = f"{settings.policy.agent_word} in {settings.env.name}"
    return ContractPolicy(make(settings.seed), observer(settings.env), name, lambda: make(settings.seed + 1))


def refuse_words(words: Sequence[str], name: str) -> None:
    if words:
        raise SettingsError(f"{words[0]}: settings are for policies in a world of Holdfast's; {name} brings its own.")


@contextmanager
def saying_which(subject: Subject) -> Iterator[None]:
    """Says of what cannot be audited what it is, and the subject's hint, if it has one."""
    try:
        yield
    except UnusableError as error:
        whose = "" if subject.name in str(error) else f"{subject.name}: "
        raise UnusableError(f"{whose}{error}" + (f"\n{subject.hint}" if subject.hint else "")) from error


def _of_words(words: Sequence[str], seed: int) -> Subject:
    subject = subject_of(load_settings([f"seed={seed}", *words]))
    if not any(word.startswith(("env=", "env.name=", "settings=")) for word in words):
        subject.hint = "No world was named, so it is memory, which shows tokens (uint8). env=gym:NAME chooses another."
    return subject


def _of_file(target: str, file: str, name: str, words: Sequence[str], seed: int) -> Subject:
    module = load_file(file, target)
    if not hasattr(module, name):
        near = did_you_mean(name, _usable(module))
        raise SettingsError(f"{target}: there is nothing of that name.{near} {_what_to_give(module)}")
    found = getattr(module, name)
    if isinstance(found, type) and issubclass(found, Policy):
        return _of_words([f"py_agent={target}", *words], seed)
    _refuse_module(found, f"{target}: is")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            subject = found() if callable(found) and not isinstance(found, Subject) else found
    except HoldfastError as error:  # its words are for the user already
        raise SettingsError(f"{target}: cannot be made{place_of(error)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise SettingsError(
            f"{target}: cannot be made: {type(error).__name__}: {first_line(error)}{place_of(error)}"
        ) from error
    if not isinstance(subject, Subject):
        _refuse_module(subject, f"{target}: gives {type(subject).__name__}, which is")
        kind = "None" if subject is None else type(subject).__name__
        raise SettingsError(f"{target}: {kind} is no policy the auditor knows. {_what_to_give(module)}")
    refuse_words(words, name)
    return subject


def _refuse_module(found: Any, it_is: str) -> None:
    """it_is: how the sentence begins."""
    kind = found if isinstance(found, type) else type(found)
    if issubclass(kind, Policy):
        raise SettingsError(f"{it_is} a policy without its world. Name its class: FILE.py:{kind.__name__} env=NAME.")
    if issubclass(kind, nn.Module):
        raise SettingsError(
            f"{it_is} an nn.Module and no policy the auditor knows. Write a function that returns it in an adapter,\n"
            "such as BareRecurrent or StepFunction: docs/audit.md shows how. Or subclass holdfast.policies.LSTMWrapper."
        )


def _what_to_give(module: ModuleType) -> str:
    usable = _usable(module)
    more = f" and {len(usable) - MOST_NAMED} more" if len(usable) > MOST_NAMED else ""
    return (
        "Give a Policy, a Subject, or a function without arguments that returns a Subject.\n"
        f"In this file: {', '.join(usable[:MOST_NAMED]) or 'none'}{more}. docs/audit.md shows adapters for other libraries."
    )


def _usable(module: ModuleType) -> list[str]:
    return [key for key, value in vars(module).items() if _may_be_subject(value, module)]


def _may_be_subject(value: Any, module: ModuleType) -> bool:
    if isinstance(value, Subject):
        return True
    if getattr(value, "__module__", "") != module.__name__:
        return False
    if isinstance(value, type) and issubclass(value, Policy):
        return True
    makes_one = isinstance(value, FunctionType) or (isinstance(value, type) and issubclass(value, Subject))
    return makes_one and not _needs_arguments(value)


def _needs_arguments(code: Callable[..., Any]) -> bool:
    given_freely = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    asked = [one for one in inspect.signature(code).parameters.values() if one.kind not in given_freely]
    return any(one.default is inspect.Parameter.empty for one in asked)
