"""Making process groups of the backend "ccl": what torch calls when a group is made."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from datetime import timedelta
from functools import cache
from typing import Any

import torch.distributed as dist

from pyg_batchgnn.comm.ccl import library, settings
from pyg_batchgnn.comm.ccl.facts import SHARED, Facts, exchange
from pyg_batchgnn.comm.ccl.library import CclMissingError
from pyg_batchgnn.comm.ccl.transport import Choice, choose

log = logging.getLogger(__name__)

#: Intel's own backend, used where it is installed.
BINDINGS = "oneccl_bindings_for_pytorch"
_EXTENSION = "pyg_batchgnn._ccl"

_taken: Choice | None = None  # of the transport, when oneCCL was started in this process


def taken() -> Choice | None:
    """The transport that this process has started oneCCL with, None before that."""
    return _taken


def missing() -> str | None:
    """What the backend lacks here and what to do about it; None where it can work."""
    if importlib.util.find_spec(BINDINGS):
        return None
    if importlib.util.find_spec(_EXTENSION) is None:
        return (
            "it is not built; from a checkout of pyg_batchgnn: PYG_BATCHGNN_CCL=1 pip install '.[ccl]', or "
            "make install CCL=1"
        )
    try:
        library.find()
    except CclMissingError as error:
        return str(error)
    return None


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A backend for a group; collective. Called by torch.distributed.

    Args:
        store: the group's own part of torch's store.
        rank, size: of this process in the group.
        timeout: of every collective, and of the group's making.

    Raises:
        CclMissingError: it is not built, or a library is not installed.
        TimeoutError: ranks have not come.
        RuntimeError: oneCCL's own error.
    """
    if importlib.util.find_spec(BINDINGS):
        return _intels()(store, rank, size, timeout)
    if lacks := missing():
        raise CclMissingError(f"backend 'ccl': {lacks}")
    mine = Facts.mine(None if _taken is None else _taken.shared)
    ranks = exchange(store, rank, size, timeout, mine)
    choice = choose(ranks, mine, whole_world=size == int(os.environ.get("WORLD_SIZE", size)))
    if _taken is None:
        _take(choice, rank)
    made = _extension().create(store, rank, size, timeout)
    _unname_shared_memory()
    return made


def _take(choice: Choice, rank: int) -> None:
    """Decides how oneCCL starts, once in a process."""
    global _taken
    _taken = choice
    settings.apply(settings.settings(library.find(), choice))
    log.log(logging.INFO if rank == 0 else logging.DEBUG, "ccl: %s", choice)


@cache
def _unname_shared_memory() -> None:
    """After the first group: libfabric never removes the name of a rank's shared memory, not even at a proper
    end. To make a group every rank has sent something to every other, so all have it mapped, and what has no
    name is gone with the last process that uses it."""
    for file in SHARED.glob(f"{os.getpid()}:*"):
        file.unlink(missing_ok=True)


@cache
def _extension() -> Any:
    library.load(library.find().oneccl)
    return importlib.import_module(_EXTENSION)


@cache
def _intels() -> Any:
    """The function by which Intel's package makes groups; importing it registers that in place of ours."""
    importlib.import_module(BINDINGS)
    return dist.Backend._plugins["CCL"].creator_fn
