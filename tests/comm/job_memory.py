"""The jobs of the ranks in test_host_memory.py."""

from __future__ import annotations

import resource
import signal
import time
from pathlib import Path

import torch

from pyg_batchgnn.comm import Access, CommError, Communicator, share_on_host


def shared(sizes: list[int]) -> list[int]:
    with Communicator.create("memory", timeout=20) as comm:
        blocks = share_on_host(comm, sizes[comm.rank])
        assert not list(Path("/dev/shm").glob("*pyg_batchgnn*"))
        assert {rank: len(block) for rank, block in blocks.items()} == {
            rank: sizes[rank] for rank in comm.ranks_of_host
        }
        blocks[comm.rank][:] = comm.rank + 1
        comm.barrier()
        for rank, block in blocks.items():
            assert torch.equal(block, torch.full((sizes[rank],), rank + 1, dtype=torch.uint8))
        both = share_on_host(comm, 8, Access.WRITE)
        comm.barrier()
        for block in both.values():
            block.view(torch.int8)[comm.rank] = 7
        comm.barrier()
        mine = both[comm.rank].tolist()
        assert [at for at, value in enumerate(mine) if value == 7] == comm.ranks_of_host
        # a block outlives the communicator, and the owner's hold on it
        return sorted(blocks)


def too_much_shared() -> str:
    with Communicator.create("memory", timeout=20) as comm:
        if comm.rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            share_on_host(comm, 4 << 20)
        except CommError as error:
            comm.barrier()
            return f"{error.ranks} {error}"
    raise AssertionError


def written_through_a_reader() -> None:
    with Communicator.create("memory", timeout=20) as comm:
        blocks = share_on_host(comm, 4096)
        comm.barrier()
        if comm.rank == 0:
            blocks[1][0] = 1
        time.sleep(0.5)


def killed_with_memory(folder: str) -> None:
    comm = Communicator.create("memory", timeout=20)
    blocks = share_on_host(comm, 1 << 20)
    Path(folder, f"ready-{comm.rank}").touch()
    blocks[comm.rank][:] = 1
    time.sleep(60)
