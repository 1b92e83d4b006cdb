"""The facts that ranks tell each other before oneCCL starts: where they run and what they can
share."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyg_batchgnn.comm.process_info import ProcessInfo, host_from

#: The folder in which libfabric makes shared memory.
SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class RankFacts:
    """The facts of one rank.

    Attributes:
        host: the number of the host, as the launcher counts.
        name: the host's name, by which oneCCL tells hosts apart.
        machine: identity of the running kernel and of the mounted /dev/shm, "" where it is not
            known.
        room: bytes free in /dev/shm.
        master: the address to which MASTER_ADDR resolves here, "" where there is none.
        shared: whether oneCCL was started with shared memory in this process, None before it
            starts.
        asked: the user's CCL_ATL_SHM, "" where it is not set.
    """

    host: int
    name: str
    machine: str
    room: int
    master: str
    shared: bool | None
    asked: str

    @classmethod
    def own(cls, shared: bool | None, environment: Mapping[str, str] = os.environ) -> RankFacts:
        """Returns the facts of this process."""
        machine, room = _shared_memory()
        asked = "" if shared is not None else environment.get("CCL_ATL_SHM", "")
        master = _resolve(environment.get("MASTER_ADDR", ""))
        return cls(host_from(environment), socket.gethostname(), machine, room, master, shared, asked)


def exchange_facts(store: Any, rank: int, size: int, timeout: timedelta, facts: RankFacts) -> list[RankFacts]:
    """Returns the facts of all ranks of a group, by rank. Collective.

    Args:
        store: the group's own part of torch's store.
        rank, size: the rank of this process in the group, and the number of ranks.
        timeout: for all ranks to come.
        facts: of this rank.

    Raises:
        TimeoutError: a rank did not come. The text names it.
    """
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


def _resolve(name: str) -> str:
    try:
        return socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0] if name else ""  # type: ignore[return-value]
    except OSError:
        return ""
