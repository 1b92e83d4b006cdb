"""The choice of the transport: memory that the ranks of a host share, or TCP, and by which
interface."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from pyg_batchgnn.comm.ccl.facts import RankFacts

#: Bytes of /dev/shm that libfabric's shared memory may take per rank. It is the size of its file,
#: whose pages are taken when they are first used. A page that is not available would kill the
#: process.
ROOM_PER_RANK = 64 << 20


@dataclass(frozen=True)
class TransportChoice:
    """A choice of the transport.

    Attributes:
        shared: whether ranks of a host exchange bytes through shared memory.
        interface: the network interface for TCP. libfabric chooses where it is "".
        why: the reason for ``shared``.
    """

    shared: bool
    interface: str
    why: str

    def __str__(self) -> str:
        way = "shared memory on a host, TCP between hosts" if self.shared else "TCP"
        return f"{way}{f' by interface {self.interface}' if self.interface else ''}: {self.why}"


def choose_transport(ranks: Sequence[RankFacts], own: RankFacts, whole_world: bool) -> TransportChoice:
    """Chooses the transport. All ranks choose the same, because they have the same facts.

    Args:
        ranks: the facts of all ranks of the group.
        own: the facts of this rank.
        whole_world: whether the group has all ranks. oneCCL learns from its first group which ranks
            share a host.

    Raises:
        ValueError: the ranks cannot agree.
    """
    shared, why = _shares(ranks, whole_world)
    return TransportChoice(shared, interface(ranks, own), why)


def _shares(ranks: Sequence[RankFacts], whole_world: bool) -> tuple[bool, str]:
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


def _why_not(ranks: Sequence[RankFacts], whole_world: bool) -> str:
    hosts = Counter(rank.host for rank in ranks)
    names = {rank.name for rank in ranks}
    machines = {(rank.host, rank.machine) for rank in ranks}
    if max(hosts.values()) == 1:
        return "every rank has a host of its own"
    if not whole_world:
        return "the process's first group does not have all ranks"
    if not len(names) == len(hosts) == len({(rank.host, rank.name) for rank in ranks}):
        return "hosts cannot be told apart by their names, as oneCCL does"
    if len(machines) != len(hosts) or not all(rank.machine for rank in ranks):
        return "ranks of a host do not see the same /dev/shm"
    for rank in ranks:
        need = ROOM_PER_RANK * hosts[rank.host]
        if rank.room < need:
            return f"/dev/shm of host {rank.host} has {rank.room >> 20} MiB free, of {need >> 20} MiB needed"
    return ""


def interface(ranks: Sequence[RankFacts], own: RankFacts, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the network interface for TCP.

    It is the interface that GLOO_SOCKET_IFNAME names. Without it, it is the loopback on one host,
    and the interface that reaches the master on several hosts.
    """
    named = environment.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if named:
        return named
    names = {
        address.address.partition("%")[0]: name
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    }
    if len({rank.host for rank in ranks}) == 1:
        return names.get("127.0.0.1", "")
    for rank in ranks:  # a master may resolve its own name to the loopback
        if rank.master in names and not ipaddress.ip_address(rank.master).is_loopback:
            return names[rank.master]
    return names.get(_local_address(own.master), "")


def _local_address(peer: str) -> str:
    """Returns the local address from which packets to a peer start. Nothing is sent."""
    if not peer or ipaddress.ip_address(peer).is_loopback:
        return ""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""
