"""Ranks whose loaders are made with different arguments are told so at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, Communicator
from tests.support.rank_graphs import GRAPHS, stores_of
from tests.support.thread_ranks import run_threads

#: By name, the arguments of the first rank and of the second one.
SAMPLING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "is_sorted": ({"time_attr": "time", "is_sorted": True}, {"time_attr": "time"}),
    "time_attr": ({"time_attr": "time"}, {"time_attr": "stamp"}),
    "weight_attr": ({"weight_attr": "weight"}, {}),
}
EDGES = GRAPHS["plain"].edge_index
LABELS = torch.arange(EDGES.size(1))
TIMED = {"edge_label_index": EDGES, "edge_label_time": LABELS % 9 + 3, "time_attr": "time"}


def weighted(**weights: Any) -> dict[str, Any]:
    """Returns the arguments of links with times and negatives that are drawn by weight."""
    ones = torch.ones(GRAPHS["plain"].num_nodes)
    both = {"src_weight": ones, "dst_weight": ones, **weights}
    return {**TIMED, "neg_sampling": NegativeSampling("binary", 1, **both)}


#: The same of loaders of links. Some have a name twice.
LINKS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("edge_label_index", {}, {"edge_label_index": EDGES}),
    ("edge_label_index", {"edge_label_index": EDGES}, {"edge_label_index": EDGES.flip(1)}),
    ("edge_label", {"edge_label": LABELS}, {}),
    ("edge_label", {"edge_label": LABELS}, {"edge_label": LABELS + 1}),
    ("edge_label", {"edge_label": LABELS}, {"edge_label": LABELS.float()}),
    ("edge_label", {"edge_label": LABELS}, {"edge_label": LABELS.view(-1, 1)}),
    ("edge_label_time", TIMED, {**TIMED, "edge_label_time": LABELS % 9 + 4}),
    ("src_weight", weighted(), weighted(src_weight=None)),
    ("dst_weight", weighted(), weighted(dst_weight=torch.arange(GRAPHS["plain"].num_nodes) / 7)),
]


def refused(comm: Communicator, name: str, kind: type, arguments: Mapping[str, Any]) -> None:
    """Makes a loader of the plain graph, and expects that the ranks disagree about ``name``."""
    stores = stores_of(comm, GRAPHS["plain"], "random")
    with pytest.raises(AgreementError, match=name):
        kind(stores, [2], **arguments)


@pytest.mark.parametrize("name", SAMPLING)
def test_the_rules_of_sampling(name: str) -> None:
    run_threads(lambda comm: refused(comm, name, MacrobatchNeighborLoader, SAMPLING[name][comm.rank]), 2)


@pytest.mark.parametrize(("name", "first", "second"), LINKS, ids=[name for name, _, _ in LINKS])
def test_links(name: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    run_threads(
        lambda comm: refused(comm, f"{name}: ", MacrobatchLinkNeighborLoader, (first, second)[comm.rank]), 2
    )


def test_the_digest_of_all_edges_is_that_of_one_process() -> None:
    graph = GRAPHS["plain"]
    wanted = digest_of(graph, {})

    def over_ranks(comm: Communicator) -> list[Any]:
        return [digest_of(stores_of(comm, graph, "random", hybrid), {}) for hybrid in (False, True)]

    assert run_threads(over_ranks, 3) == [[wanted, wanted]] * 3
    assert digest_of(graph, {"edge_label_index": EDGES}) == wanted
    others = graph.clone()
    others.edge_index = EDGES.clone()
    others.edge_index[0, 5] = (EDGES[0, 5] + 1) % graph.num_nodes
    assert run_threads(lambda comm: digest_of(stores_of(comm, others, "random"), {}), 2) != [wanted] * 2


def digest_of(data: Any, links: dict[str, Any]) -> Any:
    loader = MacrobatchLinkNeighborLoader(data, [2], **links, seed=1)
    return loader.state_dict()["settings"]["links_digest"]
