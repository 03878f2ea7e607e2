"""The words of a sweep: lists, ranges, and what is refused before anything is written."""

import pytest

from holdfast.errors import SettingsError
from holdfast.sweeps.plan import check_plan, make_plan
from holdfast.sweeps.words import Axis, split_axes, split_values

CARTPOLE = "env=gym:CartPole-v1"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a", ["a"]),
        ("1,2, 3", ["1", "2", "3"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("{a: 1, b: [2, 3]},{}", ["{a: 1, b: [2, 3]}", "{}"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ('"a,b"', ['"a,b"']),
        ("it's,fine", ["it's", "fine"]),
        ("a,,b", ["a", "", "b"]),
        ("[1,2", ["[1,2"]),
        ("", [""]),
    ],
)
def test_commas_inside_of_brackets_and_quotes_do_not_separate(text, values):
    assert split_values(text) == values


def axes(*words, trials=False):
    return split_axes(words, trials)


def test_lists_ranges_and_fixed_values():
    fixed, found = axes(CARTPOLE, "seed=0..2", "trainer.lr=1e-3,1e-4", "env.hide=[1,3],[1]", "policy.hidden=8")
    assert fixed == [CARTPOLE, "policy.hidden=8"]
    assert found == [
        Axis("seed", ("0", "1", "2")),
        Axis("trainer.lr", ("1e-3", "1e-4")),
        Axis("env.hide", ("[1,3]", "[1]")),
    ]
    assert axes("seed=0..2,7")[1] == [Axis("seed", ("0", "1", "2", "7"))]
    assert axes("env.kwargs.delay=1..3")[1] == [Axis("env.kwargs.delay", ("1", "2", "3"))]
    assert axes("trainer.horizon=8..8") == (["trainer.horizon=8"], [])
    assert axes("policy.weights=../a..b", "env=./x..y.py:Z") == (["policy.weights=../a..b", "env=./x..y.py:Z"], [])


def test_ranges_that_are_searched():
    _, (lr, gamma, horizon, batch, seed) = axes(
        "trainer.lr=1e-4..1e-3",
        "trainer.gamma=0.9..0.99",
        "trainer.horizon=8..64",
        "trainer.batch_size=64..65536",
        "seed=0..1",
        trials=True,
    )
    assert (lr.log, gamma.log, horizon.log, batch.log) == (True, False, False, True)
    assert (lr.whole, horizon.whole) == (False, True)
    assert seed == Axis("seed", ("0", "1")), "seeds are repeated, not searched"
    assert str(lr) == "trainer.lr=0.0001..0.001"
    assert horizon.ends == ("8", "64")


def test_values_of_a_range_are_short_and_inside():
    axis = Axis("trainer.lr", (), 1.23456e-5, 1e-1, log=True)
    assert axis.as_text(0.00123456) == "0.001235"
    for value in (axis.low, axis.high, 1.2346e-5):
        assert axis.low <= float(axis.as_text(value)) <= axis.high


def refusal(*words, name=None, trials=0, metric="episode_return_mean"):
    with pytest.raises(SettingsError) as caught:
        check_plan(make_plan(words, name, trials, metric, False))
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([CARTPOLE], "nothing to sweep"),
        ([], "nothing to sweep"),
        (["trainer.lr=1e-3,abc"], "trainer.lr=abc: needs a number"),
        (["trainer.lr=1e-3,-1"], "trainer.lr=-1: needs a number"),
        (["trainer.lrr=1e-3,1e-4"], "unknown key trainer.lrr. Did you mean trainer.lr?"),
        (["env=memory,nonsense"], "no such world"),
        (["policy.core=lstm,gruu"], "policy.core=gruu: needs one of"),
        ([CARTPOLE, "env.hide=[1],[x"], "env.hide=[x"),
        (["trainer.lr=1e-3,,1e-4"], "an empty value"),
        (["trainer.lr=1e-3,"], "an empty value"),
        (["trainer.lr=1e-3,1e-3"], "the value 1e-3 is there twice"),
        (["trainer.lr=1e-3,0.001"], "are the same run"),
        (["seed=4..0"], "the range is empty"),
        (["seed=0..99999"], "at most 10,000 runs"),
        (["seed=0..99", "trainer.horizon=1..101"], "10,100 runs"),
        (["seed=0.5..3"], "needs whole numbers"),
        (["trainer.lr=1e-5..1e-1"], "needs --trials N"),
        (["seed=0..1", "run=a"], "--name"),
        (["seed=0..1", "runs_dir=a"], "--runs-dir"),
        (["seed=0..1", "resume=never"], "resumes its runs"),
        (["seed=0..1", "progress=bars"], "its own progress"),
        (["seed=0..1", "seed=2,3"], "set twice"),
        (["env=memory,collect", "env.name=arena"], "set twice"),
        (["trainer.lr=1e-3,1e-4", "trainer.lr=1"], "set twice"),
        (["seed=0..1", "nonsense"], "not key=value"),
        (["seed=0..1", "--jobs"], "without dashes"),
        (["trainer.update_epochs=1,2", "trainer.target_kl=0.1,0.2"], "(With trainer.update_epochs=1"),
        (["seed=0,1\x1b[31m"], "seed=1\\x1b[31m"),
        (["seed=0," + "9" * 400], "seed=999"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_refused_in_one_line(words, part):
    assert part in refusal(*words)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["trainer.lr=1e-5..100"], "trainer.lr=100: needs a number"),
        (["trainer.lr=0..0.1"], "trainer.lr=0: needs a number"),
        (["seed=0..3"], "nothing to search"),
        (["policy.core=lstm,nonsense", "trainer.lr=1e-5..1e-2"], "policy.core=nonsense"),
    ],
)
def test_searches_refused_in_one_line(words, part):
    assert part in refusal(*words, trials=5)


