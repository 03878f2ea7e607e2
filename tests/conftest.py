"""One thread per test process: the test processes already use every core."""

import gc
import logging
import os
import signal

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # set before torch is imported; processes started by tests inherit it
# Background jobs of a shell ignore SIGINT; the tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt imported objects from garbage collection: scanning them took 10% of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_loggers() -> None:
    """Undo what earlier tests and libraries did to Holdfast's loggers, so that caplog sees their messages."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "holdfast" and isinstance(logger, logging.Logger):
            logger.disabled = False
    top = logging.getLogger("holdfast")
    top.propagate = True
    top.setLevel(logging.NOTSET)
