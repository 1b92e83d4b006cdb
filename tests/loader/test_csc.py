"""Minibatches of a folder by destination equal those of a list of the same edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, ops
from pyg_batchgnn.data import Dataset, read_folder, write_folder
from pyg_batchgnn.sample import PygNeighborSampler
from tests.data.test_csc import by_destination
from tests.support.loader_cases import assert_same
from tests.support.tiny_datasets import tiny_dataset
from tests.support.typed_datasets import CASES, typed_dataset


def folders(tmp_path: Path, dataset: Dataset) -> list[Any]:
    """Returns the same graph from a folder with a list of edges, and from one by destination."""
    listed = read_folder(write_folder(dataset, tmp_path / "list"))
    by_target = read_folder(write_folder(by_destination(dataset), tmp_path / "csc"))
    return [listed.to_pyg(), by_target.to_pyg()]


@pytest.mark.parametrize("case", [None, CASES[0]])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}, {"subgraph_type": "induced"}])
def test_minibatches_are_equal(tmp_path: Path, case: tuple | None, options: dict[str, Any]) -> None:
    dataset = tiny_dataset() if case is None else typed_dataset(*case)
    typed = case is not None
    seeds = (dataset.node_sets[0].name, None) if typed else None

    def batches(data: Any) -> list[Any]:
        loader = MacrobatchNeighborLoader(
            data, [3, 2], input_nodes=seeds, batch_size=4, shuffle=True, seed=3, macrobatch_size=3, **options
        )
        return list(loader)

    listed, by_target = (batches(data) for data in folders(tmp_path, dataset))
    assert len(listed) == len(by_target) > 3
    assert_same(listed, by_target, ignore=("adj_t",))


@pytest.mark.parametrize("case", [None, CASES[0]])
def test_minibatches_of_links_are_equal(tmp_path: Path, case: tuple | None) -> None:
    dataset = tiny_dataset() if case is None else typed_dataset(*case)
    edges = dataset.edge_sets[0]
    links = edges.edge_index[:, :20]

    def batches(data: Any) -> list[Any]:
        index = links if case is None else (edges.relation, links)
        sampling = NegativeSampling("binary", 1.0)
        return list(
            MacrobatchLinkNeighborLoader(data, [3, 2], index, neg_sampling=sampling, batch_size=5, seed=3)
        )

    listed, by_target = (batches(data) for data in folders(tmp_path, dataset))
    assert len(listed) == len(by_target) == 4
    assert_same(listed, by_target, ignore=("adj_t",))


@pytest.mark.parametrize(
    "options",
    [{"weight_attr": "weight"}, {"time_attr": "time", "input_time": torch.arange(20) * 40}],
)
def test_weights_and_times_are_those_of_the_edges(tmp_path: Path, options: dict[str, Any]) -> None:
    draw = torch.Generator().manual_seed(1)
    edges = {"weight": torch.rand(60, generator=draw), "time": torch.randint(0, 800, (60,), generator=draw)}
    dataset = tiny_dataset()
    dataset = Dataset.homogeneous("timed", 20, dataset.edge_index, nodes=dataset.nodes.tables, edges=edges)
    found = []
    for data in folders(tmp_path, dataset):
        loader = MacrobatchNeighborLoader(
            data, [2, 2], input_nodes=torch.arange(20), batch_size=4, seed=3, **options
        )
        found.append(list(loader))
    assert any(len(batch.e_id) for batch in found[0])
    assert_same(*found, ignore=("adj_t",))


def test_no_array_is_copied(tmp_path: Path) -> None:
    """The sampler reads the mapped files: no index is copied, and no list is made."""
    dataset = read_folder(write_folder(by_destination(tiny_dataset()), tmp_path / "csc"))
    edges = dataset.edges.csc
    assert edges is not None
    assert edges.indices.dtype is torch.int32
    graph = PygNeighborSampler(dataset.to_pyg(), [3, 2]).graph.relations[0]
    for one, other in ((edges.indptr, graph.indptr), (edges.indices, graph.indices)):
        assert one.data_ptr() == other.data_ptr()


def test_positions_are_ids_without_edge_ids(tmp_path: Path) -> None:
    dataset = tiny_dataset()
    csc = ops.build_csc(dataset.edge_index, dataset.num_nodes)
    plain = Dataset.homogeneous("plain", dataset.num_nodes, ops.InEdges(csc.indptr, csc.indices))
    data = read_folder(write_folder(plain, tmp_path / "csc")).to_pyg()
    index = plain.edge_index
    for batch in MacrobatchNeighborLoader(data, [3], batch_size=4, seed=1):
        assert torch.equal(batch.n_id[batch.edge_index], index[:, batch.e_id])
