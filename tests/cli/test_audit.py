"""`holdfast audit`: targets, exit codes, what it prints, how it gives up."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.config import load_settings
from holdfast.trainer import train
from support.commands import Commands

ROOT = Path(__file__).parents[2]
ONE = ["--only", "slots_are_independent"]
# User files do not see the tests, unless they add them to the path.
MUTANTS = f"import sys\nsys.path.append({str(ROOT / 'tests')!r})\n"
FILE = """
import time
from torch import nn
from audit.mutants import ReferencePolicy
from audit.mutants.slots import ScalesByBatchMaximum

def subject():
    return ScalesByBatchMaximum()

def three():
    return 3

def of_a_file(path):
    return ScalesByBatchMaximum()

class Plain(nn.Module):
    pass

def raising():
    raise ValueError("not today")

class Forever(ReferencePolicy):
    def observations(self, N, generator):
        while True:
            time.sleep(0.01)
"""


STEPS_ONLY = """
import torch
from holdfast.audit.adapters import StepFunction

def step(obs, state, first):
    h = torch.tanh(obs + state[0][0] * (first == 0)[:, None])
    return {"logits": 1e-3 * h}, (h.unsqueeze(0),)

def subject():
    return StepFunction(step, lambda B: (torch.zeros(1, B, 3),), obs_shape=(3,))
