"""Making process groups of the backend "ccl". torch.distributed calls `create` for each group."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import ipaddress
import json
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch.distributed as dist

from pyg_batchgnn.comm.diagnosis import ProcessInfo, host_from

log = logging.getLogger(__name__)

#: The package with Intel's own backend, which is used where it is installed.
BINDINGS = "oneccl_bindings_for_pytorch"
_EXTENSION = "pyg_batchgnn._ccl"

_chosen: TransportChoice | None = None  # set when oneCCL starts in this process


def chosen_transport() -> TransportChoice | None:
    return _chosen


def why_unavailable() -> str | None:
    """Returns what the backend "ccl" lacks here, with the remedy; None if it works."""
    if importlib.util.find_spec(BINDINGS):
        return None
    if importlib.util.find_spec(_EXTENSION) is None:
        return (
            "it is not built; from a checkout of pyg_batchgnn: PYG_BATCHGNN_CCL=1 pip install '.[ccl]', or "
            "make install CCL=1"
        )
    try:
        find_libraries()
    except CclMissingError as error:
        return str(error)
    return None


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Makes a group's ccl backend, for torch.distributed. Collective. Raises CclMissingError, a
    TimeoutError if a rank did not come, or a RuntimeError of oneCCL."""
    global _chosen
    if importlib.util.find_spec(BINDINGS):
        importlib.import_module(BINDINGS)  # registers Intel's function that makes groups
        return dist.Backend._plugins["CCL"].creator_fn(store, rank, size, timeout)
    if problem := why_unavailable():
        raise CclMissingError(f"backend 'ccl': {problem}")
    own = RankFacts.own(None if _chosen is None else _chosen.shared)
    ranks = exchange_facts(store, rank, size, timeout, own)
    choice = choose_transport(ranks, own, whole_world=size == int(os.environ.get("WORLD_SIZE", size)))
    if _chosen is None:
        _chosen = choice
        apply(settings(find_libraries(), choice))
        log.log(logging.INFO if rank == 0 else logging.DEBUG, "ccl: %s", choice)
    made = _extension().create(store, rank, size, timeout)
    _unname_shared_memory()
    return made


@atexit.register
def rest() -> None:
    """Ends the backend's threads when the process ends, after communicators have closed. Else a
    thread that frees a tensor while the interpreter ends would end the process by
    ``std::terminate``, and the job would fail after all its work."""
    if _extension.cache_info().currsize:
        _extension().rest()


@cache
def _unname_shared_memory() -> None:
    """Removes the name of this rank's shared memory once the first group is made, since libfabric
    never does. All ranks have mapped the memory by then, so that it is freed with the last process
    that uses it. Another container may share /dev/shm and have a process of this number: only what
    this process maps is its own."""
    mapped = Path("/proc/self/maps").read_text()
    for file in SHARED.glob(f"{os.getpid()}:*"):
        if f" {file}\n" in mapped:
            file.unlink(missing_ok=True)


@cache
def _extension() -> Any:
    ctypes.CDLL(str(find_libraries().oneccl), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    return importlib.import_module(_EXTENSION)


#: The packages with which the backend is built and tested. The extra "ccl" installs them.
ONECCL, LIBFABRIC = "oneccl-devel==2021.13.1", "impi-rt==2021.17.2"

_LIBRARY = Path("lib/ccl/cpu/lib/libccl.so.1")
_FABRIC = Path("lib/libfabric.so.1")


class CclMissingError(RuntimeError):
    """The ccl backend cannot work here. The text says what is missing and what to do."""


@dataclass(frozen=True)
class Libraries:
    oneccl: Path  # the shared library for CPUs, without SYCL
    libfabric: Path  # libfabric. Its folder also has the providers (libtcp-fi.so, libshm-fi.so).


def find_libraries() -> Libraries:
    """Finds the libraries in CCL_ROOT, the installed packages, or this environment, in this order.
    ``<environment>/lib/libccl.so.1`` is left out, as it may be the library with SYCL."""
    found = []
    for package, name, file in (("oneccl-devel", "oneCCL", _LIBRARY), ("impi-rt", "libfabric", _FABRIC)):
        path = next((root / file for root in _roots(package) if (root / file).exists()), None)
        if path is None:
            remedy = f"pip install {ONECCL} {LIBFABRIC}, or name its folder by CCL_ROOT"
            raise CclMissingError(f"{name} ({file}) is not installed; {remedy}")
        found.append(path.resolve())
    return Libraries(*found)


def _roots(package: str) -> Iterator[Path]:
    if root := os.environ.get("CCL_ROOT"):
        yield Path(root)
    try:
        for file in importlib.metadata.files(package) or []:
            path = Path(str(file.locate())).resolve()
            if path.name in (_LIBRARY.name, _FABRIC.name):
                yield from path.parents[1:5]
    except importlib.metadata.PackageNotFoundError:
        pass
    yield Path(sys.prefix)


#: The folder in which libfabric makes shared memory.
SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class RankFacts:
    """The facts of one rank on which the transport depends."""

    host: int  # as the launcher counts
    name: str  # the host's name, by which oneCCL tells hosts apart
    machine: str  # identity of the running kernel and of the mounted /dev/shm, "" where it is not known
    room: int  # bytes free in /dev/shm
    master: str  # the address to which MASTER_ADDR resolves here, "" where there is none
    shared: bool | None  # whether oneCCL was started with shared memory; None before it starts
    asked: str  # the user's CCL_ATL_SHM, "" where it is not set

    @classmethod
    def own(cls, shared: bool | None, environment: Mapping[str, str] = os.environ) -> RankFacts:
        machine, room = _shared_memory()
        asked = "" if shared is not None else environment.get("CCL_ATL_SHM", "")
        name, master = environment.get("MASTER_ADDR", ""), ""
        with contextlib.suppress(OSError):
            master = str(socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)[0][4][0]) if name else ""
        return cls(host_from(environment), socket.gethostname(), machine, room, master, shared, asked)


