"""Loaders over edges in files: larger ones than they may hold, and those by destination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, machine, ops
from pyg_batchgnn.data import Dataset, read_folder, write_folder
from pyg_batchgnn.loader import setup
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample import DiskSampler, PygNeighborSampler
from pyg_batchgnn.store import typed_graph_from_pyg
from tests.data.test_edges import by_destination
from tests.loader.test_on_disk import NOTHING, WRITES, timed, typed
from tests.support.loader_cases import NODES, assert_same, make_data, make_loader
from tests.support.mapped_data import mapped, with_files
from tests.support.tiers import each
from tests.support.tiny_datasets import tiny_dataset
from tests.support.typed_datasets import CASES, typed_dataset

pytestmark = pytest.mark.filterwarnings("ignore:memory_budget leaves", "ignore:the loader may hold")


@pytest.fixture(autouse=True)
def _no_room_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "cache_holds", lambda *_: False)


def with_edges_in_files(data: Any, folder: Path) -> Any:
    found, graph = data.clone(), typed_graph_from_pyg(data)
    stores = [found] if isinstance(data, Data) else [found[name] for name in graph.schema.relations]
    for number, (store, edges) in enumerate(zip(stores, graph.relations, strict=True)):
        arrays = [edges.indptr, edges.indices, edges.explicit_edge_ids()]
        store.adj_t = InEdges(*(mapped(one, folder / f"{number}-{at}.npy") for at, one in enumerate(arrays)))
        del store.edge_index
    return found


def is_read_from_files(loader: Any) -> bool:
    return isinstance(loader._setup.pipeline.sampler, DiskSampler)


def ends(count: int, nodes: tuple[int, int]) -> Tensor:
    draws = torch.Generator().manual_seed(4)
    return torch.stack([torch.randint(most, (count,), generator=draws) for most in nodes])


def links(data: Any, **sizes: Any) -> MacrobatchLinkNeighborLoader:
    given = {"batch_size": 40, "seed": 3, "edge_label_index": ends(120, (NODES, NODES)), **sizes}
    return MacrobatchLinkNeighborLoader(data, [4, 3], **given)


MODES: dict[str, Any] = {
    "plain": lambda data, **sizes: make_loader(data, shuffle=True, **sizes),
    "all": lambda data, **sizes: make_loader(data, (-1, 0.5), **sizes),
    "replace": lambda data, **sizes: make_loader(data, replace=True, **sizes),
    "disjoint": lambda data, **sizes: make_loader(data, disjoint=True, **sizes),
    "timed": lambda data, **sizes: make_loader(data, time_attr="time", freeze=5, **sizes),
    "weighted": lambda data, **sizes: make_loader(data, weight_attr="weight", **sizes),
    "links": lambda data, **sizes: links(data, neg_sampling="binary", **sizes),
    "excluded": lambda data, **sizes: links(data, neg_sampling="triplet", exclude_seed_edges=True, **sizes),
}
SIZES: list[dict[str, Any]] = [
    {"macrobatch_size": 1, "fetch_size": 1},
    {"macrobatch_size": 4, "fetch_size": 3, "prefetch": 1},
    {"macrobatch_size": "auto", "fetch_size": "auto", "prefetch": 1, "threads": 2},
]


@each
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: str(sizes["macrobatch_size"]))
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("mode", MODES)
def test_batches_are_those_in_memory(mode: str, export: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    data = timed()
    found = MODES[mode](with_edges_in_files(data, tmp_path), export=export, memory_budget=NOTHING, **sizes)
    expected = MODES[mode](data, export=export, **sizes)
    assert is_read_from_files(found) and not is_read_from_files(expected)
    for _ in range(2):
        assert_same(found, expected, ignore=("adj_t",))
    counts = found.stats().total
    assert counts.topology_bytes > 4 * counts.topology_edges / 100 > 0
    assert counts.topology_operations and counts.topology_seconds
    assert not expected.stats().total.topology_edges


@pytest.mark.parametrize("of", ["nodes", "links"])
def test_typed_batches_are_those_in_memory(of: str, tmp_path: Path) -> None:
    def loader(data: HeteroData, **budget: Any) -> Any:
        if of == "nodes":
            return make_loader(data, input_nodes="paper", **budget)
        pairs, others = (WRITES, ends(90, (80, 200))), {"batch_size": 30, "neg_sampling": "binary", "seed": 5}
        return MacrobatchLinkNeighborLoader(data, [4, 3], pairs, **others, **budget)

    data = typed()
    found = loader(with_edges_in_files(data, tmp_path), memory_budget=NOTHING)
    assert is_read_from_files(found)
    assert_same(found, loader(data), ignore=("adj_t",))


def test_edges_and_features_in_files(tmp_path: Path) -> None:
    """Epochs are looked ahead by the same sampler."""
    data = make_data()
    files = with_files(with_edges_in_files(data, tmp_path), tmp_path)
    found = make_loader(files, memory_budget=NOTHING, shuffle=True, prefetch=1)
    expected = make_loader(data, shuffle=True)
    for _ in range(2):
        assert_same(found, expected, ignore=("adj_t",))
    counts = found.stats().total
    assert is_read_from_files(found) and counts.minibatches_ahead
    assert counts.topology_edges >= 2 * counts.edges  # the epoch is sampled twice, and some have ids


IN_PLACE = {"features": "in_place", "export": "native", "memory_budget": None}


@pytest.mark.parametrize(
    "why", [{"memory_budget": 1 << 30}, {"num_workers": 1}, {"labor": "layers"}, IN_PLACE]
)
def test_what_stays_over_the_mapping(why: dict[str, Any], tmp_path: Path) -> None:
    files = with_edges_in_files(make_data(), tmp_path)
    loader = make_loader(files, **{"memory_budget": NOTHING, **why})
    assert not is_read_from_files(loader)


@pytest.mark.parametrize(("beside", "is_read"), [(0.0, True), (1.0, True), (2.0, False)])
def test_edges_that_the_page_cache_holds_are_mapped(
    beside: float, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a block for each pick is slower than reading each page once."""
    data = with_edges_in_files(make_data(), tmp_path)
    size = sum(one.nbytes for one in (data.adj_t.indptr, data.adj_t.indices, data.adj_t.edge_ids))
    monkeypatch.undo()
    budget = size // 2
    memory = machine.Memory(1 << 40, budget + int(beside * size))
    monkeypatch.setattr(machine, "memory", lambda: memory)
    loader = make_loader(data, memory_budget=budget, macrobatch_size=1, fetch_size=1)
    expected = make_loader(make_data(), macrobatch_size=1, fetch_size=1)
    assert is_read_from_files(loader) is is_read
    assert all(torch.equal(one.e_id, other.e_id) for one, other in zip(loader, expected, strict=True))


def test_macrobatches_leave_room_for_reading(tmp_path: Path) -> None:
    data = make_data(2000, 400_000)  # 3.2 MB
    sizes = {"batch_size": 64, "macrobatch_size": "auto", "fetch_size": 1, "memory_budget": 3_000_000}
    loaders = [make_loader(one, (8, 4), **sizes) for one in (data, with_edges_in_files(data, tmp_path))]
    assert 1 < loaders[1].sizes.macrobatch < loaders[0].sizes.macrobatch


def folders(tmp_path: Path, dataset: Dataset) -> list[Any]:
    listed = read_folder(write_folder(dataset, tmp_path / "list"))
    by_target = read_folder(write_folder(by_destination(dataset), tmp_path / "csc"))
    return [listed.to_pyg(), by_target.to_pyg()]


@each
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
