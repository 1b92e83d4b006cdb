"""Making communicators: the default process group, the introduction of ranks, and a group of their
own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from pyg_batchgnn.comm.abandoned import groups_abandoned
from pyg_batchgnn.comm.backends import check_backend
from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.collectives import Collectives
from pyg_batchgnn.comm.diagnosis import Peer
from pyg_batchgnn.comm.endpoints import endpoints
from pyg_batchgnn.comm.errors import CommError, DivergenceError
from pyg_batchgnn.comm.header import Header, MessageKind
from pyg_batchgnn.comm.host_memory import share_on_host
from pyg_batchgnn.comm.process_info import ProcessInfo, host_from
from pyg_batchgnn.comm.rendezvous import fresh_namespace
from pyg_batchgnn.comm.status_board import StatusBoard
from pyg_batchgnn.comm.transport import make_group
from pyg_batchgnn.comm.values import gather_values

_connected = False  # whether the default process group was made here
_made = 0  # communicators of this process: equal on all ranks, as all make the same ones in order


def connect(timeout: float, backend: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Makes torch's default process group from the launcher's environment, unless there is one.

    Returns:
        Whether there is a default group now. Without a launcher (no WORLD_SIZE) there is none, and
        the world is one rank.

    Raises:
        ValueError: the backend is not available here, or the launcher's environment is not
            complete.
    """
    global _connected
    if dist.is_initialized():
        return True
    check_backend(backend)
    if "WORLD_SIZE" not in environment:
        return False
    absent = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in environment]
    if absent:
        raise ValueError(f"WORLD_SIZE is set but not {', '.join(absent)}; start with torchrun, or set them")
    _make_default_group(timeout, backend, environment)
    _connected = True
    return True


def _make_default_group(timeout: float, backend: str, environment: Mapping[str, str]) -> None:
    """Makes the default group. torchrun's store outlives the ranks that it restarts, so there the
    group gets a new namespace."""
    limit = timedelta(seconds=timeout)
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=limit)
        return
    rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    store = fresh_namespace(TCPStore(address, port, size, False, limit), rank, size, timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)


def disconnect() -> None:
    """Destroys the default group where `connect` made it. Called at the end of the process.

    With torch 2.13, a gloo group that still exists when the interpreter is gone sometimes aborts
    the process. Destroying the default group destroys all groups. So it stays where a group was
    abandoned in the middle of a collective, because destroying that one would wait.
    """
    if _connected and groups_abandoned() == 0 and dist.is_initialized():
        dist.destroy_process_group()


def make_channel(name: str, timeout: float, limit: int, host: int | None) -> Channel:
    """Makes a channel over a new process group of all ranks. Collective."""
    global _made
    host = host_from(os.environ) if host is None else host
    process = ProcessInfo.own()
    if not dist.is_initialized():
        return Channel(name, None, None, [Peer(0, host, process)], 0, timeout, limit)
    rank, size = dist.get_rank(), dist.get_world_size()
    _made += 1
    store = dist.distributed_c10d._get_default_store()
    board = StatusBoard(store, f"pyg_batchgnn/{_made}", rank, size)
    ranks = board.join({"name": name, "host": host, "process": asdict(process)}, timeout)
    _check_names(ranks)
    group = make_group(timeout, name)
    peers = [Peer(at, theirs["host"], ProcessInfo(**theirs["process"])) for at, theirs in enumerate(ranks)]
    channel = Channel(name, group, board, peers, rank, timeout, limit)
    addresses = gather_values(channel, endpoints(), Header(MessageKind.CONTROL))
    channel.peers = [
        Peer(peer.rank, peer.host, peer.process, tuple(theirs))
        for peer, theirs in zip(peers, addresses, strict=True)
    ]
    _share_messages(channel)
    channel.restart_counting()  # users count from their first exchange
    return channel


def _share_messages(channel: Channel) -> None:
    """Lets messages go through memory where all ranks are on one machine. They go through the
    backend where the memory cannot be had: it has too little, or ranks are kept apart."""
    places = {(peer.host, peer.process.machine) for peer in channel.peers}
    if channel.size == 1 or len(places) > 1 or not channel.peers[0].process.machine:
        return
    try:
        blocks = share_on_host(Collectives(channel), channel.shared_bytes)
    except CommError:
        if channel.broken is not None:
            raise
    else:
        channel.share_messages(blocks)


def _check_names(ranks: list[dict[str, Any]]) -> None:
    names = [theirs["name"] for theirs in ranks]
    if len(set(names)) > 1:
        common = max(names, key=names.count)
        raise DivergenceError(
            f"ranks make different communicators: {dict(enumerate(names))} (by rank); every rank must make "
            "the same ones in the same order, on its main thread",
            [rank for rank, name in enumerate(names) if name != common],
        )
