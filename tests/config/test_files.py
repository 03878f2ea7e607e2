"""Settings files: ready-made, a user's own, broken, hostile, and the config.yaml of a run."""

# pyright: reportAttributeAccessIssue=false
# Settings and specs are unions; each test knows which member it has.

import os

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.config import (
    Settings,
    describe_keys,
    describe_ready,
    load_run_settings,
    load_run_world,
    load_settings,
    settings_to_yaml,
)
from holdfast.config.files import ready_names
from holdfast.errors import SettingsError


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "mine.yaml") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return f"settings={path}"

    return write


def refusal(*words: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(words)
    message = str(caught.value)
    assert len(message.split("\n")) <= 3, message
    return message


# -------------------- ready-made


def test_ready_made_names():
    assert ready_names() == [
        "arena",
        "cartpole_no_velocity",
        "collect",
        "memory",
        "pendulum_no_velocity",
        "quickstart",
    ]
    assert all(len(line) > 20 and not line.startswith("#") for line in describe_ready().values())


@pytest.mark.parametrize("name", ready_names())
def test_ready_made_files_load_without_conflict(name):
    loaded = load_settings([f"settings={name}"])
    if name in ("memory", "collect", "arena"):
        assert loaded.env.name == name
        assert loaded == load_settings([f"env={name}"])


@pytest.mark.parametrize("name", ready_names())
def test_ready_made_files_bear_the_words_people_add(name):
    """Nothing a ready-made file sets may stand in the way of a memoryless control or another horizon."""
    load_settings([f"settings={name}", "policy.core=none"])
    load_settings([f"settings={name}", "trainer.horizon=16", "trainer.update_epochs=1"])


def test_without_a_world_the_quick_start():
    assert load_settings([]) == load_settings(["settings=quickstart"])
    assert load_settings(["env.corridor=9"]).env == load_settings(["settings=quickstart", "env.corridor=9"]).env


def test_another_world_starts_from_the_defaults_of_the_schema():
    loaded = load_settings(["env=gym:CartPole-v1"])
    assert loaded.trainer == Settings().trainer


def test_ready_made_worlds_are_what_their_names_say():
    cartpole = load_settings(["settings=cartpole_no_velocity"])
    assert (cartpole.env.name, cartpole.policy.py_agent) == ("gym:CartPole-v1", "box")
    assert cartpole.env.hide == [1, 3]
    pendulum = load_settings(["settings=pendulum_no_velocity"])
    assert (pendulum.env.name, pendulum.env.hide) == ("gym:Pendulum-v1", [2])


# -------------------- a user's own


def test_words_override_a_file(write):
    file = write("seed: 5\ntrainer:\n  lr: 0.5\n  gamma: 0.5\n")
    loaded = load_settings([file, "trainer.lr=0.25"])
    assert (loaded.seed, loaded.trainer.lr, loaded.trainer.gamma) == (5, 0.25, 0.5)
    assert loaded == load_settings(["trainer.lr=0.25", file])
    assert loaded.trainer.total_timesteps == Settings().trainer.total_timesteps  # not quickstart's


def test_files_take_the_short_forms_and_yaml_switches(write):
    file = write(
        "env: gym:CartPole-v1\nenv.hide: [1]\npy_agent: box\npolicy: {core: gru}\n"
        "tensorboard: on\nwandb: off\ndebug:\n"
        "trainer:\n  total_timesteps: 1e6\n  batch_size: None\n  normalize_advantage: off\n  lr: 1e-3\n"
    )
    loaded = load_settings([file])
    assert (loaded.env.name, loaded.env.hide) == ("gym:CartPole-v1", [1])
    assert (loaded.policy.py_agent, loaded.policy.core) == ("box", "gru")
    assert (loaded.tensorboard, loaded.wandb.mode) == ("on", "off")
    assert loaded.trainer.total_timesteps == 1_000_000
    assert loaded.trainer.normalize_advantage is False


def test_a_file_chooses_the_agent_of_its_world(write):
    assert load_settings([write("env: gym:X\n")]).policy.py_agent == "box"
    assert load_settings([write("seed: 1\n")]).policy.py_agent == "fast"
    assert load_settings([write("env: gym:X\npolicy: {py_agent: fast}\n")]).policy.py_agent == "fast"


def test_another_world_drops_what_the_file_says_about_its_own(write):
    file = write("env: {name: memory, rooms: 3, num_envs: 5}\npolicy: {py_agent: fast, core: gru}\nseed: 4\n")
    loaded = load_settings([file, "env=gym:X"])
    assert loaded.env == load_settings(["env=gym:X"]).env
    assert (loaded.policy.py_agent, loaded.policy.core, loaded.seed) == ("box", "gru", 4)
    assert load_settings([file, "env=collect"]).policy.py_agent == "fast"
    assert load_settings([file, "env=memory"]).env.num_envs == 5


def test_another_agent_drops_what_only_the_files_agent_has(write):
    file = write("env: gym:X\npolicy: {py_agent: box, core: gru, hidden: 7, encoder: [3]}\n")
    policy = load_settings([file, "py_agent=fast"]).policy
    assert (policy.py_agent, policy.core, policy.hidden) == ("fast", "gru", 7)


def test_words_add_to_a_files_kwargs_or_replace_them(write):
    file = write("env: {name: gym:X, kwargs: {a: 1, b: 2}}\n")
    assert load_settings([file, "env.kwargs.b=3"]).env.kwargs == {"a": 1, "b": 3}
    assert load_settings([file, "env.kwargs={c: 3}"]).env.kwargs == {"c": 3}
    assert load_settings([file, "env.kwargs={}"]).env.kwargs == {}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["keys and values"]),
        ("# nothing\n", ["keys and values"]),
        ("- a\n- b\n", ["keys and values"]),
        ("just text\n", ["keys and values"]),
        ("42\n", ["keys and values"]),
        ("a: [1, 2\n", ["Line 2"]),
        ("seed: 1\n  lr: 2\n", ["Line 2"]),
        ("\tseed: 1\n", ["Line 1"]),
        ("seed: 1\nseed: 2\n", ["duplicate key seed"]),
        ("trainer:\n  lr: 1\n  lr: 1\n", ["Line 3", "duplicate key lr"]),
        ("trainer: {lr: 1}\ntrainer.lr: 2\n", ["trainer.lr=1", "trainer.lr=2", "twice"]),
        ("seed: 1\n---\nseed: 2\n", ["document"]),
        ("seed: ${oc.env:HOME}\n", ["Line 1", "${oc.env:HOME}", "not supported"]),
        ("run: '${trainer.lr}'\n", ["not supported"]),
        ("seed: ${oops\n", ["not supported"]),
        ("trainer: &t {lr: 1}\ndebug: *t\n", ["Line 2", "aliases"]),
        ("run: !!python/object/apply:os.system [true]\n", ["tags"]),
        ("run: !!python/object/apply:pathlib.PosixPath [a]\n", ["tags"]),
        (b"\xff\xfe\x00s", ["UTF-8"]),
        (b"seed: \x00\n", ["control characters"]),
        ("a: " + "[" * 50_000, ["nested deeper"]),
        ("# " + "x" * 200_000, ["larger than"]),
        ("trainer: {lrr: 1}\n", ["unknown key trainer.lrr", "trainer.lr?", "mine.yaml"]),
        ("trainer: {lr: fast}\n", ["trainer.lr=fast (", "mine.yaml)", "above 0"]),
        ("trainer: {lr: }\n", ["trainer.lr=None", "above 0"]),
        ("trainer: {horizon: true}\n", ["trainer.horizon=True", "a whole number"]),
        ("trainer: {horizon: 1.5}\n", ["trainer.horizon=1.5"]),
        ("trainer: {horizon: [1]}\n", ["trainer.horizon=[1]"]),
        ("trainer: 5\n", ["trainer is a group"]),
        ("run: 123\n", ["run=123", "in quotes"]),
        ("run: on\n", ["run=True", "in quotes"]),
        ("run: ../up\n", ["run=../up", "letters"]),
        ("env: memry\n", ["env=memry (", "Did you mean memory?"]),
        ("env: 3\n", ["env=3", "Worlds"]),
        ("py_agent: fst\n", ["Did you mean fast?"]),
        ("env: gym:X\nenv.hide: [true]\n", ["env.hide=[True]"]),
        ("env: gym:X\nenv.hide: '[1]'\n", ["env.hide=[1]", "a list"]),
        ("1: 2\n", ["unknown key 1"]),
        ("settings: quickstart\n", ["settings"]),
        ("trainer: {vtrace_rho: 2}\n", ["trainer.vtrace_rho=2", "no effect", "mine.yaml"]),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, str | bytes) else "",
)
def test_bad_files(write, text, parts):
    message = refusal(write(text))
    for part in parts:
        assert part in message


