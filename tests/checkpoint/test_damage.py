"""What was damaged by accident or made by an enemy is refused with one line, and does nothing."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint import CheckpointError, load_checkpoint
from holdfast.errors import HoldfastError
from support.checkpoints import reseal


@pytest.fixture(scope="module")
def whole(save, tmp_path_factory):
    return save(tmp_path_factory.mktemp("whole"))


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_one_flipped_bit_anywhere_is_noticed_and_named(whole, refused, data):
    file = whole / data.draw(st.sampled_from(sorted(p.name for p in whole.iterdir())))
    content = file.read_bytes()
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    file.write_bytes(flipped)
    try:
        assert str(whole) in refused(whole)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("name", ["policy.safetensors", "facts.json", "manifest.json", "optimizer.safetensors"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda f: f.write_bytes(b""), ""),
        (lambda f: f.write_bytes(f.read_bytes()[: f.stat().st_size // 2]), ""),
        (lambda f: f.write_bytes(f.read_bytes()[:-1]), ""),
        (lambda f: f.write_bytes(f.read_bytes() + b"\0"), ""),
        (lambda f: f.write_bytes(b"\0" * f.stat().st_size), ""),
        (lambda f: f.write_text("<!DOCTYPE html><html>404</html>"), ""),
        (lambda f: f.unlink(), "missing"),
    ],
)
def test_damage_names_the_file(tmp_path, name, damage, reason, save, refused):
    path = save(tmp_path)
    damage(path / name)
    message = refused(path)
    assert message.startswith(f"{path / name}: ")
    assert reason in message


def test_damage_says_what_is_wrong(tmp_path, save, refused):
    path = save(tmp_path)
    file = path / "policy.safetensors"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    assert refused(path) == f"{file}: damaged; it has {size - 1:,} bytes instead of {size:,}"
    with pytest.raises(CheckpointError):
        load_checkpoint(path)
    assert issubclass(CheckpointError, HoldfastError)


def test_newer_format_is_refused_before_anything_else_is_read(tmp_path, save, refused):
    path = save(tmp_path)
    (path / "manifest.json").write_text('{"format": 2, "whatever": 1}')
    assert "format 2, but Holdfast" in refused(path)
    for version in ("true", '"1"', "0", "1.0", "null"):
        (path / "manifest.json").write_text(f'{{"format": {version}}}')
        assert refused(path).endswith("format version is missing or invalid")


def test_not_a_checkpoint(tmp_path, refused):
    assert refused(tmp_path / "none") == f"{tmp_path / 'none'}: missing"
    (tmp_path / "file").write_text("x")
    assert refused(tmp_path / "file").endswith("file: not a folder")
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty").endswith("manifest.json: missing")


HOSTILE_FACTS = {
    "deep lists": "[" * 200_000,
    "deep mappings": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "forty levels": '{"a":' * 40 + "1" + "}" * 40,
    "a list": "[1]",
    "nan": '{"a": NaN}',
    "infinity": '{"a": -Infinity}',
    "a huge integer": '{"a": ' + "9" * 100_000 + "}",
    "a float out of range": '{"a": 1e999}',
    "not utf-8": b'{"a": "\xff"}',
    "a pickle": b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "too large": b" " * (2**26 + 1),
}


@pytest.mark.parametrize("content", HOSTILE_FACTS.values(), ids=HOSTILE_FACTS)
def test_hostile_facts_with_honest_checksums_do_nothing(tmp_path, content, save, refused):
    path = save(tmp_path)
    (path / "facts.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    reseal(path)
    assert refused(path).startswith(f"{path / 'facts.json'}: ")


def header(value: object, data: bytes = b"") -> bytes:
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text + data


HOSTILE_TENSORS = {
    "absurd header size": (2**62).to_bytes(8, "little") + b"{}",
    "no header": b"",
    "zip": b"PK\x03\x04" + b"\0" * 64,
    "pickle": b"\x80\x02cposix\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03.",
    "deep header": (100_002).to_bytes(8, "little") + b"[" * 100_002,
    "unknown dtype": header({"w": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4),
    "huge shape": header({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, b"\0" * 4),
    "overflowing shape": header({"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 4]}}, b"\0" * 4),
    "huge empty shape": header({"w": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}),
    "offsets outside": header({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, b"\0" * 4),
    "offsets backwards": header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"\0" * 4),
    "overlap": header(
        {
            "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        },
        b"\0" * 4,
    ),
    "nan weight": header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\x00\x00\xc0\x7f"),
}


@pytest.mark.parametrize("content", HOSTILE_TENSORS.values(), ids=HOSTILE_TENSORS)
def test_hostile_tensors_with_honest_checksums_do_nothing(tmp_path, content, save, refused):
    path = save(tmp_path)
    (path / "policy.safetensors").write_bytes(content)
    reseal(path)
    assert refused(path).startswith(f"{path / 'policy.safetensors'}: ")


@pytest.mark.parametrize(
    "name",
    [
        "../policy.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "policy.pt",
        ".safetensors",
        "POLICY\n.safetensors",
    ],
)
def test_a_manifest_cannot_name_other_files(tmp_path, name, save, refused):
    path = save(tmp_path)
    entry = {"bytes": 1, "sha256": "0" * 64}
    reseal(path, lambda manifest: manifest["files"].update({name: entry}))
    assert "not a checkpoint file" in refused(path)


@pytest.mark.parametrize("files", [None, [], {}, {"facts.json": 3}, {"facts.json": {"bytes": "1", "sha256": "0" * 64}}])
def test_a_manifest_must_list_sizes_and_checksums(tmp_path, files, save, refused):
    path = save(tmp_path)
    reseal(path, lambda manifest: manifest.update(files=files))
    assert refused(path).startswith(f"{path / 'manifest.json'}: ")


@pytest.mark.parametrize("name", ["manifest.json", "facts.json", "policy.safetensors"])
def test_links_pipes_and_devices_are_refused(tmp_path, name, save, refused):
    path = save(tmp_path)
    (path / name).rename(tmp_path / "elsewhere")
    (path / name).symlink_to(tmp_path / "elsewhere")
    assert refused(path) == f"{path / name}: not a regular file"
    (path / name).unlink()
    os.mkfifo(path / name)
    assert refused(path) == f"{path / name}: not a regular file"
    (path / name).unlink()
    (path / name).mkdir()
    assert refused(path) == f"{path / name}: not a regular file"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("manifest.json", "the limit is 1,048,576"),
        ("facts.json", "the limit is 4,194,304"),
        ("policy.safetensors", "needs 8,192 GB of memory"),
    ],
)
def test_a_huge_file_is_not_read(tmp_path, name, reason, save, refused):
    """Eight terabytes that take no disk: the size is reason enough, even if the manifest states it."""
    path = save(tmp_path)
    if name != "manifest.json":
        reseal(path, lambda manifest: manifest["files"][name].update(bytes=2**43))
    with open(path / name, "r+b") as file:
        file.truncate(2**43)
    assert refused(path).startswith(f"{path / name}: ")
    assert reason in refused(path)
