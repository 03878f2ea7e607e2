"""Evaluating a run: what is played, what is refused, what is reported about damaged checkpoints."""

import logging
import shutil
from pathlib import Path

import pytest

from holdfast.cli.audit_command import _subject_of_run
from holdfast.config import load_settings
from holdfast.errors import HoldfastError, SettingsError
from holdfast.evaluate import evaluate, evaluate_run
from holdfast.policies import make_policy
from holdfast.policies.settings import GRAPHS
from holdfast.trainer import train

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_policy.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates of a small policy, a checkpoint after each."""
    words = ["env.num_envs=1", "env.rooms=2", "trainer.horizon=4", "trainer.batch_size=8", "trainer.minibatch_size=8"]
    words += ["trainer.total_timesteps=16", "trainer.checkpoint_interval=1", "policy.hidden=8", "progress=off"]
    return train(load_settings([*words, "run=small", f"runs_dir={tmp_path_factory.mktemp('runs')}"])).run


def test_the_newest_checkpoint_is_played(run: Path):
    result = evaluate_run(run, episodes=4)
    assert result.episodes == 4 == len(result.returns)
    assert result.checkpoint == sorted(path.name for path in (run / "checkpoints").iterdir())[-1]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture):
    """caplog on the logger of Holdfast itself, so that changes to the root logger by other tests do not matter."""
    logging.getLogger("holdfast").addHandler(caplog.handler)
    yield caplog
    logging.getLogger("holdfast").removeHandler(caplog.handler)


def test_a_damaged_checkpoint_is_reported_and_skipped(run: Path, logged: pytest.LogCaptureFixture):
    older, newest = sorted((run / "checkpoints").iterdir())[-2:]
    weights = newest / "policy.safetensors"
    whole = weights.read_bytes()
    try:
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert evaluate_run(run, episodes=2).checkpoint == older.name
    finally:
        weights.write_bytes(whole)
    (record,) = {record.getMessage() for record in logged.records}
    assert f"{newest.name}/policy.safetensors: damaged" in record
    assert f"checkpoint {older.name} is used instead" in record


def test_a_checkpoint_that_is_not_there(run: Path):
    with pytest.raises(SettingsError, match=r"no checkpoint 99\. Checkpoints there: 0"):
        evaluate_run(run, checkpoint="99")
    elsewhere = run.parent / "elsewhere" / "checkpoints"
    shutil.copytree(run / "checkpoints", elsewhere)
    there = f"../../elsewhere/checkpoints/{next(elsewhere.iterdir()).name}"
    with pytest.raises(SettingsError, match="has no checkpoint"):
        evaluate_run(run, checkpoint=there)


def test_a_run_without_a_checkpoint_is_told_when_it_gets_one_and_how_to_continue(run: Path, tmp_path: Path):
    new = tmp_path / "runs" / "new"
    new.mkdir(parents=True)
    shutil.copy(run / "config.yaml", new)
    with pytest.raises(SettingsError, match=r"has no checkpoint\..*trainer\.checkpoint_interval") as error:
        evaluate_run(new)
    assert str(error.value).endswith(f"holdfast train run=new runs_dir={tmp_path / 'runs'}")


def test_an_endless_episode_is_an_error_that_names_the_slot():
    settings = load_settings(["env=gym:CartPole-v1", "env.num_envs=2", "policy.hidden=8"])
    policy = make_policy(settings.policy, settings.env.describe())
    with pytest.raises(HoldfastError, match=r"gym:CartPole-v1: the episode of slot 0 has not ended after 3 steps"):
        evaluate(policy, settings.env, episodes=2, seed=0, max_steps=3)
    assert evaluate(policy, settings.env, episodes=2, seed=0, max_steps=500).episodes == 2


def test_a_run_is_played_in_another_world(run: Path, caplog: pytest.LogCaptureFixture):
    longer = load_settings(["env=memory", "env.corridor=5"]).env
    assert evaluate_run(run, episodes=2).length_mean == 10
    away = evaluate_run(run, episodes=2, env=longer)
    assert away.length_mean > 10
    assert caplog.records == [], "all our games have the same names"
    with pytest.raises(SettingsError, match="cannot run in gym:CartPole-v1"):
        evaluate_run(run, env=load_settings(["env=gym:CartPole-v1"]).env)


def test_a_run_folder_is_not_trusted_to_name_code(tmp_path: Path):
    code = tmp_path / "mine.py"
    code.write_text(EXAMPLE.read_text())
    words = [f"py_agent={code}:MyPolicy", "env=gym:CartPole-v1", "env.num_envs=2", "trainer.horizon=4", "progress=off"]
    own = train(load_settings([*words, "trainer.total_timesteps=8", "run=own", f"runs_dir={tmp_path}"])).run
    code.write_text(code.read_text() + f"\nopen({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(SettingsError, match=r"is custom code. If you trust it, add:\n--py-agent .*mine.py:MyPolicy"):
        evaluate_run(own)
    for name in ("x", "mine.py", "fast", "mine.yaml"):
        with pytest.raises(SettingsError, match=rf"--py-agent {name}.*FILE.py:CLASS"):
            evaluate_run(own, py_agent=name)
    assert not (tmp_path / "ran").exists()
    assert evaluate_run(own, episodes=2, py_agent=f"{code}:MyPolicy").episodes == 2
    assert (tmp_path / "ran").exists()


@pytest.fixture(scope="module")
def received(tmp_path_factory) -> Path:
    """A run that somebody else trained with `py_agent=sent.py:MyPolicy` and `policy.kwargs`; only the folder arrives."""
    folder = tmp_path_factory.mktemp("received")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("sent.py").write_text(EXAMPLE.read_text())
        words = ["py_agent=sent.py:MyPolicy", "policy.kwargs.width=5", "env=gym:CartPole-v1", "env.num_envs=2"]
        words += ["trainer.horizon=4", "trainer.total_timesteps=8", "run=own", "progress=off", "audit=off"]
        train(load_settings(words))
        Path("sent.py").unlink()
    return folder


def test_the_code_of_a_received_run_may_be_in_another_place(received, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(EXAMPLE.read_text().replace("MyPolicy", "Theirs"))
    for place in ("./mine.py:Theirs", "mine.py:Theirs", f"{tmp_path / 'mine.py'}:Theirs"):
        assert evaluate_run(received / "runs/own", episodes=2, py_agent=place).episodes == 2
    subject = _subject_of_run(str(received / "runs/own"), [], Path("runs"), "mine.py:Theirs")
    assert subject.name.startswith(str(received))


@pytest.mark.parametrize(("old", "new", "parameter"), [("self.actor", "self.doer", "doer"), ("LSTM", "LSTM", "extra")])
def test_code_that_does_not_fit_is_told_the_parameter(received, tmp_path, monkeypatch, old, new, parameter):
    monkeypatch.chdir(tmp_path)
    code = EXAMPLE.read_text().replace(old, new)
    if parameter == "extra":
        code = code.replace("        self.critic =", "        self.extra = nn.Linear(1, 1)\n        self.critic =")
    Path("mine.py").write_text(code)
    with pytest.raises(SettingsError, match=rf"--py-agent mine.py:MyPolicy.*no parameter {parameter}\.bias"):
        evaluate_run(received / "runs/own", episodes=2, py_agent="mine.py:MyPolicy")


def test_a_run_is_resumed_with_its_code_in_another_place(received, tmp_path, caplog):
    code = tmp_path / "moved.py"
    code.write_text(EXAMPLE.read_text())
    words = ["run=own", f"runs_dir={received / 'runs'}", "trainer.total_timesteps=16", f"py_agent={code}:MyPolicy"]
    assert train(load_settings(words)).summary["updates"] == 2
    with pytest.raises(SettingsError, match="another run=NAME") as refused:
        train(load_settings([*words[:3], "py_agent=box"]))
    assert f"py_agent={code}:MyPolicy" in str(refused.value), "the words that resume the run"


def test_a_graph_of_ones_own_travels_in_the_checkpoint(tmp_path: Path):
    """No file is read when a run is evaluated, so one that has changed or gone does no harm."""
    file = tmp_path / "mine.yaml"
    file.write_text((GRAPHS / "fast.yaml").read_text())
    words = [f"agent={file}", "env.num_envs=1", "env.rooms=2", "trainer.horizon=4", "policy.hidden=8", "progress=off"]
    own = train(load_settings([*words, "trainer.total_timesteps=8", "run=own", f"runs_dir={tmp_path}"])).run
    file.unlink()
    assert evaluate_run(own, episodes=2).episodes == 2


def test_what_the_world_reports_is_in_the_result():
    settings = load_settings(["env=gym:support.telling:Telling-v0", "policy.hidden=8"])
    policy = make_policy(settings.policy, settings.env.describe())
    info = evaluate(policy, settings.env, episodes=5, seed=0).info
    assert 0 <= info["success"] <= 1
    assert "episode/t" not in info
