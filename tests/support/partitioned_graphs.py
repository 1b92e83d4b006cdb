"""Whole graphs, awkward ones among them, and ways to spread them over ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.partition import Part
from tests.support.reference_partition import split_graph


@dataclass(frozen=True)
class Case:
    """A graph and who owns its nodes.

    Attributes:
        nodes, edges: how many.
        owners: "random", "contiguous", "one" (the last rank owns everything) or "hole" (rank 0 owns
            nothing).
        training: how many training nodes; "few" leaves most ranks without any.
    """

    name: str
    nodes: int = 120
    edges: int = 900
    owners: str = "random"
    training: str = "half"
    seed: int = field(default=0)


CASES = (
    Case("random"),
    Case("contiguous", owners="contiguous"),
    Case("all on one rank", owners="one"),
    Case("a rank without nodes", owners="hole", edges=500),
    Case("few training nodes", training="few"),
    Case("no edges", nodes=30, edges=0),
    Case("one node", nodes=1, edges=3),
)


def whole(case: Case) -> Data:
    """The graph in one process, with attributes that tell whose they are."""
    draw = torch.Generator().manual_seed(case.seed)
    nodes, edges = case.nodes, case.edges
    train = torch.rand(nodes, generator=draw) < 0.5
    if case.training == "few":
        train = torch.arange(nodes) % 50 == 3
    targets = torch.randint(nodes, (edges,), generator=draw)
    targets[: edges // 4] = 0  # a hub
    return Data(
        x=torch.randn(nodes, 5, generator=draw),
        edge_index=torch.stack([torch.randint(nodes, (edges,), generator=draw), targets]),
        edge_attr=torch.randn(edges, 3, generator=draw),
        edge_kind=torch.randint(100, (edges,), generator=draw, dtype=torch.int16),
        y=torch.randint(0, 7, (nodes,), generator=draw),
        train_mask=train,
    )


def owners(case: Case, ranks: int) -> Tensor:
    draw = torch.Generator().manual_seed(case.seed + 1)
    if case.owners == "contiguous":
        return torch.arange(case.nodes) * ranks // max(case.nodes, 1)
    if case.owners == "one":
        return torch.full((case.nodes,), ranks - 1)
    low = 1 if case.owners == "hole" and ranks > 1 else 0
    return torch.randint(low, ranks, (case.nodes,), generator=draw)


def part_of(case: Case, ranks: int, rank: int, edge_attributes: bool = True) -> Part:
    data = whole(case)
    return split_graph(
        data.edge_index,
        owners(case, ranks),
        ranks,
        rank,
        tables={"x": data.x, "y": data.y},
        edge_tables={"edge_attr": data.edge_attr, "edge_kind": data.edge_kind} if edge_attributes else {},
        splits={"train": data.train_mask.nonzero().view(-1)},
    )
