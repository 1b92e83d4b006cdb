"""The attributes of a batch: those of PyG, with the right rows, from wherever they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.utils import to_torch_csr_tensor

from pyg_batchgnn import Minibatch, PygNeighborSampler
from pyg_batchgnn.sample import Placement
from pyg_batchgnn.store import graph_from_pyg
from tests.support.loader_cases import EDGES, NODES, assert_same, make_data, make_loader
from tests.support.mapped_data import with_files
from tests.support.memory_stores import EDGES as EDGE_GROUP
from tests.support.memory_stores import stores_of


class Positions(Data):
    """A user's data class with an attribute that is concatenated along its second dimension."""

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 1 if key == "wide" else super().__cat_dim__(key, value, *args, **kwargs)


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
    "not contiguous": torch.randn(8, NODES).t()[:, ::2],
    "expanded": torch.randn(1, 4).expand(NODES, 4),
    "one column": torch.randn(NODES, 1),
    "numpy": np.random.default_rng(0).normal(size=(NODES, 3)),
    "numpy bool": np.arange(NODES) % 2 == 0,
    "parameter": torch.nn.Parameter(torch.randn(NODES, 3), requires_grad=False),
}


def rows(table: Any, index: Tensor) -> Tensor:
    return torch.from_numpy(np.take(table, index, axis=0)) if isinstance(table, np.ndarray) else table[index]


@pytest.mark.parametrize("kind", NODE_ATTRIBUTES)
def test_attributes(kind: str) -> None:
    table = NODE_ATTRIBUTES[kind]
    wide = np.concatenate([table] * 6) if isinstance(table, np.ndarray) else torch.cat([table] * 6)
    for batch in make_loader(make_data(extra=table, edge_extra=wide), prefetch=1):
        for found, of, ids in ((batch.extra, table, batch.n_id), (batch.edge_extra, wide, batch.e_id)):
            expected = rows(of, ids)
            assert found.dtype is expected.dtype and torch.equal(found, expected)


def test_along_another_dimension() -> None:
    wide = torch.randn(3, NODES)
    data = Positions(**make_data().to_dict(), wide=wide, other_index=torch.arange(EDGES).expand(2, EDGES))
    for batch in make_loader(data):
        assert type(batch) is Positions
        assert torch.equal(batch.wide, wide[:, batch.n_id])
        assert torch.equal(batch.other_index, batch.e_id.expand(2, -1))


def test_the_same_as_pygs_own_node_loader() -> None:
    """PyG's loader around our sampler goes through PyG's own filtering."""
    own = {"n_id": torch.arange(NODES) + 1000, "e_id": torch.arange(EDGES) + 1000, "words": ["a", "b"]}
    data = make_data(mask=torch.rand(NODES) < 0.5, name="a", table=np.ones((NODES, 2)), num_nodes=NODES)
    data.update({**own, "mean": torch.ones(7), "zero": torch.tensor(3)})
    sampler = PygNeighborSampler(graph_from_pyg(data), [4, 3], seed=7)
    theirs = NodeLoader(data, sampler, batch_size=32, input_nodes=data.mask)
    assert_same(make_loader(data, input_nodes=data.mask), theirs)


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


@pytest.mark.parametrize("change", [lambda node: node + 10**12, lambda node: -node - 1])
def test_ids_that_a_hook_made_up_are_an_error(change: Callable[[Tensor], Tensor]) -> None:
    def changed(out: Any) -> Any:
        out.node = change(out.node)
        return out

    with pytest.raises(IndexError, match=r"no row|below 0"):
        next(iter(make_loader(make_data(), transform_sampler_output=changed)))


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


