"""The command line: what it calls, what it prints, how it ends. Training itself is stood in for."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import holdfast
from holdfast.cli import main
from holdfast.config import describe_keys, load_settings, settings_to_yaml
from holdfast.config.files import ready_names
from holdfast.errors import HoldfastError, SettingsError
from holdfast.evaluate import EvaluationResult

HEAVY = ("torch", "mettagrid", "gymnasium", "numpy", "tensordict", "rich")

SUMMARY = {
    "agent_steps": 1024,
    "wall_s": 2.0,
    "sps": 1234.5678,
    "episode_return_mean": 0.25,
    "solved_at": None,
    "parity_max_abs_logratio": 1e-7,
}


def run(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert (caught.value.code or 0) == code


def python(code: str, *args: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, **options)


@pytest.fixture
def train_with(monkeypatch):
    """Put a stand-in where `holdfast train` finds `train`; returns the settings it was called with."""

    def stand_in(outcome=None):
        calls = []

        def train(settings):
            calls.append(settings)
            if isinstance(outcome, BaseException):
                raise outcome
            return SimpleNamespace(run=Path("runs/x"), summary=SUMMARY)

        monkeypatch.setitem(sys.modules, "holdfast.trainer", SimpleNamespace(train=train))
        return calls

    return stand_in


# -------------------- start


def test_help_is_light():
    """`holdfast --help` must answer at once: nothing heavy may be imported for it."""
    code = (
        "import sys\nfrom holdfast.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    for args in (
        [],
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["evaluate", "--help"],
        ["export", "--help"],
        ["bench", "--help"],
        ["runs", "--help"],
        ["compare", "--help"],
        ["sweep", "--help"],
        ["sweep", "trainer.lr=1e-3,x"],
    ):
        done = python(code, *args)
        assert done.stderr.splitlines()[-1] == "[]", args
    done = python(code, "train", "trainer.lr=x")
    assert "trainer.lr=x: needs a number" in done.stderr
    assert "torch" not in done.stderr.splitlines()[-1], "bad settings must not cost the import of torch"


def test_help_and_version(capsys):
    run("--version")
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"
    run("--help")
    out = capsys.readouterr().out
    assert all(f"  {verb} " in out for verb in ("train", "evaluate", "settings", "bench"))
    run("train", "--help")
    out = capsys.readouterr().out
    assert "holdfast train env=gym:CartPole-v1 env.hide=[1,3] policy.core=gru" in out
    assert "settings=NAME" in out


def test_every_example_in_the_help_is_good(capsys, tmp_path, monkeypatch, train_with):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("seed: 3\n")
    calls = train_with()
    run("train", "--help")
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  holdfast train")]
    assert len(lines) >= 5
    for line in lines:
        run(*line[1:])
    assert len(calls) == len(lines)


# -------------------- train


def test_train_calls_train_and_prints_its_summary(capsys, train_with):
    calls = train_with()
    words = [
        "env=gym:CartPole-v1",
        "env.hide=[1,3]",
        "run=test",
        "py_agent=box",
        "trainer.total_timesteps=5e3",
    ]
    run("train", *words)
    assert calls == [load_settings(words)]
    out = capsys.readouterr().out
    assert "1,024 steps in 2 s (1,235 steps/s): mean return of the last 100 episodes 0.250" in out
    assert "The run is in runs/x" in out
    assert out.splitlines()[-1].endswith("holdfast view runs/x")


def test_train_without_words_is_the_quick_start(train_with):
    calls = train_with()
    run("train")
    assert calls == [load_settings(["settings=quickstart"])]


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (
            SettingsError("trainer.batch_size=7: needs\na multiple"),
            2,
            "trainer.batch_size=7: needs\na multiple\n",
        ),
        (HoldfastError("worker 3 died"), 1, "worker 3 died\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_how_training_ends(outcome, code, message, capsys, train_with):
    train_with(outcome)
    run("train", code=code)
    assert capsys.readouterr() == ("", message)


def test_dashes_reach_the_settings(capsys):
    run("train", "--trainer.lr=1", code=2)
    assert "Write trainer.lr=1" in capsys.readouterr().err


def test_bad_words_in_a_bare_environment(tmp_path):
    """No HOME, no terminal, TERM=dumb: the same three lines and exit code."""
    path = os.environ.get("PYTHONPATH", "")
    done = python(
        "from holdfast.cli import main; main()",
        "train",
        "trainer.lr=x",
        env={"TERM": "dumb", "PYTHONPATH": path},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "trainer.lr=x: needs a number above 0 and at most 10.\n"
    assert list(tmp_path.iterdir()) == []


# -------------------- evaluate


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second", "third"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(settings_to_yaml(load_settings([])))
    (tmp_path / "runs" / "empty").mkdir()


@pytest.fixture
def evaluations(monkeypatch):
    calls = []

    def evaluate_run(run_dir, episodes, greedy, seed, checkpoint, max_steps, env, py_agent, both):
        elsewhere = [option for option in (env.corridor, py_agent) if option is not None]
        calls.append((run_dir, episodes, greedy, seed, checkpoint, max_steps, *elsewhere))
        result = EvaluationResult(episodes, 0.5, 0.1, 7.0, [], "00000050", info={"success": 0.75})
        return replace(result, sampled=replace(result, return_mean=0.4) if both else None)

    monkeypatch.setitem(sys.modules, "holdfast.evaluate", SimpleNamespace(evaluate_run=evaluate_run))
    return calls


@pytest.mark.parametrize("name", ["first", "runs/first", "runs/first/", "./runs/first"])
@pytest.mark.usefixtures("runs")
def test_evaluate_finds_a_run_by_name_or_path(name, evaluations, capsys):
    run("evaluate", name)
    assert evaluations == [(Path("runs/first"), 20, True, 1_000_000, None, 100_000, 3)]
    assert capsys.readouterr().out.splitlines() == [
        "20 episodes of checkpoint 00000050",
        "greedy   return 0.5 +- 0.1, length 7, success 0.75",
        "sampled  return 0.4 +- 0.1, length 7, success 0.75",
    ]


@pytest.mark.parametrize(("option", "shown"), [("--greedy", "greedy"), ("--sample", "sampled")])
@pytest.mark.usefixtures("runs")
def test_evaluate_one_way_only(option, shown, evaluations, capsys):
    run("evaluate", "first", option)
    assert [call[2] for call in evaluations] == [option == "--greedy"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [shown]
    run("evaluate", "first", "--greedy", "--sample", code=2)


@pytest.mark.usefixtures("runs")
def test_evaluate_options(evaluations, capsys):
    options = ["--episodes", "5", "--sample", "--seed", "3", "--checkpoint", "00000010", "--max-steps", "9", "--json"]
    run("evaluate", "second", *options)
    assert evaluations == [(Path("runs/second"), 5, False, 3, "00000010", 9, 3)]
    found = json.loads(capsys.readouterr().out)
    assert (found["return_mean"], found["sampled"]) == (0.5, None)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("words", [["env=memory", "env.corridor=6"], ["env.corridor=6"]])
def test_evaluate_elsewhere_and_with_code(words, evaluations):
    run("evaluate", "first", *words, "--py-agent", "mine.py:Mine")
    assert evaluations == [(Path("runs/first"), 20, True, 1_000_000, None, 100_000, 6, "mine.py:Mine")]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["trainer.lr=1"], "trainer.lr=1: only the world can be changed here"),
        (["py_agent=./mine.py:Mine"], "--py-agent ./mine.py:Mine"),
        (["env=memry"], "Did you mean memory?"),
        (["env=memory", "env.corridor=0"], "env.corridor=0"),
    ],
)
def test_evaluate_in_a_world_that_is_none(words, part, evaluations, capsys):
    run("evaluate", "first", *words, code=2)
    assert part in capsys.readouterr().err
    assert evaluations == []


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["secnd"], ["secnd: no such run.", "Nearest of the 3 runs in runs: second"]),
        (["runs_dir=elsewhere"], ["runs_dir=elsewhere", "--runs-dir"]),
        (["zzzzzz"], ["zzzzzz: no such run.", "first, second, third"]),
        (["runs/frist"], ["runs/frist: no such run", "first"]),
        (["empty"], ["empty: has no config.yaml"]),
        ([".."], ["..: has no config.yaml"]),
        (["first", "--runs-dir", "elsewhere"], ["first: no such run", "no runs in elsewhere"]),
        (["a\nb"], ["no such run"]),
        (["x" * 300], ["xxx...: no such run."]),
    ],
)
@pytest.mark.usefixtures("runs")
def test_evaluate_a_run_that_is_not_there(args, parts, evaluations, capsys):
    run("evaluate", *args, code=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") <= 3
    assert all(part in err for part in parts), err
    assert evaluations == []


@pytest.mark.parametrize("args", [["--episodes", "0"], ["--episodes", "x"], ["--seed", "-1"], ["--nonsense"]])
@pytest.mark.usefixtures("runs", "evaluations")
def test_evaluate_bad_options(args):
    run("evaluate", "first", *args, code=2)


# -------------------- bench


@pytest.mark.parametrize("code", [0, 2])
def test_bench_runs_the_script_of_the_checkout(code, monkeypatch):
    commands = []
    monkeypatch.setattr(subprocess, "call", lambda command: commands.append(command) or code)
    run("bench", "fast", "--quick", "--json", "figures.json", code=code)
    script = Path(__file__).parents[2] / "proofs" / "bench" / "run.py"
    assert commands == [[sys.executable, str(script), "fast", "--quick", "--json", "figures.json"]]


def test_bench_passes_arguments_on_and_its_exit_code_back(capfd):
    run("bench", "nonsense", "--quick", code=2)
    assert "nonsense" in capfd.readouterr().err


def test_bench_needs_a_checkout(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(holdfast, "__file__", str(tmp_path / "lib" / "holdfast" / "__init__.py"))
    run("bench", code=2)
    err = capsys.readouterr().err
    assert "make bench" in err
    assert err.count("\n") == 1


# -------------------- settings


def test_settings_lists_every_key(capsys):
    run("settings")
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]}
    assert listed == {key.name for key in describe_keys()}


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        (["trainer.prioritized"], {"trainer.prioritized.alpha", "trainer.prioritized.beta"}),
        (["debug"], {"debug.shapes", "debug.poison"}),
        (["env", "env=gym:CartPole-v1"], {"env.name", "env.num_envs", "env.hide", "env.action_mask", "env.kwargs"}),
        (["env=gymvec", "env."], {"env.name", "env.num_envs", "env.hide", "env.kwargs"}),
        (["policy.a", "agent=fast"], {"policy.agent"}),
        (["policy.e", "py_agent=box"], {"policy.encoder"}),
    ],
)
def test_settings_of_a_part(words, listed, capsys):
    run("settings", *words)
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]} == listed


def test_settings_shows_a_key_on_one_line_where_there_is_no_terminal(capsys):
    run("settings", "trainer.lr")
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split("  ")[0] == "trainer.lr"
    assert all(part in line for part in ("0.001", "a number above 0 and at most 10", "learning rate for Adam"))


def test_settings_names_a_key_of_all_agents_once(capsys):
    run("settings", "policy.core")
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert "py_agent=" not in line


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["trainr"], "Did you mean trainer?"),
        (["lr"], "Did you mean trainer.lr?"),
        (["env=memry"], "Did you mean memory?"),
        (["py_agent=fst"], "Did you mean fast?"),
        (["trainer.lr=3"], "env=NAME, py_agent=NAME or agent=NAME"),
    ],
)
def test_settings_bad_words(words, part, capsys):
    run("settings", *words, code=2)
    assert part in capsys.readouterr().err


def test_settings_list(capsys):
    run("settings", "--list")
    out = capsys.readouterr().out
    assert all(name in out for name in ready_names())
    assert "A T-maze that needs memory" in out


@pytest.mark.parametrize("args", [["settings"], ["settings", "trainer.lr"]], ids=["long output", "short output"])
def test_a_closed_pipe_is_quiet(args):
    """Short output is still in a buffer when the write fails, and is flushed once more at exit."""
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", *args]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == ""
    child.stderr.close()
    assert child.wait(30) == 141