def exchange_facts(store: Any, rank: int, size: int, timeout: timedelta, facts: RankFacts) -> list[RankFacts]:
    """Returns the facts of all ranks of a group, by rank. Collective. Raises a TimeoutError that
    names the ranks that did not come."""
    keys = [f"facts/{other}" for other in range(size)]
    store.set(keys[rank], json.dumps(asdict(facts)))
    try:
        store.wait(keys, timeout)
    except RuntimeError as error:  # torch's DistStoreError
        absent = [other for other in range(size) if not store.check([keys[other]])]
        raise TimeoutError(
            f"ccl: ranks {absent} (of {size}) did not come to make the group within "
            f"{timeout.total_seconds():.0f} s"
        ) from error
    return [RankFacts(**json.loads(store.get(key))) for key in keys]


def _shared_memory() -> tuple[str, int]:
    try:
        place, room = SHARED.stat(), os.statvfs(SHARED)
    except OSError:
        return "", 0
    machine = ProcessInfo.own().machine.partition(" ")[0]
    return f"{machine} {place.st_dev} {place.st_ino}", room.f_bavail * room.f_frsize


#: Bytes of /dev/shm that libfabric's shared memory may take per rank. It is the size of its file,
#: whose pages are taken when they are first used. A page that is not available would kill the
#: process.
ROOM_PER_RANK = 64 << 20


@dataclass(frozen=True)
class TransportChoice:
    shared: bool  # whether ranks of a host exchange bytes through shared memory
    interface: str  # the network interface for TCP. libfabric chooses where it is "".
    why: str  # the reason for ``shared``

    def __str__(self) -> str:
        way = "shared memory on a host, TCP between hosts" if self.shared else "TCP"
        return f"{way}{f' by interface {self.interface}' if self.interface else ''}: {self.why}"


def choose_transport(ranks: Sequence[RankFacts], own: RankFacts, whole_world: bool) -> TransportChoice:
    """Chooses the transport from the facts of all ranks, with the same outcome on each.
    ``whole_world``: whether the group has all ranks; oneCCL learns from its first group which ranks
    share a host. Raises ValueError if the ranks cannot agree."""
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
    """Returns the network interface for TCP: GLOO_SOCKET_IFNAME, else the loopback on one host, or
    the interface that reaches the master on several."""
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
    if not peer or ipaddress.ip_address(peer).is_loopback:
        return ""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


#: Seconds after which oneCCL gives up on its own. The group's timeout ends before that.
_NEVER = str(10**6)


def settings(
    libraries: Libraries, choice: TransportChoice, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the environment variables with which oneCCL works under any launcher."""
    chosen = {
        "CCL_ATL_TRANSPORT": "ofi",
        "CCL_ATL_SHM": str(int(choice.shared)),
        "CCL_OFI_LIBRARY_PATH": str(libraries.libfabric),
        "FI_PROVIDER_PATH": str(libraries.libfabric.parent),
        "FI_PROVIDER": "tcp",
        "CCL_PROCESS_LAUNCHER": "none",  # "torchrun" crashes
        "CCL_LOCAL_RANK": environment.get("LOCAL_RANK", "0"),
        "CCL_LOCAL_SIZE": environment.get("LOCAL_WORLD_SIZE", "1"),
        "CCL_WORKER_OFFLOAD": "0",  # its worker threads spin on pinned cores and end the process on an error
        "CCL_YIELD": "sched_yield",
        "CCL_LOG_LEVEL": "error",
        "CCL_KVS_GET_TIMEOUT": _NEVER,
    }
    if choice.interface:
        chosen["FI_TCP_IFACE"] = choice.interface
    return chosen


def apply(chosen: Mapping[str, str], environment: MutableMapping[str, str] = os.environ) -> None:
    for name, value in chosen.items():
        environment.setdefault(name, value)
