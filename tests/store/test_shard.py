"""A shard finds the rows of nodes and edges, and is the same after its arrays were shared."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn.data import EDGES, NODES, Group
from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.store import RowBlock, RowFormat, RowRequest, typed_graph_from_pyg
from pyg_batchgnn.store.shard import EdgeIndex, shard_of
from tests.support.partitioned_graphs import CASES, part_of


@pytest.mark.parametrize(("row", "edge"), [(0, 5), (1, 2), (2, 2), (1, 9), (0, 0)])
def test_an_edge_of_another_destination_is_refused(row: int, edge: int) -> None:
    index = EdgeIndex(torch.tensor([0, 2, 3, 3]), torch.tensor([2, 4, 5]))
    with pytest.raises(IndexError, match="not among the in-edges"):
        index.find(RowRequest(torch.tensor([row]), torch.tensor([edge])))


@pytest.mark.parametrize("group", [NODES, EDGES])
def test_attributes_of_another_length_are_refused(group: Group) -> None:
    part = part_of(CASES[0], 1, 0)
    part.attributes[group]["bad"] = torch.randn(3, 2)
    with pytest.raises(ValueError, match=r"part 0: \w+ attribute 'bad' has 3 rows, expected one with \d+"):
        shard_of(part, None)


def test_splits_hold_rows_of_the_part() -> None:
    part = part_of(CASES[0], 1, 0)
    part.splits[NODES]["bad"] = torch.tensor([0, part.num_nodes])
    with pytest.raises(IndexError, match="split 'bad' holds"):
        shard_of(part, None)


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.uint8, torch.bool]


@st.composite
def blocks(draw: st.DrawFn) -> RowBlock:
    rows, seed = draw(st.integers(1, 6)), draw(st.integers(0, 99))
    random = torch.Generator().manual_seed(seed)
    attributes = {}
    for name in draw(st.lists(st.sampled_from(["x", "y", "original", "node", ""]), unique=True)):
        shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
        values = torch.randint(0, 2, shape, generator=random)
        attributes[name] = values.to(draw(st.sampled_from(DTYPES)))
    return RowBlock(attributes, torch.arange(rows) if draw(st.booleans()) else None)


def assert_equal(found: RowBlock, expected: dict[str, torch.Tensor]) -> None:
    assert found.columns.keys() == expected.keys()
    for name, column in found.columns.items():
        assert column.dtype == expected[name].dtype and torch.equal(column, expected[name])


@given(tables=blocks(), data=st.data())
def test_rows_survive_bytes(tables: RowBlock, data: st.DataObject) -> None:
    rows = max((len(column) for column in tables.columns.values()), default=1)
    index = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1))), dtype=torch.int64)
    form = RowFormat(tables)
    packed = torch.full((form.wire_bytes * len(index),), 255, dtype=torch.uint8)
    form.pack(tables, index, packed)
    unpacked, gathered = form.empty(len(index)), form.empty(len(index))
    form.unpack(packed, unpacked)
    form.gather(gathered, tables, index)
    expected = {name: column[index] for name, column in tables.columns.items()}
    assert_equal(unpacked, expected)
    assert_equal(gathered, expected)
    assert form.row_bytes == sum(column[:1].nbytes for column in tables.columns.values())
    assert form.row_bytes <= form.wire_bytes < form.row_bytes + 8


def test_bytes_do_not_depend_on_the_order_of_columns() -> None:
    columns = {"b": torch.ones(3, dtype=torch.uint8), "a": torch.arange(3), "c": torch.arange(3) + 7}
    packed = []
    for names in ("abc", "cba"):
        tables = RowBlock({name: columns[name] for name in names})
        form = RowFormat(tables)
        packed.append(torch.empty(3 * form.wire_bytes, dtype=torch.uint8))
        form.pack(tables, torch.arange(3), packed[-1])
    assert torch.equal(*packed) and form.wire_bytes == 24


def make_data() -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        edge_index=torch.randint(30, (2, 200), generator=generator),
        time=torch.randint(9, (30,), generator=generator),
        stamp=torch.randint(9, (200,), generator=generator),
        weight=torch.rand(200, generator=generator),
        num_nodes=30,
    )


def sampler(data: Any, **kwargs: Any) -> PygNeighborSampler:
    return PygNeighborSampler(data, [3, 3], **kwargs)


def parts(made: PygNeighborSampler) -> tuple[Any, Any, Any]:
    return made.graph.relations[0], made.macrobatch.times[0], made.macrobatch.weights[0]


def test_samplers_of_one_graph_share_what_they_made() -> None:
    data = make_data()
    for time_attr in ("time", "stamp"):
        one, other = (sampler(data, time_attr=time_attr, weight_attr="weight") for _ in range(2))
        for mine, theirs in zip(parts(one), parts(other), strict=True):
            assert mine is theirs
    plain = sampler(data, weight_attr="weight")
    assert plain.graph.relations[0] is one.graph.relations[0]
    assert plain.macrobatch.weights[0] is not one.macrobatch.weights[0]  # sums in another order


def test_changes_between_two_loaders_are_seen() -> None:
    data = make_data()
    first = sampler(data, time_attr="stamp", weight_attr="weight")
    data.stamp[7] += 3
    later = sampler(data, time_attr="stamp", weight_attr="weight")
    assert later.graph.relations[0] is first.graph.relations[0]
    assert not torch.equal(later.macrobatch.times[0].time, first.macrobatch.times[0].time)  # type: ignore[union-attr]
    data.weight = data.weight.numpy()
    data.weight[0] = 5
    fresh = sampler(data, weight_attr="weight")
    assert fresh.macrobatch.weights[0].weight.max() == 5  # type: ignore[union-attr]
    data.edge_index[0, 0] += 1
    assert sampler(data).graph.relations[0] is not first.graph.relations[0]


def test_what_no_loader_uses_is_released() -> None:
    data = make_data()
    made = sampler(data, time_attr="time", weight_attr="weight")
    held = [weakref.ref(one) for one in parts(made)]
    del made
    gc.collect()
    assert [one() for one in held] == [None, None, None]


def test_edges_in_the_users_memory_are_shared_if_it_is_the_same() -> None:
    ends, sources = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1])
    adj_t = torch.sparse_csr_tensor(ends, sources, torch.ones(3), size=(2, 2))

    def stores() -> tuple[MyFeatureStore, MyGraphStore]:
        graph = MyGraphStore()
        graph.put_edge_index((sources, ends), edge_type=None, layout="csc", size=(2, 2))
        return MyFeatureStore(), graph

    for make in (lambda: Data(adj_t=adj_t, num_nodes=2), stores):
        one, other = typed_graph_from_pyg(make()), typed_graph_from_pyg(make())
        assert one.relations[0] is other.relations[0]
    mine = typed_graph_from_pyg(Data(adj_t=adj_t, num_nodes=2))
    copied = typed_graph_from_pyg(Data(adj_t=adj_t.clone(), num_nodes=2))
    assert mine.relations[0] is not copied.relations[0]


def test_a_typed_graph_may_use_the_names_of_a_homogeneous_one() -> None:
    """With as many edges as nodes, a node attribute is still one of nodes."""
    data = HeteroData()
    data["node"].num_nodes = 3
    data["node"].w = torch.tensor([9, 9, 9])
    data["node", "to", "node"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data["node", "to", "node"].w = torch.tensor([0.5, 0.25, 0.125])
    made = sampler(data, weight_attr="w")
    assert made.macrobatch.weights[0].weight.sum() == 0.875  # type: ignore[union-attr]
    assert made.graph.schema.has_names and not typed_graph_from_pyg(make_data()).schema.has_names
