"""Settings as values of a Python program: what config.yaml can hold is converted, everything else is refused by name."""

import enum

import pytest

from holdfast.config import load_settings, settings_to_yaml
from holdfast.config.load import load_run_settings
from holdfast.envs.worlds.gym import GymEnv
from holdfast.errors import SettingsError


class Level(enum.IntEnum):
    HARD = 3


class Mood(enum.StrEnum):
    GLAD = "glad"


class Celsius(float):
    pass


def nested(depth: int) -> list:
    return [nested(depth - 1)] if depth else []


def contains_itself() -> dict:
    loop: dict = {}
    loop["again"] = loop
    return loop


@pytest.mark.parametrize(
    "value", [Level.HARD, Mood.GLAD, Celsius(1.5), (1, (2,)), "\x00\n", "on", "1e3", {"a": {"b": None}}]
)
def test_a_value_is_read_back_from_the_run(tmp_path, value):
    settings = load_settings(["env=gym:CartPole-v1"], {"env": {"kwargs": {"x": value}}})
    (tmp_path / "config.yaml").write_text(settings_to_yaml(settings))
    assert load_run_settings(tmp_path / "config.yaml") == settings
    assert isinstance(settings.env, GymEnv)
    stored = settings.env.kwargs["x"]
    assert stored == (list(map(list_of, value)) if isinstance(value, tuple) else value)
    assert type(stored) in (int, float, str, list, dict)


def list_of(value):
    return list(value) if isinstance(value, tuple) else value


REFUSED = {
    "reference": ("${x}", r"references such as \$\{x\} are not supported"),
    "depth": (nested(30), "nested deeper than 20 levels"),
    "depth of the file": (nested(18), "nested deeper than 20 levels"),
    "itself": (contains_itself(), "nested deeper than 20 levels"),
    "length": ("a" * 200_000, "200,"),
    "many": (list(range(50_000)), "the limit is 100,000"),
    "digits": (10**400, "more than 100 digits"),
    "more digits": (10**5000, "more than 100 digits"),
    "surrogate": ("\ud800", "not valid Unicode"),
    "name that is a number": ({1: 2}, "must be text, not 1"),
    "object": (object(), "needs numbers, text, lists and dicts"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("section", ["env", "policy"])
def test_a_value_that_cannot_be_stored_is_refused_by_its_name(kind, section):
    value, reason = REFUSED[kind]
    words = ["env=gym:CartPole-v1", "py_agent=./mine.py:Mine"]
    with pytest.raises(SettingsError, match=reason) as raised:
        load_settings(words, {section: {"kwargs": {"bad": value}}})
    assert str(raised.value).startswith(f"{section}.kwargs")
    assert len(str(raised.value)) < 400


def test_many_values_that_are_too_long_together_are_refused():
    kwargs = {f"k{number}": "a" * 30_000 for number in range(5)}
    with pytest.raises(SettingsError, match="the limit is 100,000"):
        load_settings(["env=gym:CartPole-v1"], {"env": {"kwargs": kwargs}})


def test_a_word_that_cannot_be_stored_is_refused_too():
    with pytest.raises(SettingsError, match=r"env\.kwargs\.bad"):
        load_settings(["env=gym:CartPole-v1", f"env.kwargs.bad={'[' * 19}{']' * 19}"])
