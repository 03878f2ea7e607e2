"""What the config.yaml of a run may ask for only if the command line names it again."""

import os
from pathlib import Path

import pytest
import yaml

from holdfast.config import load_run_settings, load_run_world, load_settings
from holdfast.config.sections import find_world
from holdfast.errors import SettingsError

ASKED = [
    ({"policy": {"compile": True}}, "policy.compile=true"),
    ({"policy": {"compile": "on"}}, "policy.compile=true"),
    ({"policy": {"weights": "../theirs"}}, "policy.weights=../theirs"),
    ({"policy": {"agent": "theirs.yaml"}}, "policy.agent=theirs.yaml"),
    ({"trainer": {"threads": 1024}}, "trainer.threads=1024"),
    ({"env": {"name": "gym:CartPole-v1", "kwargs": {"render_mode": "human"}}}, "env.kwargs.render_mode=human"),
]


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(tree: object) -> Path:
        path = Path("runs/demo/config.yaml")
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(tree))
        return path

    return write


@pytest.mark.parametrize(("tree", "word"), ASKED)
def test_it_is_refused_until_it_is_named(write, tree, word):
    path = write(tree)
    with pytest.raises(SettingsError) as caught:
        load_settings(["run=demo"])
    assert str(caught.value).endswith(f"\n{word}")
    loaded = load_settings(["run=demo", word])
    assert loaded == load_run_settings(path).model_copy(update={"run": "demo"})


def test_a_checkpoint_has_the_graph_and_the_weights(write):
    path = write({"policy": {"agent": "theirs.yaml", "weights": "../theirs"}})
    (path.parent / "checkpoints").mkdir()
    assert load_settings(["run=demo"]).policy.weights == "../theirs"


def test_the_world_of_an_evaluation(write):
    kwargs = {"render_mode": "human"}
    path = write({"env": {"name": "gym:CartPole-v1", "kwargs": kwargs}, "trainer": {"threads": 1024}})
    with pytest.raises(SettingsError, match="render_mode"):
        load_run_world(path)
    assert load_run_world(path, ["env.kwargs.render_mode=human"]) == load_run_settings(path).env
    assert load_run_world(path, ["env.kwargs={}"]).model_dump()["kwargs"] == {}


def test_as_many_threads_as_cores_are_usual(write):
    write({"trainer": {"threads": os.cpu_count()}})
    assert load_settings(["run=demo"]).trainer.threads == os.cpu_count()


def test_a_file_that_the_user_names_may_ask_for_it(write):
    path = write({"policy": {"compile": True}})
    assert load_settings([f"settings={path}"]).policy.compile


CODE = [
    "./evil.py:Env",
    "/tmp/evil.py:Env",
    "runs/demo/evil.py:Env",
    "~/evil.py:Env",
    "file:evil.py:Env",
    "C:\\\\evil.py:Env",
]


@pytest.mark.parametrize("name", CODE)
def test_a_world_from_a_file_is_named_again(write, name):
    """The other settings of the world are kept, and the file may have moved."""
    path = write({"env": {"name": name, "num_envs": 3, "kwargs": {"delay": 2}}})
    for load in (lambda *words: load_settings(["run=demo", *words]).env, lambda *words: load_run_world(path, words)):
        with pytest.raises(SettingsError) as caught:
            load()
        assert str(caught.value).endswith(f"\nenv={name}")
        env = load("env=./mine.py:Env")
        assert (env.name, env.num_envs, env.model_dump()["kwargs"]) == ("./mine.py:Env", 3, {"delay": 2})
    with pytest.raises(SettingsError, match="only the command line"):
        load_settings([f"settings={path}"])


def test_a_prefix_comes_before_a_file():
    assert find_world("gym:./mine.py:Env") == "gym:"
    assert find_world("./mine.py:Env") == find_world("a:b.py:Env") == ".py:"
    assert find_world("mine.py:") is find_world("mine.py") is None
