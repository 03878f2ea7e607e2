"""Whatever somebody put into a run folder: the commands that read it refuse it in a line, quickly, and run nothing.

What the store of checkpoints refuses is tried in tests/checkpoint/test_damage.py; here it is what reaches a user of `evaluate`,
`audit` and `train`. Checksums are honest, as a hostile writer's would be.
"""

import json
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli import main
from support.commands import Commands, Done, holdfast_process
from support.hostile import COMMANDS, READ, TARGET, Place, check, code_of, make_place, pipe

pytestmark = pytest.mark.slow


class Explosion:
    """Unpickled, it makes the marker."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def zip_bomb(place: Place) -> None:
    file = place.checkpoint / "policy.safetensors"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("data.pkl", b"\0" * 50_000_000)
    place.seal()


def sparse(name: str, size: int = 2**42) -> Callable[[Place], None]:
    """Four terabytes that take no disk."""

    def enlarge(place: Place) -> None:
        with open(place.run / name, "r+b" if (place.run / name).exists() else "wb") as file:
            file.truncate(size)

    return enlarge


def metrics(line: Callable[[str], str]) -> Callable[[Place], None]:
    """Another second line."""

    def change(place: Place) -> None:
        lines = (place.run / "metrics.jsonl").read_text().splitlines()
        lines[1] = line(lines[1])
        place.text("metrics.jsonl", "\n".join(lines) + "\n")

    return change


def header(value: Any, data: bytes = b"") -> bytes:
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text + data


def odd_graph(graph: Any) -> Callable[[Place], None]:
    def change(place: Place) -> None:
        place.settings(
            lambda tree: tree["policy"].update(agent="fast") or [tree["policy"].pop(k) for k in BOX_ONLY if k]
        )
        place.facts(lambda facts: facts["agent"].update(graph=graph))

    return change


BOX_ONLY = ("py_agent", "encoder", "heads", "normalize_obs", "log_std")
CONFIG: dict[str, Callable[[Place], Any]] = {
    "a tag that calls": lambda p: p.text("config.yaml", f"run: !!python/object/apply:os.system ['touch {p.marker}']\n"),
    "a tag that makes": lambda p: p.text(
        "config.yaml", f"run: !!python/object/new:subprocess.Popen [['touch', '{p.marker}']]\n"
    ),
    "deep yaml": lambda p: p.text("config.yaml", "a: " + "[" * 40_000),
    "huge yaml": lambda p: p.text("config.yaml", "a: 1\n" * 1_000_000),
    "sparse yaml": sparse("config.yaml"),
    "an alias bomb": lambda p: p.text(
        "config.yaml", "a: &a [x]\n" + "".join(f"b{i}: &b{i} [{'*a, ' * 9}*a]\n" for i in range(9))
    ),
    "a reference to the environment": lambda p: p.text("config.yaml", "run: ${oc.env:HOME}\n"),
    "binary yaml": lambda p: p.text("config.yaml", os.urandom(1000)),
    "a pickle as yaml": lambda p: p.text("config.yaml", pickle.dumps(Explosion(p.marker))),
    "code as the agent": lambda p: p.settings(
        lambda tree: tree.update(policy={"py_agent": f"{code_of(p)}:Evil", "kwargs": {}})
    ),
    "an agent that is no graph": lambda p: p.settings(
        lambda tree: tree.update(policy={"agent": str(code_of(p).rename(p.marker.parent / "evil.yaml"))})
    ),
    "a world that is no module": lambda p: p.settings(lambda tree: tree.update(env={"name": "pettingzoo:evil.module"})),
    "a world by its path": lambda p: p.settings(
        lambda tree: tree.update(env={"name": f"gym:{code_of(p).with_suffix('')}:CartPole-v1"})
    ),
    "arguments a world does not have": lambda p: p.settings(
        lambda tree: tree["env"].update(kwargs={"__class__": "os.system", "entry_point": "os:system"})
    ),
}
CHECKPOINT: dict[str, Callable[[Place], Any]] = {
    "a pickle as tensors": lambda p: p.tensors("policy", pickle.dumps(Explosion(p.marker))),
    "a pickle as the optimizer": lambda p: p.tensors("optimizer", pickle.dumps(Explosion(p.marker))),
    "a zip bomb": zip_bomb,
    "an absurd header": lambda p: p.tensors("policy", (2**62).to_bytes(8, "little") + b"{}"),
    "a deep header": lambda p: p.tensors("policy", (100_002).to_bytes(8, "little") + b"[" * 100_002),
    "a huge shape": lambda p: p.tensors(
        "policy", header({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, b"\0" * 4)
    ),
    "deep facts": lambda p: (p.checkpoint / "facts.json").write_text("[" * 200_000) and p.seal(),
    "a file elsewhere": lambda p: p.seal(
        lambda m: m["files"].update({"../../../precious.txt": {"bytes": 19, "sha256": "0" * 64}})
    ),
    "a file at an absolute path": lambda p: p.seal(
        lambda m: m["files"].update({"/etc/passwd": {"bytes": 1, "sha256": "0" * 64}})
    ),
    "versions that are a list": lambda p: p.seal(lambda m: m.update(versions=["torch"])),
    "a version that clears the screen": lambda p: p.seal(lambda m: m["versions"].update(torch="\x1b[2J")),
    "threads that are text": lambda p: p.seal(lambda m: m.update(threads="os.system")),
    "a link as tensors": lambda p: (
        (p.checkpoint / "policy.safetensors").unlink(),
        (p.checkpoint / "policy.safetensors").symlink_to(p.marker.parent / TARGET),
    ),
}
FACTS: dict[str, Callable[[Place], Any]] = {
    "a class path for a kind": lambda p: p.facts(lambda f: f["world"]["obs"].update(kind="os.system")),
    "no world": lambda p: p.facts(lambda f: f.pop("world")),
    "a world that is a list": lambda p: p.facts(lambda f: f.update(world=["os.system", "true"])),
    "a world of odd fields": lambda p: p.facts(lambda f: f["world"]["actions"].update(__class__="posix.system")),
    "a world of absurd size": lambda p: p.facts(lambda f: f["world"]["obs"].update(shape=[10**15])),
    "a world of negative size": lambda p: p.facts(lambda f: f["world"]["obs"].update(shape=[-4])),
    "a vocabulary that is text": lambda p: p.facts(lambda f: f["agent"].update(vocabulary="__import__('os')")),
    "a graph that is text": odd_graph("!!python/object/apply:os.system [true]"),
    "a graph of class paths": odd_graph({"components": {"_core_": {"type": "os.system", "sources": ["obs"]}}}),
    "no agent": lambda p: p.facts(lambda f: f.pop("agent")),
}
# What only a run that goes on reads.
GOES_ON: dict[str, Callable[[Place], Any]] = {
    "no update": lambda p: p.facts(lambda f: f.pop("update")),
    "an update that is text": lambda p: p.facts(lambda f: f.update(update="25; import os")),
    "an absurd update": lambda p: p.facts(lambda f: f.update(update=10**12)),
    "a negative update": lambda p: p.facts(lambda f: f.update(update=-3)),
    "steps that are a list": lambda p: p.facts(lambda f: f.update(agent_steps=[1])),
    "seconds that are text": lambda p: p.facts(lambda f: f.update(wall_s="os.system")),
    "an absurd seed": lambda p: p.facts(lambda f: f.update(world_seed=10**400)),
    "a seed that is text": lambda p: p.facts(lambda f: f.update(world_seed="0")),
    "absurd steps of the world": lambda p: p.facts(lambda f: f.update(world_steps="x")),
    "an optimizer of class paths": lambda p: p.facts(lambda f: f["optimizer"].update(kind="os.system")),
    "random states that are text": lambda p: p.facts(lambda f: f.update(rng="os.system")),
    "random states of text": lambda p: p.facts(lambda f: f["rng"].update(numpy=["a", "b", "c"])),
    "other tensors as worlds": lambda p: p.tensors(
        "world", header({"evil": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4)
    ),
    "other tensors as random states": lambda p: p.tensors(
        "rng", header({"sampling": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4)
    ),
    "other tensors as what arrived": lambda p: p.tensors(
        "arrived", header({"env_obs": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4)
    ),
    "deep json metrics": metrics(lambda line: "[" * 200_000),
    "binary metrics": lambda p: p.text("metrics.jsonl", os.urandom(5000) + b"\n"),
    "a huge line of metrics": metrics(lambda line: '{"update": "' + "x" * 100_000_000 + '"}'),
    "a line that is code": metrics(lambda line: "__import__('os').system('true')"),
    "a line of another update": metrics(lambda line: line.replace('"update": 2,', '"update": 7,')),
    "a pipe as metrics": pipe("metrics.jsonl"),
    "a folder as metrics": lambda p: ((p.run / "metrics.jsonl").unlink(), (p.run / "metrics.jsonl").mkdir()),
    "a link as metrics": lambda p: (p.link("metrics.jsonl"), shutil.rmtree(p.checkpoint)),
    "a link as the lock": lambda p: p.link("lock"),
    "a folder as the lock": lambda p: (p.run / "lock").mkdir(),
}
CASES = [(READ, name, make) for name, make in (CONFIG | CHECKPOINT | FACTS).items()]
CASES = [(("train",) if "optimizer" in name else commands, name, make) for commands, name, make in CASES]
CASES += [(("train",), name, make) for name, make in GOES_ON.items()]


@pytest.fixture(scope="module")
def commands():
    with Commands() as warm:
        yield warm


@pytest.fixture
def place(tmp_path):
    return make_place(tmp_path)


def files_of(place: Place) -> list[Path]:
    """A run that is to go on loses its summary early and, if it then fails, gets a record of the error."""
    return sorted(path for path in place.run.rglob("*") if path.name not in ("summary.json", "failed.json"))


def each_case():
    for commands, name, make in CASES:
        for command in commands:
            yield pytest.param(command, make, id=f"{command}: {name}")


@pytest.mark.parametrize(("command", "make"), [*each_case()])
def test_it_is_refused_and_nothing_runs(commands, place, command, make):
    make(place)
    before = files_of(place)
    check(commands(*COMMANDS[command], cwd=place.marker.parent), place)
    assert files_of(place) == before


def test_the_run_itself_is_good(commands, place):
    """Each refusal is of what was done to it, and of nothing else."""
    for command in READ:
        words = [word.replace("1e6", "6656") for word in COMMANDS[command]]
        done = commands(*words, cwd=place.marker.parent)
        assert done.code == 0, done.err


@pytest.mark.parametrize("name", ["deep json metrics", "a pipe as metrics", "a link as the lock", "an absurd update"])
def test_what_a_command_does_not_need_does_not_stop_it(commands, place, name):
    GOES_ON[name](place)
    done = commands(*COMMANDS["evaluate"], cwd=place.marker.parent)
    assert (done.code, done.seen) == (0, [])


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00rubbish", b"../../etc/passwd", b"999999999999", b"x" * 5000], ids=repr
)
def test_rubbish_in_a_lock_that_nobody_holds_is_written_over(commands, place, content):
    place.text("lock", content)
    done = commands(*COMMANDS["train"][:2], cwd=place.marker.parent)
    assert done.code == 0, done.err
    assert not (place.run / "lock").exists()


@pytest.mark.parametrize(
    "content", [b"\xff\x00", b"../../up", b"a b", b"", b"x" * 10_000, None], ids=lambda x: repr(x)[:20]
)
def test_rubbish_as_the_id_at_weights_and_biases_is_refused(place, monkeypatch, capsys, content):
    """The package is not needed for that: a stand-in that must never be called."""
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: pytest.fail("started")))
    monkeypatch.chdir(place.marker.parent)
    pipe("wandb-id")(place) if content is None else place.text("wandb-id", content)
    with pytest.raises(SystemExit) as caught:
        main([*COMMANDS["train"], "wandb=offline"])
    assert caught.value.code == 1
    assert "wandb-id: " in capsys.readouterr().err.splitlines()[-1]


def test_a_run_goes_on_where_it_was_found(commands, place):
    """Not where its settings say: else a folder from elsewhere starts anew, and writes, in a place of its choice."""
    place.settings(lambda tree: tree.update(runs_dir=str(place.marker.parent / "elsewhere")))
    done = commands("train", "run=victim", "trainer.total_timesteps=6656", cwd=place.marker.parent)
    assert done.code == 0, done.err
    assert "resuming after 6,400 steps" in done.err
    assert not (place.marker.parent / "elsewhere").exists()


def test_in_a_fresh_process_too(place):
    CONFIG["a tag that calls"](place)
    CHECKPOINT["a pickle as tensors"](place)
    process = holdfast_process(*COMMANDS["train"], cwd=place.marker.parent)
    out, err = process.communicate(timeout=60)
    check(Done(process.returncode, out, err, 0.0), place)


def test_the_watch_sees_code_that_runs(commands, tmp_path):
    """A policy of the user's own, named in so many words, is code: it is run, and the watch sees what it does."""
    (tmp_path / "mine.py").write_text(
        f"import os, pickle\npickle.loads(pickle.dumps(os.getcwd))\nos.system('touch {tmp_path}/marker')\n"
    )
    done = commands("audit", "mine.py:Mine", cwd=tmp_path)
    assert (tmp_path / "marker").exists()
    assert [event.split()[0] for event in done.seen] == ["pickle.find_class", "os.system"]
