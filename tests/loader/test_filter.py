"""The attributes of a batch: all that PyG has and no others, with the right rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.utils import to_torch_csr_tensor

from pyg_batchgnn import PygNeighborSampler
from pyg_batchgnn.loader.filter import Gatherer
from pyg_batchgnn.store import graph_from_pyg
from tests.support.loader_cases import EDGES, NODES, assert_same, contents, make_data, make_loader


class Positions(Data):
    """A user's data class with an attribute that is concatenated along its second dimension."""

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 1 if key == "wide" else super().__cat_dim__(key, value, *args, **kwargs)


def noncontiguous() -> Tensor:
    return torch.randn(8, NODES).t()[:, ::2]


NODE_ATTRIBUTES: dict[str, Any] = {
    "float16": torch.randn(NODES, 3).half(),
    "bfloat16": torch.randn(NODES, 3).bfloat16(),
    "float64": torch.randn(NODES, 3).double(),
    "bool": torch.rand(NODES) < 0.5,
    "int16": torch.randint(-9, 9, (NODES, 2), dtype=torch.int16),
    "uint8": torch.randint(9, (NODES,), dtype=torch.uint8),
    "complex": torch.randn(NODES, 2, dtype=torch.complex64),
    "conjugated": torch.randn(NODES, 2, dtype=torch.complex64).conj(),
    "negative view": torch.randn(NODES, 2, dtype=torch.complex64).conj().imag,
    "three dimensions": torch.randn(NODES, 2, 5),
    "zero width": torch.randn(NODES, 0),
    "not contiguous": noncontiguous(),
    "expanded": torch.randn(1, 4).expand(NODES, 4),
    "one column": torch.randn(NODES, 1),
    "numpy": np.random.default_rng(0).normal(size=(NODES, 3)),
    "numpy bool": np.arange(NODES) % 2 == 0,
    "parameter": torch.nn.Parameter(torch.randn(NODES, 3), requires_grad=False),
}


def rows(table: Any, index: Tensor) -> Tensor:
    return torch.from_numpy(np.take(table, index, axis=0)) if isinstance(table, np.ndarray) else table[index]


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("kind", NODE_ATTRIBUTES)
def test_node_attributes(kind: str, prefetch: int) -> None:
    table = NODE_ATTRIBUTES[kind]
    for batch in make_loader(make_data(extra=table), prefetch=prefetch):
        expected = rows(table, batch.n_id)
        assert batch.extra.dtype is expected.dtype and torch.equal(batch.extra, expected)


@pytest.mark.parametrize("kind", ["float16", "bool", "three dimensions", "numpy", "conjugated"])
def test_edge_attributes(kind: str) -> None:
    table = NODE_ATTRIBUTES[kind]
    table = np.concatenate([table] * 6) if isinstance(table, np.ndarray) else torch.cat([table] * 6)
    for batch in make_loader(make_data(edge_extra=table)):
        assert torch.equal(batch.edge_extra, rows(table, batch.e_id))


def test_along_another_dimension() -> None:
    wide = torch.randn(3, NODES)
    data = Positions(**make_data().to_dict(), wide=wide, other_index=torch.arange(EDGES).expand(2, EDGES))
    for batch in make_loader(data):
        assert type(batch) is Positions
        assert torch.equal(batch.wide, wide[:, batch.n_id])
        assert torch.equal(batch.other_index, batch.e_id.expand(2, -1))


def test_edges_point_where_they_did() -> None:
    data = make_data()
    for batch in make_loader(data):
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.y, data.y[batch.n_id])


def test_graph_level_attributes_stay() -> None:
    extra = {
        "name": "a graph",
        "scale": 2.5,
        "words": ["a", "b"],
        "mean": torch.ones(7),
        "zero": torch.tensor(3),
    }
    data = make_data(**extra)
    for batch in make_loader(data):
        assert all(batch[name] is data[name] for name in extra)


#: What PyG's loaders give a homogeneous batch beside the user's attributes: `batch` and `seed_time`
#: are None there, which `Data` takes for absent.
ADDED = {"n_id", "e_id", "num_sampled_nodes", "num_sampled_edges", "input_id", "batch_size"}


def test_no_attribute_too_many_and_none_missing() -> None:
    data = make_data()
    for batch in make_loader(data, input_nodes=torch.arange(40)):
        assert contents(batch).keys() == {*data.keys(), *ADDED}
        assert batch.batch is None or "batch" not in batch
        assert {type(batch.num_sampled_nodes), type(batch.num_sampled_edges)} == {list}
        assert {type(count) for count in batch.num_sampled_nodes + batch.num_sampled_edges} == {int}
        assert sum(batch.num_sampled_nodes) == batch.num_nodes == batch.n_id.numel()
        assert sum(batch.num_sampled_edges) == batch.num_edges == batch.e_id.numel()
        assert len(batch.num_sampled_nodes) == 3 and batch.num_sampled_nodes[0] == batch.batch_size
        assert type(batch.batch_size) is int and batch.e_id.dtype is torch.int64


