"""A checkpoint with every kind of tensor and fact, and the two ways to tamper with one."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

EXAMPLE_FACTS = {
    "agent_steps": 4096,
    "lr": 0.1 + 0.2,
    "rng": 2**127 + 1,
    "name": "größe",
    "nested": {"a": [1, 2.5, None, True]},
}


def example_tensors() -> dict[str, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(5, 3, generator=generator)
    return {
        "policy": {"w": weight, "tied": weight, "view": weight.T[1:], "half": weight.bfloat16()},
        "memory": {"h": torch.randn(2, 4, 8, generator=generator), "infinite": torch.tensor([torch.inf])},
        "rng": {"torch": generator.get_state(), "empty": torch.empty(0, 3), "flag": torch.tensor(True)},
        "optimizer": {},
    }


@pytest.fixture(scope="session")
def example() -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    return example_tensors(), EXAMPLE_FACTS


@pytest.fixture(scope="session")
def save(example) -> Callable[..., Path]:
    """save(folder, name) writes the example."""

    def write(folder: Path, name: str = "00000010") -> Path:
        return save_checkpoint(folder, name, *example)

    return write


@pytest.fixture(scope="session")
def reseal() -> Callable[..., None]:
    """Rewrite a manifest so that every checksum is honest: what a hostile writer would do."""

    def rewrite(path: Path, change: Callable[[dict[str, Any]], Any] = lambda manifest: None) -> None:
        file = path / "manifest.json"
        manifest = json.loads(file.read_text())
        manifest.pop("sha256")
        for name, entry in manifest["files"].items():
            data = (path / name).read_bytes()
            entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        change(manifest)
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        file.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")

    return rewrite


@pytest.fixture(scope="session")
def refused() -> Callable[[Path], str]:
    """The one line with which a checkpoint is refused."""

    def read(path: Path) -> str:
        with pytest.raises(CheckpointError) as error:
            load_checkpoint(path)
        message = str(error.value)
        assert "\n" not in message
        assert len(message) < 500
        return message

    return read
