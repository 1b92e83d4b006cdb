"""Making process groups of the backend "ccl". torch.distributed calls `create` for each group."""

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
from pyg_batchgnn.comm.ccl.facts import SHARED, RankFacts, exchange_facts
from pyg_batchgnn.comm.ccl.library import CclMissingError
from pyg_batchgnn.comm.ccl.transport import TransportChoice, choose_transport

log = logging.getLogger(__name__)

#: The package with Intel's own backend, which is used where it is installed.
BINDINGS = "oneccl_bindings_for_pytorch"
_EXTENSION = "pyg_batchgnn._ccl"

_chosen: TransportChoice | None = None  # set when oneCCL starts in this process


def chosen_transport() -> TransportChoice | None:
    """Returns the transport with which this process has started oneCCL, or None before that."""
    return _chosen


def why_unavailable() -> str | None:
    """Returns what the backend lacks here and what to do about it, or None where it works."""
    if importlib.util.find_spec(BINDINGS):
        return None
    if importlib.util.find_spec(_EXTENSION) is None:
        return (
            "it is not built; from a checkout of pyg_batchgnn: PYG_BATCHGNN_CCL=1 pip install '.[ccl]', or "
            "make install CCL=1"
        )
    try:
        library.find_libraries()
    except CclMissingError as error:
        return str(error)
    return None


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Makes a backend for a group. Collective. Called by torch.distributed.

    Args:
        store: the group's own part of torch's store.
        rank, size: the rank of this process in the group, and the number of ranks.
        timeout: for every collective, and for making the group.

    Raises:
        CclMissingError: the backend is not built, or a library is not installed.
        TimeoutError: a rank did not come.
        RuntimeError: an error of oneCCL.
    """
    if importlib.util.find_spec(BINDINGS):
        return _intels_create()(store, rank, size, timeout)
    if problem := why_unavailable():
        raise CclMissingError(f"backend 'ccl': {problem}")
    own = RankFacts.own(None if _chosen is None else _chosen.shared)
    ranks = exchange_facts(store, rank, size, timeout, own)
    choice = choose_transport(ranks, own, whole_world=size == int(os.environ.get("WORLD_SIZE", size)))
    if _chosen is None:
        _configure(choice, rank)
    made = _extension().create(store, rank, size, timeout)
    _unname_shared_memory()
    return made


def rest() -> None:
    """Ends the backend's own threads. Called at the end of the process, after the last collective.

    A thread that frees a tensor while the interpreter ends is taken out of the process by
    ``std::terminate``, and the job would fail after all its work.
    """
    if _extension.cache_info().currsize:
        _extension().rest()


def _configure(choice: TransportChoice, rank: int) -> None:
    """Sets the environment with which oneCCL starts, once per process."""
    global _chosen
    _chosen = choice
    settings.apply(settings.settings(library.find_libraries(), choice))
    log.log(logging.INFO if rank == 0 else logging.DEBUG, "ccl: %s", choice)


@cache
def _unname_shared_memory() -> None:
    """Removes the name of this rank's shared memory, after the first group is made.

    libfabric never removes the name, not even when the process ends properly. When a group is made,
    every rank has sent something to every other rank, so all of them have mapped the memory.
    Without a name, the memory is freed with the last process that uses it.
    """
    for file in SHARED.glob(f"{os.getpid()}:*"):
        file.unlink(missing_ok=True)


@cache
def _extension() -> Any:
    library.load(library.find_libraries().oneccl)
    return importlib.import_module(_EXTENSION)


@cache
def _intels_create() -> Any:
    """Returns the function with which Intel's package makes groups. Importing the package registers
    it in place of ours."""
    importlib.import_module(BINDINGS)
    return dist.Backend._plugins["CCL"].creator_fn
