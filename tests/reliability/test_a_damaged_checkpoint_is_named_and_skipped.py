"""A damaged checkpoint is named and skipped: one line has file, reason and which one is used instead; never a start from scratch."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.errors import HoldfastError
from support.checkpoints import reseal
from support.runs import CARTPOLE, digest, run, run_stopped

KEPT = "trainer.keep.last=1"
AN_HTML_PAGE = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"


def damage(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], str]:
    """Change one file's bytes; gives the file that has to be named."""

    def apply(path: Path) -> str:
        file = path / name
        file.write_bytes(change(file.read_bytes()))
        return str(file)

    return apply


def flip_bit(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def zero_page(data: bytes) -> bytes:
    return data[:512] + bytes(min(4096, len(data) - 512)) + data[512 + 4096 :]


def missing(name: str) -> Callable[[Path], str]:
    def apply(path: Path) -> str:
        (path / name).unlink()
        return str(path / name)

    return apply


def honestly(group: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], str]:
    """Other tensors under checksums that are right: written by another program, or for another agent."""

    def apply(path: Path) -> str:
        file = path / f"{group}.safetensors"
        tensors = safetensors.torch.load_file(file)
        change(tensors)
        file.write_bytes(safetensors.torch.save(tensors))
        reseal(path)
        return str(path)

    return apply


def newer_format(path: Path) -> str:
    reseal(path, lambda manifest: manifest.update(format=99))
    return str(path / "manifest.json")


def other_architecture(path: Path) -> str:
    """Whole and valid, with the run's id, but of a wider agent."""
    words = [*CARTPOLE[:-3], "policy.hidden=9", "policy.encoder=[9]", "policy.heads=[9]"]
    other = run_stopped(words, path.parent.parent.parent, f"wider-{path.name}", after=1)
    shutil.rmtree(path)
    shutil.copytree(list_checkpoints(other / "checkpoints")[-1], path)
    own = (path.parent.parent / "run-id").read_text().strip()
    reseal(path, lambda manifest: manifest.update(run=own))
    return str(path)


