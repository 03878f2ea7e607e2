"""Comparing runs: settings that differ, values after equal steps, damaged curves."""

import pytest

from holdfast.config import load_settings
from holdfast.errors import HoldfastError, SettingsError
from holdfast.runs import RunFolder
from holdfast.runs.comparing import compare_runs
from holdfast.runs.curves import Curve, read_curve


def begin(runs, name, returns, batch, *words):
    run = RunFolder.create(load_settings([f"runs_dir={runs}", f"run={name}", "env=gym:CartPole-v1", *words]))
    with run:
        for i, value in enumerate(returns, start=1):
            run.log_metrics({"update": i, "agent_steps": batch * i, "episode_return": value, "entropy": 0.5})
    return run.path


def test_settings_that_differ_and_values_after_equal_steps(tmp_path):
    short = begin(tmp_path, "short", [None, 2.0, 3.0, 4.0], 100, "trainer.lr=1e-4", "progress=lines")
    long = begin(tmp_path, "long", [10.0, 20.0, 30.0, 40.0], 150, "policy.core=gru", "seed=2")
    compared = compare_runs({"short": short, "long": long})
    assert compared.settings == {
        "seed": {"short": "0", "long": "2"},
        "policy.core": {"short": "own", "long": "gru"},
        "trainer.lr": {"short": "0.0001", "long": "0.001"},
    }
    assert compared.steps == [100, 200, 300, 400]
    assert compared.values == {"short": [None, 2.0, 3.0, 4.0], "long": [None, 10.0, 20.0, 20.0]}
    assert compared.states == {"short": "stopped", "long": "stopped"}


def test_worlds_with_other_keys(tmp_path):
    one = begin(tmp_path, "one", [1.0], 10, "env.hide=[1]")
    with RunFolder.create(load_settings([f"runs_dir={tmp_path}", "run=two", "env=memory"])) as run:
        pass
    compared = compare_runs({"one": one, "two": run.path})
    assert compared.settings["env.hide"] == {"one": "[1]", "two": "-"}
    assert compared.settings["env.corridor"]["one"] == "-"
    assert (compared.steps, compared.values["two"]) == ([2, 5, 7, 10], [None] * 4)


def test_an_unknown_metric_is_refused_with_the_nearest(tmp_path):
    paths = {name: begin(tmp_path, name, [1.0], 10) for name in ("a", "b")}
    with pytest.raises(SettingsError, match=r"entropi: no such metric\. Did you mean entropy\?"):
        compare_runs(paths, "entropi")
    assert compare_runs(paths, "entropy").values["a"][-1] == 0.5
    with RunFolder.create(load_settings([f"runs_dir={tmp_path}", "run=new"])) as run:
        assert compare_runs({"a": run.path}, "anything").steps == []


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"agent_steps": 5}', '{"agent_steps": "x"}', "[" * 10_000])
def test_damaged_curves_are_named(tmp_path, line):
    path = begin(tmp_path, "a", [1.0], 10)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(HoldfastError, match=r"metrics\.jsonl: line 2 is damaged"):
        read_curve(path, "episode_return")


def test_curves():
    curve = Curve(list(range(10, 1010, 10)), [float(i) for i in range(100)], 1000)
    assert [curve.at(step) for step in (9, 10, 19.9, 20, 5000)] == [None, 0.0, 0.0, 1.0, 99.0]
    thin = curve.thinned(7)
    assert len(thin.steps) == len(thin.values) == 7
    assert (thin.steps[0], thin.steps[-1]) == (10, 1000)
    assert curve.thinned(100) is curve
