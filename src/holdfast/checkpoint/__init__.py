"""Run state <-> files: tensors as safetensors, the rest as JSON, whole or absent, verified when read."""

from holdfast.checkpoint.files import CheckpointError
from holdfast.checkpoint.optimizer import flatten_optimizer, restore_optimizer
from holdfast.checkpoint.store import (
    Checkpoint,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "flatten_optimizer",
    "list_checkpoints",
    "load_checkpoint",
    "newest_checkpoint",
    "restore_optimizer",
    "save_checkpoint",
    "verify_checkpoint",
]
