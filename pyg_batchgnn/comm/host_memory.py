"""Memory that the ranks of one host share and that has no name.

A block is an anonymous file (memfd). Its descriptor is handed to the other ranks over a Unix socket
in the abstract namespace, which is no file either. When the last rank lets go or is killed, by
whatever signal and at whatever moment, the system frees everything: nothing in /dev/shm or /tmp
could stay behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import socket
import struct
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.comm.communicator import Communicator
from pyg_batchgnn.comm.errors import CommError
from pyg_batchgnn.comm.together import name_failures

T = TypeVar("T")

_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; not among Python's constants before 3.13


class Access(Enum):
    """What other ranks may do with a rank's block."""

    READ = "read"
    WRITE = "write"


def share_on_host(communicator: Communicator, size: int, access: Access = Access.READ) -> dict[int, Tensor]:
    """Gives every rank a block of memory that all ranks of its host see; collective over all ranks.

    Writes of the owner are seen by the others at once; a barrier tells them when there is something
    to see. Memory is taken at once, so that there is no later moment at which it could run out.

    Args:
        communicator: of all ranks; hosts are its hosts.
        size: bytes of this rank's block, 0 for none.
        access: whether the other ranks may write. A write to a block mapped for reading ends the
            process.

    Returns:
        uint8 tensors [size of that rank's block] by rank, for the ranks of this host. A block lives
        as long as any rank holds a tensor of it.

    Raises:
        CommError: on every rank, if any of them cannot take its memory or cannot reach a rank of
            its host.
    """
    if size < 0:
        raise ValueError(f"size must not be negative, is {size}")
    mates = [rank for rank in communicator.ranks_of_host if rank != communicator.rank]
    with contextlib.ExitStack() as stack:
        block, server, name = _together(communicator, lambda: _offer(size, len(mates), stack))
        offers = communicator.all_gather_json([size, name])
        lines = _together(communicator, lambda: {rank: _connect(offers[rank][1], stack) for rank in mates})
        own = _together(communicator, lambda: _hand_out(block, size, server, len(mates), access, stack))
        found = _together(communicator, lambda: _take(lines, offers, access, stack))
    return dict(sorted({**found, communicator.rank: own}.items()))


def _together(communicator: Communicator, work: Callable[[], T]) -> T:
    """Does one stage on every rank. Ranks wait for each other only here, in a collective that names
    who is missing. The stages themselves wait for nothing."""

    def error(problems: Mapping[int, str]) -> CommError:
        return CommError(
            f"memory of a host cannot be shared: {name_failures(problems, communicator.hosts)}; ranks of one "
            "host (torchrun's GROUP_RANK) must run on one machine, in one network namespace, with memory "
            "enough",
            problems,
        )

    return communicator.run_together(work, catch=(OSError,), error=error)


def _offer(size: int, mates: int, stack: contextlib.ExitStack) -> tuple[int, socket.socket, str]:
    block = os.memfd_create("pyg_batchgnn", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, block)
    if size:
        os.posix_fallocate(block, 0, size)
    server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    name = f"pyg_batchgnn-{secrets.token_hex(16)}"
    server.bind(b"\0" + name.encode())
    server.listen(mates)
    return block, server, name


def _connect(name: str, stack: contextlib.ExitStack) -> socket.socket:
    line = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    line.settimeout(5.0)
    line.connect(b"\0" + name.encode())
    return line


def _hand_out(
    block: int, size: int, server: socket.socket, mates: int, access: Access, stack: contextlib.ExitStack
) -> Tensor:
    """Maps this rank's block, then sends its descriptor to every rank of the host."""
    own = _map(block, size, Access.WRITE)
    seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
    fcntl.fcntl(block, fcntl.F_ADD_SEALS, seals)
    if access is Access.READ:
        with contextlib.suppress(OSError):  # an older kernel; mapping for reading still keeps mistakes out
            fcntl.fcntl(block, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
    server.settimeout(5.0)  # all have connected: nothing is waited for
    served = 0
    while served < mates:
        line = stack.enter_context(server.accept()[0])
        if _user(line) == os.geteuid():
            socket.send_fds(line, [b"x"], [block])
            served += 1
    return own


def _user(line: socket.socket) -> int:
    """Who is at the other end: abstract names can be seen by every user of the machine."""
    _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


def _take(
    lines: Mapping[int, socket.socket],
    offers: list[tuple[int, str]],
    access: Access,
    stack: contextlib.ExitStack,
) -> dict[int, Tensor]:
    found = {}
    for rank, line in lines.items():
        _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
        if not descriptors:
            raise OSError(f"rank {rank} sent no descriptor")
        stack.callback(os.close, descriptors[0])
        found[rank] = _map(descriptors[0], offers[rank][0], access)
    return found


def _map(block: int, size: int, access: Access) -> Tensor:
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if access is Access.WRITE else 0)
    memory = mmap.mmap(block, size, flags=mmap.MAP_SHARED, prot=protection)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(memory, dtype=torch.uint8)
