"""All nodes of a graph of one node type and one relation, whether these have names or not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.nn import SAGE
from tests.support.rank_graphs import stores_of
from tests.support.thread_ranks import run_threads

NODES, RELATION = 10, ("user", "follows", "user")


def plain() -> Data:
    draw = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES, (2, 40), generator=draw)
    return Data(x=torch.randn(NODES, 4, generator=draw), edge_index=edge_index)


def named() -> HeteroData:
    data = HeteroData()
    data["user"].x, data[RELATION].edge_index = plain().x, plain().edge_index
    return data


def named_stores() -> tuple[MyFeatureStore, MyGraphStore]:
    features, graphs = MyFeatureStore(), MyGraphStore()
    source, target = plain().edge_index
    features.put_tensor(plain().x, group_name="user", attr_name="x", index=None)
    graphs.put_edge_index((source, target), edge_type=RELATION, layout="coo", size=(NODES, NODES))
    return features, graphs


MODEL = SAGE(4, 5, 2, 3).eval()


def inferred(data: Any, nodes: Any) -> tuple[Tensor, Tensor]:
    """Returns the original ids of the nodes of this process, and their rows."""
    loader = MacrobatchNeighborLoader(data, [2, 2], nodes, batch_size=4, seed=0)
    return loader.all_nodes().node, copy.deepcopy(MODEL).inference(loader)


@pytest.mark.parametrize("make", [named, named_stores])
def test_names_of_one_type_do_not_matter(make: Any) -> None:
    assert torch.equal(inferred(make(), "user")[1], inferred(plain(), None)[1])


def test_names_of_one_type_do_not_matter_over_ranks() -> None:
    def rank(comm: Communicator) -> tuple[Tensor, Tensor]:
        return inferred(stores_of(comm, named(), "random"), "user")

    _, wanted = inferred(plain(), None)
    for node, rows in run_threads(rank, 2):
        assert torch.allclose(rows, wanted[node], atol=1e-6)


def test_models_of_one_relation_refuse_several() -> None:
    data = named()
    data["user", "likes", "user"].edge_index = plain().edge_index
    with pytest.raises(ValueError, match=r"relations .*'likes'.*to_hetero"):
        inferred(data, "user")
