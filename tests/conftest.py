"""One thread per test process: tests run in parallel, and threads that wait for a busy core cost more than they bring."""

import gc
import os
import signal

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported here, and for every process a test starts
# A shell starts jobs in the background with Ctrl-C switched off; tests of Ctrl-C need it there too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is there by now stays: looking through a million such objects at every collection took a tenth of all time."""
    gc.collect()
    gc.freeze()
