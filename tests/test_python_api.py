"""`holdfast.train` and `holdfast.Run`."""

import random
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import holdfast
from holdfast.config import load_settings
from holdfast.errors import HoldfastError, SettingsError
from holdfast.policies import LSTMWrapper, Policy
from holdfast.runs import read_metrics


class Recall(gymnasium.Env):
    """A cue of the first observation is asked for at the end."""

    made = 0

    def __init__(self, delay: int = 2):
        type(self).made += 1
        self.delay = delay
        self.observation_space = spaces.Dict({"cue": spaces.Discrete(3), "time": spaces.Box(0, 1, (1,))})
        self.action_space = spaces.Discrete(2)

    def observe(self, cue: int):
        return {"cue": cue, "time": np.array([self.time / 10], np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.cue = 0, int(self.np_random.integers(2))
        return self.observe(self.cue + 1), {}

    def step(self, action):
        self.time += 1
        ended = self.time > self.delay
        return self.observe(0), float(ended and action == self.cue), ended, False, {}


class Mine(LSTMWrapper):
    def __init__(self, spec, width: int = 8, **options):
        super().__init__(spec, width, **{"hidden_size": 8, "num_layers": 1, **options})
        self.encoder = torch.nn.Linear(spec.obs.shape[0], width)
        self.heads = torch.nn.Linear(8, 3)

    def encode_observations(self, observations):
        return torch.tanh(self.encoder(observations))

    def decode_actions(self, hidden):
        out = self.heads(hidden)
        return out[:, :2], out[:, 2]


SMALL = {"total_timesteps": 256, "horizon": 16, "update_epochs": 1}


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> holdfast.Run:
    return small(env=Recall, runs_dir=tmp_path_factory.mktemp("runs"))


def small(**settings) -> holdfast.Run:
    return holdfast.train(**{"trainer": SMALL, "progress": "off", "audit": "off", **settings})


@pytest.mark.usefixtures("here")
def test_a_class_of_the_script_is_trained_loaded_and_played_to_the_digit():
    run = small(env=Recall, env_kwargs={"delay": 3}, run="recall")
    assert run.path == Path.cwd() / "runs" / "recall"
    assert run.summary["agent_steps"] == 256
    result = run.evaluate(episodes=4)
    agent, returns = run.load(), []
    for seed in result.seeds:
        env = Recall(delay=3)
        obs, _ = env.reset(seed=seed)
        state, total, ended = None, 0.0, False
        while not ended:
            action, state = agent.act(obs, state)
            obs, reward, ended, _, _ = env.step(action)
            total += reward
        returns.append(total)
    assert returns == result.returns
    run.export(onnx="recall.onnx")
    assert holdfast.export.check("recall.onnx").actions_equal
    again = holdfast.Run("recall", env=Recall)
    assert again.evaluate(episodes=4).returns == result.returns
    with pytest.raises(SettingsError, match="may name"):
        holdfast.Run("recall").evaluate()


@pytest.mark.usefixtures("here")
def test_functions_ready_objects_and_policy_classes():
    made = small(env=lambda: Recall(delay=1), policy=Mine, policy_kwargs={"width": 4})
    assert made.load().policy.encoder.out_features == 4  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(made.load().policy, Mine)
    assert made.evaluate(episodes=2).episodes == 2
    ready = small(env=Recall())
    assert load_settings([], {"settings": ready.path / "config.yaml", "env": "memory"}).env.num_envs > 1
    assert "num_envs: 1" in (ready.path / "config.yaml").read_text()


@pytest.mark.usefixtures("here")
def test_a_ready_vector_environment_has_its_number_of_environments():
    run = small(env=gymnasium.vector.SyncVectorEnv([Recall] * 4))
    assert "num_envs: 4" in (run.path / "config.yaml").read_text()
    assert run.evaluate(episodes=6).episodes == 8


@pytest.mark.usefixtures("here")
def test_names_may_have_any_letters():
    größe = type("Größe", (Recall,), {"__module__": __name__})
    schätzer = type("Schätzer", (Mine,), {"__module__": __name__})
    run = small(env=größe, policy=schätzer)
    assert "Größe" in (run.path / "config.yaml").read_text()
    assert run.path.name.isascii()
    assert isinstance(run.load().policy, schätzer)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"episodes": 0}, "episodes=0: needs a whole number from 1"),
        ({"episodes": "5"}, "episodes='5'"),
        ({"episodes": 2.5}, "episodes=2.5"),
        ({"episodes": True}, "episodes=True"),
        ({"seed": -1}, "seed=-1: needs a whole number from 0"),
        ({"seed": 2**31}, "seed=2147483648"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"both": True, "greedy": False}, "greedy must be True"),
    ],
)
def test_what_cannot_be_evaluated_is_named(arguments, part, finished):
    with pytest.raises(SettingsError, match=part):
        finished.evaluate(**arguments)


@pytest.mark.usefixtures("here")
def test_words_keywords_and_dicts_are_the_same_settings():
    runs = [
        holdfast.train("env=gym:CartPole-v1", "trainer.total_timesteps=256", "trainer.horizon=16", "progress=off", "seed=3"),
        holdfast.train("env=gym:CartPole-v1", trainer={"total_timesteps": 2.56e2, "horizon": "16"}, progress="off", seed=3),
        holdfast.train({"env": {"name": "gym:CartPole-v1"}, "trainer": {"total_timesteps": 256}}, {"trainer": {"horizon": 16}},
                       progress=False, seed=np.int64(3)),
    ]  # fmt: skip
    texts = {(run.path / "config.yaml").read_text().split("runs_dir")[1] for run in runs}
    assert len(texts) == 1
    assert len({float(run.metrics["policy_loss"][-1]) for run in runs}) == 1


