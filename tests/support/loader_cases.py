"""Small graphs with attributes of every kind, and what two batches must share to be the same."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch

NODES, EDGES = 300, 1800


def make_data(nodes: int = NODES, edges: int = EDGES, seed: int = 0, **attributes: Any) -> Data:
    """Returns a random multigraph; its features and edge attributes name their node or edge."""
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.arange(nodes * 4.0).view(nodes, 4),
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        edge_attr=torch.arange(edges * 2.0).view(edges, 2),
        y=torch.randint(-1, 5, (nodes,), generator=generator),
        **attributes,
    )


def make_loader(data: Any, fanouts: Iterable[int] = (4, 3), **kwargs: Any) -> MacrobatchNeighborLoader:
    """A loader with a fixed seed and sizes small enough that several macrobatches make an epoch."""
    chosen = {"batch_size": 32, "seed": 7, "macrobatch_size": 3, "fetch_size": 2, **kwargs}
    return MacrobatchNeighborLoader(data, list(fanouts), **chosen)


def contents(batch: Any) -> dict[Any, Any]:
    if isinstance(batch, Minibatch) and len(batch.nodes) > 1:
        batch = batch.to_data()
    if isinstance(batch, HeteroData):
        return {(store._key, name): value for store in batch.stores for name, value in store.items()}
    if isinstance(batch, Minibatch):
        held = {name: batch.attribute(name) for name in batch.block}
        held |= {"n_id": batch.node, "edge_index": batch.edge_index, "e_id": batch.edge}
        held |= {"input_id": batch.input_id, "batch_size": batch.batch_size}
        return held | {"num_sampled_nodes": batch.nodes_per_hop, "num_sampled_edges": batch.edges_per_hop}
    return dict(batch._store.items())


def equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        if one.layout is torch.sparse_csr:
            return all(
                equal(part(one), part(other))
                for part in (Tensor.crow_indices, Tensor.col_indices, Tensor.values)
            )
        return one.dtype is other.dtype and torch.equal(one, other)
    if dataclasses.is_dataclass(type(one)):
        return all(equal(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def assert_same(some: Any, others: Any, ignore: Collection[str] = ()) -> None:
    some, others = list(some), list(others)
    assert len(some) == len(others)
    for number, (one, other) in enumerate(zip(some, others, strict=True)):
        left, right = contents(one), contents(other)
        names = left.keys() | right.keys()
        names = {name for name in names if (name if isinstance(name, str) else name[1]) not in ignore}
        different = [name for name in names if not equal(left.get(name), right.get(name))]
        assert not different, f"minibatch {number} differs in {different}"


def seeds_of(batches: Iterable[Any]) -> list[list[int]]:
    return [batch.n_id[: batch.batch_size].tolist() for batch in batches]


def flat(lists: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))
