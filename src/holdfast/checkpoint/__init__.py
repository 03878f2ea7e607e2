"""Run state <-> files: tensors as safetensors, the rest as JSON, whole or absent, verified when read."""

from holdfast.checkpoint.optimizer import flatten_optimizer, restore_optimizer
from holdfast.checkpoint.store import (
    Checkpoint,
    best_checkpoint,
    clear_left_overs,
    list_checkpoints,
    load_checkpoint,
    move_checkpoint,
    newest_checkpoint,
    read_facts,
    remove_checkpoint,
    return_of,
    save_checkpoint,
    verify_checkpoint,
)
from holdfast.runs.files import CheckpointError

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "best_checkpoint",
    "clear_left_overs",
    "flatten_optimizer",
    "list_checkpoints",
    "load_checkpoint",
    "move_checkpoint",
    "newest_checkpoint",
    "read_facts",
    "remove_checkpoint",
    "restore_optimizer",
    "return_of",
    "save_checkpoint",
    "verify_checkpoint",
]
