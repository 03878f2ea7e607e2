"""Ranks connected by torch.distributed: gloo between CPUs, NCCL between GPUs, shared memory between ranks of one host."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.errors import SettingsError, first_line
from holdfast.ranks.group import Group, OrderedSum, RankLostError, add_rows
from holdfast.ranks.heartbeat import Heartbeat
from holdfast.ranks.host import Host, HostSum
from holdfast.ranks.store import JOIN_SECONDS, claim_report, connect

logger = logging.getLogger(__name__)

# torch 2.13 has renamed it
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

WAIT = timedelta(days=30)  # of a collective; the heartbeat notices a rank that has stopped


class Ranks(Group):
    """This process as one of several ranks. Create it with `join`."""

    def __init__(self, store: Any, device: torch.device, timeout: float):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = device
        self.store = store
        self.host: Host | None = None
        self.names = [""] * self.size
        self.names = [data.decode() for data in self.gather(f"{socket.gethostname()}, pid {os.getpid()}".encode())]
        self.host = Host.connect(self, timeout)
        pids = self.host.pids if self.host is not None else {}
        self.heartbeat = Heartbeat(store.clone(), self.rank, self.names, pids, timeout, self.report_once)

    @classmethod
    def join(cls, device: torch.device, timeout: float) -> Ranks:
        """Join the ranks that the environment variables of torchrun name; raise SettingsError if that fails."""
        store = connect()
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            store.set_timeout(timedelta(seconds=JOIN_SECONDS))
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=WAIT)
        except RuntimeError as error:
            raise SettingsError(
                f"rank {rank} of {size} cannot connect to the others: {first_line(error)[:100].rstrip('.')}.\n"
                f"Check that all {size} ranks were started and that their hosts can reach each other."
            ) from error
        return cls(store, device, timeout)

    def gather(self, data: bytes) -> list[bytes]:
        with self._reporting():
            sizes = torch.zeros(self.size, dtype=torch.int64)
            all_gather(sizes, torch.tensor([len(data)]))
            most = int(sizes.max())
            if not most:
                return [b""] * self.size
            mine = torch.zeros(most, dtype=torch.uint8)
            if data:
                mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            everybody = torch.empty(self.size * most, dtype=torch.uint8)
            all_gather(everybody, mine)
        rows = everybody.view(self.size, most)
        return [row[:size].numpy().tobytes() for row, size in zip(rows, sizes.tolist(), strict=True)]

    def broadcast(self, data: bytes) -> bytes:
        with self._reporting():
            size = torch.tensor([len(data)])
            dist.broadcast(size, 0)
            buffer = torch.empty(int(size), dtype=torch.uint8)
            if self.leads and data:
                buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            dist.broadcast(buffer, 0)
        return buffer.numpy().tobytes()

    def concat(self, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        if self.host is not None and rows.device.type == "cpu" and rows.nbytes <= self.host.mailbox_bytes:
            with self._reporting():
                return self.host.concat(rows)
        everybody = rows.new_empty((self.size * len(rows), *rows.shape[1:]))
        with self._reporting():
            all_gather(everybody, rows)
        return everybody

    def ordered_sum(self, num_rows: int, length: int) -> OrderedSum:
        if self.host is not None and self.device.type == "cpu":
            return HostSum(self.host, num_rows, length)
        return NetworkSum(self, num_rows, length)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            ended = self.host.find_ended() if self.host is not None else None
            if ended is not None:
                raise RankLostError(f"rank {ended} ({self.names[ended]}) has ended") from error
            own = f"rank {self.rank} ({self.names[self.rank]})"
            raise RankLostError(f"{own} has lost the connection to another rank") from error

    def claim_report(self) -> bool:
        """Return whether this rank is the first that reports an error. Only that one should print it."""
        return claim_report(self.store)

    def report_once(self, message: str) -> None:
        """Log an error that ends all ranks, unless another rank has reported one already."""
        if self.claim_report():
            logger.error("%s; all ranks end.", message)

    def close(self, failed: bool) -> None:
        """Leave the group. After a failure, the others notice by their closed connections."""
        if not failed:
            self.gather(b"")  # wait for the others while the heartbeat still watches them
        self.heartbeat.stop()
        if not failed:
            self.gather(b"")  # the rank that runs the store must not leave before the last heartbeat has ended
        if self.host is not None:
            self.host.close()
        if not failed:
            dist.destroy_process_group()


class NetworkSum(OrderedSum):
    """An ordered sum over the network: every rank adds a slice of all rows, and the slices are gathered.

    A rank sends and receives as many bytes as in a ring all-reduce, if it has one row.
    """

    def __init__(self, ranks: Ranks, num_rows: int, length: int):
        padded = -(-length // ranks.size) * ranks.size
        super().__init__(num_rows, padded, ranks.device)
        self._ranks, self._all, self._length = ranks, self.rows, length
        self.rows = self._all[:, :length]

    def sum(self) -> Tensor:
        size, padded = self._ranks.size, self._all.shape[1]
        with self._ranks._reporting():
            sent = self._all.view(len(self._all), size, -1).transpose(0, 1).contiguous()
            slices = torch.empty_like(sent)
            dist.all_to_all_single(slices, sent)
            total = self._all.new_empty(padded)
            all_gather(total, add_rows(slices.flatten(0, 1)))
        return total[: self._length]
