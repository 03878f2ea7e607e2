"""Close environments whose close() may fail: an error is a warning, and a close() that hangs is not waited for."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Sequence
from typing import Any

from holdfast.envs.failures import describe_error

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0  # limit for close() of one environment
WORKER_CLOSE_SECONDS = 1.5  # the same limit in a worker, which is killed after CLOSING_SECONDS (2 s)
SHORT_CLOSE_SECONDS = 0.1  # the same limit in a world whose close() has failed before
_failed_before: dict[str, str] = {}  # world -> how its close() failed


def close_each(world: str, first: int, envs: Sequence[Any]) -> None:
    """Call close() of every environment; warn about the first that fails. first: number of the first environment."""
    closed, failed = 0, ""
    limit = CLOSE_SECONDS if multiprocessing.parent_process() is None else WORKER_CLOSE_SECONDS

    def close() -> None:
        nonlocal closed, failed
        for env in envs:
            try:
                env.close()
            except BaseException as error:
                failed = failed or f"environment {first + closed} raised {describe_error(error)} in close()"
            closed += 1

    thread = threading.Thread(target=close, daemon=True)  # because a call cannot be cancelled
    try:
        thread.start()
    except RuntimeError:  # no memory left
        close()
    while closed < len(envs):
        before, seconds = closed, SHORT_CLOSE_SECONDS if world in _failed_before else limit
        thread.join(seconds)
        if closed == before:
            failed = failed or f"environment {first + closed} has not returned from close() after {seconds:g} s"
            break
    if failed:
        report_failed_close(world, failed)


def report_failed_close(world: str, what: str) -> None:
    """Warn about a close() that failed, once for each world. Workers leave that to the main process."""
    if world not in _failed_before and multiprocessing.parent_process() is None:
        logger.warning("env=%s: %s. The run is not affected; check the environment's close().", world, what)
    _failed_before.setdefault(world, what)


def failed_close(world: str) -> str:
    """Return how close() failed in this process; '' if it did not."""
    return _failed_before.get(world, "")