def sorted_data(layout: str) -> Data:
    data = make_data()
    if layout != "coo":
        data.edge_index = data.edge_index[
            :, data.edge_index[1 if layout == "csc" else 0].argsort(stable=True)
        ]
    return data


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_stores_give_what_data_gives(layout: str, export: str) -> None:
    data = sorted_data(layout)
    expected = list(make_loader(data, input_nodes=torch.arange(100), export=export))
    for workers in (0, 2):
        stores = stores_of(data, layout)
        loader = make_loader(stores, input_nodes=torch.arange(100), export=export, num_workers=workers)
        assert_same(loader, expected, ignore=["num_nodes"])


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("group", ["default", None])
def test_attributes_of_edges_under_the_name_of_the_nodes(group: Any, export: str) -> None:
    """PyG names no group of a store without types, and then reads edges by node."""
    data = make_data()
    features, graph = stores_of(data, "coo")
    features.remove_tensor(group_name=EDGE_GROUP, attr_name="edge_attr", index=None)
    del features.attrs[EDGE_GROUP, "edge_attr"]
    features.put_tensor(data.edge_attr, group_name=group, attr_name="edge_attr", index=None)
    loaders = [make_loader(given, export=export) for given in (data, (features, graph))]
    assert_same(*loaders, ignore=("num_nodes",))


@pytest.mark.parametrize(("export", "requests"), [("pyg", 10), ("native", 5)])
def test_all_attributes_come_in_one_request(export: str, requests: int) -> None:
    features, graph = stores_of(make_data(), "coo")
    loader = make_loader((features, graph), export=export, macrobatch_size=4, fetch_size=2)
    assert len(list(loader)) == 10
    assert features.requests == [3] * requests


def test_stores_without_attributes_and_a_class_of_the_users() -> None:
    features, graph = stores_of(make_data(), "coo")
    features.attrs.clear()
    for batch in make_loader((features, graph), input_nodes=[1, 2, 3], custom_cls=Positions):
        assert type(batch) is Positions and batch.num_nodes == batch.n_id.numel() and "x" not in batch


@pytest.mark.parametrize("given", [None, [3, 1, 2], torch.tensor([3, 1, 2]), torch.arange(NODES) < 5])
def test_input_nodes_of_stores(given: Any) -> None:
    data = make_data()
    loaders = [make_loader(one, input_nodes=given) for one in (stores_of(data, "coo"), data)]
    assert_same(*loaders, ignore=["num_nodes"])


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_attributes_are_read_when_a_batch_is_made(export: str) -> None:
    read = {"pyg": getattr, "native": Minibatch.attribute}[export]
    data = make_data()
    loader = make_loader(data, export=export, macrobatch_size=1, fetch_size=1)
    batches = iter(loader)
    batch = next(batches)
    assert torch.equal(batch.x, data.x[batch.n_id])
    loader.data.x = data.x + 1000
    batch = next(batches)
    assert torch.equal(batch.x, data.x[batch.n_id]) and batch.x.min() >= 1000
    data.x[:] = -1.0  # in place
    assert (next(batches).x == -1).all()
    data.late = torch.arange(NODES)
    batch = next(batches)
    assert torch.equal(read(batch, "late"), batch.n_id)
    data.renamed = data.late
    del data.late
    batch = next(batches)
    assert torch.equal(read(batch, "renamed"), batch.n_id)
    with pytest.raises((AttributeError, KeyError)):
        read(batch, "late")


