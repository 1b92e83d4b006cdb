"""Graphs of edges in any order, of checked arrays, and of every form that PyG's loaders take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import to_torch_csr_tensor

from pyg_batchgnn import MacrobatchHGTLoader, MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, ops
from pyg_batchgnn.data import Dataset, DatasetError, load_dataset, write_folder
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.machine import Memory
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import partition
from pyg_batchgnn.sample import MacrobatchSampler, PygNeighborSampler, Replacement, SamplingPlan
from pyg_batchgnn.store import CscGraph, graph_from_pyg, typed_graph_from_pyg
from pyg_batchgnn.train.cli.app import main


def obvious_csc(edge_index: Tensor, num_nodes: int) -> tuple[list[int], list[int], list[int]]:
    pairs = edge_index.t().tolist()
    indptr, sources, ids = [0], [], []
    for node in range(num_nodes):
        for position, (source, destination) in enumerate(pairs):
            if destination == node:
                sources.append(source)
                ids.append(position)
        indptr.append(len(sources))
    return indptr, sources, ids


def ids_of(graph: CscGraph) -> list[int]:
    return list(range(graph.num_edges)) if graph.edge_ids is None else graph.edge_ids.tolist()


GRAPHS = {
    "no nodes": (0, []),
    "no edges": (4, []),
    "one self loop": (1, [(0, 0)]),
    "parallel edges and a self loop": (3, [(0, 2), (1, 2), (0, 2), (2, 2), (2, 0)]),
    "by destination already": (4, [(3, 0), (1, 1), (0, 1), (2, 3)]),
    "descending": (4, [(0, 3), (1, 2), (2, 1), (3, 0)]),
    "isolated ends": (6, [(2, 3), (3, 2), (2, 2)]),
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", GRAPHS)
def test_from_edge_index(name: str, dtype: torch.dtype) -> None:
    num_nodes, pairs = GRAPHS[name]
    edge_index = torch.tensor(pairs, dtype=dtype).view(-1, 2).t()
    graph = CscGraph.from_edge_index(edge_index, num_nodes)
    assert (graph.indptr.tolist(), graph.indices.tolist(), ids_of(graph)) == obvious_csc(
        edge_index, num_nodes
    )
    assert (graph.num_nodes, graph.num_edges) == (num_nodes, len(pairs))
    assert graph.indices.dtype is torch.int32


def test_a_large_edge_list_in_any_memory_layout() -> None:
    edge_index = torch.randint(70, (2, 5000), generator=torch.Generator().manual_seed(1))
    expected = obvious_csc(edge_index, 70)
    strided = edge_index.repeat_interleave(2, dim=1)[:, ::2]
    transposed = edge_index.t().contiguous().t()
    for given in (edge_index, strided, transposed):
        graph = CscGraph.from_edge_index(given, 70)
        assert (graph.indptr.tolist(), graph.indices.tolist(), ids_of(graph)) == expected


def test_sorted_edges_need_no_ids() -> None:
    graph = CscGraph.from_edge_index(torch.tensor([[3, 1, 0, 2], [0, 1, 1, 3]]), 4)
    assert graph.edge_ids is None


@pytest.mark.parametrize(
    ("edge_index", "num_nodes", "error", "words"),
    [
        (torch.tensor([[0], [3]]), 3, IndexError, ["edge_index[1]", "3", "0 to 2"]),
        (torch.tensor([[-1], [0]]), 3, IndexError, ["edge_index[0]", "-1"]),
        (torch.tensor([[0.0], [1.0]]), 3, TypeError, ["float32", ".to("]),
        (torch.tensor([0, 1]), 3, ValueError, ["[2, num_edges]", "[2]"]),
        (torch.zeros(3, 4, dtype=torch.long), 3, ValueError, ["[3, 4]"]),
    ],
)
def test_refused_edges(edge_index: Tensor, num_nodes: int, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        CscGraph.from_edge_index(edge_index, num_nodes)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("indptr", "indices", "edge_ids", "error", "words"),
    [
        ([], [], None, ValueError, ["0", "nowhere"]),
        ([0, 2], [0], None, ValueError, ["from 0", "(1)", "0 to 2"]),
        ([1, 2], [0, 0], None, ValueError, ["1 to 2"]),
        ([0, 2, 1, 3], [0, 1, 2], None, ValueError, ["ascend", "entry 2", "(1)", "below 2"]),
        ([0, 1, 2], [0, 2], None, IndexError, ["indices", "2", "0 to 1"]),
        ([0, 1, 2], [0, -1], None, IndexError, ["-1"]),
        ([0, 1, 2], [0, 1], [0], ValueError, ["edge_ids", "1 entries", "2 edges"]),
        ([0, 1, 2], [0, 1], [0, 2], IndexError, ["edge_ids", "2", "edge ids"]),
    ],
)
def test_refused_csc(
    indptr: list[int],
    indices: list[int],
    edge_ids: list[int] | None,
    error: type[Exception],
    words: list[str],
) -> None:
    as_tensor = lambda values: torch.tensor(values, dtype=torch.int64)  # noqa: E731
    with pytest.raises(error) as caught:
        CscGraph.from_csc(
            as_tensor(indptr), as_tensor(indices), None if edge_ids is None else as_tensor(edge_ids)
        )
    assert all(word in str(caught.value) for word in words), caught.value


def test_arrays_are_checked_when_a_graph_is_made_and_when_they_change() -> None:
    """Public objects never read foreign memory, also after a user has written to their arrays."""
    with pytest.raises(ValueError, match="must ascend"):
        CscGraph(InEdges(torch.tensor([0, 5, 3]), torch.zeros(3, dtype=torch.int32)))
    with pytest.raises(IndexError, match="indices holds 9"):
        CscGraph(InEdges(torch.tensor([0, 1]), torch.tensor([9])))
    graph = CscGraph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    sampler = MacrobatchSampler(graph, SamplingPlan((2,)))
    (minibatch,) = sampler.sample([torch.tensor([0])], 0)
    assert repr(minibatch) == "SampledMinibatch(batch_size=1, nodes=2, edges=1, epoch=0)"
    assert repr(graph) == "CscGraph(nodes=3, edges=3)"
    for array, error in ((graph.indices, IndexError), (graph.indptr, ValueError)):
        kept = int(array[1])
        array[1] = 10**6
        with pytest.raises(error, match="1000000"):
            sampler.sample([torch.tensor([0])], 0)
        array[1] = kept
        assert sampler.sample([torch.tensor([0])], 0)
    huge = MacrobatchSampler(graph, SamplingPlan((2**31 - 1,) * 2, Replacement.WITH))
    with pytest.raises(MemoryError, match="use smaller fanouts"):
        huge.sample([torch.zeros(4000, dtype=torch.int64)], 0)


EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
USER, BUYS = "user", ("user", "buys", "item")


def hashed(high: int) -> torch.Tensor:
    edges = EDGES.clone()
    edges[0, 2] = min(high, 2**63 - 1)
    return edges


def typed(count: int, high: int | None = None) -> HeteroData:
    data = HeteroData()
    data["item"].x, data[USER].num_nodes = torch.ones(3, 1), count
    data[BUYS].edge_index = EDGES if high is None else hashed(high)
    return data


def stores(count: int) -> tuple[MyFeatureStore, MyGraphStore]:
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in (USER, "item"):
        features.put_tensor(torch.ones(3, 1), group_name=name, attr_name="x", index=None)
    csc = torch.tensor([0, 1, count - 1]), torch.arange(4)
    graph.put_edge_index(csc, edge_type=BUYS, layout="csc", size=(count, 3))
    return features, graph


#: What is made of the high id, and the attribute that the error names.
CASES: dict[str, tuple[Callable[[int], Any], str]] = {
    "node": (lambda high: MacrobatchNeighborLoader(Data(edge_index=hashed(high)), [2]), r"edge_index\[0\]"),
    "link": (lambda high: MacrobatchLinkNeighborLoader(Data(edge_index=hashed(high)), [2]), "edge_index"),
    "sampler": (lambda high: PygNeighborSampler(Data(edge_index=hashed(high)), [2]), "edge_index"),
    "graph": (lambda high: CscGraph.from_edge_index(hashed(high), high + 1), "edge_index|num_nodes"),
    "partition": (lambda high: partition(Data(edge_index=hashed(high))), "pyg: edge_index"),
    "typed ids": (
        lambda high: MacrobatchNeighborLoader(typed(3, high), [2], input_nodes=USER),
        r"edges of \('user', 'buys', 'item'\): edge_index\[0\] holds",
    ),
    "count": (
        lambda high: MacrobatchNeighborLoader(Data(edge_index=EDGES, num_nodes=high), [2], [0]),
        "num_nodes is",
    ),
    "link count": (
        lambda high: MacrobatchLinkNeighborLoader(Data(edge_index=EDGES, num_nodes=high), [2]),
        "num_nodes is",
    ),
    "typed count": (
        lambda high: MacrobatchNeighborLoader(typed(high), [2], input_nodes="item"),
        r"data\['user'\].num_nodes is",
    ),
    "hgt": (
        lambda high: MacrobatchHGTLoader(typed(high), [2], input_nodes="item"),
        r"data\['user'\].num_nodes is",
    ),
    "stores": (
        lambda high: MacrobatchNeighborLoader(stores(high), [2], input_nodes=("item", [0])),
        "number of nodes of type 'user' is",
    ),
    "partition of types": (lambda high: partition(typed(high)), "num_nodes: is .* of type 'user'"),
    "embedding": (lambda high: Embedding(Data(edge_index=EDGES, num_nodes=high), 4), "number of nodes"),
    "input nodes": (
        lambda high: MacrobatchNeighborLoader(Data(edge_index=EDGES), [2], torch.tensor([high - 1])),
        "input_nodes holds",
    ),
    "links": (
        lambda high: MacrobatchLinkNeighborLoader(
            Data(edge_index=EDGES), [2], edge_label_index=hashed(high), batch_size=2
        ),
        "edge_label_index, ends of type 'node' holds",
    ),
}


@pytest.mark.parametrize("power", [40, 61, 63])
@pytest.mark.parametrize(("make", "words"), CASES.values(), ids=CASES)
def test_ids_and_counts_that_no_machine_holds_are_refused_by_name(
    make: Callable[[int], Any], words: str, power: int
) -> None:
    with pytest.raises((ValueError, IndexError), match=f"(?s)({words})") as raised:
        make(2**power)
    text = str(raised.value)
    assert str(2**power)[:-1] in text or str(2**63 - 1) in text or str(2**power - 1) in text
    assert "the number of nodes" in text or "torch.unique(ids, return_inverse=True)" in text


def test_a_folder_and_the_command_line_name_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "edge_index.npy", hashed(2**40).numpy())
    with pytest.raises(DatasetError, match=r"edge_index.npy: edge_index: holds the id 1099511627776"):
        load_dataset(tmp_path)
    for arguments in (["train", str(tmp_path)], ["partition", str(tmp_path), "--out", str(tmp_path / "p")]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        said = capsys.readouterr().err
        assert "holds the id 1099511627776" in said and "smaller batch" not in said
    with pytest.raises(DatasetError, match="num_nodes: is 2305843009213693952"):
        write_folder(Dataset.homogeneous("many", 2**61, EDGES), tmp_path / "written")
    for name in (f"generated:nodes={10**19}", f"generated-typed:papers={10**19}"):
        with pytest.raises(DatasetError, match="give a value from"):
            load_dataset(name)


def test_ids_of_other_types_and_negative_counts_are_refused() -> None:
    for edges in (hashed(9).to(torch.uint64), EDGES.double()):
        with pytest.raises(TypeError, match=f"edge_index must be int64 .*, got {edges.dtype}; "):
            MacrobatchNeighborLoader(Data(edge_index=edges), [2])
    with pytest.raises(ValueError, match="num_nodes is -1, but it must not be negative; give the number"):
        MacrobatchNeighborLoader(Data(edge_index=EDGES, num_nodes=-1), [2], [0])
    with pytest.raises(IndexError, match=r"edge_index\[0\] holds -2"):
        MacrobatchNeighborLoader(Data(edge_index=EDGES - 2, num_nodes=3), [2])


def test_what_one_machine_cannot_hold_several_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyg_batchgnn.machine.memory", lambda: Memory(2**30, 2**30))
    assert not ops.too_many_nodes(2**27 - 1) and "this machine has 1 GiB" in ops.too_many_nodes(2**27)
    assert not ops.too_many_nodes(2**28, processes=4)
    assert "at most 2**40" in ops.too_many_nodes(2**40 + 1, processes=10**6)


NODES = 40


def edges(number: int = 300) -> Tensor:
    return torch.randint(NODES, (2, number), generator=torch.Generator().manual_seed(5))


def by_destination(edge_index: Tensor) -> Tensor:
    return edge_index[:, edge_index[1].argsort(stable=True)]


def by_source(edge_index: Tensor) -> Tensor:
    return edge_index[:, edge_index[0].argsort(stable=True)]


def pointers(ids: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(ids, minlength=NODES).cumsum(0)])


def pair(layout: str, tensors: tuple[Tensor, Tensor], **kwargs: Any) -> tuple[MyFeatureStore, MyGraphStore]:
    graphs = MyGraphStore()
    graphs.put_edge_index(tensors, edge_type=None, layout=layout, **{"size": (NODES, NODES), **kwargs})
    return MyFeatureStore(), graphs


def data_of(edge_index: Any) -> Data:
    return Data(edge_index=edge_index, num_nodes=NODES)


#: How a graph is given, and the edge list that its edge ids are then positions in.
FORMS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Tensor]]] = {
    "Data": (data_of, lambda e: e),
    "Data, int32": (lambda e: data_of(e.int()), lambda e: e),
    "Data, not contiguous": (lambda e: data_of(e.t().contiguous().t()), lambda e: e),
    "Data, EdgeIndex": (lambda e: data_of(EdgeIndex(e, sparse_size=(NODES, NODES))), lambda e: e),
    "Data, sorted EdgeIndex": (
        lambda e: data_of(EdgeIndex(by_destination(e), sort_order="col", sparse_size=(NODES, NODES))),
        by_destination,
    ),
    "stores, COO": (lambda e: pair("coo", (e[0], e[1])), lambda e: e),
    "stores, sorted COO": (lambda e: pair("coo", tuple(by_destination(e)), is_sorted=True), by_destination),
    "stores, CSC": (lambda ends: pair("csc", (by_destination(ends)[0], pointers(ends[1]))), by_destination),
    "stores, CSR": (lambda ends: pair("csr", (pointers(by_source(ends)[0]), by_source(ends)[1])), by_source),
    "Data as both stores": (lambda e: (data_of(e), data_of(e)), lambda e: e),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_graph(form: str) -> None:
    given, listed = FORMS[form]
    edge_index = edges()
    graph = graph_from_pyg(given(edge_index))
    expected = CscGraph.from_edge_index(listed(edge_index), NODES)
    assert torch.equal(graph.indptr, expected.indptr)
    assert torch.equal(graph.indices.long(), expected.indices.long())
    ids = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids.long()
    assert torch.equal(listed(edge_index)[0][ids], graph.indices.long())
    assert all(
        torch.equal(ids[begin:end], ids[begin:end].sort().values)
        for begin, end in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)
    )


def test_adj_t() -> None:
    edge_index = edges(100).unique(dim=1)
    adj_t = to_torch_csr_tensor(edge_index.flip(0), size=(NODES, NODES))
    graph = graph_from_pyg(Data(adj_t=adj_t, num_nodes=NODES))
    assert torch.equal(graph.indptr, adj_t.crow_indices()) and torch.equal(graph.indices, adj_t.col_indices())
    assert graph.edge_ids is None


def test_by_destination_is_used_where_it_lies() -> None:
    edge_index = by_destination(edges())
    pointer = pointers(edge_index[1])
    source = edge_index[0].contiguous()
    graph = graph_from_pyg(pair("csc", (source, pointer)))
    assert graph.indices.data_ptr() == source.data_ptr() and graph.indptr.data_ptr() == pointer.data_ptr()


def test_a_graph_without_edges() -> None:
    assert graph_from_pyg(Data(x=torch.zeros(3, 1))).indptr.tolist() == [0, 0, 0, 0]


def test_types_whose_nodes_are_not_counted() -> None:
    data = HeteroData()
    data["a"].x = torch.zeros(3, 1)
    data["a", "to", "b"].edge_index = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match=r"ends of type 'b', of which data has no nodes: set data\['b'\]"):
        typed_graph_from_pyg(data)
    data["b"].name = "no count"
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=r"set data\['b'\]\.num_nodes"):
        typed_graph_from_pyg(data)
    data["b"].num_nodes = 2
    assert typed_graph_from_pyg(data).num_nodes == (3, 2)


def hetero_pair() -> Any:
    graphs = MyGraphStore()
    graphs.put_edge_index(tuple(edges()), edge_type=("a", "to", "a"), layout="coo", size=(NODES, NODES))
    return MyFeatureStore(), graphs


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (lambda: HeteroData(), NotImplementedError, ["heterogeneous", "to_homogeneous"]),
        (hetero_pair, NotImplementedError, ["heterogeneous"]),
        (lambda: (MyFeatureStore(), MyGraphStore()), ValueError, ["no edges", "put_edge_index"]),
        (lambda: edges(), TypeError, ["Data", "Tensor"]),
        (lambda: None, TypeError, ["NoneType"]),
        (lambda: Data(), ValueError, ["num_nodes"]),
        (lambda: data_of(edges() + 20), IndexError, ["edge_index", "0 to 39"]),
        (lambda: data_of(edges().float()), TypeError, ["float32"]),
        (lambda: data_of(edges()[:1]), ValueError, ["[2, num_edges]"]),
        (lambda: pair("coo", tuple(edges()), size=None), ValueError, ["size", "put_edge_index"]),
        (lambda: Data(adj_t=edges(), num_nodes=NODES), TypeError, ["adj_t", "to_sparse_csr"]),
        (lambda: Data(adj=edges(), num_nodes=NODES), TypeError, ["adj", "edge_index"]),
        (
            lambda: Data(adj_t=to_torch_csr_tensor(edges(9), size=(NODES, NODES)), num_nodes=NODES + 1),
            ValueError,
            ["adj_t", "40", "41"],
        ),
    ],
)
def test_refused(data: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        graph_from_pyg(data())
    assert all(word in str(caught.value) for word in words), caught.value