WAYS = {
    "0 bytes": (damage("policy.safetensors", lambda data: b""), "0 bytes instead of"),
    "half": (damage("optimizer.safetensors", lambda data: data[: len(data) // 2]), "bytes instead of"),
    "one byte short": (damage("arrived.safetensors", lambda data: data[:-1]), "bytes instead of"),
    "one bit flipped": (damage("policy.safetensors", flip_bit), "SHA-256"),
    "one bit flipped in the facts": (damage("facts.json", flip_bit), "SHA-256"),
    "a zeroed page": (damage("policy.safetensors", zero_page), "SHA-256"),
    "text": (damage("memory.safetensors", lambda data: b"to be done".ljust(len(data))), "SHA-256"),
    "text for a manifest": (damage("manifest.json", lambda data: b"to be done"), "not valid JSON"),
    "HTML": (damage("rng.safetensors", lambda data: AN_HTML_PAGE), "bytes instead of"),
    "newer format": (newer_format, "format 99"),
    "missing file": (missing("policy.safetensors"), "missing"),
    "missing manifest": (missing("manifest.json"), "missing"),
    "missing key": (honestly("policy", lambda t: t.pop(sorted(t)[0])), "another agent"),
    "missing key of the optimizer": (honestly("optimizer", lambda t: t.pop(sorted(t)[0])), "is missing"),
    "extra key": (honestly("policy", lambda t: t.update(more=torch.ones(1))), "another agent"),
    "NaN weights": (honestly("policy", lambda t: t[sorted(t)[0]].fill_(torch.nan)), "contains NaN"),
    "other architecture": (other_architecture, "of another size"),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(CARTPOLE, tmp_path_factory.mktemp("untouched"), "demo")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates that was stopped after three; a checkpoint of each is there."""
    return run_stopped(CARTPOLE, tmp_path_factory.mktemp("stopped"), "demo", after=3)


def check_only_good_ones_are_there(folder: Path, updates: list[int]) -> None:
    """The damaged ones have made room: good ones have their names."""
    assert sorted(path.name for path in folder.iterdir()) == [f"{update:08}" for update in updates]
    assert [load_checkpoint(path).facts["update"] for path in list_checkpoints(folder)] == updates


@pytest.mark.parametrize("way", WAYS)
def test_the_one_before_is_used_and_the_result_is_the_same(
    way: str, untouched: Path, stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    shutil.copytree(stopped, tmp_path / "demo")
    spoil, reason = WAYS[way]
    named = spoil(tmp_path / "demo" / "checkpoints" / "00000003")
    caplog.clear()
    done = run(CARTPOLE, tmp_path, "demo")
    lines = caplog.messages
    told = [line for line in lines if "00000002 is used instead" in line]
    assert len(told) == 1, lines
    assert told[0].startswith(named)
    assert reason in told[0]
    assert "run=demo: resuming after 128 steps." in lines
    assert not [line for line in lines if "NOT SAVED" in line]
    assert digest(done) == digest(untouched)
    check_only_good_ones_are_there(done / "checkpoints", [1, 2, 3, 4])


def test_a_finished_run_does_its_last_update_again(untouched, tmp_path, caplog):
    shutil.copytree(untouched, tmp_path / "demo")
    WAYS["one bit flipped"][0](tmp_path / "demo" / "checkpoints" / "00000004")
    caplog.clear()
    done = run(CARTPOLE, tmp_path, "demo")
    err = caplog.text
    assert "00000003 is used instead" in err
    assert "NOT SAVED" not in err
    assert digest(done) == digest(untouched)
    check_only_good_ones_are_there(done / "checkpoints", [1, 2, 3, 4])


def test_two_damaged_ones_are_both_named(untouched, stopped, tmp_path, caplog):
    shutil.copytree(stopped, tmp_path / "demo")
    WAYS["half"][0](tmp_path / "demo" / "checkpoints" / "00000003")
    WAYS["missing manifest"][0](tmp_path / "demo" / "checkpoints" / "00000002")
    assert digest(run(CARTPOLE, tmp_path, "demo")) == digest(untouched)
    told = [line for line in caplog.messages if line.endswith("; checkpoint 00000001 is used instead")]
    assert [Path(line.split(":")[0]).parent.name for line in told] == ["00000003", "00000002"]


def test_a_damaged_newest_one_does_not_push_out_good_ones(stopped, tmp_path):
    """keep.last=1: of the damaged third and the second that is written anew, the good one has to stay."""
    shutil.copytree(stopped, tmp_path / "demo")
    folder = tmp_path / "demo" / "checkpoints"
    for name in ("00000002", "00000003"):
        WAYS["half"][0](folder / name)
    run_stopped([*CARTPOLE, KEPT, "trainer.keep.best=false"], tmp_path, "demo", after=1)
    check_only_good_ones_are_there(folder, [2])


@pytest.mark.parametrize("way", ["one bit flipped", "missing manifest", "NaN weights", "other architecture"])
def test_if_all_are_damaged_nothing_is_started_or_touched(way, stopped, tmp_path, caplog):
    shutil.copytree(stopped, tmp_path / "demo")
    named = [WAYS[way][0](path) for path in list_checkpoints(tmp_path / "demo" / "checkpoints")]
    before = {path: path.read_bytes() for path in (tmp_path / "demo").rglob("*") if path.is_file()}
    with pytest.raises(HoldfastError, match="No checkpoint can be used") as caught:
        run(CARTPOLE, tmp_path, "demo")
    assert {path: path.read_bytes() for path in (tmp_path / "demo").rglob("*") if path.is_file()} == before
    assert all(name in str(caught.value) for name in named)
    assert "is used instead" not in caplog.text


def test_a_copy_under_a_name_of_ones_own_is_neither_used_nor_removed(untouched, stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "demo")
    folder = tmp_path / "demo" / "checkpoints"
    shutil.copytree(folder / "00000001", folder / "good")
    shutil.copytree(folder / "00000001", folder / "00000001-copy")
    done = run([*CARTPOLE, KEPT, "trainer.keep.every=2"], tmp_path, "demo")
    assert digest(done)["metrics"] == digest(untouched)["metrics"]
    assert {"good", "00000001-copy", "00000002", "00000004"} == {p.name for p in folder.iterdir()}
