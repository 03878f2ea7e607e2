"""Between two updates, all ranks stop together, and their weights are compared."""

import signal

import pytest
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.ranks import Group, Shards
from holdfast.trainer.loop import stop_if_asked
from holdfast.trainer.signals import Stopped, StopSignals
from support.policies import make


class Two(Group):
    """Rank 0 of two; the other one has these differences to it."""

    size = 2

    def __init__(self, requested: int = 0, weights: int = 0):
        self.change = torch.tensor([[requested, weights]])

    def concat(self, rows: Tensor) -> Tensor:
        return torch.cat([rows, rows + self.change])


def ask(group: Group) -> None:
    stop_if_asked(StopSignals(), make("box"), Shards(2, group))


def test_ranks_that_agree_go_on():
    ask(Two())


def test_a_signal_to_one_rank_stops_all():
    with pytest.raises(Stopped) as stopped:
        ask(Two(requested=signal.SIGTERM))
    assert stopped.value.code == 143


def test_other_weights_on_a_rank_are_an_error():
    with pytest.raises(HoldfastError, match="rank 1 has other weights"):
        ask(Two(weights=1))