@pytest.mark.parametrize("kwargs", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_data_can_be_assigned(kwargs: dict[str, Any]) -> None:
    loader = make_loader(make_data(), **kwargs)
    assert all((batch.x >= 0).all() for batch in loader)
    other = make_data()
    other.x = -other.x - 1
    loader.data = other
    assert loader.data is other
    for batch in loader:
        assert torch.equal(batch.x, other.x[batch.n_id])


@pytest.mark.parametrize("features", ["auto", "in_place", "copy"])
def test_native_blocks_hold_every_node_attribute(features: str) -> None:
    data = make_data(table=torch.randn(NODES, 2).numpy(), half=torch.randn(NODES).half())
    for batch in make_loader(data, export="native", features=features):
        assert batch.block.keys() == {"x", "y", "table", "half"}
        for name in batch.block:
            assert torch.equal(batch.attribute(name), torch.as_tensor(data[name])[batch.node])


def test_native_edge_ids_only_where_an_attribute_needs_them() -> None:
    data = make_data()
    del data.edge_attr
    assert all(batch.edge is None for batch in make_loader(data, export="native"))


def native(data: Any, **kwargs: Any) -> Any:
    return make_loader(data, export="native", **kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_the_block_is_the_users_own_tensor(dtype: torch.dtype, prefetch: int) -> None:
    data = make_data()
    data.x = data.x.to(dtype)
    loader = native(data, prefetch=prefetch)
    for batch in loader:
        assert batch.block["x"] is data.x and batch.block["y"] is data.y
        assert batch.placement is Placement.IN_PLACE and batch.row is batch.node
        assert torch.equal(batch.attribute("x", 3), data.x[batch.node[:3]])
    assert loader.stats().total.bytes_gathered == 0


def test_a_file_may_be_read_in_place_where_the_user_says_so(tmp_path: Path) -> None:
    data = with_files(make_data(), tmp_path, ("x",))
    assert all(batch.block["x"] is data.x for batch in native(data, features="in_place"))
    assert_same(native(data, features="in_place"), native(make_data()))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (stores_of(make_data(), "coo"), ["feature store"]),
        (make_data(wide=torch.randn(NODES, 4)[:, :2]), ["'wide'", "contiguous()", "features='copy'"]),
        (make_data(sparse=torch.randn(NODES, 4).to_sparse()), ["'sparse'", "data.sparse.to_dense()"]),
    ],
)
def test_what_cannot_be_read_in_place_is_named(data: Any, words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        native(data, input_nodes=torch.arange(NODES), features="in_place")
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_change_shows_in_batches_that_read_in_place_alone() -> None:
    data = make_data()
    batches = [next(iter(native(data, features=choice))) for choice in ("in_place", "copy")]
    before = [batch.attribute("x").clone() for batch in batches]
    data.x[:] = -1.0
    assert (batches[0].attribute("x") == -1.0).all()
    assert torch.equal(batches[1].attribute("x"), before[1])
    loader = native(data, macrobatch_size=1, fetch_size=1)
    iterator = iter(loader)
    first = next(iterator)
    loader.data.x = data.x + 10  # another tensor: earlier batches keep theirs
    second = next(iterator)
    assert (first.attribute("x") == -1.0).all() and (second.attribute("x") == 9.0).all()


def test_a_table_that_has_lost_rows_is_noticed() -> None:
    data = make_data()
    loader = native(data, attributes=["x"])
    batches = iter(loader)
    next(batches)
    data.num_nodes = NODES
    data.x = data.x[:5]
    with pytest.raises((IndexError, ValueError), match=r"no row|no node attribute"):
        list(batches)


@pytest.mark.parametrize("features", ["auto", "copy"])
def test_only_the_attributes_asked_for(features: str) -> None:
    data = make_data()
    for given in (data, stores_of(data, "coo")):
        nodes = torch.arange(NODES)
        for batch in native(given, input_nodes=nodes, attributes=["x"], features=features):
            assert batch.block.keys() == {"x"} and not batch.edge_block and not hasattr(batch, "edge_attr")
        batch = next(iter(native(given, input_nodes=nodes, attributes=["edge_attr"], features=features)))
        assert not batch.block and batch.edge_block.keys() == {"edge_attr"} and not hasattr(batch, "x")
        assert all(batch.block == {} for batch in native(given, input_nodes=nodes, attributes=[]))
        with pytest.raises(ValueError, match=r"'z'.*'x', .*'edge_attr'"):
            native(given, input_nodes=nodes, attributes=["z"])


def test_gradients_reach_a_table_that_is_read_in_place() -> None:
    data = make_data()
    data.x.requires_grad_()
    batch = next(iter(native(data)))
    batch.attribute("x").sum().backward()
    assert torch.equal(
        data.x.grad, torch.zeros_like(data.x).index_add_(0, batch.node, torch.ones(batch.num_nodes, 4))
    )


@pytest.mark.parametrize("kwargs", [{}, {"features": "copy"}, {"num_workers": 1}, {"stores": True}])
def test_edges_have_their_attributes(kwargs: dict[str, Any]) -> None:
    data = make_data()
    source = stores_of(data, "coo") if kwargs.pop("stores", False) else data
    loader = native(source, input_nodes=torch.arange(64), **kwargs)
    for batch in loader:
        wanted = data.edge_attr[batch.edge]
        assert batch.num_edges > 0 and torch.equal(batch.attribute("edge_attr"), wanted)
        assert torch.equal(batch.edge_block["edge_attr"], wanted) and torch.equal(batch.edge_attr, wanted)
        assert torch.equal(batch.to_data().edge_attr, wanted)
        assert torch.equal(batch.attribute("edge_attr", 3), wanted[:3])