def test_other_options_that_are_refused():
    assert "did you mean" not in refusal("seed=0..1", metric="zzz").lower()
    assert "Did you mean entropy?" in refusal("seed=0..1", metric="entropi")
    assert "eval.interval" in refusal("seed=0..1", metric="eval/return")
    for name in ("..", "a/b", "", ".hidden", "x" * 200, "a\nb"):
        assert "--name" in refusal("seed=0..1", name=name)
    check_plan(make_plan(["seed=0..1", "eval.interval=5"], None, 0, "eval/return", False))
    check_plan(make_plan(["seed=0..1"], None, 0, "info/success", False))


def test_combinations_and_names():
    plan = make_plan([CARTPOLE, "trainer.lr=1e-3,1e-4", "env.hide=[1],[1,3]", "seed=0..1"], None, 0, "episodes", False)
    grid = plan.grid()
    assert [combination.values for combination in grid[:2]] == [
        {"trainer.lr": "1e-3", "env.hide": "[1]"},
        {"trainer.lr": "1e-3", "env.hide": "[1,3]"},
    ]
    assert plan.num_runs == 8
    runs = [run for combination in grid for run in plan.runs_of(combination)]
    assert [run.name for run in runs[:3]] == [
        "001-lr_1e-3-hide_1-seed_0",
        "002-lr_1e-3-hide_1-seed_1",
        "003-lr_1e-3-hide_1-3-seed_0",
    ]
    assert runs[-1].words == [CARTPOLE, "trainer.lr=1e-4", "env.hide=[1,3]", "seed=1"]
    assert len({run.name for run in runs}) == 8


def test_the_same_command_has_the_same_name():
    def name(*words, trials=0, metric="episodes"):
        return make_plan(words, None, trials, metric, False).name

    assert name("seed=0..1", "trainer.lr=1e-3,1e-4") == name("seed=0..1", "trainer.lr=1e-3,1e-4", metric="updates")
    assert name("seed=0..1", "trainer.lr=1e-3,1e-4") != name("seed=0..1", "trainer.lr=1e-3,1e-5")
    assert name("trainer.lr=1e-5..1e-1", trials=5) == name("trainer.lr=1e-5..1e-1", trials=9), "trials may grow"
    assert name("trainer.lr=1e-5..1e-1", trials=5) != name("trainer.lr=1e-5..1e-1", trials=5, metric="updates")
    assert name("seed=0..1").startswith("sweep-seed-")


def test_the_command_of_a_sweep_describes_the_same_sweep():
    words = [CARTPOLE, "trainer.lr=1e-5..1e-1", "policy.core=lstm,gru", "seed=0..1"]
    plan = make_plan(words, "mine", 7, "updates", True)
    *again, trials, number, metric, value, minimize, name, mine = plan.command
    assert (trials, number, metric, value, minimize, name, mine) == (
        *("--trials", "7", "--metric", "updates", "--minimize", "--name", "mine"),
    )
    assert make_plan(again, "mine", 7, "updates", True) == plan
