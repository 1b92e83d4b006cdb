"""The same graph from every form that PyG's loaders accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import to_torch_csr_tensor

from pyg_batchgnn.store import CscGraph, graph_from_pyg, typed_graph_from_pyg

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


def csr_pair(edge_index: Tensor) -> Any:
    return pair("csr", (pointers(by_source(edge_index)[0]), by_source(edge_index)[1]))


def csc_pair(edge_index: Tensor) -> Any:
    return pair("csc", (by_destination(edge_index)[0], pointers(edge_index[1])))


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
    "stores, CSC": (csc_pair, by_destination),
    "stores, CSR": (csr_pair, by_source),
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


def test_adj_t_of_torch_sparse() -> None:
    torch_sparse = pytest.importorskip("torch_sparse")
    edge_index = edges(100).unique(dim=1)
    adj_t = torch_sparse.SparseTensor(row=edge_index[1], col=edge_index[0], sparse_sizes=(NODES, NODES))
    graph = graph_from_pyg(Data(adj_t=adj_t, num_nodes=NODES))
    assert graph.num_edges == edge_index.size(1)


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