def test_missing_and_unreadable_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no such file" in refusal("settings=missing/file")
    assert "Did you mean quickstart" in refusal("settings=quikstart.yaml")
    assert "Is a directory" in refusal(f"settings={tmp_path}/")
    (tmp_path / "closed.yaml").write_text("seed: 1")
    (tmp_path / "closed.yaml").chmod(0)
    if os.geteuid() != 0:  # root reads everything
        assert "Permission denied" in refusal("settings=closed.yaml")


# -------------------- round trips


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["env=arena", "run=on", "wandb=offline", "tensorboard=on"],
        ["run=1e3"],
        ["run=None"],
        ["settings=cartpole_no_velocity", "seed=7", "policy.core=none"],
        ["env=gym:X", "env.kwargs={a: 'on', b: [1, 2.5, null, '1e3', '~'], c: {d: true}}", "env.hide=[]"],
        ["env=gymvec:CartPole-v1", "runs_dir=a: b # c"],
        ["trainer.advantage=vtrace", "trainer.vtrace_rho=1e-7", "trainer.schedule.lr.kind=linear"],
    ],
    ids=" ".join,
)
def test_yaml_round_trip(words, tmp_path):
    loaded = load_settings(words)
    path = tmp_path / "config.yaml"
    path.write_text(settings_to_yaml(loaded))
    assert load_run_settings(path) == loaded
    assert load_settings([f"settings={path}"]) == loaded, "a run's settings are good to start another run from"
    assert settings_to_yaml(load_run_settings(path)) == path.read_text()


