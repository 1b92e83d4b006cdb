"""Typed remote stores, dtypes of ids, and the user's hook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from tests.support.hetero_cases import (
    BOTH,
    CITES,
    check_batch,
    make_hetero,
    make_loader,
    make_timed,
)

PAPERS = ("paper", None)


def stores_of(data: HeteroData) -> tuple[MyFeatureStore, MyGraphStore]:
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in data.node_types:
        for key, value in data[name].items():
            if isinstance(value, (Tensor, np.ndarray)):
                features.put_tensor(torch.as_tensor(value), group_name=name, attr_name=key, index=None)
    for relation in data.edge_types:
        source, _, target = relation
        size = (data[source].num_nodes, data[target].num_nodes)
        graph.put_edge_index(tuple(data[relation].edge_index), edge_type=relation, layout="coo", size=size)
        for key, value in data[relation].items():
            if key != "edge_index":
                features.put_tensor(value, group_name=relation, attr_name=key, index=None)
    return features, graph


@pytest.mark.parametrize("nodes", ["paper", PAPERS, BOTH])
def test_remote_stores_give_what_data_gives(nodes: Any) -> None:
    data = make_hetero()
    expected = list(make_loader(data, input_nodes=nodes))
    made = list(make_loader(stores_of(data), input_nodes=nodes, weight_attr=None))
    # The order of types is another one: first those with attributes. It may change local ids.
    for one, other in zip(made, expected, strict=True):
        for name in data.node_types:
            assert sorted(one[name].n_id.tolist()) == sorted(other[name].n_id.tolist())
        for relation in data.edge_types:
            assert sorted(one[relation].e_id.tolist()) == sorted(other[relation].e_id.tolist())
        check_batch(data, one)
        assert one["author"].num_nodes == one["author"].n_id.numel() and one["lonely"].x.shape[1] == 2


def test_remote_stores_have_times_weights_and_custom_classes() -> None:
    class Mine(HeteroData):
        pass

    stores = stores_of(make_timed())
    loader = make_loader(
        stores,
        input_nodes="paper",
        input_time=torch.full((60,), 5),
        time_attr="stamp",
        weight_attr="weight",
        custom_cls=Mine,
    )
    for batch in loader:
        assert type(batch) is Mine
        assert (batch[CITES].stamp <= 5).all() and (batch[CITES].weight > 0).all()


def test_native_minibatches_of_stores() -> None:
    data = make_hetero()
    minibatch = next(iter(make_loader(stores_of(data), input_nodes="paper", export="native")))
    rows = {group.name: rows for group, rows in minibatch.attributes.items()}
    node = minibatch.nodes_of("paper").node
    assert torch.equal(rows["paper"].tables["x"][rows["paper"].row], data["paper"].x[node])


def test_ids_have_the_dtype_of_the_edges() -> None:
    data = make_hetero()
    for relation in data.edge_types:
        data[relation].edge_index = data[relation].edge_index.int()
    wide = make_loader(make_hetero(), input_nodes="paper")
    for one, other in zip(make_loader(data, input_nodes="paper"), wide, strict=True):
        assert one["paper"].n_id.dtype is torch.int32 and one[CITES].edge_index.dtype is torch.int32
        assert one[CITES].e_id.dtype is torch.int64
        assert torch.equal(one["paper"].n_id, other["paper"].n_id.int())
        assert torch.equal(one[CITES].edge_index, other[CITES].edge_index.int())
        assert torch.equal(one["paper"].x, other["paper"].x)


def test_transform_sampler_output() -> None:
    def without_cites(out: Any) -> Any:
        none = torch.empty(0, dtype=torch.int64)
        out.row[CITES], out.col[CITES], out.edge[CITES] = none, none, none
        return out

    for batch in make_loader(make_hetero(), input_nodes="paper", transform_sampler_output=without_cites):
        assert batch[CITES].edge_index.shape == (2, 0) and batch[CITES].edge_attr.shape == (0, 2)
