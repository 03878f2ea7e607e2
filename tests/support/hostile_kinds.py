"""What an attacker put into run folders: files outside, terminal codes, endless work. Each went wrong once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

from support.hostile import TARGET, Place

Kind = Callable[[Place], Any]
CODES = "\x1b]0;pwned\x07\x1b[2J"  # sets the title of the terminal, and clears it
BIDI = "\x9b2J\u202e\u2028"


def header(value: Any, data: bytes = b"") -> bytes:
    """A safetensors file with this header."""
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str = "F32", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1] if shape is None else shape, "data_offsets": [0, 4]}


def hard_link(name: str) -> Kind:
    def make(place: Place) -> None:
        (place.run / name).unlink(missing_ok=True)
        os.link(place.marker.parent / TARGET, place.run / name)

    return make


def metrics_kept_elsewhere(place: Place) -> None:
    """The user's copy of the metrics, with a line of its own, is a second name of the file."""
    own = place.marker.parent / "mine.jsonl"
    shutil.move(place.run / "metrics.jsonl", own)
    with own.open("a") as file:
        file.write('{"mine": 1}\n')
    os.link(own, place.run / "metrics.jsonl")


def deep(name: str, levels: int = 1500) -> Kind:
    def make(place: Place) -> None:
        (place.run / name).unlink(missing_ok=True)
        os.mkdir(place.run / name)
        handle = os.open(place.run / name, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir("d", dir_fd=handle)
            inner = os.open("d", os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = inner
        os.close(handle)

    return make


def config(text: str) -> Kind:
    return lambda place: place.text("config.yaml", text)


def settings(**changes: Any) -> Kind:
    return lambda place: place.settings(lambda tree: tree.update(changes))


def inside(section: str, **changes: Any) -> Kind:
    return lambda place: place.settings(lambda tree: tree[section].update(changes))


def manifest(value: Any) -> Kind:
    return lambda place: (place.checkpoint / "manifest.json").write_text(json.dumps(value))


def facts(data: bytes) -> Kind:
    def make(place: Place) -> None:
        (place.checkpoint / "facts.json").write_bytes(data)
        place.seal()

    return make


def policy(value: Any, data: bytes = bytes(4)) -> Kind:
    return lambda place: place.tensors("policy", header(value, data))


def extra_groups(count: int, tensors: int) -> Kind:
    """Groups of tensors that no Holdfast writes."""
    data = header({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(tensors)})
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def make(place: Place) -> None:
        names = [f"z{i}.safetensors" for i in range(count)]
        for name in names:
            (place.checkpoint / name).write_bytes(data)
        place.seal(lambda manifest: manifest["files"].update(dict.fromkeys(names, entry)))

    return make


def broken_checkpoints(count: int, keep: bool = True) -> Kind:
    def make(place: Place) -> None:
        good = place.checkpoint
        for i in range(count):
            (good.parent / f"{i + 100:08d}").mkdir()
            (good.parent / f"{i + 100:08d}" / "manifest.json").write_text("{")
        if not keep:
            shutil.rmtree(good)

    return make


def sparse_metrics(place: Place) -> None:
    with open(place.run / "metrics.jsonl", "r+b") as file:
        file.truncate(2**42)


def only_config(**policy_changes: Any) -> Kind:
    """A run that ended before its first update. The file that it names is a pipe: reading it would wait forever."""

    def make(place: Place) -> None:
        shutil.rmtree(place.run / "checkpoints")
        (place.run / "metrics.jsonl").unlink()
        for value in policy_changes.values():
            os.mkfifo(place.marker.parent / value)
        place.settings(lambda tree: tree.update(env={"name": "memory"}, policy=policy_changes))

    return make


OUTSIDE: dict[str, Kind] = {
    **{
        f"a hard link as {name}": hard_link(name)
        for name in ("lock", "metrics.jsonl", "summary.json", "run-id", ".config.yaml.partial")
    },
    "metrics that have a second name": metrics_kept_elsewhere,
    **{
        f"1500 folders in each other as {name}": deep(name)
        for name in ("checkpoints/.a.partial", ".config.yaml.partial", "summary.json", "lock")
    },
    "weights to start from, without a checkpoint": only_config(weights="weights"),
    "a graph to start from, without a checkpoint": only_config(agent="graph.yaml"),
    "a compiler": inside("policy", compile=True),
    "a compiler, as text": inside("policy", compile="on"),
    "a window": inside("env", kwargs={"render_mode": "human"}),
}
NUMBERS: dict[str, Kind] = {
    "a hexadecimal number of 9000 digits": config("seed: 0x" + "f" * 9000),
    "a binary number of 90,000 digits": config("seed: 0b" + "1" * 90_000),
    "a decimal number of 90,000 digits": config("seed: " + "9" * 90_000),
    "a number to base 60": config("seed: 1" + ":00" * 20_000),
    "a fraction to base 60": config("trainer: {lr: 1" + ":00" * 20_000 + ".0}"),
    "an index of 5000 digits": inside("env", hide=[int("9" * 4000)]),
}
TERMINAL: dict[str, Kind] = {
    "codes in a key of the manifest": manifest({CODES: float("nan")}),
    "lines in a key of the manifest": manifest({"a\n" * 200: float("nan")}),
    "a manifest key of 900 kB": manifest({"k" * 900_000: float("nan")}),
    "codes in a dtype": policy({"w": tensor(CODES)}),
    "lines in a dtype": policy({"w": tensor("a\nall is well")}),
    "codes in the name of a tensor": policy({CODES: tensor()}),
    "5000 dimensions": policy({"w": tensor(shape=[1] * 5000)}),
    "codes in the names of actions": lambda p: p.facts(lambda f: f["world"]["actions"].update(names=[CODES, BIDI])),
    "codes in a world's arguments": inside("env", kwargs={CODES: 1}),
    "lines in a world's arguments": inside("env", kwargs={"a\nb\nc\nd\ne\nf": 1}),
    "a long name in a world's arguments": inside("env", kwargs={"a" * 9000: 1}),
    "codes in the name of a world": settings(env={"name": f"gym:{BIDI}CartPole-v1"}),
    "a world's name of 90 kB": settings(env={"name": "gym:" + "a" * 90_000}),
    "codes in the name of the code": settings(policy={"py_agent": f"./a{BIDI}.py:Evil"}),
    "a name of 90 kB for the code": settings(policy={"py_agent": "a" * 90_000 + ".py:Evil"}),
    "codes in the name of a graph": settings(policy={"agent": f"a{BIDI}.yaml"}),
    "a name of 90 kB for a graph": settings(policy={"agent": "a" * 90_000 + ".yaml"}),
    "codes in the path of the weights": inside("policy", weights=f"a{BIDI}"),
    "codes in a key": config('"\\e]0;pwned\\a\\x9b\\u202e": 1'),
    "codes in a key, twice": config('"\\e[2J": 1\n"\\e[2J": 2'),
    "an alias of 90 kB": config("a: *" + "a" * 90_000),
    "60 damaged checkpoints": broken_checkpoints(60),
    "60 damaged checkpoints and no other": broken_checkpoints(60, keep=False),
}
ENDLESS: dict[str, Kind] = {
    "9000 keys": config("".join(f"k{i}: 1\n" for i in range(9000))),
    "a key of 40,000 parts": config("a." * 40_000 + "a: 1"),
    "60 MB of lists as facts": facts(b'{"a":[' + b",".join([b"[]"] * 20_000_000) + b"]}"),
    "4 MB of numbers as facts": facts(b'{"' + b"k" * 10**6 + b'":[' + b",".join([b"0"] * 1_500_000) + b"]}"),
    "300,000 tensors": lambda p: p.tensors(
        "policy",
        header({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(300_000)}),
    ),
    "a group of 300,000 tensors that nobody needs": extra_groups(1, 300_000),
    "a thousand groups that nobody needs": extra_groups(1000, 1),
    "5000 damaged checkpoints": broken_checkpoints(5000),
    "four terabytes after the metrics": sparse_metrics,
    "a world's map of 75,000 cells": settings(
        env={"name": "gym:FrozenLake-v1", "kwargs": {"desc": ["S" + "F" * 148 + "G"] + ["F" * 150] * 500}}
    ),
    "1024 threads": inside("trainer", threads=1024),
}
MORE = OUTSIDE | NUMBERS | TERMINAL | ENDLESS
