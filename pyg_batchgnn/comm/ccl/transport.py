"""How the bytes go: through memory that the ranks of a host share, or through TCP, and by which interface."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from pyg_batchgnn.comm.ccl.facts import Facts

#: Bytes of /dev/shm that libfabric's shared memory may come to take for each rank: the size of its file, of
#: which pages are taken when they are first used. A page that cannot be had would kill the process.
ROOM_PER_RANK = 64 << 20


@dataclass(frozen=True)
class Choice:
    """What was taken, and why."""

    shared: bool
    interface: str  # "" leaves it to libfabric
    why: str

    def __str__(self) -> str:
        way = "shared memory on a host, TCP between hosts" if self.shared else "TCP"
        return f"{way}{f' by interface {self.interface}' if self.interface else ''}: {self.why}"


def choose(ranks: Sequence[Facts], mine: Facts, whole_world: bool) -> Choice:
    """The same choice of transport on every rank, as all have the same facts.

    Args:
        ranks: facts of all ranks of the group.
        mine: of this one.
        whole_world: whether the group has all ranks. oneCCL learns who shares a host from its first group.

    Raises:
        ValueError: the ranks cannot agree on one way.
    """
    shared, why = _shares(ranks, whole_world)
    return Choice(shared, interface(ranks, mine), why)


def _shares(ranks: Sequence[Facts], whole_world: bool) -> tuple[bool, str]:
    decided = {rank.shared for rank in ranks if rank.shared is not None}
    if len(decided) > 1:
        raise ValueError(
            "ccl: ranks of this group started oneCCL in earlier groups, some with shared memory and some "
            "without; make the default group with ccl first, or set CCL_ATL_SHM=0"
        )
    if decided:
        return decided.pop(), "as this process's first group did"
    asked = {rank.asked for rank in ranks}
    if asked != {""}:
        if len(asked) > 1:
            raise ValueError(
                f"ccl: CCL_ATL_SHM differs between ranks: {sorted(asked)}; set it on all or none"
            )
        return asked == {"1"}, "CCL_ATL_SHM is set"
    reason = _why_not(ranks, whole_world)
    return not reason, reason or "ranks share hosts, and /dev/shm has room"


def _why_not(ranks: Sequence[Facts], whole_world: bool) -> str:
    hosts = Counter(rank.host for rank in ranks)
    names = {rank.name for rank in ranks}
    machines = {(rank.host, rank.machine) for rank in ranks}
    if max(hosts.values()) == 1:
        return "every rank has a host of its own"
    if not whole_world:
        return "the process's first group has not all ranks"
    if not len(names) == len(hosts) == len({(rank.host, rank.name) for rank in ranks}):
        return "hosts cannot be told by their names, as oneCCL does"
    if len(machines) != len(hosts) or not all(rank.machine for rank in ranks):
        return "ranks of a host do not see the same /dev/shm"
    for rank in ranks:
        need = ROOM_PER_RANK * hosts[rank.host]
        if rank.room < need:
            return f"/dev/shm of host {rank.host} has {rank.room >> 20} MiB free, of {need >> 20} MiB needed"
    return ""


def interface(ranks: Sequence[Facts], mine: Facts, environment: Mapping[str, str] = os.environ) -> str:
    """The network interface for TCP: the one that GLOO_SOCKET_IFNAME names; on one host the loopback; among
    hosts the one by which the master is reached."""
    named = environment.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if named:
        return named
    own = {
        address.address.partition("%")[0]: name
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    }
    if len({rank.host for rank in ranks}) == 1:
        return own.get("127.0.0.1", "")
    for rank in ranks:  # on the master's host, which may resolve its own name to the loopback
        if rank.master in own and not ipaddress.ip_address(rank.master).is_loopback:
            return own[rank.master]
    return own.get(_local_address(mine.master), "")


def _local_address(peer: str) -> str:
    """The local address from which packets to a peer start; nothing is sent."""
    if not peer or ipaddress.ip_address(peer).is_loopback:
        return ""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""
