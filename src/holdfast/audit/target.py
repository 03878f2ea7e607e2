"""Find the subject to audit, given settings as for training or the name of an object in a Python file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from holdfast.audit.adapters.contract import ContractPolicy
from holdfast.audit.sample_observations import observation_sampler
from holdfast.audit.subject import Subject, UnusableError, source_location
from holdfast.config import load_settings
from holdfast.config.nearest import did_you_mean
from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError, SettingsError, first_line, name_some, place_of, split_code_name
from holdfast.policies import MettaAgent, Policy
from holdfast.policies.registry import check_policy_size
from holdfast.user_code import is_defined_in, load_file

NUM_NAMED = 8


def find_subject(target: str, words: Sequence[str], seed: int) -> Subject | None:
    """Return the subject for TARGET and its settings; None if TARGET may be the name of a run."""
    if "=" in target.partition(":")[0]:
        return _from_words([target, *words], seed)
    file, name = split_code_name(target)
    if not file.endswith(".py"):
        return None
    if os.path.isdir(os.path.expanduser(file)):  # os.path, because pathlib raises if a name is too long
        raise SettingsError(f"{file}: is a folder, not a Python file. Name a file in it.")
    if not name:
        raise SettingsError(f"{file}: no policy named. Write {file}:NAME.")
    return _from_file(target, file, name, words, seed)


def policies_in(file: str) -> dict[str, int]:
    """Return the names of all policies in a file, with their lines. Functions count if their name starts with "subject"."""
    module = load_file(file, file)
    found = {name: getattr(module, name) for name in _usable(module) if not name.startswith("_")}
    return {
        name: int(source_location(value).rpartition(":")[2] or 1)
        for name, value in found.items()
        if not isinstance(value, FunctionType) or name.startswith("subject")
    }


def subject_from_settings(settings: Settings, graph: Any = None) -> ContractPolicy:
    """Return a subject with the fresh policy and the world that training would start with.

    graph: the agent's components; if given, the agent's YAML file is not read.
    """
    spec = settings.env.describe()
    if graph is None:
        check_policy_size(settings.policy, spec)

    def make(seed: int) -> Policy:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return MettaAgent(settings.policy, spec, graph).policy

    name = f"{settings.policy.agent_word} in {settings.env.name}"
    return ContractPolicy(make(settings.seed), observation_sampler(settings.env), name, lambda: make(settings.seed + 1))


def refuse_settings(words: Sequence[str], name: str) -> None:
    """Refuse settings for a subject that does not use them."""
    if words:
        raise SettingsError(f"{words[0]}: {name} takes no settings. Only policies in a Holdfast world do.")


@contextmanager
def naming_subject(subject: Subject) -> Iterator[None]:
    """Add the subject's name and hint to an UnusableError."""
    try:
        yield
    except UnusableError as error:
        whose = "" if subject.name in str(error) else f"{subject.name}: "
        raise UnusableError(f"{whose}{error}" + (f"\n{subject.hint}" if subject.hint else "")) from error


def _from_words(words: Sequence[str], seed: int) -> Subject:
    subject = subject_from_settings(load_settings([f"seed={seed}", *words]))
    if not any(word.startswith(("env=", "env.name=", "settings=")) for word in words):
        subject.hint = (
            "No world was given, so the policy ran in env=memory, whose observations are uint8 tokens. "
            "Set env=NAME for another world."
        )
    return subject


def _from_file(target: str, file: str, name: str, words: Sequence[str], seed: int) -> Subject:
    module = load_file(file, target)
    if not hasattr(module, name):
        near = did_you_mean(name, _usable(module))
        raise SettingsError(f"{target}: no such name in the file.{near} {_what_to_give(module)}")
    found = getattr(module, name)
    if isinstance(found, type) and issubclass(found, Policy):
        return _from_words([f"py_agent={target}", *words], seed)
    _refuse_module(found, f"{target}: is")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            subject = found() if callable(found) and not isinstance(found, Subject) else found
    except HoldfastError as error:
        raise SettingsError(f"{target}: cannot be created{place_of(error)}: {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {first_line(error)}{place_of(error)}"
        raise SettingsError(f"{target}: cannot be created: {reason}") from error
    if not isinstance(subject, Subject):
        _refuse_module(subject, f"{target}: returns {type(subject).__name__}, which is")
        kind = "None" if subject is None else type(subject).__name__
        raise SettingsError(f"{target}: cannot audit {kind}. {_what_to_give(module)}")
    refuse_settings(words, name)
    return subject


def _refuse_module(found: Any, it_is: str) -> None:
    """Refuse an nn.Module, and say how to audit it. it_is: the beginning of the message."""
    kind = found if isinstance(found, type) else type(found)
    if issubclass(kind, Policy):
        raise SettingsError(
            f"{it_is} a policy, which is audited in a world. Give its class and a world instead: FILE.py:{kind.__name__} env=NAME."
        )
    if issubclass(kind, nn.Module) and hasattr(kind, "get_action_and_value"):
        raise SettingsError(
            f"{it_is} an agent in CleanRL's style, which needs an adapter. Write a function without arguments that returns\n"
            f"CleanRLAgent({kind.__name__}(...), obs_shape=...), from holdfast.audit.adapters, and audit that function."
        )
    if issubclass(kind, nn.Module):
        raise SettingsError(
            f"{it_is} an nn.Module, which needs an adapter. Write a function that returns it inside a BareRecurrent\n"
            "or StepFunction (docs/audit.md lists more), or make it a subclass of holdfast.policies.LSTMWrapper."
        )


def _what_to_give(module: ModuleType) -> str:
    return (
        "Give a Policy, a Subject, or a function without arguments that returns a Subject.\n"
        f"In this file: {name_some(_usable(module), NUM_NAMED) or 'none'}. docs/audit.md lists adapters for other libraries."
    )


def _usable(module: ModuleType) -> list[str]:
    return [key for key, value in vars(module).items() if _may_be_subject(value, module)]


def _may_be_subject(value: Any, module: ModuleType) -> bool:
    if isinstance(value, Subject):
        return True
    if not is_defined_in(module, value):
        return False
    if isinstance(value, type):
        return issubclass(value, Policy) or (issubclass(value, Subject) and _takes_no_arguments(value))
    return isinstance(value, FunctionType) and _takes_no_arguments(value)


def _takes_no_arguments(code: Callable[..., Any]) -> bool:
    with suppress(TypeError):
        inspect.signature(code).bind()
        return True
    return False
