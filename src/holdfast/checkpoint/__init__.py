"""Checkpoints: tensors as safetensors, the rest as JSON; written atomically, verified when read."""

from holdfast.checkpoint.find import best_first, first_few, first_usable, list_checkpoints, newest_first, return_of
from holdfast.checkpoint.optimizer import flatten_optimizer, restore_optimizer
from holdfast.checkpoint.store import (
    Checkpoint,
    load_checkpoint,
    load_policy,
    move_checkpoint,
    read_facts,
    remove_checkpoint,
    remove_leftovers,
    save_checkpoint,
)
from holdfast.errors import CheckpointError
