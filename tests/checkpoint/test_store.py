import resource
import shutil
import sys

import pytest
import torch

import holdfast
from holdfast.checkpoint import (
    CheckpointError,
    best_first,
    first_usable,
    list_checkpoints,
    load_checkpoint,
    move_checkpoint,
    newest_first,
    save_checkpoint,
)
from holdfast.files import Folder


def test_everything_comes_back_as_it_was(tmp_path, save, example):
    path = save(tmp_path / "runs" / "checkpoints")
    assert path == tmp_path / "runs" / "checkpoints" / "00000010"
    saved, facts = example
    back = load_checkpoint(path)
    assert back.facts == facts
    assert back.tensors.keys() == saved.keys()
    for group, members in saved.items():
        assert back.tensors[group].keys() == members.keys()
        for key, tensor in members.items():
            found = back.tensors[group][key]
            assert found.dtype == tensor.dtype
            assert found.shape == tensor.shape
            assert torch.equal(found, tensor)
    assert back.manifest["format"] == 1
    assert back.manifest["versions"] == {
        "holdfast": holdfast.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }
    assert back.manifest == load_checkpoint(path).manifest
    assert sorted(p.name for p in path.parent.iterdir()) == ["00000010"]


def test_parameters_on_a_graph_are_saved_without_it(tmp_path):
    weight = torch.ones(3, requires_grad=True)
    path = save_checkpoint(tmp_path, "a", {"policy": {"w": weight * 2}}, {})
    back = load_checkpoint(path).tensors["policy"]["w"]
    assert torch.equal(back, torch.full((3,), 2.0))
    assert not back.requires_grad


def test_the_same_state_gives_the_same_bytes(tmp_path, save):
    first, second = save(tmp_path, "a"), save(tmp_path, "b")
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()


def test_order_is_by_number(tmp_path, save):
    for name in ("step-10", "step-9", "step-100"):
        save(tmp_path, name)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-9", "step-10", "step-100"]


def test_damaged_and_unfinished_checkpoints_are_skipped_and_reported(tmp_path, save, caplog):
    assert first_usable(newest_first(tmp_path / "none"), load_checkpoint) is None
    assert first_usable(newest_first(tmp_path), load_checkpoint) is None
    old, new, newest = (save(tmp_path, name) for name in ("01", "02", "03"))
    shutil.copytree(new, tmp_path / ".04.partial")
    (tmp_path / "05").mkdir()
    (tmp_path / "06").write_text("a file")
    assert list_checkpoints(tmp_path) == [old, new, newest]
    (newest / "memory.safetensors").write_bytes(b"")
    (new / "rng.safetensors").unlink()
    found = first_usable(newest_first(tmp_path), load_checkpoint)
    assert found is not None
    path, checkpoint = found
    assert path == old
    assert checkpoint.manifest == load_checkpoint(old).manifest
    assert [message.split(":")[0] for message in caplog.messages] == [
        str(newest / "memory.safetensors"),
        str(new / "rng.safetensors"),
    ]
    assert all(message.endswith("; checkpoint 01 is used instead") for message in caplog.messages)


def test_if_no_checkpoint_can_be_used_every_reason_is_given(tmp_path, save, caplog):
    for name in ("01", "02"):
        (save(tmp_path, name) / "rng.safetensors").unlink()
    with pytest.raises(CheckpointError) as caught:
        first_usable(newest_first(tmp_path), load_checkpoint)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[:2]] == [
        str(tmp_path / "02" / "rng.safetensors"),
        str(tmp_path / "01" / "rng.safetensors"),
    ]
    assert caplog.messages == []


def test_the_best_checkpoint_has_the_highest_return_and_is_the_newest_of_equals(tmp_path, caplog):
    for name, value in (("1", 0.5), ("2", 0.9), ("3", 0.9), ("4", None), ("5", 0.7), ("6", 1.0)):
        save_checkpoint(tmp_path, name, {}, {"episode_return": value})
    (tmp_path / "6" / "facts.json").unlink()
    assert [path.name for path in best_first(tmp_path)] == ["3", "2", "5", "1"]
    assert len(caplog.messages) == 1
    assert "facts.json: missing" in caplog.messages[0]


def test_an_existing_checkpoint_is_never_replaced(tmp_path, save):
    path = save(tmp_path)
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(CheckpointError, match="with this name exists"):
        save_checkpoint(tmp_path, path.name, {}, {})
    assert (path / "manifest.json").read_bytes() == before


def test_an_empty_folder_of_the_name_is_in_nobodys_way(tmp_path):
    (tmp_path / "00000005").mkdir()
    assert list_checkpoints(tmp_path) == []
    load_checkpoint(save_checkpoint(tmp_path, "00000005", {}, {}))


def test_one_that_goes_while_the_folder_is_read_hides_no_other(tmp_path, monkeypatch):
    first, second = (save_checkpoint(tmp_path, name, {}, {}) for name in ("1", "2"))
    is_folder = Folder.is_folder

    def gone_meanwhile(folder, name):
        there = is_folder(folder, name)
        if folder.path / name == second:
            shutil.rmtree(second, ignore_errors=True)
        return there

    monkeypatch.setattr(Folder, "is_folder", gone_meanwhile)
    assert list_checkpoints(tmp_path) == [first]


def test_a_checkpoint_is_moved_to_a_name_that_is_free(tmp_path):
    for expected in ("5", "5-2", "5-3"):
        path = save_checkpoint(tmp_path, "5", {}, {})
        moved = move_checkpoint(path, tmp_path / "aside")
        assert moved == tmp_path / "aside" / expected
        load_checkpoint(moved)
    assert list_checkpoints(tmp_path) == []


def test_what_a_kill_left_behind_is_removed(tmp_path, save):
    (tmp_path / ".00000005.partial").mkdir(parents=True)
    (tmp_path / ".00000005.partial" / "policy.safetensors").write_bytes(b"stump")
    path = save(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\n", "x" * 201])
def test_bad_names(tmp_path, name):
    with pytest.raises(ValueError, match="invalid"):
        save_checkpoint(tmp_path, name, {}, {})
    with pytest.raises(ValueError, match="invalid"):
        save_checkpoint(tmp_path, "a", {name: {}}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"a": {"b": [1, float("nan")]}}, "a.b[1] is nan"),
        ({"a": {3: 1}}, "a has the key 3"),
        ({"a": torch.ones(2)}, "a is a Tensor"),
        ({"a": "x" * 2**26}, "the limit is 4,194,304"),
    ],
)
def test_facts_that_would_not_come_back_are_refused_by_name(tmp_path, facts, reason):
    with pytest.raises(CheckpointError) as error:
        save_checkpoint(tmp_path, "a", {}, facts)
    assert reason in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_nan_weights_are_not_saved_over_good_ones(tmp_path):
    with pytest.raises(CheckpointError, match="policy w contains NaN"):
        save_checkpoint(tmp_path, "a", {"policy": {"w": torch.tensor([1.0, torch.nan])}}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_stump_and_says_what_it_needs(tmp_path, save):
    before = save(tmp_path, "01")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
        with pytest.raises(CheckpointError) as error:
            save_checkpoint(tmp_path, "02", {"policy": {"w": torch.zeros(2**18)}}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value).startswith(f"{tmp_path / '02'}: cannot be written")
    assert "needs 1.0 MB; " in str(error.value)
    assert list(tmp_path.iterdir()) == [before]


def test_a_folder_that_cannot_be_made(tmp_path, save):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save(tmp_path / "file" / "checkpoints")
