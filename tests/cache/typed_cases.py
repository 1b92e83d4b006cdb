"""Typed graphs with aggregations by relation, and what PyG makes of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SimpleConv

from pyg_batchgnn.data import Dataset, Relation
from tests.support.reference_aggregates import by_pyg
from tests.support.typed_datasets import CASES, typed_dataset

WRITES = ("author", "writes", "paper")
CITES, CITED = ("paper", "cites", "paper"), ("paper", "rev_cites", "paper")
#: Data sets, and the aggregation of each relation.
CACHED: list[tuple[Dataset, dict[Relation, str]]] = [
    (typed_dataset(*CASES[0]), {WRITES: "mean"}),
    (typed_dataset(*CASES[1]), {WRITES: "sum"}),
    (typed_dataset(*CASES[3]), {CITES: "symmetric", CITED: "mean"}),
    (typed_dataset(*CASES[3]), {CITED: "sum"}),
]


def wanted(data: HeteroData, relation: Relation, kind: str) -> Tensor:
    """[N_t, F] in float64, by PyG."""
    x, edges = data[relation[0]].x, data[relation].edge_index.long()
    if kind == "symmetric":
        return by_pyg(kind, Data(x=x, edge_index=edges))
    targets = torch.empty(data[relation[2]].num_nodes, 0)
    return SimpleConv(aggr=kind)((x.double(), targets.double()), edges, size=(len(x), len(targets)))
