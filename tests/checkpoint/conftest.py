"""A checkpoint with every kind of tensor and fact, and how one is refused."""

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
