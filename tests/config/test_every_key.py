"""Every key of the schema: misspelt, of a wrong type, out of range, of another world, at its default.

Each refusal has at most three lines and names the key; one of each key goes through the whole command, in an
empty folder: exit code 2, nothing printed but the reason, nothing on disk.
"""

from functools import reduce

import pytest

from holdfast.cli import main
from holdfast.config import Key, describe_keys, load_settings
from holdfast.config.conflicts import NEEDS
from holdfast.config.describe import Limits
from holdfast.config.registry import AGENTS, CELLS, POLICIES, WORLDS
from holdfast.config.sections import plain_agents
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError
from holdfast.policies import GRID_AGENTS

KEYS = describe_keys()
PICKS = ("env.name", "policy.py_agent", "policy.agent")  # they choose which other keys there are
WRONG = {
    "int": ["abc", "1.5", "on", "[1]", "{a: 1}", "", "nan", "1e400", "--1"],
    "float": ["abc", "on", "[1]", "", "nan", "inf", "1,5"],
    "bool": ["abc", "2", "[on]", "", "None"],
    "choice": ["zzz", "", "[1]", "-1"],
    "list": ["abc", "5", "[a]", "{a: 1}", "", "[1.5]", "[[1]]", "None"],
    "mapping": ["abc", "5", "[1]", "", "None"],
    "text": ["", "\x07", "\x00"],
}


def context(owner: str) -> list[str]:
    """The words that bring a world or an agent; without owner, a world that reads no settings file."""
    env = owner.replace("FILE.py:NAME", "./mine.py:Mine").replace("NAME", "X-v0").replace("MODULE", "some.module")
    env = env if owner.startswith("env=") else "env=gym:X-v0"
    agent = owner.replace("FILE.py:CLASS", "./mine.py:Mine")
    return [env, agent] if owner.startswith(("py_agent=", "agent=")) else [env]


def words_for(key: Key, text: str) -> list[str]:
    picks_section = key.name in PICKS
    return [*([] if picks_section else context(key.owner)), f"{key.name}={text}"]


def refusal(words: list[str]) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(words)
    message = str(caught.value)
    assert len(message.split("\n")) <= 3, message
    assert all(line.isprintable() for line in message.split("\n"))
    return message


def each(keys: list[Key]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("key", keys, ids=lambda key: f"{key.owner} {key.name}".strip())


NUMBERS = [key for key in KEYS if key.limits != Limits()]
OWNED = [key for key in KEYS if key.owner]
PLAIN = [key for key in KEYS if key.name not in (*PICKS, "run")]


@each(KEYS)
def test_wrong_type(key):
    for text in WRONG[key.kind]:
        if (text == "None" and key.optional) or (text == "[a]" and "a name" in key.allowed):
            continue
        assert key.name in refusal(words_for(key, text))


@each(KEYS)
def test_the_command_refuses_and_leaves_nothing(key, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["train", *words_for(key, WRONG[key.kind][0])])
    out, err = capsys.readouterr()
    assert caught.value.code == 2
    assert out == ""
    assert key.name in err
    assert 1 <= err.count("\n") <= 3
    assert list(tmp_path.iterdir()) == []


@each(NUMBERS)
def test_out_of_range(key):
    low, high = key.limits.low, key.limits.high
    beyond = [] if low is None else [low if key.limits.low_is_open else low - 1]
    beyond += [] if high is None else [high + 1 if key.kind != "float" else high * 1.01 + 1]
    for value in beyond:
        text = f"[{value}]" if key.kind == "list" else f"{value}"
        message = refusal(words_for(key, text))
        assert f"{key.name}={text}: needs " in message
        assert key.allowed in message


def test_every_number_has_limits():
    unlimited = [key.name for key in KEYS if key.kind in ("int", "float") and None in (key.limits.low, key.limits.high)]
    assert unlimited == []


@each(KEYS)
def test_misspelt(key):
    last = key.name.rpartition(".")[2]
    group = key.name[: -len(last)]
    wrong = {
        f"{key.name}x",
        f"{key.name}_",
        f"{group}{last[:-1]}",
        f"{group}{last[1:]}",
        f"{group}{last[1]}{last[0]}{last[2:]}",
    }
    known = {other.name for other in KEYS} | {"env", "policy", "trainer", "debug", ""}
    for name in sorted(wrong - known):
        message = refusal([*context(key.owner), f"{name}=1"])
        assert f"unknown key {name}." in message
        if len(last) > 4 and key in PLAIN:
            assert f"Did you mean {key.name}?" in message


@each(OWNED)
def test_of_another_world_or_agent(key):
    others = {k.owner for k in KEYS if k.name == key.name}
    rivals = {k.owner for k in KEYS if k.owner.split("=")[0] == key.owner.split("=")[0]} - others
    for owner in sorted(rivals):
        message = refusal([*context(owner), f"{key.name}=1"])
        assert f"{key.name} belongs to " in message
        assert key.owner in message


@each(PLAIN)
def test_the_default_is_accepted_or_would_do_nothing(key):
    text = str(key.default)
    rule = next((rule for rule in NEEDS if key.name in rule.keys and not rule.holds(Settings())), None)
    if rule is not None:
        assert f"{key.name}={text}: has no effect without {rule.wanted}" in refusal(words_for(key, text))
    else:
        assert reduce(getattr, key.name.split("."), load_settings(words_for(key, text))) == key.default


def test_the_described_default_is_the_default():
    """Also of a key in a section whose other keys are set, such as trainer.schedule.lr.kind with trainer.schedule.lr.end."""
    settings = Settings()
    shared = [key for key in KEYS if not key.owner]
    assert {key.name: key.default for key in shared} == {
        key.name: reduce(getattr, key.name.split("."), settings) for key in shared
    }


def test_keys_are_complete():
    """As many keys as the schema has leaves, each described in a line."""
    settings = Settings()
    leaves = _leaves(settings.model_dump())
    assert {key.name for key in describe_keys("memory", "plain")} == leaves
    assert all(key.description and "\n" not in key.description and key.allowed for key in KEYS)


def _leaves(tree: dict, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in tree.items():
        found |= _leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name}
    return found


def test_each_kind_of_world_and_policy_is_chosen_by_its_word():
    for section in WORLDS.values():
        assert type(load_settings(context(f"env={section.word()}")).env) is section
    for section in POLICIES.values():
        assert type(load_settings(context(section.word())).policy) is section


def test_registries_find_what_ships_without_importing_it():
    """Names are read from the source: every decorator is found, and each name leads to its class."""
    for registry in (WORLDS, POLICIES, AGENTS, CELLS):
        assert len(registry) == len(set(registry.values())) > 3
    assert {cls.__name__ for cls in CELLS.values()} == {"LSTM", "GRU", "MinGRU", "Memoryless"}
    assert set(plain_agents()) == set(GRID_AGENTS), "a grid agent exists in both families"