"""


def run(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["audit", *args])
    assert (caught.value.code or 0) == code


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MUTANTS + FILE)
    return path


def test_a_policy_by_words(capsys):
    run("py_agent=box", "env=gym:CartPole-v1", *ONE)
    out = capsys.readouterr().out
    assert re.search(r"slots_are_independent +pass", out)
    assert "py_agent=box in gym:CartPole-v1: nothing failed in 1 of" in out


def test_a_failure_says_what_it_costs_and_how_to_mend_it(file, capsys):
    run(f"{file}:subject", *ONE, code=1)
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "when the observation of slot" in out
    for line in (
        "found    ",
        "cost     Agents act on what other agents see",
        "fix      Look for a statistic",
        "look at  ",
    ):
        assert line in out
    assert "ScalesByBatchMaximum: NOT SOUND. 1 FAIL in" in out


def test_a_class_of_ones_own_in_a_world(capsys):
    run(f"{ROOT}/examples/custom_policy.py:MyPolicy", "env=gym:CartPole-v1", *ONE)
    assert "nothing failed in 1 of" in capsys.readouterr().out


def test_a_run(tmp_path, capsys):
    words = ["env=gym:CartPole-v1", "env.num_envs=2", "trainer.horizon=4", "trainer.total_timesteps=8", "progress=off"]
    folder = train(load_settings([*words, f"runs_dir={tmp_path}", "run=first"])).run
    run(str(folder), "--only", "reset_inside_sequence", "--only", "log_probs_replay")
    assert "first at checkpoint 00000001: nothing failed in 2 of" in capsys.readouterr().out
    run("first", "--runs-dir", str(tmp_path), *ONE, "--json")
    assert json.loads(capsys.readouterr().out)["sound"] is True
    run(str(folder), "env=memory", code=2)
    assert "memory has other features than gym:CartPole-v1" in capsys.readouterr().err
    run(str(folder), "trainer.lr=1", code=2)
    assert "only the world can be changed here" in capsys.readouterr().err


def test_the_most_telling_failures_are_explained_and_known_bugs_named(file, capsys, tmp_path):
    page = tmp_path / "audit.html"
    run(f"{file}:subject", "--html", str(page), code=1)
    out = capsys.readouterr().out
    assert out.count("  fix      ") == 3
    assert re.search(r"\d+ more failed, possibly with the same cause; see --all\.", out)
    assert "Known bugs that fail like this:\n  ScalesByBatchMaximum: Observations are divided" in out
    assert "<strong>ScalesByBatchMaximum</strong>: Observations are divided" in page.read_text()
    run(f"{file}:subject", "--all", code=1)
    out = capsys.readouterr().out
    assert out.count("  fix      ") == out.count("FAIL") - 1  # the closing line counts them
    assert "more failed" not in out
    run(f"{file}:subject", "--json", code=1)
    named = [bug["name"] for bug in json.loads(capsys.readouterr().out)["known_bugs"]]
    assert named[0] == "ScalesByBatchMaximum"


def test_what_belongs_to_the_verdict_is_on_the_page_too(tmp_path, capsys):
    file, page = tmp_path / "steps.py", tmp_path / "audit.html"
    file.write_text(STEPS_ONLY)
    run(f"{file}:subject", "--html", str(page))
    out = capsys.readouterr().out
    for said in ("There is no sequence()", "Note: observations change logits by"):
        assert said in out
        assert said in page.read_text()


def test_json_and_the_exit_code_go_together(file, capsys):
    run(f"{file}:subject", *ONE, "--json", code=1)
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["FAIL"] == 1


def test_declared_on_the_command_line(tmp_path, capsys):
    file = tmp_path / "forgetful.py"
    file.write_text(MUTANTS + "from audit.mutants.episodes import NeverResets\n")
    run(f"{file}:NeverResets", "--only", "reset_inside_sequence", code=1)
    run(f"{file}:NeverResets", "--only", "reset_inside_sequence", "--declare", "lifetime_memory")
    out = capsys.readouterr().out
    assert "Declared: lifetime_memory." in out


def test_a_page(file, tmp_path, capsys):
    page = tmp_path / "audit.html"
    run(f"{file}:subject", *ONE, "--html", str(page), code=1)
    assert "ScalesByBatchMaximum" in page.read_text()
    assert f"The page is in {page}." in capsys.readouterr().out


def test_the_checks_are_listed(capsys):
    run("--checks")
    out = capsys.readouterr().out
    assert "reset_on_truncated" in out
    assert "Memory is reset after an episode that was truncated." in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a target to audit"),
        (["py_agent=fst"], "Did you mean fast?"),
        (["nowhere"], "no such run"),
        (["fast"], "Did you mean py_agent=fast?"),
        (
            ["py_agent=fast", "--only", "slots_are_independant"],
            "there is no check slots_are_independant. Did you mean slots_are_independent?",
        ),
        (["py_agent=fast", "--only", "reset"], "Did you mean reset_"),
        (["py_agent=fast", "--declare", "laziness"], "unknown deviation laziness"),
        (["{file}:three"], "cannot audit int"),
        (["{file}:nobody"], "no such name in the file"),
        (["{file}:nobody"], "In this file: subject, three, raising, Forever."),
        (["{file}:raising"], "cannot be created: ValueError: not today at "),
        (["{file}:Plain"], "is an nn.Module, which needs an adapter"),
        (["{file}:Plain", "env=memory"], "is an nn.Module, which needs an adapter"),
        (["{file}:nobody", "env=memory"], "no such name in the file"),
        (["{file}:subject", "env=memory"], "subject takes no settings"),
        (["{file}"], ":NAME"),
        (["./nothing.py:X"], "no such file: ./nothing.py"),
        (
            ["py_agent=fast", "--html", "/no/such/folder/a.html"],
            "/no/such/folder/a.html: needs a file path in an existing folder",
        ),
        (["py_agent=fast", "--quick", "--only", "reset_inside_sequence"], "--quick and --only: use one of them"),
        (["py_agent=fast", "--all", "--json"], "--all and --json: use one of them"),
        (["py_agent=fast", "--github", "--json"], "--github and --json: use one of them"),
        (["py_agent=fast", "--py-agent", "a.py:B"], "--py-agent is only for auditing a run"),
    ],
)
def test_what_cannot_be_audited_is_said_in_at_most_three_lines(words, said, file, capsys):
    run(*(word.format(file=file) for word in words), code=2)
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) <= 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["./text.txt"], "./text.txt: is not a Python file. Give a custom policy as FILE.py:NAME.\n"),
        (["./text.txt:P"], "./text.txt: is not a Python file. Give a custom policy as FILE.py:NAME.\n"),
        (["./m.yaml"], "./m.yaml: is not a Python file. Did you mean agent=./m.yaml?\n"),
        (["m.yaml:P", "env=memory"], "m.yaml: is not a Python file. Did you mean agent=m.yaml?\n"),
        (["./folder:P"], "./folder: is a folder, not a Python file. Name a file in it.\n"),
        (["./folder"], "./folder: has no config.yaml, so it is not a run.\nThere are no runs in runs.\n"),
        (["./other.txt:P"], "./other.txt:P: no such run.\nThere are no runs in runs.\n"),
        (["x" * 300], f"{'x' * 57}...: no such run.\nThere are no runs in runs.\n"),
    ],
)
def test_what_is_there_and_is_no_python_file_is_not_looked_for_among_the_runs(
    words, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("text.txt", "m.yaml"):
        (tmp_path / name).write_text("hello")
    (tmp_path / "folder").mkdir()
    run(*words, code=2)
    assert capsys.readouterr().err == said


def test_a_policy_that_does_not_fit_the_world_nobody_named_is_told_which_it_is(capsys):
    run(f"{ROOT}/examples/custom_policy.py:MyPolicy", *ONE, code=2)
    err = capsys.readouterr().err
    assert "in memory cannot be run: " in err
    assert "No world was given, so the policy ran in env=memory" in err


def test_a_policy_that_does_not_fit_the_world_that_was_named_is_not(capsys):
    run(f"{ROOT}/examples/custom_policy.py:MyPolicy", "env=memory", *ONE, code=2)
    assert "No world was given" not in capsys.readouterr().err


def test_a_check_that_was_named_and_could_not_run_is_no_success(tmp_path, capsys):
    path = tmp_path / "bare.py"
    path.write_text(
        "from torch import nn\n"
        "from holdfast.audit.adapters import BareRecurrent\n"
        "def subject():\n"
        "    return BareRecurrent(nn.GRU(2, 3))\n"
    )
    run(f"{path}:subject", "--only", "reset_on_truncated", *ONE, code=2)
    said = capsys.readouterr()
    assert re.search(r"reset_on_truncated +not run", said.out)
    assert said.err == "a check named with --only could not run; the table gives the reason.\n"
    run(f"{path}:subject", "--only", "reset_inside_sequence", "--only", "reset_on_truncated", code=1)


def test_a_file_that_raises(tmp_path, capsys):
    path = tmp_path / "broken.py"
    path.write_text("import torch\nimport nothing_of_the_kind")
    run(f"{path}:X", code=2)
    err = capsys.readouterr().err
    assert "the file cannot be run: ModuleNotFoundError: No module named 'nothing_of_the_kind' at " in err
    assert err.endswith("/broken.py:2\n")


def test_a_file_that_ends_the_process_is_not_sound(tmp_path, capsys):
    path = tmp_path / "ending.py"
    path.write_text("import sys\nsys.exit(0)")
    run(f"{path}:X", code=2)
    assert "the file cannot be run: SystemExit: 0 at" in capsys.readouterr().err


def test_files_beside_the_file_can_be_imported_and_hide_nothing_afterwards(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_a.py").write_text(MUTANTS + "from audit.mutants import ReferencePolicy")
    (tmp_path / "beside_b.py").write_text("NAME = 'of the file beside'")
    path = tmp_path / "importing.py"
    path.write_text(
        "from beside_a import ReferencePolicy\n"
        "def subject():\n"
        "    from beside_b import NAME\n"
        "    sound = ReferencePolicy()\n"
        "    sound.name = NAME\n"
        "    return sound\n"
    )
    run(f"{path}:subject", *ONE)
    assert "of the file beside: nothing failed" in capsys.readouterr().out
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.slow
def test_one_that_takes_for_ever_is_given_up_on_and_told_where_it_was(file, tmp_path):
    (tmp_path / "slow.py").write_text("import time\n\ndef subject():\n    time.sleep(1000)\n")
    with Commands() as holdfast:
        runs = holdfast("audit", f"{file}:Forever", "--time-limit", "3", cwd=file.parent, limit=60)
        makes = holdfast("audit", "slow.py:subject", "--time-limit", "3", cwd=tmp_path, limit=60)
    assert (runs.code, makes.code) == (2, 2)
    assert re.search(r"timed out after 3 s in the first run of the policy at mine.py:\d+\.", runs.err)
    assert "timed out after 3 s in creating slow.py:subject at slow.py:4." in makes.err


PRINTS = """
import os
from audit.mutants import ReferencePolicy