def test_yaml_is_complete():
    text = settings_to_yaml(load_settings([]))
    assert all(f"{key.name.rpartition('.')[2]}:" in text for key in describe_keys("memory", "plain"))


@pytest.fixture(scope="module")
def config_yaml(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "config.yaml"


@settings(max_examples=40, deadline=None)
@given(
    run=st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,30}", fullmatch=True),
    runs_dir=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20),
    lr=st.floats(1e-12, 10.0),
    hide=st.lists(st.integers(0, 10**9), max_size=4),
    kwargs=st.dictionaries(
        st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8),
        st.none()
        | st.booleans()
        | st.integers(-(10**12), 10**12)
        | st.floats(allow_nan=False)
        | st.text("ab1e-+.:#~ onf'\"", max_size=8),
        max_size=4,
    ),
)
def test_yaml_round_trip_of_anything_the_schema_accepts(config_yaml, run, runs_dir, lr, hide, kwargs):
    assume("${" not in runs_dir)
    wanted = Settings.model_validate(
        {
            "run": run,
            "runs_dir": runs_dir,
            "trainer": {"lr": lr},
            "env": {"name": "gym:X", "hide": hide, "kwargs": kwargs},
            "policy": {"py_agent": "box"},
        }
    )
    config_yaml.write_text(settings_to_yaml(wanted), encoding="utf-8")
    assert load_run_settings(config_yaml) == wanted


# -------------------- the config.yaml of a run


def test_settings_of_the_trainer_do_not_limit_the_world_of_an_evaluation(config_yaml):
    trained = load_settings(["env=memory", "env.num_envs=8", "env.corridor=6", "trainer.num_workers=4"])
    config_yaml.write_text(settings_to_yaml(trained))
    world = load_run_world(config_yaml, ["env.num_envs=1"])
    assert (world.name, world.num_envs, world.corridor) == ("memory", 1, 6)


def test_a_linked_config_of_a_run_is_not_followed(tmp_path):
    (tmp_path / "elsewhere.yaml").write_text(settings_to_yaml(load_settings(["env=collect"])))
    run = tmp_path / "demo"
    run.mkdir()
    (run / "config.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    for load in (load_run_settings, load_run_world):
        with pytest.raises(SettingsError, match="not a regular file"):
            load(run / "config.yaml")
    with pytest.raises(SettingsError, match="not a regular file"):
        load_settings(["run=demo", f"runs_dir={tmp_path}"])
    assert load_settings([f"settings={run / 'config.yaml'}"]).env.name == "collect", "the user may name a link"


# -------------------- numbers


@pytest.mark.parametrize("number", ["0x" + "f" * 9000, "0b" + "1" * 90_000, "9" * 5000, "1" + ":00" * 20_000])
def test_a_number_of_thousands_of_digits_is_refused(write, number):
    assert "mine.yaml" in refusal(write(f"seed: {number}\n"))
    assert "mine.yaml" in refusal(write(f"trainer: {{lr: {number}.0}}\n"))


def test_numbers_in_a_file_are_those_of_yaml_but_none_is_to_base_60(write):
    text = "env: {name: 'gym:CartPole-v1', kwargs: {a: 0x10, b: 0b11, c: -7, d: 1_000, e: '1', f: 1:30, g: 1:30.5}}"
    kwargs = {"a": 16, "b": 3, "c": -7, "d": 1000, "e": "1", "f": "1:30", "g": "1:30.5"}
    assert load_settings([write(text)]).env.kwargs == kwargs


def test_more_keys_than_settings_are_not_looked_up(write):
    message = refusal(write("".join(f"k{i}: 1\n" for i in range(9000))))
    assert "9,000 keys" in message


@pytest.mark.parametrize("words", [["trainer.lr=1", "trainer.lr=2"], ["env.kwargs.a=1", "env.kwargs={a: 2}"]])
def test_a_key_twice_or_inside_another_is_found_in_any_order(words):
    for order in (words, words[::-1]):
        assert "set twice" in refusal("env=gym:CartPole-v1", *order)
