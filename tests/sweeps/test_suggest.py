"""Proposals depend on the number of the trial and on the results so far, and on nothing else."""

import math
import sys

import pytest

from holdfast.errors import SettingsError
from holdfast.sweeps.suggest import check_optuna, propose
from holdfast.sweeps.words import Axis

AXES = (
    Axis("trainer.lr", (), 1e-5, 1e-1, log=True),
    Axis("policy.core", ("lstm", "gru")),
    Axis("trainer.horizon", (), 8, 64, whole=True),
)


def result(values):
    """Best at lr=1e-3 with gru."""
    return -((math.log10(float(values["trainer.lr"])) + 3) ** 2) + (values["policy.core"] == "gru")


def search(trials, minimize=False):
    past = []
    for number in range(trials):
        values = propose(AXES, past, number, minimize)
        past.append((values, -result(values) if minimize else result(values)))
    return past


def test_the_same_results_give_the_same_proposals():
    past = search(9)
    assert search(9) == past
    assert propose(AXES, past[:7], 7, False) == past[7][0]
    other = [(values, -found) for values, found in past[:7]]
    assert propose(AXES, other, 7, False) != past[7][0]


def test_values_are_inside_and_short():
    for values, _ in search(12):
        assert 1e-5 <= float(values["trainer.lr"]) <= 1e-1
        assert len(values["trainer.lr"]) <= 10
        assert values["policy.core"] in ("lstm", "gru")
        assert 8 <= int(values["trainer.horizon"]) <= 64


@pytest.mark.parametrize("minimize", [False, True])
def test_results_are_used(minimize):
    past = [result(values) for values, _ in search(45, minimize)]
    random = -4 / 3 + 0.5  # the mean result of random values
    assert sum(past[-25:]) / 25 > random + 0.4
    assert max(past[:12]) > 0.9


def test_running_trials_count_as_bad_ones():
    past = search(20)
    running = [(values, None) for values, _ in past[-5:]]
    assert propose(AXES, [*past[:-5], *running], 20, False) != propose(AXES, past, 20, False)
    assert propose(AXES, [*past[:-5], *running], 20, False) != propose(AXES, past[:-5], 20, False)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SettingsError, match="pip install optuna") as caught:
        check_optuna()
    assert "\n" not in str(caught.value)
