"""Small graphs of several node types and relations, with attributes of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader

COUNTS = {"paper": 60, "author": 40, "venue": 1, "lonely": 7}
CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
REV_WRITES = ("paper", "rev_writes", "author")
#: Relations and their numbers of edges. Nothing leads to "lonely".
RELATIONS = {
    CITES: 300,
    WRITES: 150,
    REV_WRITES: 150,
    ("paper", "at", "venue"): 60,
    ("lonely", "likes", "paper"): 20,
    ("author", "knows", "author"): 0,
}


#: Seeds of two types: 14 authors and 30 papers.
BOTH = {"author": torch.arange(0, 40, 3), "paper": torch.arange(60) % 2 == 0}


def edges_of(counts: dict[str, int], relation: tuple[str, str, str], number: int, seed: int) -> Tensor:
    """Returns random edges of a relation, [2, number]; ids are below the counts of their types."""
    generator = torch.Generator().manual_seed(seed)
    source, _, target = relation
    ends = [torch.randint(max(counts[name], 1), (number,), generator=generator) for name in (source, target)]
    return torch.stack(ends)


def make_hetero(seed: int = 0) -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.arange(COUNTS["paper"] * 3.0).view(-1, 3)
    data["paper"].y = torch.arange(COUNTS["paper"])
    data["paper"].train_mask = torch.arange(COUNTS["paper"]) % 3 == 0
    data["author"].num_nodes = COUNTS["author"]
    data["venue"].x = torch.ones(1, 2)
    data["lonely"].x = np.arange(COUNTS["lonely"] * 2.0).reshape(-1, 2)
    data["lonely"].name = "the lonely ones"
    data.about = "everything"
    for place, (relation, number) in enumerate(RELATIONS.items()):
        data[relation].edge_index = edges_of(COUNTS, relation, number, 10 * seed + place)
    data[REV_WRITES].edge_index = data[WRITES].edge_index.flip(0)
    data[CITES].edge_attr = torch.arange(RELATIONS[CITES] * 2.0).view(-1, 2)
    data[WRITES].order = torch.arange(RELATIONS[WRITES]).to(torch.int16)
    return data


def make_timed() -> HeteroData:
    data = make_hetero()
    data["paper"].time = torch.arange(60) % 10
    for number, relation in enumerate((CITES, WRITES)):
        data[relation].stamp = (torch.arange(RELATIONS[relation]) * 7 + number) % 10
        data[relation].weight = torch.arange(RELATIONS[relation]) % 3 / 2
    return data


def as_hetero(data: Data, node_type: str = "thing", name: str = "knows") -> HeteroData:
    hetero = HeteroData()
    for key, value in data._store.items():
        is_edge = key == "edge_index" or data.is_edge_attr(key)
        store = hetero[node_type, name, node_type] if is_edge else hetero[node_type]
        store[key] = value
    return hetero


def make_loader(data: Any, fanouts: Any = (4, 3), **kwargs: Any) -> MacrobatchNeighborLoader:
    """A loader with a fixed seed and sizes small enough that several macrobatches make an epoch."""
    chosen = {"batch_size": 8, "seed": 7, "macrobatch_size": 3, "fetch_size": 2, **kwargs}
    return MacrobatchNeighborLoader(data, list(fanouts) if isinstance(fanouts, tuple) else fanouts, **chosen)


def check_batch(data: HeteroData, batch: HeteroData) -> None:
    for name in data.node_types:
        nodes = batch[name].n_id
        assert sum(batch[name].num_sampled_nodes) == nodes.numel()
        if "x" in data[name]:
            assert torch.equal(torch.as_tensor(batch[name].x), torch.as_tensor(data[name].x)[nodes])
    for relation in data.edge_types:
        source, _, target = relation
        row, col = batch[relation].edge_index
        ends = torch.stack([batch[source].n_id[row], batch[target].n_id[col]])
        assert torch.equal(ends, data[relation].edge_index[:, batch[relation].e_id])
        assert sum(batch[relation].num_sampled_edges) == row.numel()
    assert torch.equal(batch[CITES].edge_attr, data[CITES].edge_attr[batch[CITES].e_id])
