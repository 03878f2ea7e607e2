"""Bad words: at most three lines that name the key, the value, what is allowed and what was meant."""

import pytest

from holdfast.config import load_settings
from holdfast.errors import SettingsError


def refusal(words: list[str]) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(words)
    message = str(caught.value)
    assert 1 <= len(message.split("\n")) <= 3, message
    assert all(line.isprintable() and len(line) < 300 for line in message.split("\n")), message
    return message


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        # keys
        (
            ["trainer.total_timestep=5000"],
            ["unknown key trainer.total_timestep. Did you mean trainer.total_timesteps?"],
        ),
        (["total_timesteps=5000"], ["unknown key total_timesteps", "Did you mean trainer.total_timesteps?"]),
        (["Trainer.LR=1"], ["Did you mean trainer.lr?"]),
        (["trainer.learning_rate=1"], ["Did you mean trainer.lr?"]),
        (["agnt=fast"], ["unknown key agnt", "agent"]),
        (["agent=fst"], ["agent=fst", "no such agent", "Did you mean fast?", "FILE.yaml"]),
        (["agent=box"], ["agent=box", "no such agent", "Agents: ", "fast"]),
        (["agent=fast", "py_agent=fast"], ["agent=fast and py_agent=fast: two agents"]),
        (["agent=mine.py:Mine"], ["no such agent", "Did you mean py_agent=mine.py:Mine?"]),
        (["py_agent=mine.yaml"], ["no such agent", "Did you mean agent=mine.yaml?"]),
        (["agent=fast", "policy.kwargs={a: 1}"], ["policy.kwargs belongs to py_agent=FILE.py:CLASS", "agent=fast"]),
        (["setings=quickstart"], ["Did you mean settings?"]),
        (["qqqqq=1"], ["unknown key qqqqq", "holdfast settings"]),
        (["trainer.qqqqq=1"], ["unknown key trainer.qqqqq", "holdfast settings trainer"]),
        (
            ["env=gym:CartPole-v1", "env.corridor=3"],
            ["env.corridor belongs to env=memory", "env=gym:CartPole-v1"],
        ),
        (["env=gym:X", "env.corridr=3"], ["env.corridr", "Did you mean env.corridor?", "env=memory"]),
        (["env.hide=[1]"], ["env.hide belongs to", "env=gym:NAME and env=gymvec:NAME", "env=memory"]),
        (["env.kwargs.a=1"], ["env.kwargs"]),
        (
            ["py_agent=fast", "policy.encoder=[1]"],
            ["policy.encoder belongs to py_agent=box", "py_agent=fast"],
        ),
        (["trainer=5"], ["trainer is a group of keys"]),
        (["trainer.schedule=linear"], ["trainer.schedule is a group", "trainer.schedule.lr.kind"]),
        (["policy=fast"], ["policy is a group of keys", "policy.py_agent"]),
        (["env={name: 3}"], ["env.name=3", "Worlds"]),
        (["trainer={lr: [}"], ["trainer={lr: [}", "not a mapping"]),
        # words that are not key=value
        (["trainer.lr"], ["trainer.lr: not key=value", "trainer.lr=..."]),
        (["memory"], ["memory: not key=value. Did you mean env=memory?"]),
        (["memori"], ["memori: not key=value. Did you mean env=memory?"]),
        (["fast"], ["Did you mean py_agent=fast?"]),
        (["quickstart"], ["Did you mean settings=quickstart?"]),
        (["%%%"], ["%%%: not key=value"]),
        (["=5"], ["=5", "key is missing"]),
        ([""], ["key is missing"]),
        (["--trainer.lr=1"], ["without dashes", "Write trainer.lr=1"]),
        (["--total-timesteps=100"], ["without dashes", "Write trainer.total_timesteps=100."]),
        (["--seed"], ["without dashes", "Write seed=value."]),
        (["-v"], ["without dashes"]),
        # the same key twice
        (["seed=1", "seed=2"], ["seed=1 and seed=2", "twice"]),
        (["env=memory", "env.name=collect"], ["env=memory and env.name=collect", "twice"]),
        (["settings=memory", "settings=collect"], ["settings=memory and settings=collect"]),
        (["trainer={lr: 0.5}", "trainer.lr=0.1"], ["trainer.lr=0.5 and trainer.lr=0.1"]),
        (["env=gym:X", "env.kwargs={a: 1}", "env.kwargs.b=2"], ["env.kwargs={a: 1} and env.kwargs.b=2"]),
        # worlds and agents
        (["env=memry"], ["env=memry", "Did you mean memory?", "arena", "pettingzoo:MODULE"]),
        (["env=CartPole-v1"], ["Did you mean gym:CartPole-v1?"]),
        (["env=gymm:CartPole-v1"], ["Did you mean gym:CartPole-v1?", "gymvec:NAME"]),
        (["env=atari:Pong"], ["env=atari:Pong", "Worlds: ", "memory, ", "gym:NAME"]),
        (["env=gym:"], ["env=gym:", "is missing", "Write gym:NAME"]),
        (["env=gym"], ["env=gym", "gym:NAME"]),
        (["env=memory:3"], ["Did you mean memory?"]),
        (["env=quickstart"], ["Did you mean settings=quickstart?"]),
        (["env="], ["env=", "Worlds"]),
        (["env=gym:a\nb"], ["env=gym:a\\nb", "gym:NAME"]),
        (["py_agent=fst"], ["py_agent=fst", "Did you mean fast?", "box"]),
        (["py_agent="], ["py_agent=", "Agents: ", "fast"]),
        (["settings=quikstart"], ["settings=quikstart", "Did you mean quickstart?", "cartpole_no_velocity"]),
        (["settings=cartpole"], ["Did you mean cartpole_no_velocity?"]),
        (["settings="], ["settings=", "no such settings file"]),
        # numbers
        (["trainer.total_timesteps=1.5"], ["trainer.total_timesteps=1.5", "a whole number from 1"]),
        (["trainer.total_timesteps=1e-1"], ["trainer.total_timesteps=1e-1"]),
        (["trainer.total_timesteps=-5"], ["trainer.total_timesteps=-5"]),
        (["trainer.total_timesteps=1e999999999"], ["trainer.total_timesteps=1e999999999"]),
        (["trainer.total_timesteps=" + "9" * 5000], ["trainer.total_timesteps=999"]),
        (["seed=1:30"], ["seed=1:30"]),  # YAML 1.1 would say 90
        (["seed=0x10"], ["seed=0x10"]),
        (["trainer.horizon=on"], ["trainer.horizon=on", "1 to 65536"]),  # pydantic alone would say 1
        (["trainer.horizon="], ["trainer.horizon=:", "1 to 65536"]),
        (["trainer.horizon=None"], ["trainer.horizon=None"]),
        (["trainer.lr=true"], ["trainer.lr=true", "above 0 and at most 10"]),
        (["trainer.lr=nan"], ["trainer.lr=nan"]),
        (["trainer.lr=inf"], ["trainer.lr=inf"]),
        (["trainer.lr=0"], ["trainer.lr=0", "above 0"]),
        (["trainer.gamma=1.01"], ["trainer.gamma=1.01", "0 to 1"]),
        (["env.window=4"], ["env.window=4", "one of 3, 5, 7"]),
        # switches, choices, lists, mappings
        (["debug.shapes=2"], ["debug.shapes=2", "on or off"]),
        (["debug.shapes=None"], ["debug.shapes=None", "on or off"]),
        (["wandb=maybe"], ["wandb=maybe", "on, offline, off"]),
        (["trainer.schedule.lr.kind=liner"], ["Did you mean linear?"]),
        (["policy.core=LSTM"], ["policy.core=LSTM", "Did you mean lstm?"]),
        (["env=gym:X", "env.hide=1,3"], ["env.hide=1,3", "[1, 3]"]),
        (["env=gym:X", "env.hide=[1,on]"], ["env.hide=[1,on]"]),
        (["env=gym:X", "env.hide=[1,-3]"], ["env.hide=[1,-3]", "at least 0"]),
        (["env=gym:X", "env.hide=[1"], ["env.hide=[1:"]),
        (["env=gym:X", "env.hide=" + "[" * 5000], ["nested deeper than 20"]),
        (["env=gym:X", "env.kwargs={1: 2}"], ["env.kwargs={1: 2}", "a mapping"]),
        (["env=gym:X", "env.kwargs=3"], ["env.kwargs=3", "a mapping"]),
        # names and paths
        (["run=a/b"], ["run=a/b", "letters, digits and . _ -"]),
        (["run=.."], ["run=..", "not starting with a dot"]),
        (["run=.hidden"], ["run=.hidden"]),
        (["run="], ["run=", "name is empty"]),
        (["run=  "], ["name is empty"]),
        (["run=a\x07b"], ["run=a\\x07b", "letters, digits"]),
        (["run=a b"], ["run=a b"]),
        (["run=a\nb"], ["run=a\\nb"]),
        (["run=" + "x" * 201], ["at most 200"]),
        (["run=münchen"], ["run=münchen"]),
        (["runs_dir="], ["runs_dir=", "a folder"]),
        (["runs_dir=a\x00b"], ["runs_dir=a\\x00b"]),
        (["device="], ["device=", "cuda:1"]),
        (["device=CPU!"], ["device=CPU!"]),
        # references are never resolved
        (["device=${oc.env:HOME}"], ["device=${oc.env:HOME}", "not supported"]),
        (["runs_dir=${oc.env:HOME}"], ["not supported"]),
        (["env=gym:X", "env.kwargs.a=${oc.env:HOME}"], ["not supported"]),
        (["env=gym:X", "env.kwargs={a: '${oc.env:HOME}'}"], ["not supported"]),
        (["env=gym:X", "env.kwargs=!!python/name:os.system"], ["tags"]),
        (["env=gym:X", "env.kwargs={a: &x [1], b: *x}"], ["aliases"]),
    ],
    ids=lambda value: " ".join(value)[:40].encode("unicode_escape").decode() if isinstance(value, list) else None,
)
def test_refused(words, parts):
    message = refusal(words)
    for part in parts:
        assert part in message


def test_the_first_error_by_the_order_of_the_words_and_how_many_more():
    words = ["seed=1", "trainer.clip=x", "foo=1", "trainer.gamma=2", "bar", "trainer.lr=abc", "env=memry"]
    message = refusal(words)
    assert message.startswith("trainer.clip=x: needs a number")
    assert "5 more errors: foo, trainer.gamma, bar" in message
    assert refusal(words[2:]).startswith("unknown key foo")
    assert refusal(words[::-1]).startswith("env=memry: no such world")
    assert "1 more error: trainer.total_timesteps=0: needs" in refusal(["seed=-1", "trainer.total_timesteps=0"])


def test_one_mistake_is_one_error():
    """A wrong name of a world or an agent says nothing about the keys below it."""
    assert "more error" not in refusal(["env=memry", "env.corridor=3", "env.hide=[1]"])
    assert "more error" not in refusal(["py_agent=fst", "policy.encoder=[3]", "policy.core=gru"])
    assert "more error" not in refusal(["env=gym:X", "env.hide=[-1,-2,-3]"])


def test_long_values_are_cut():
    message = refusal(["trainer.lr=" + "x" * 10_000])
    assert "xxx..." in message
    assert len(message) < 300
