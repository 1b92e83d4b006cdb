"""Typed batches have the attributes that PyG's own filter gives, whatever was sampled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader.utils import filter_hetero_data as pygs_filter
from torch_geometric.sampler import HeteroSamplerOutput
from torch_geometric.utils import to_torch_csr_tensor

from pyg_batchgnn.loader.filter import Gatherer, filter_hetero_data
from tests.support.hetero_cases import CITES, COUNTS, RELATIONS, assert_same, make_hetero


def random_sample(data: HeteroData, generator: torch.Generator, edges: bool = True) -> HeteroSamplerOutput:
    """A made-up sample: some nodes of each type and edges between them, or none at all."""

    def some(limit: int, most: int) -> Tensor:
        number = int(torch.randint(most + 1, (), generator=generator)) if limit else 0
        return torch.randint(max(limit, 1), (number,), generator=generator)

    node = {name: some(COUNTS[name], 9) for name in data.node_types}
    row, col, edge = {}, {}, {}
    for relation in data.edge_types:
        source, _, target = relation
        limit = RELATIONS[relation] if node[source].numel() and node[target].numel() else 0
        edge[relation] = some(limit, 12)
        for end, name in ((row, source), (col, target)):
            end[relation] = torch.randint(max(node[name].numel(), 1), edge[relation].shape)
    return HeteroSamplerOutput(node, row, col, edge if edges else dict.fromkeys(edge))


@pytest.mark.parametrize("edges", [True, False])
def test_the_same_as_pygs_filter(edges: bool) -> None:
    data, generator = make_hetero(), torch.Generator().manual_seed(1)
    for _ in range(20):
        out = random_sample(data, generator, edges)
        theirs = pygs_filter(data, out.node, out.row, out.col, out.edge)
        assert_same([filter_hetero_data(data, out, Gatherer(1))], [theirs])


def test_types_that_a_hook_left_out_are_empty() -> None:
    data = make_hetero()
    out = random_sample(data, torch.Generator().manual_seed(2))
    for part in (out.row, out.col, out.edge):
        del part[CITES]
    batch = filter_hetero_data(data, out, Gatherer(1))
    assert batch[CITES].edge_index.shape == (2, 0) and batch[CITES].edge_attr.shape == (0, 2)


def test_adj_t_between_two_types() -> None:
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 5, 4
    adj_t = to_torch_csr_tensor(torch.tensor([[0, 2, 2], [1, 3, 4]]), torch.arange(3.0), size=(4, 5))
    data["a", "to", "b"].adj_t = adj_t
    key: Any = ("a", "to", "b")
    out = HeteroSamplerOutput(
        {"a": torch.tensor([4, 3]), "b": torch.tensor([2])},
        {key: torch.tensor([0, 1])},
        {key: torch.tensor([0, 0])},
        {key: torch.tensor([2, 1])},
    )
    sampled = filter_hetero_data(data, out, Gatherer(1))[key].adj_t
    assert sampled.shape == (1, 2) and sampled.to_dense().tolist() == [[2.0, 1.0]]
