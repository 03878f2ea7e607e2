"""Checkpoints: tensors as safetensors, the rest as JSON; written atomically, verified when read."""

from holdfast.checkpoint.find import best_first, first_usable, list_checkpoints, newest_first, return_of
from holdfast.checkpoint.optimizer import flatten_optimizer, restore_optimizer
from holdfast.checkpoint.store import (
    Checkpoint,
    load_checkpoint,
    move_checkpoint,
    read_facts,
    remove_checkpoint,
    remove_leftovers,
    save_checkpoint,
    verify_checkpoint,
)
from holdfast.errors import CheckpointError

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "best_first",
    "first_usable",
    "flatten_optimizer",
    "list_checkpoints",
    "load_checkpoint",
    "move_checkpoint",
    "newest_first",
    "read_facts",
    "remove_checkpoint",
    "remove_leftovers",
    "restore_optimizer",
    "return_of",
    "save_checkpoint",
    "verify_checkpoint",
]
