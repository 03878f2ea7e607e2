"""Start the ranks of a run on this machine, with torchrun's elastic agent."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from uuid import uuid4

from holdfast.cli.failures import FAILED
from holdfast.config import Settings
from holdfast.errors import HoldfastError

logger = logging.getLogger(__name__)


def launch(words: Sequence[str], settings: Settings) -> int:
    """Run `holdfast train` in trainer.ranks processes; return the exit code. The ranks report their errors themselves."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):  # it reports failures at length; the ranks do so in a line
            logging.getLogger(name).setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(settings.trainer.ranks),
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    command = ["-m", "holdfast", "train", *words]
    try:
        elastic_launch(config, sys.executable)(*command)
    except SignalException as stop:
        return 128 + int(stop.sigval)
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        if set(codes) == {-signal.SIGKILL} and len(codes) == config.nproc_per_node:  # nobody was left to report it
            raise HoldfastError("all ranks were killed (SIGKILL); the machine may be out of memory.") from None
        return max(*codes, FAILED)
    return 0
