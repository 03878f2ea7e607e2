"""Folder: what a run's folder may contain, and what is not done with it."""

import os

import pytest

from holdfast.errors import CheckpointError
from holdfast.files import Folder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run").mkdir()
    with Folder.open(tmp_path / "run") as folder:
        yield folder


def test_a_hard_link_is_read_replaced_and_removed_but_not_written(folder, tmp_path):
    (tmp_path / "mine").write_text("mine\n")
    for name in ("a", "b", "c"):
        os.link(tmp_path / "mine", folder.path / name)
    assert folder.read("a") == b"mine\n"
    with pytest.raises(CheckpointError, match="hard link"):
        folder.append("a")
    folder.replace("b", b"new")
    folder.remove("c")
    assert (tmp_path / "mine").read_text() == "mine\n"
    assert (folder.path / "b").read_text() == "new"


def test_a_folder_is_removed_whatever_is_in_it(folder, tmp_path):
    (tmp_path / "kept").write_text("")
    for path in ("a/b/c", "a/b/d", "a/e"):
        os.makedirs(folder.path / path)
        (folder.path / path / "file").write_text("")
        (folder.path / path / "link").symlink_to(tmp_path)
    handle = os.open(folder.path / "a", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    folder.remove("a")
    assert folder.names() == []
    assert (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"1\n22\n", [b"1", b"22"]),
        (b"1\ncut", [b"1"]),
        (b"12345678\n1\n", [b"12345678", b"1"]),
        (b"1\n123456789\n1\n", [b"1", b"123456789"]),
        (b"1\n" + bytes(1000), [b"1", bytes(9)]),
    ],
)
def test_lines_end_at_one_that_is_too_long(folder, data, lines):
    folder.write("lines", data)
    assert list(folder.lines("lines", max_bytes=8)) == lines


def test_no_more_lines_are_read_than_asked_for(folder):
    with open(folder.path / "lines", "wb") as file:
        file.write(b"1\n")
        file.truncate(2**40)
    assert next(folder.lines("lines", max_bytes=8)) == b"1"
