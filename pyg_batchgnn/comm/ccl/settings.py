"""The environment variables that oneCCL and libfabric read once, when they start."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from pyg_batchgnn.comm.ccl.library import Libraries
from pyg_batchgnn.comm.ccl.transport import TransportChoice

#: Seconds after which oneCCL gives up on its own. The group's timeout ends before that.
_NEVER = str(10**6)


def settings(
    libraries: Libraries, choice: TransportChoice, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the variables that oneCCL needs to work under any launcher.

    Args:
        libraries: the libraries that are used.
        choice: the transport.
        environment: the process's variables, of which the launcher's are read.
    """
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
    """Sets the variables that the user has not set."""
    for name, value in chosen.items():
        environment.setdefault(name, value)
