"""Ranks whose loaders are made with different arguments are told so at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, Communicator
from tests.support.rank_graphs import GRAPHS, stores_of
from tests.support.thread_ranks import run_threads

#: By name, the arguments of the first rank and of the second one.
SAMPLING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "is_sorted": ({"time_attr": "time", "is_sorted": True}, {"time_attr": "time"}),
    "time_attr": ({"time_attr": "time"}, {"time_attr": "stamp"}),
    "weight_attr": ({"weight_attr": "weight"}, {}),
}


def refused(comm: Communicator, name: str, kind: type, arguments: Mapping[str, Any]) -> None:
    """Makes a loader of the plain graph, and expects that the ranks disagree about ``name``."""
    stores = stores_of(comm, GRAPHS["plain"], "random")
    with pytest.raises(AgreementError, match=name):
        kind(stores, [2], **arguments)


@pytest.mark.parametrize("name", SAMPLING)
def test_the_rules_of_sampling(name: str) -> None:
    run_threads(lambda comm: refused(comm, name, MacrobatchNeighborLoader, SAMPLING[name][comm.rank]), 2)