print("imported")
os.system("echo from another process")

class Prints(ReferencePolicy):
    def step(self, obs, state, first):
        print("a step")
        return super().step(obs, state, first)
"""


def test_what_a_policy_prints_does_not_spoil_the_json(tmp_path, capfd):
    (tmp_path / "prints.py").write_text(MUTANTS + PRINTS)
    run(f"{tmp_path / 'prints.py'}:Prints", *ONE, "--json")
    heard = capfd.readouterr()
    assert json.loads(heard.out)["sound"] is True
    assert "a step" in heard.err
    assert "from another process" in heard.err


def test_what_cannot_be_audited_is_said_in_json_too(capsys):
    run("py_agent=fats", "--json", code=2)
    assert "no such agent" in json.loads(capsys.readouterr().out)["error"]


ENDS_THE_PROCESS = """
import os, signal, threading, time
from audit.mutants import ReferencePolicy

class Leaves(ReferencePolicy):
    def sequence(self, *args):
        os._exit(0)

class LeavesAsIfItFailed(ReferencePolicy):
    def sequence(self, *args):
        os._exit(1)

class LeavesAChild(ReferencePolicy):
    def sequence(self, *args):
        if os.fork() == 0:
            os.close(1)
            time.sleep(30)
        os._exit(0)

class NeverEnds(ReferencePolicy):
    def sequence(self, *args):
        time.sleep(600)

