"""Attributes of a partitioned graph that decide how it is sampled, checked on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group
from pyg_batchgnn.store.dist_features import DistFeatureStore

T = TypeVar("T")


def own_attribute(store: DistFeatureStore, name: str) -> dict[Group, Tensor]:
    """Returns a rank's own rows of an attribute, by group; groups without it are left out.

    Nodes are in the order of the part, edges in that of its in-edges.
    """
    return {group: tables[name] for group, tables in store.own.attributes.items() if name in tables}


def on_all_ranks(comm: Communicator, work: Callable[[], T]) -> T:
    """Does work that may find values that cannot be. Collective.

    Raises:
        ValueError: on all ranks if on one, with the text of the first.
    """

    def error(problems: Mapping[int, str]) -> ValueError:
        rank, text = next(iter(problems.items()))
        return ValueError(text if len(problems) == comm.size else f"rank {rank}: {text}")

    return comm.run_together(work, catch=(ValueError,), error=error)
