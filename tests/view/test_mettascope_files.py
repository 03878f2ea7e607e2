"""holdfast view --mettascope: the folder it writes to, the worlds it refuses, and the command."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.config import load_settings
from holdfast.errors import SettingsError
from holdfast.trainer import train
from holdfast.view.mettascope import check_replays, replays_written, write_replays
from support.replays import SEED, WORLDS, read, see

if find_spec("mettagrid") is None:
    pytest.skip("needs mettagrid", allow_module_level=True)

SHORT = ["env=memory", "env.rooms=2", "env.num_envs=2", "trainer.horizon=8", "trainer.batch_size=32"]
SHORT += ["trainer.minibatch_size=32", "trainer.total_timesteps=64", "audit=off", "progress=off"]


def test_files_of_the_same_name_are_replaced_and_others_kept(tmp_path):
    env = WORLDS["memory"]
    (tmp_path / "env_0_episode_0.json.z").write_text("old")
    (tmp_path / "env_0_episode_99.json.z").write_text("kept")
    (tmp_path / "notes.txt").write_text("kept")
    files = write_replays(tmp_path, env, SEED, see(env, episodes=1))
    assert [f.name for f in files] == ["env_0_episode_0.json.z"]
    assert read(files[0])["version"]
    assert {f.name for f in tmp_path.iterdir()} == {"env_0_episode_0.json.z", "env_0_episode_99.json.z", "notes.txt"}
    assert (tmp_path / "env_0_episode_99.json.z").read_text() == (tmp_path / "notes.txt").read_text() == "kept"


def test_a_folder_that_takes_the_name_of_a_file(tmp_path):
    env = WORLDS["memory"]
    (tmp_path / "env_0_episode_0.json.z").mkdir()
    with pytest.raises(SettingsError, match="env_0_episode_0"):
        write_replays(tmp_path, env, SEED, see(env, episodes=1))
    assert [f.name for f in tmp_path.iterdir()] == ["env_0_episode_0.json.z"], "no half file is left"


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_as_the_folder(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingsError, match=r"--mettascope .*not a folder"):
        check_replays(tmp_path / name, WORLDS["memory"])
    assert (tmp_path / "file").read_text() == "mine"


def test_other_worlds_are_refused_with_what_to_use_instead(tmp_path):
    env = load_settings(["env=gym:CartPole-v1"]).env
    with pytest.raises(SettingsError, match="CartPole-v1") as refused:
        check_replays(tmp_path / "new", env)
    assert "--html" in str(refused.value)
    assert "--gif" in str(refused.value)
    assert not (tmp_path / "new").exists()


# ------------------------------------------------------------------------------------------------ the command


def test_the_command(tmp_path, capsys):
    run = train(load_settings([*SHORT, f"runs_dir={tmp_path}", "run=small"])).run
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["view", str(run), "--mettascope", str(tmp_path / "out"), "--episodes", "2"])
    assert not ended.value.code
    out = capsys.readouterr().out
    assert {f.name for f in (tmp_path / "out").iterdir()} == {"env_0_episode_0.json.z", "env_1_episode_0.json.z"}
    assert str(tmp_path / "out") in out
    (command,) = (line for line in out.splitlines() if line.startswith("nim r "))
    program, option = command.split()[2:]
    assert Path(program).is_file()
    assert Path(option.removeprefix("--replay=")).is_file()
    assert "://" not in out
    assert not (run / "view.html").exists()


def test_the_notes_of_the_recording_are_printed(tmp_path):
    seen = see(WORLDS["memory"])
    seen.recording.notes.append("Recorded 3 of 9 episodes")
    assert "Recorded 3 of 9 episodes" in replays_written([tmp_path / "env_0_episode_0.json.z"], seen)