def test_the_same_as_pygs_own_node_loader() -> None:
    """PyG's loader around our sampler goes through PyG's own filtering."""
    data = make_data(mask=torch.rand(NODES) < 0.5, name="a", table=np.ones((NODES, 2)), num_nodes=NODES)
    sampler = PygNeighborSampler(graph_from_pyg(data), [4, 3], seed=7)
    theirs = NodeLoader(data, sampler, batch_size=32, input_nodes=data.mask)
    assert_same(make_loader(data, input_nodes=data.mask), theirs)


@pytest.mark.parametrize("name", ["n_id", "e_id"])
def test_the_users_own_ids_are_kept(name: str) -> None:
    own = torch.arange(NODES if name == "n_id" else EDGES) + 1000
    data = make_data(**{name: own})
    for batch, plain in zip(make_loader(data), make_loader(make_data()), strict=True):
        assert torch.equal(batch[name], plain[name] + 1000)


def test_num_nodes_is_of_the_batch() -> None:
    data = Data(edge_index=make_data().edge_index, num_nodes=NODES)
    for batch in make_loader(data):
        assert batch.num_nodes == batch.n_id.numel() and "num_nodes" in batch


@pytest.mark.parametrize(
    "wrap", [lambda e: EdgeIndex(e, sparse_size=(NODES, NODES)), lambda e: e.t().contiguous().t()]
)
def test_edge_index_is_a_plain_contiguous_tensor(wrap: Callable[[Tensor], Tensor]) -> None:
    data = make_data()
    data.edge_index = wrap(data.edge_index)
    for batch in make_loader(data):
        assert type(batch.edge_index) is Tensor and batch.edge_index.is_contiguous()
        assert batch.edge_index.dtype is torch.int64 and batch.edge_index._base is None


@pytest.mark.parametrize("key_order", ["before", "after"])
def test_adj_t_sparse_csr(key_order: str) -> None:
    edge_index = make_data().edge_index.unique(dim=1)
    values = torch.arange(edge_index.size(1)) + 1.0
    adj_t = to_torch_csr_tensor(edge_index.flip(0), values, size=(NODES, NODES))
    by_row = {"x": torch.arange(NODES * 2.0).view(NODES, 2)}
    data = Data(**({"adj_t": adj_t, **by_row} if key_order == "before" else {**by_row, "adj_t": adj_t}))
    whole = adj_t.to_dense()
    for batch in make_loader(data):
        assert batch.adj_t.layout is torch.sparse_csr and batch.adj_t.shape == (batch.num_nodes,) * 2
        assert "edge_index" not in batch
        dense = batch.adj_t.to_dense()
        present = dense != 0
        assert int(present.sum()) == sum(batch.num_sampled_edges)
        assert torch.equal(dense[present], whole[batch.n_id][:, batch.n_id][present])


def test_a_table_that_requires_gradients_gets_them() -> None:
    data = make_data()
    data.x = torch.nn.Parameter(data.x.clone())
    for prefetch in (0, 1):
        data.x.grad = None
        batch = next(iter(make_loader(data, prefetch=prefetch)))
        batch.x.sum().backward()
        assert torch.equal(data.x.grad.bool().all(1).nonzero().view(-1), batch.n_id.sort().values)
        with torch.no_grad():
            assert not any(batch.x.requires_grad for batch in make_loader(data, prefetch=prefetch))


def test_inference_mode() -> None:
    with torch.inference_mode():
        assert_same(list(make_loader(make_data())), list(make_loader(make_data(), prefetch=1)))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_table_with_too_few_rows_is_an_error(prefetch: int) -> None:
    data = make_data()
    loader = make_loader(data, prefetch=prefetch)
    loader.sizes  # noqa: B018  (measured while the tables still fit)
    del data.y
    data.x = data.x[:10]
    with pytest.raises(IndexError, match=r"\[10, 4\]"):
        list(loader)


def test_ids_that_a_hook_made_up_are_an_error() -> None:
    def far(out: Any) -> Any:
        out.node = out.node + 10**12
        return out

    with pytest.raises(IndexError, match="no row"):
        next(iter(make_loader(make_data(), transform_sampler_output=far)))

    def negative(out: Any) -> Any:
        out.node = -out.node - 1
        return out

    with pytest.raises(IndexError, match="-"):
        next(iter(make_loader(make_data(), transform_sampler_output=negative)))


def test_bytes_are_counted() -> None:
    gather = Gatherer()
    index = torch.tensor([0, 2])
    gather(torch.zeros(3, 4), index)
    gather(np.zeros((3, 2)), index)
    gather(torch.zeros(5, 3, dtype=torch.int16), index, dim=1)
    assert gather.bytes_gathered == 2 * 16 + 2 * 16 + 5 * 2 * 2


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_a_sparse_table_is_refused_when_the_loader_is_made(export: str) -> None:
    data = make_data()
    for sparse in (data.x.to_sparse(), data.x.to_sparse_csr()):
        changed = make_data(sparse=sparse)
        if export == "pyg" and sparse.is_sparse:  # torch selects rows of these, as PyG's loader does
            for batch in make_loader(changed):
                assert torch.equal(batch.sparse.to_dense(), batch.x)
            continue
        with pytest.raises(ValueError, match=r"'sparse' is torch\.sparse_.*data\.sparse\.to_dense\(\)"):
            make_loader(changed, export=export)
        make_loader(changed, export="native", attributes=["x"])
