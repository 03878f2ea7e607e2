import math
import os
import sys
from types import SimpleNamespace

import pytest

from holdfast.config import load_settings
from holdfast.errors import SettingsError
from holdfast.files import Folder
from holdfast.trainer import sinks as sinks_module
from holdfast.trainer.sinks import check_sinks, make_sinks


def settings(tmp_path, *words):
    return load_settings([f"runs_dir={tmp_path / 'runs'}", "run=demo", *words])


def test_nothing_is_asked_for_by_default(tmp_path):
    given = settings(tmp_path)
    check_sinks(given)
    assert make_sinks(given, Folder.open(tmp_path)) == []


def test_tensorboard_events_can_be_read_back(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (sink,) = make_sinks(settings(tmp_path, "tensorboard=on"), Folder.open(tmp_path))
    sink.log({"agent_steps": 512, "episode_return": None, "policy_loss": -0.5, "sps": 1000.0}, 512)
    sink.log({"agent_steps": 1024, "episode_return": 0.25, "policy_loss": float("nan"), "mine": 7}, 1024)
    sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == [
        "episode/episode_return",
        "loss/policy_loss",
        "other/mine",
        "time/sps",
    ]
    (only,) = events.Scalars("episode/episode_return")
    assert (only.step, only.value) == (1024, 0.25)
    before, after = events.Scalars("loss/policy_loss")
    assert (before.step, before.value) == (512, -0.5)
    assert (after.step, math.isnan(after.value)) == (1024, True)
    assert [e.value for e in events.Scalars("other/mine")] == [7.0]


@pytest.mark.parametrize(
    ("word", "packages", "message"),
    [
        ("tensorboard=on", ("tensorboard", "torch.utils.tensorboard"), "pip install tensorboard"),
        ("wandb=on", ("wandb",), "pip install wandb"),
        ("wandb=offline", ("wandb",), "pip install wandb"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, word, packages, message):
    for name in list(sys.modules):
        if name.startswith(packages):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, packages[0], None)  # Python's way to say: cannot be imported
    given = settings(tmp_path, word)
    for refuse in (check_sinks, lambda s: make_sinks(s, Folder.open(tmp_path))):
        with pytest.raises(SettingsError) as error:
            refuse(given)
        first, second = str(error.value).splitlines()
        assert first.startswith(f"{word} needs a package that is not installed (")
        assert packages[0] in first
        assert second.endswith(message)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_called_wandb_is_not_taken_for_the_package(tmp_path, monkeypatch):
    (tmp_path / "here" / "wandb" / "offline-run").mkdir(parents=True)
    for name in list(sys.modules):
        if name.split(".")[0] == "wandb":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here")])
    with pytest.raises(SettingsError, match="needs a package"):
        check_sinks(settings(tmp_path, "wandb=offline"))
    monkeypatch.delitem(sys.modules, "wandb")


def test_every_metric_has_one_section():
    keys = [key for section in sinks_module.SECTIONS.values() for key in section]
    assert len(keys) == len(set(keys)) == len(sinks_module._SECTION_OF)


def test_the_wandb_id_is_whole_or_absent(tmp_path, monkeypatch):
    class Crash(BaseException):
        pass

    def crash(handle):
        raise Crash

    with Folder.open(tmp_path) as run:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", crash)
            with pytest.raises(Crash):
                sinks_module._wandb_id(run)
        assert not run.has("wandb-id")
        assert sinks_module._wandb_id(run) == sinks_module._wandb_id(run)


def test_what_the_world_reports_has_a_section_of_its_own():
    figures = sinks_module._figures({"info/success": 0.5, "eval/return": 1.0, "entropy": 2.0, "skipped": 0})
    assert figures == {"info/success": 0.5, "eval/return": 1.0, "loss/entropy": 2.0, "other/skipped": 0.0}


@pytest.fixture
def wandb(monkeypatch):
    """Stand in for the package; the arguments of every `init`."""
    calls = []

    def init(**given):
        calls.append(given)
        return SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return calls


def test_what_weights_and_biases_is_told(tmp_path, wandb):
    make_sinks(settings(tmp_path, "wandb=on"), Folder.open(tmp_path))
    labels = ["wandb.project=mine", "wandb.entity=us", "wandb.group=lr", "wandb.tags=[a, b c]", "wandb.name=first"]
    make_sinks(settings(tmp_path, "wandb=offline", *labels), Folder.open(tmp_path))
    plain, labelled = ({key: call[key] for key in WANDB} for call in wandb)
    assert plain == dict(zip(WANDB, ("holdfast", None, None, [], tmp_path.name, "online"), strict=True))
    assert labelled == dict(zip(WANDB, ("mine", "us", "lr", ["a", "b c"], "first", "offline"), strict=True))
    assert wandb[1]["config"]["wandb"]["group"] == "lr"


WANDB = ("project", "entity", "group", "tags", "name", "mode")


def test_tensorboard_has_the_settings_as_hyperparameters(tmp_path):
    """In the same folder of events as the metrics, so that the tab HPARAMS finds the return of each run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    for lr, done in (("1e-3", 0), ("1e-3", 512)):  # a run, and its resume
        words = ["tensorboard=on", f"trainer.lr={lr}", "trainer.normalize_advantage=off", "policy.sees=[action]"]
        (sink,) = make_sinks(settings(tmp_path, *words), Folder.open(tmp_path), done)
        sink.log({"episode_return": 0.25}, done + 512)
        sink.close()
    assert [path for path in (tmp_path / "tensorboard").iterdir() if path.is_dir()] == []
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    found = events.summary_metadata
    start = metadata.parse_session_start_info_plugin_data(found[metadata.SESSION_START_INFO_TAG].plugin_data.content)
    assert start.hparams["trainer.lr"].number_value == 1e-3
    assert start.hparams["env.name"].string_value == "memory"
    assert start.hparams["trainer.normalize_advantage"].string_value == "off"
    assert start.hparams["policy.sees"].string_value == "['action']"
    assert start.hparams["trainer.stop_at_return"].string_value == "None"
    assert not {"run", "runs_dir", "progress"} & set(start.hparams)
    experiment = metadata.parse_experiment_plugin_data(found[metadata.EXPERIMENT_TAG].plugin_data.content)
    (metric,) = [info.name.tag for info in experiment.metric_infos]
    assert metric in events.Tags()["scalars"], "the metric of the tab is one that is logged"
    assert {info.name for info in experiment.hparam_infos} == set(start.hparams)
    end = metadata.parse_session_end_info_plugin_data(found[metadata.SESSION_END_INFO_TAG].plugin_data.content)
    assert end.status == 1  # success
    assert [event.step for event in events.Scalars(metric)] == [512, 1024]
