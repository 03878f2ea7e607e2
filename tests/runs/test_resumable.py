"""What a run that exists may be asked to do."""

import pytest

from holdfast.config import load_run_settings, load_settings
from holdfast.errors import SettingsError
from holdfast.runs import RunFolder, find_resumable


@pytest.fixture
def demo(tmp_path):
    """Words of a run that has begun."""
    words = [f"runs_dir={tmp_path}", "run=demo"]
    with RunFolder.create(load_settings([*words, "env=collect", "seed=3", "trainer.lr=0.002"])) as run:
        run.log_metrics({"update": 1})
    return words


def refusal(words):
    with pytest.raises(SettingsError) as error:
        find_resumable(load_settings(words))
    assert len(str(error.value).splitlines()) <= 3
    return str(error.value)


def test_a_run_goes_on_as_it_was_started(demo, tmp_path):
    settings = load_settings(demo)
    assert settings == load_run_settings(tmp_path / "demo" / "config.yaml")
    assert (settings.env.name, settings.seed, settings.trainer.lr) == ("collect", 3, 0.002)
    found = find_resumable(settings)
    assert found is not None
    assert found.path == tmp_path / "demo"
    assert found.changes == []


def test_nothing_to_go_on_with(tmp_path):
    assert find_resumable(load_settings([f"runs_dir={tmp_path}", "run=new"])) is None
    assert find_resumable(load_settings([f"runs_dir={tmp_path}"])) is None
    assert "no run in" in refusal([f"runs_dir={tmp_path}", "run=new", "resume=must"])
    assert "Add run=NAME" in refusal([f"runs_dir={tmp_path}", "resume=must"])


def test_never_means_never(demo):
    assert "already holds a run, and resume=never" in refusal([*demo, "resume=never"])


def test_what_a_run_was_started_with_about_resuming_does_not_count(tmp_path):
    words = [f"runs_dir={tmp_path}", "run=demo"]
    with RunFolder.create(load_settings([*words, "resume=never"])) as run:
        run.log_metrics({"update": 1})
    assert find_resumable(load_settings(words)) is not None


def test_a_settings_file_may_say_never(demo, tmp_path):
    (tmp_path / "mine.yaml").write_text("resume: never\n")
    assert "resume=never" in refusal([*demo, f"settings={tmp_path / 'mine.yaml'}"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("seed=4", "started with seed=3, not with seed=4"),
        ("env=memory", "started with env.name=collect"),
        ("env.num_envs=7", "env.num_envs=7"),
        ("policy.core=gru", "policy.core=gru"),
        ("agent=fast", "policy.agent=fast"),
        ("trainer.horizon=8", "trainer.horizon=8"),
        ("trainer.l2_init=0.1", "trainer.l2_init=0.1"),
    ],
)
def test_what_a_run_is_made_of_cannot_change(demo, word, said):
    message = refusal([*demo, word])
    assert said in message
    assert "another run=NAME" in message


@pytest.mark.parametrize(
    "word",
    ["progress=off", "trainer.num_workers=1", "trainer.checkpoint_interval=7", "trainer.keep.last=9", "audit=off"],
)
def test_what_does_not_touch_learning_changes_freely(demo, word):
    assert find_resumable(load_settings([*demo, word])).changes == []


def test_what_changes_learning_is_said(demo):
    found = find_resumable(load_settings([*demo, "trainer.lr=0.001", "trainer.total_timesteps=123"]))
    assert "trainer.lr 0.002 -> 0.001" in found.changes
    assert len(found.changes) == 2


def test_a_settings_file_is_compared_too(demo):
    message = refusal([*demo, "settings=memory", "seed=3"])
    assert "env.name=collect" in message


def test_a_run_without_its_settings(demo, tmp_path):
    (tmp_path / "demo" / "config.yaml").unlink()
    assert "has no config.yaml" in refusal(demo)


def test_code_named_by_a_run_is_not_trusted(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text("raise SystemExit('ran')")
    words = [f"runs_dir={tmp_path}", "run=demo"]
    own = f"py_agent={code}:Mine"
    with RunFolder.create(load_settings([*words, own])) as run:
        run.log_metrics({"update": 1})
    with pytest.raises(SettingsError, match="cannot name Python code"):
        load_settings(words)
    assert find_resumable(load_settings([*words, own])) is not None
