"""Exact resume really needs everything: without any one saved item a continued run is another one, or is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.checkpoint import Checkpoint, list_checkpoints, load_checkpoint
from holdfast.errors import HoldfastError
from holdfast.trainer import resume
from support import whims
from support.runs import CARTPOLE, digest, run, run_stopped

OURS = [*CARTPOLE, "trainer.l2_init=0.1", "trainer.schedule.lr.kind=linear", "trainer.keep.last=1"]
OURS += ["trainer.normalize_rewards=true"]
OURS += ["policy.sees=[action,reward]"]
# Draws from the generators of the whole process when it acts.
THEIRS = [*(w for w in CARTPOLE if w not in ("policy.encoder=[8]", "policy.heads=[8]")), "trainer.keep.last=1"]
THEIRS += [f"py_agent={whims.__file__}:Whims", "audit=off"]
LEARNED = ("policy", "optimizer", "metrics")


def blank(group: str, *names: str) -> Callable[[Checkpoint], object]:
    """Zeros for these tensors of a group, found by the end of their names; all without any."""

    def change(saved: Checkpoint) -> None:
        found = [x for name, x in saved.tensors[group].items() if not names or name.endswith(names)]
        assert any(x.any() for x in found), "these are zeros anyway"
        for x in found:
            x.zero_()

    return change


def drop(group: str) -> Callable[[Checkpoint], object]:
    return lambda saved: saved.tensors.pop(group)


def reseed(name: str) -> Callable[[Checkpoint], object]:
    """Another state of one torch generator."""
    return lambda saved: saved.tensors["rng"].update({name: torch.Generator().manual_seed(99).get_state()})


def invert(name: str) -> Callable[[Checkpoint], object]:
    return lambda saved: saved.tensors["arrived"][name].logical_not_()


def fact(name: str, change: Callable[[Any], Any]) -> Callable[[Checkpoint], object]:
    return lambda saved: saved.facts.update({name: change(saved.facts[name])})


def other_generator(name: str) -> Callable[[Checkpoint], object]:
    """Its words moved by one place: a state as good as the saved one."""

    def change(saved: Checkpoint) -> None:
        words = saved.tensors["rng"][name]
        words[:600] = words[:600].roll(1)

    return change


def empty_recent(saved: Checkpoint) -> None:
    for name in ("slot", "episode_return", "length"):
        saved.tensors["episodes"][name] = saved.tensors["episodes"][name][:0]


OURS_WITHOUT = {
    "weights": blank("policy"),
    "weights, dropped": drop("policy"),
    "running statistics of observations": blank("policy", "mean"),
    "optimizer": lambda saved: saved.tensors["optimizer"].clear(),
    "optimizer, dropped": drop("optimizer"),
    "first moments": blank("optimizer", ".exp_avg"),
    "second moments": blank("optimizer", ".exp_avg_sq"),
    "steps of the optimizer": blank("optimizer", ".step"),
    "settings of the optimizer": lambda saved: saved.facts["optimizer"]["param_groups"][0].update(betas=[0.5, 0.5]),
    "first weights": blank("first"),
    "first weights, dropped": drop("first"),
    "scale of the rewards": drop("rewards"),
    "size of the returns so far": blank("rewards", "totals"),
    "sampling generator": reseed("sampling"),
    "minibatch generator": reseed("minibatches"),
    "generators, dropped": drop("rng"),
    "memory": blank("memory"),
    "half of the memory": blank("memory", "leaf_0"),
    "memory, dropped": drop("memory"),
    "last observation": blank("arrived", "env_obs"),
    "last actions": blank("arrived", "last_actions"),
    "last rewards": blank("arrived", "rewards"),
    "last dones": invert("dones"),
    "last truncateds": invert("truncateds"),
    "arrived, dropped": drop("arrived"),
    "worlds, dropped": drop("world"),
    "actions of the present episodes": blank("world", "actions"),
    "lengths of the present episodes": blank("world", "lengths"),
    "numbers of the present episodes": blank("world", "episodes"),
    "seed of the worlds": fact("world_seed", lambda seed: seed + 1),
    "returns of the present episodes": blank("episodes", "running_return"),
    "lengths of the present episodes so far": blank("episodes", "running_length"),
    "finished episodes": empty_recent,
    "count of episodes": fact("episodes", lambda count: 0),
    "tracker, dropped": drop("episodes"),
    "update number": fact("update", lambda update: update - 1),
}
THEIRS_WITHOUT = {
    "torch's generator": reseed("torch"),
    "numpy's generator": other_generator("numpy"),
    "numpy's place in it": lambda saved: saved.facts["rng"].update(numpy=[624, 0, 0.0]),
    "python's generator": other_generator("python"),
    "python's next Gaussian": lambda saved: saved.facts["rng"].update(python=0.25),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untouched runs, and runs stopped after two of four updates."""
    folder = tmp_path_factory.mktemp("runs")
    for name, words in (("ours", OURS), ("theirs", THEIRS)):
        run(words, folder, f"{name}-untouched")
        run_stopped(words, folder / "stopped", name, after=2)
    return folder


@pytest.mark.parametrize(
    ("name", "item"), [("ours", item) for item in OURS_WITHOUT] + [("theirs", item) for item in THEIRS_WITHOUT]
)
def test_without_it_the_run_is_another_one(
    name: str, item: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words, without = (OURS, OURS_WITHOUT) if name == "ours" else (THEIRS, THEIRS_WITHOUT)
    tampered: list[Checkpoint] = []

    def load(path: Path) -> Checkpoint:
        saved = load_checkpoint(path)
        without[item](saved)
        tampered.append(saved)
        return saved

    monkeypatch.setattr(resume, "load_checkpoint", load)
    shutil.copytree(runs / "stopped" / name, tmp_path / name)
    untouched = digest(runs / f"{name}-untouched")
    if item.endswith("dropped") and item != "worlds, dropped":
        with pytest.raises(HoldfastError, match="No checkpoint can be used"):
            run(words, tmp_path, name)
    else:
        found = digest(run(words, tmp_path, name))
        # what was learned, not only the item itself, which stays as it is in the checkpoints that follow
        assert any(found[part] != untouched[part] for part in LEARNED)
    assert tampered


@pytest.mark.parametrize(("name", "words"), [("ours", OURS), ("theirs", THEIRS)])
def test_with_all_of_them_it_is_the_same_one(name: str, words: list[str], runs: Path, tmp_path: Path):
    shutil.copytree(runs / "stopped" / name, tmp_path / name)
    assert digest(run(words, tmp_path, name)) == digest(runs / f"{name}-untouched")


def test_whatever_is_saved_is_in_these_tables(runs: Path):
    """A checkpoint with something new needs a line above, which shows what it is for."""
    saved = load_checkpoint(list_checkpoints(runs / "stopped" / "ours" / "checkpoints")[-1])
    touched = {
        "policy",
        *("optimizer", "first", "memory"),
        *("rng sampling", "rng minibatches", "rng torch", "rng numpy", "rng python"),
        *("arrived env_obs", "arrived dones", "arrived truncateds", "arrived last_actions", "arrived rewards"),
        *("world actions", "world lengths", "world episodes"),
        *("episodes running_return", "episodes running_length", "episodes slot", "episodes episode_return"),
        *("episodes length", "rewards totals"),
    }
    found = set()
    for group, tensors in saved.tensors.items():
        if group in touched:
            found.add(group)
        else:
            found |= {f"{group} {name}" for name in tensors}
    assert found == touched