class Crashes(ReferencePolicy):
    def sequence(self, *args):
        os.kill(os.getpid(), signal.SIGSEGV)

class Lingers(ReferencePolicy):
    def __init__(self):
        super().__init__()
        threading.Thread(target=time.sleep, args=(600,)).start()
"""


def test_a_policy_that_leaves_or_never_ends_is_said_in_json_too(tmp_path):
    (tmp_path / "ends.py").write_text(MUTANTS + ENDS_THE_PROCESS)
    command = [sys.executable, "-m", "holdfast", "audit", "--json"]
    for name, limit, said in (("LeavesAChild", "300", "with exit code 0"), ("NeverEnds", "10", "timed out after 10 s")):
        target = f"{tmp_path / 'ends.py'}:{name}"
        ended = subprocess.run(
            [*command, "--time-limit", limit, target], stdout=subprocess.PIPE, text=True, timeout=300
        )
        assert ended.returncode == 2
        assert said in json.loads(ended.stdout)["error"]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("Leaves", 2, "the policy ended the process (with exit code 0)"),
        ("LeavesAsIfItFailed", 2, "the policy ended the process (with exit code 1)"),
        ("Crashes", 2, "the policy ended the process (SIGSEGV)"),
        ("Lingers", 0, ""),
    ],
)
def test_a_process_that_is_ended_or_held_up_is_no_verdict(name, code, said, tmp_path):
    (tmp_path / "ends.py").write_text(MUTANTS + ENDS_THE_PROCESS)
    command = [sys.executable, "-m", "holdfast", "audit", f"{tmp_path / 'ends.py'}:{name}", *ONE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
