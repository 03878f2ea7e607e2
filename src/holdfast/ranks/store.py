"""The job's key-value store, which all ranks can reach: at MASTER_ADDR and MASTER_PORT, as torchrun sets them."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, TCPStore

from holdfast.errors import SettingsError, first_line

JOIN_SECONDS = 60.0
ASK_SECONDS = 5.0  # to find out whether another rank reports an error


def connect(seconds: float = JOIN_SECONDS) -> Any:
    """Connect to the store, which rank 0 runs if torchrun's agent does not; raise SettingsError if that fails."""
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    is_server = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        if not is_server:
            _wait_for_server(address, int(port), seconds)  # torch's own attempts print many lines
        limit = timedelta(seconds=seconds)
        store = TCPStore(address, int(port), None, is_master=is_server, timeout=limit, wait_for_workers=False)
    except (RuntimeError, ValueError, OSError) as error:  # torch's network errors are RuntimeErrors
        reason = "the port is in use" if "EADDRINUSE" in str(error) else first_line(error)[:100].rstrip(".")
        raise SettingsError(
            f"rank {rank} of {size} cannot reach the job at {address or '(MASTER_ADDR is not set)'}:{port}: {reason}.\n"
            f"Check MASTER_ADDR and MASTER_PORT, and that all {size} ranks were started."
        ) from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"holdfast/{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{attempt}", store)


def claim_report(store: Any = None) -> bool:
    """Return whether this rank is the first that reports an error. Only that one should print it.

    store: None before this rank has joined the others.
    """
    try:
        return (store or connect(ASK_SECONDS)).add("reported", 1) == 1
    except (RuntimeError, SettingsError):  # the store cannot be reached
        return True


def _wait_for_server(address: str, port: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until - 0.2:
        with suppress(ConnectionError, TimeoutError):
            socket.create_connection((address, port), timeout=seconds).close()
            return
        time.sleep(0.1)
    socket.create_connection((address, port), timeout=1.0).close()
