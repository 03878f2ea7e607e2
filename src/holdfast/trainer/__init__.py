"""The training loop and what surrounds it."""

from holdfast.trainer.loop import TrainResult, train

__all__ = ["TrainResult", "train"]
