"""What ranks tell each other before oneCCL starts: who they are, where they run, what they can share."""

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

#: Where libfabric makes shared memory.
SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Facts:
    """Of one rank.

    Attributes:
        host: number of the host as the launcher counts.
        name: the host's name, by which oneCCL tells hosts apart.
        machine: identity of the running kernel and of the mounted /dev/shm, "" where it cannot be told.
        room: bytes free in /dev/shm.
        master: address that MASTER_ADDR has here, "" where there is none.
        shared: whether oneCCL was started with shared memory in this process; None before it is started.
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
    def mine(cls, shared: bool | None, environment: Mapping[str, str] = os.environ) -> Facts:
        """Those of this process."""
        machine, room = _shared_memory()
        asked = "" if shared is not None else environment.get("CCL_ATL_SHM", "")
        master = _resolve(environment.get("MASTER_ADDR", ""))
        return cls(host_from(environment), socket.gethostname(), machine, room, master, shared, asked)


def exchange(store: Any, rank: int, size: int, timeout: timedelta, facts: Facts) -> list[Facts]:
    """Those of all ranks of a group; collective.

    Args:
        store: the group's own part of torch's store.

    Raises:
        TimeoutError: names the ranks that have not come.
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
    return [Facts(**json.loads(store.get(key))) for key in keys]


def _shared_memory() -> tuple[str, int]:
    try:
        place, room = SHARED.stat(), os.statvfs(SHARED)
    except OSError:
        return "", 0
    machine = ProcessInfo.mine().machine.partition(" ")[0]
    return f"{machine} {place.st_dev} {place.st_ino}", room.f_bavail * room.f_frsize


def _resolve(name: str) -> str:
    try:
        return socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0] if name else ""  # type: ignore[return-value]
    except OSError:
        return ""