@pytest.mark.usefixtures("here")
def test_a_finished_run_that_is_named_again_goes_on_with_more_steps():
    first = small(env="gym:CartPole-v1", run="demo")
    more = small(env="gym:CartPole-v1", run="demo", trainer={**SMALL, "total_timesteps": 512})
    assert (first.path, more.summary["agent_steps"], more.summary["resumed"]) == (more.path, 512, 1)


@pytest.mark.usefixtures("here")
def test_metrics_are_columns():
    run = small(env="gym:CartPole-v1")
    rows, columns = read_metrics(run.path), run.metrics
    assert columns["update"].tolist() == [row["update"] for row in rows]
    assert all(column.shape == (len(rows),) for column in columns.values())
    assert columns["approx_kl"].dtype == np.float64
    slow = small(env="gym:Pendulum-v1")  # no episode has ended
    assert np.isnan(slow.metrics["episode_return"]).all()


@pytest.mark.usefixtures("here")
def test_a_callback_sees_every_update_and_may_stop():
    seen = []

    def callback(update):
        seen.append((update.update, update.agent_steps, update.metrics["policy_loss"], update.episode_return))
        if update.update == 2:
            update.stop()

    more = {**SMALL, "total_timesteps": 512}
    run = small(env="gym:CartPole-v1", callback=callback, run="stopped", trainer=more)
    assert [(number, steps) for number, steps, *_ in seen] == [(1, 128), (2, 256)]
    assert run.metrics["policy_loss"].tolist() == [loss for _, _, loss, _ in seen]
    assert run.load().checkpoint == "00000002"
    rest, whole = (small(env="gym:CartPole-v1", run=name, trainer=more) for name in ("stopped", "whole"))
    assert rest.metrics["entropy"].tolist() == whole.metrics["entropy"].tolist()
    assert (rest.summary["updates"], rest.summary["exact"]) == (4, True)


@pytest.mark.usefixtures("here")
def test_a_callback_that_raises_or_returns_something_ends_a_run_that_is_saved():
    def failing(update):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        small(env="gym:CartPole-v1", callback=failing, run="raises")
    assert holdfast.Run("raises").load().checkpoint == "00000001"
    with pytest.raises(HoldfastError, match=r"callback returned True.*update.stop\(\)"):
        small(env="gym:CartPole-v1", callback=lambda update: True, run="returns")  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("here")
def test_the_process_is_left_as_it_was():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    threads = torch.get_num_threads()
    expected = (
        random.Random(1).random(),
        np.random.RandomState(1).rand(),
        torch.Generator().manual_seed(1).initial_seed(),
    )
    small(env="gym:CartPole-v1")
    assert (random.random(), np.random.rand(), torch.initial_seed()) == expected
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("here")
def test_training_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(small(env="gym:CartPole-v1")))
    thread.start()
    thread.join()
    assert found[0].summary["agent_steps"] == 256


@pytest.mark.parametrize(
    ("words", "settings", "part"),
    [
        ([], {"trainer": {"lrr": 1}}, "unknown key trainer.lrr. Did you mean trainer.lr"),
        ([], {"trainer": {"lr": -1}}, "trainer.lr=-1: needs a number above 0"),
        ([], {"trainer": {"lr": True}}, "trainer.lr=True: needs a number"),
        ([], {"env": 3}, "an object of type int"),
        ([], {"env": "memroy"}, "env='memroy': no such world. Did you mean memory"),
        ([], {"policy": "fasd"}, "policy='fasd': no such agent. Did you mean fast"),
        ([], {"policy": int}, "policy=int: a policy must subclass"),
        ([], {"policy": len}, "policy: needs a policy class, or the name of an agent, not <built-in function len>"),
        ([], {"env": Recall(), "env_kwargs": {"delay": 3}}, "env.kwargs: has no effect on an environment that exists"),
        ([], {"policy": Policy, "agent": "fast"}, "two agents"),
        ([], {"trainer": {"ranks": 2}}, "a Python program is one process"),
        ([], {"env": Recall, "env_kwargs": {"delay": object()}}, "env.kwargs.*not an object of type object"),
        (["seed=1"], {"seed": 2}, "the same key is set twice"),
        ([{"seed": 1}], {"seed": 2}, "given twice"),
        ([3], {}, "int is not a setting"),
        ([], {"nonsense": 1}, "unknown key nonsense"),
        ([], {"trainer": 3}, "trainer is a group of keys"),
        ([], {"run": "../up"}, "letters, digits"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_written(words, settings, part, here):
    with pytest.raises(SettingsError, match=part):
        holdfast.train(*words, **settings)
    assert [*here.iterdir()] == []


def test_a_run_that_is_not_there(here):
    with pytest.raises(SettingsError, match="no such run"):
        holdfast.Run("nothing")


def test_what_the_package_offers():
    assert {name for name in dir(holdfast) if not name.startswith("_")} >= {"Agent", "Run", "load", "train"}
    assert all(getattr(holdfast, name) for name in (*holdfast.__all__, "export"))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        holdfast.trian  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.usefixtures("here")
def test_one_thread_trains_at_a_time_and_a_run_is_a_path():
    refused = []

    def callback(update):
        with pytest.raises(SettingsError, match="another thread of this process") as caught:
            small(env="gym:CartPole-v1")
        refused.append(caught)
        update.stop()

    run = small(env="gym:CartPole-v1", callback=callback)
    assert len(refused) == 1
    assert holdfast.load(run).checkpoint == "00000001"
    with pytest.raises(SettingsError, match="callback: needs a function"):
        small(env="gym:CartPole-v1", callback=3)
