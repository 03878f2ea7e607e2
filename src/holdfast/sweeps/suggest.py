"""Propose the next values of a search with Optuna's TPE sampler. Only this file knows Optuna.

A proposal depends only on the number of the trial and on the results so far, so a search that was killed continues as it
would have. Nothing is stored by Optuna: sweep.json and the run folders have everything.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import SettingsError
from holdfast.sweeps.words import Axis

RANDOM_TRIALS = 5  # before the first trial that is based on results
INSTALL = "pip install optuna"
Past = tuple[Mapping[str, str], float | None]  # the values of a trial and its result; None: not known yet


def check_optuna() -> None:
    """Raise SettingsError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise SettingsError(f"--trials needs Optuna, which is not installed. Install it with: {INSTALL}") from error


def propose(axes: Sequence[Axis], past: Sequence[Past], number: int, minimize: bool) -> dict[str, str]:
    """Return the values of trial `number`. Trials that are still running count as if they were bad, to try others."""
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spaces = {axis.key: _distribution(axis) for axis in axes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of constant_liar
        sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=RANDOM_TRIALS, constant_liar=True)
    study = optuna.create_study(sampler=sampler, direction="minimize" if minimize else "maximize")
    for values, result in past:
        params = {axis.key: _value(axis, values[axis.key]) for axis in axes}
        known: dict[str, Any] = {"state": TrialState.RUNNING} if result is None else {"value": result}
        study.add_trial(create_trial(params=params, distributions=spaces, **known))
    found = study.ask(spaces).params
    return {axis.key: axis.as_text(found[axis.key]) if axis.is_range else found[axis.key] for axis in axes}


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not axis.is_range:
        return CategoricalDistribution(axis.values)
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _value(axis: Axis, text: str) -> str | int | float:
    return text if not axis.is_range else int(text) if axis.whole else float(text)
