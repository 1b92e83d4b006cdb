"""Memory that the ranks of one host share and that has no name.

A block is an anonymous file (memfd). Its descriptor is passed to the other ranks over a Unix socket
in the abstract namespace, which is not a file either. When the last rank releases a block or is
killed, by any signal and at any moment, the system frees everything. Nothing in /dev/shm or /tmp
can be left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import secrets
import socket
import struct
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.comm.collectives import Collectives, name_failures
from pyg_batchgnn.comm.diagnosis import CommError

T = TypeVar("T")

#: Seconds in which the ranks of a host pass their descriptors, and how many may wait to do so.
_SECONDS, _BACKLOG = 5, 128
_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; not among Python's constants before 3.13


def share_on_host(communicator: Collectives, size: int) -> dict[int, Tensor]:
    """Makes one block of memory per rank, which all ranks of its host can read. Collective.

    ``size``: bytes of this rank's block, 0 for none. Returns uint8 tensors [size of the rank's
    block] by rank of this host. Other ranks see the owner's writes at once; a barrier tells them
    when the data is complete. A write by another rank ends its process. All memory is allocated
    here, so that it cannot run out later. A block lives as long as any rank holds a tensor of it.
    Raises CommError on every rank if a rank cannot allocate its memory or reach another rank of its
    host.
    """
    if size < 0:
        raise ValueError(f"size must not be negative, is {size}")
    mates = [rank for rank in communicator.ranks_of_host if rank != communicator.rank]
    with contextlib.ExitStack() as stack:
        own, block, server, name = _together(communicator, lambda: _offer(size, stack))
        offers = communicator.all_gather_json([size, name])
        theirs = {rank: offers[rank] for rank in mates}
        found = _together(communicator, lambda: _swap(block, server, theirs))
    return dict(sorted({**found, communicator.rank: own}.items()))


def _together(communicator: Collectives, work: Callable[[], T]) -> T:
    """Runs ``work`` on every rank, and waits for all; errors name the rank that is late."""

    def error(problems: Mapping[int, str]) -> CommError:
        return CommError(
            f"memory of a host cannot be shared: {name_failures(problems, communicator.hosts)}; ranks of one "
            "host (torchrun's GROUP_RANK) must run on one machine, in one network namespace, with enough "
            "memory",
            problems,
        )

    return communicator.run_together(work, catch=(OSError,), error=error)


def _offer(size: int, stack: contextlib.ExitStack) -> tuple[Tensor, int, socket.socket, str]:
    block = os.memfd_create("pyg_batchgnn", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, block)
    if size:
        os.posix_fallocate(block, 0, size)
    own = _map(block, size, mmap.PROT_READ | mmap.PROT_WRITE)
    fcntl.fcntl(block, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    with contextlib.suppress(OSError):  # an older kernel: the read-only mapping still prevents mistakes
        fcntl.fcntl(block, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
    server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    name = f"pyg_batchgnn-{secrets.token_hex(16)}"
    server.bind(b"\0" + name.encode())
    server.listen(_BACKLOG)
    return own, block, server, name


def _swap(block: int, server: socket.socket, theirs: Mapping[int, tuple[int, str]]) -> dict[int, Tensor]:
    """Hands this rank's block to the others of the host, and takes theirs. Every user of the
    machine can see abstract names and connect, so a thread accepts all connections and closes those
    of other users at once: they cannot fill the queue in which the ranks wait."""
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(_serve, server, block, len(theirs))
        found = {rank: _take(name, size) for rank, (size, name) in theirs.items()}
        serving.result()
    return found


def _serve(server: socket.socket, block: int, mates: int) -> None:
    end = time.monotonic() + _SECONDS
    while mates:
        server.settimeout(max(end - time.monotonic(), 1e-3))
        with server.accept()[0] as line:
            if _user(line) == os.geteuid():
                socket.send_fds(line, [b"x"], [block])
                mates -= 1


def _take(name: str, size: int) -> Tensor:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # `settimeout` does not wait for the queue
            line.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _SECONDS, 0))
        line.connect(b"\0" + name.encode())
        if _user(line) != os.geteuid():
            raise OSError(f"another user answers at {name}")
        _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
    if not descriptors:
        raise OSError("another rank of the host sent no descriptor")
    try:
        return _map(descriptors[0], size, mmap.PROT_READ)
    finally:
        os.close(descriptors[0])


def _user(line: socket.socket) -> int:
    """Returns the user id at the other end of a connection."""
    _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


def _map(block: int, size: int, protection: int) -> Tensor:
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    memory = mmap.mmap(block, size, flags=mmap.MAP_SHARED, prot=protection)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(memory, dtype=torch.uint8)


@dataclass(frozen=True)
class Field:
    """The dtype and the shape of one attribute's row."""

    dtype: torch.dtype
    shape: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes per row."""
        return math.prod(self.shape) * self.dtype.itemsize
