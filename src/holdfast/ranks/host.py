"""Sums through memory that the ranks of one host share, several times as fast as its loopback network.

Ranks meet by sending each other a byte through Unix sockets: a rank that dies closes its sockets, so the others notice at
once, and the system calls order the writes to shared memory on every processor. Abstract sockets belong to a network
namespace, so ranks in different namespaces count as different hosts.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import torch
from torch import Tensor

from holdfast.ranks.group import OrderedSum, RankLostError, add_rows

if TYPE_CHECKING:
    from holdfast.ranks.distributed import Ranks

MAILBOX_BYTES = 1 << 16
ENDING_SECONDS = 0.5  # a process that ends closes its connections one after the other


class Host:
    """Connections and shared memory of ranks that are all on one host."""

    def __init__(self, ranks: Ranks, peers: dict[int, socket.socket]):
        self._ranks, self._peers = ranks, peers
        self.rank, self.size = ranks.rank, ranks.size
        self.pids = {rank: _pid_behind(link) for rank, link in peers.items()}
        self.mailbox_bytes = MAILBOX_BYTES
        self._mailbox = self.allocate(self.size * MAILBOX_BYTES)

    @classmethod
    def connect(cls, ranks: Ranks, timeout: float) -> Host | None:
        """Connect every pair of ranks; return None on every rank if one of them cannot be reached."""
        token = ranks.broadcast(uuid4().hex.encode()).decode()
        peers: dict[int, socket.socket] = {}
        can = sys.platform == "linux"
        listener = socket.socket(socket.AF_UNIX) if can else None
        try:
            if listener is not None:
                listener.bind(_address(token, ranks.rank))
                listener.listen(ranks.size)
                listener.settimeout(timeout)
            ranks.gather(b"")  # everybody listens
            try:
                for other in range(ranks.rank) if can else ():
                    peers[other] = link = socket.socket(socket.AF_UNIX)
                    link.settimeout(timeout)
                    link.connect(_address(token, other))
                    link.sendall(ranks.rank.to_bytes(4, "little"))
            except OSError:
                can = False
            can = all(ranks.gather(b"1" if can else b""))
            if not can or listener is None:
                return None
            for _ in range(ranks.size - 1 - ranks.rank):
                link, _ = listener.accept()
                peers[int.from_bytes(link.recv(4), "little")] = link
        finally:
            if listener is not None:
                listener.close()
            if not can:
                for link in peers.values():
                    link.close()
        for link in peers.values():
            link.settimeout(None)  # the heartbeat notices a rank that has stopped
        return cls(ranks, dict(sorted(peers.items())))

    def meet(self) -> None:
        """Wait until every rank is here."""
        for link in self._peers.values():
            with suppress(OSError):  # a closed connection is noticed below
                link.send(b".")
        for rank, link in self._peers.items():
            try:
                answer = link.recv(1)
            except OSError:
                answer = b""
            if not answer:
                raise RankLostError(f"rank {rank} ({self._ranks.names[rank]}) has ended")

    def find_ended(self) -> int | None:
        """Return a rank that has ended, None if there is none."""
        poll = select.poll()
        ranks = {link.fileno(): rank for rank, link in self._peers.items()}
        for number in ranks:
            poll.register(number, select.POLLRDHUP)
        ended = poll.poll(ENDING_SECONDS * 1000)
        return ranks[ended[0][0]] if ended else None

    def allocate(self, num_bytes: int) -> Tensor:
        """Return a tensor of bytes that all ranks share: an anonymous file that rank 0 sends to the others."""
        try:
            if self.rank == 0:
                file = os.memfd_create("holdfast")
                os.ftruncate(file, num_bytes)
                for link in self._peers.values():
                    socket.send_fds(link, [b"m"], [file])
            else:
                _, (file,), *_ = socket.recv_fds(self._peers[0], 1, 1)
            memory = mmap.mmap(file, num_bytes)
            os.close(file)
        except (OSError, ValueError) as error:
            raise RankLostError(f"rank {self.rank} cannot share memory with rank 0 ({error})") from error
        return torch.frombuffer(memory, dtype=torch.uint8)

    def concat(self, rows: Tensor) -> Tensor:
        """See Group.concat."""
        size = rows.nbytes
        boxes = self._mailbox.view(self.size, MAILBOX_BYTES)[:, :size]
        boxes[self.rank].copy_(rows.view(torch.uint8).flatten() if rows.dim() else rows)
        self.meet()
        found = boxes.contiguous().view(rows.dtype).reshape(self.size * len(rows), *rows.shape[1:])
        self.meet()
        return found

    def close(self) -> None:
        for link in self._peers.values():
            link.close()


class HostSum(OrderedSum):
    """An ordered sum in shared memory: every rank writes its rows, adds a slice of all rows, and copies the result."""

    def __init__(self, host: Host, num_rows: int, length: int):
        self._host = host
        count = num_rows * host.size
        shared = host.allocate(4 * length * (count + 1)).view(torch.float32).view(count + 1, length)
        self._all, self._total = shared[:count], shared[count]
        self.rows = self._all[num_rows * host.rank : num_rows * (host.rank + 1)]
        self._slice = slice(length * host.rank // host.size, length * (host.rank + 1) // host.size)
        self._result = torch.empty(length)

    def sum(self) -> Tensor:
        self._host.meet()
        self._total[self._slice] = add_rows(self._all[:, self._slice])
        self._host.meet()
        return self._result.copy_(self._total)


def _address(token: str, rank: int) -> str:
    return f"\0holdfast-{token}-{rank}"


def _pid_behind(link: socket.socket) -> int:
    """Return the process at the other end, numbered as in this process's namespace."""
    return struct.unpack("i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4))[0]
