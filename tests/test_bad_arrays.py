"""Public classes refuse arrays that would lead a kernel out of bounds, and wrong types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from pyg_batchgnn import nn
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import EDGES, NODES, Group, check_dataset, read_folder, write_folder
from pyg_batchgnn.nn import LayerGraph, RowView, layer_graph, whole_graph
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import (
    Part,
    PartitionBook,
    load_partition,
    partition,
    report_partition,
    save_partition,
)
from pyg_batchgnn.sample import MacrobatchSampler, Minibatch, PygLinkSampler, SamplingPlan, Seeds
from pyg_batchgnn.store import (
    Columns,
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    RowBlock,
    RowFormat,
    RowReader,
    RowRequest,
    TimeOrder,
    TypedGraph,
    WeightSums,
)
from pyg_batchgnn.store.shard import shard_of
from tests.support.damaged_arrays import Calls, E, N, assert_all_refused, indices, indptr, print_accepted


def _sample(**arrays: Any) -> None:
    """Samples by times and weights, whose classes take any arrays: the sampler checks them."""
    graph = CscGraph(InEdges(indptr(), indices()))
    good = {"position": torch.arange(E), "time": torch.arange(E), "node": torch.arange(N)} | arrays
    sampler = MacrobatchSampler(
        graph, SamplingPlan((2, 2)), times=[TimeOrder(good["position"], good["time"])]
    )
    seeds = Seeds.of(graph.typed.schema, {"node": good["node"]}, time=torch.full((N,), 99))
    sampler.sample([seeds], 0)


def _weighted(positive: Tensor) -> None:
    sums = WeightSums.of(InEdges(indptr(), indices()), torch.ones(E))
    sampler = MacrobatchSampler(
        CscGraph(InEdges(indptr(), indices())),
        SamplingPlan((1,)),
        weights=[WeightSums(sums.sums, sums.weight, positive)],
    )
    sampler.sample([torch.arange(N)], 0)


def _typed(**arrays: Tensor) -> None:
    schema = CscGraph(InEdges(indptr(), indices())).typed.schema
    TypedGraph(schema, (N,), (InEdges(**arrays),))


def _layer(**arrays: Tensor) -> None:
    graph = LayerGraph(InEdges(**arrays), N)
    for conv in (nn.SAGEConv(4, 3), nn.GCNConv(4, 3), nn.GINConv(nn.Linear(4, 3)), nn.GATConv(4, 3)):
        conv(torch.ones(N, 4, requires_grad=True), graph).sum().backward()


def _attribute(row: Tensor) -> None:
    graph = CscGraph(InEdges(indptr(), indices()))
    sampled = MacrobatchSampler(graph, SamplingPlan((-1,))).sample([torch.arange(N)], 0)[0]
    batch = Minibatch.in_place(sampled, {"x": torch.ones(N, 4)})
    object.__setattr__(batch.attributes[batch.schema.node_groups[0]], "row", row)
    batch.attribute("x")


def _format(call: str, **arrays: Tensor) -> None:
    tables = RowBlock({"x": torch.ones(N, 4)}, torch.arange(N))
    form = RowFormat(tables)
    if call == "gather":
        form.gather(form.empty(N), tables, arrays["index"])
    else:
        form.pack(tables, arrays["index"], torch.empty(N * form.wire_bytes, dtype=torch.uint8))


def _data() -> Data:
    edges = torch.stack([indices().long(), torch.arange(E) // 2])
    return Data(x=torch.ones(N, 4), edge_index=edges, w=torch.ones(E))


def _rows(group: Group, **columns: Tensor) -> None:
    with Communicator.create("rows") as comm:
        part = partition(_data(), comm=comm)
        shard, name = shard_of(part, None), "x" if group.is_node else "w"
        wanted, given = Columns((name,)), RowRequest(**columns)
        form, block = RowFormat(shard.block(group, wanted)), shard.block(group, wanted)
        form.gather(form.empty(len(given)), block, shard.find(group, given))
        reader = RowReader(part, comm, {0: shard}, {group: wanted})
        reader.read({group: given}, Header(MessageKind.FEATURES))


def _links(amount: str, **ends: Tensor) -> None:
    given = {"row": torch.arange(3), "col": torch.arange(3)} | ends
    sampler = PygLinkSampler(_data(), [2], exclude_existing=True)
    sampler.sample_from_edges(EdgeSamplerInput(torch.arange(3), **given), NegativeSampling(amount))


def _calls() -> Calls:
    edges = {"indptr": indptr(), "indices": indices()}
    row = torch.arange(N)
    return {
        "csc graph": (lambda **given: CscGraph(InEdges(**given)), dict(edges)),
        "from_csc": (CscGraph.from_csc, {**edges, "edge_ids": torch.arange(E)}),
        "typed graph": (_typed, dict(edges)),
        "layer": (_layer, dict(edges)),
        "row view": (lambda row: RowView(torch.ones(N, 4), row), {"row": row}),
        "whole graph": (
            lambda source: whole_graph(torch.stack([source, torch.arange(E) % N]), N, N),
            {"source": indices().long()},
        ),
        "seeds": (_sample, {"node": row}),
        "time order": (_sample, {"position": torch.arange(E), "time": torch.arange(E)}),
        "weights": (_weighted, {"positive": torch.arange(E + 1)}),
        "book": (PartitionBook, {"offsets": torch.arange(N + 1)}),
        "owner": (PartitionBook([0, 2, N]).owner, {"node": row}),
        "rows of nodes": (functools.partial(_rows, NODES), {"node": row}),
        "rows of edges": (
            functools.partial(_rows, EDGES),
            {"node": torch.arange(E) // 2, "edge": torch.arange(E)},
        ),
        "binary negatives": (functools.partial(_links, "binary"), {"row": row[:3], "col": row[:3]}),
        "triplets": (functools.partial(_links, "triplet"), {"row": row[:3], "col": row[:3]}),
        "attribute": (_attribute, {"row": row}),
        "gather": (lambda index: _format("gather", index=index), {"index": row}),
        "pack": (lambda index: _format("pack", index=index), {"index": row}),
    }


def _layouts() -> list[Callable[[], Any]]:
    form, tables = RowFormat(RowBlock({"x": torch.ones(N, 4)})), RowBlock({"x": torch.ones(N, 4)})
    return [
        lambda: form.unpack(torch.zeros(7, dtype=torch.uint8), tables),
        lambda: form.unpack(torch.zeros(form.wire_bytes, dtype=torch.uint8), tables),
        lambda: form.gather(RowBlock({"x": torch.ones(N, 5)}), tables, torch.arange(N)),
        lambda: form.gather(RowBlock({"x": torch.ones(N, 4).double()}), tables, torch.arange(N)),
        lambda: form.pack(tables, torch.arange(N), torch.zeros(form.wire_bytes, dtype=torch.uint8)),
    ]


#: What is harmless: values that are only compared, and forms that are converted.
_HARMLESS = {
    ("row view", "row", "too short"),
    ("whole graph", "source", "not contiguous"),
    ("seeds", "node", "not contiguous"),
    ("book", "offsets", "floats"),
    ("attribute", "row", "not contiguous"),
    ("time order", "time", "negative"),
    ("time order", "time", "far"),
}


#: Calls that convert the types of ids, and take any number of them.
_CONVERT = {"rows of edges", "binary negatives", "triplets"}
_ANY_LENGTH = {"owner", "rows of nodes"}


def _is_harmless(name: str, key: str, kind: str) -> bool:
    if kind == "too short" and name in _ANY_LENGTH:
        return True
    return (name, key, kind) in _HARMLESS or (name in _CONVERT and kind in ("floats", "not contiguous"))


def run_all() -> None:
    print_accepted(_calls(), _is_harmless, _layouts())


def test_every_damaged_array_is_refused() -> None:
    assert_all_refused("tests.test_bad_arrays")


@pytest.fixture(scope="module")
def comm() -> Communicator:
    return Communicator.create("types")


def a_data() -> Data:
    edge_index = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    return Data(x=torch.randn(6, 4), edge_index=edge_index, train_mask=torch.arange(6) < 3)


DATA = a_data()
WRONG: dict[str, Any] = {"Data": DATA, "tuple": (DATA.x, DATA.edge_index), "NoneType": None, "str": "x"}
#: Entry points by the remedy that they name. The second argument is a communicator.
CALLS: dict[str, tuple[Callable[[Any, Communicator], Any], str]] = {
    "sampler": (lambda given, _: MacrobatchSampler(given, SamplingPlan([2])), "graph_from_pyg"),
    "plan": (lambda given, _: MacrobatchSampler(CscGraph.from_edge_index(DATA.edge_index, 6), given), "Plan"),
    "graph": (lambda given, _: CscGraph(given), "graph_from_pyg"),
    "edge list": (lambda given, _: CscGraph.from_edge_index(given, 6), "graph_from_pyg|as_tensor"),
    "typed graph": (lambda given, _: TypedGraph(given, (6,), ()), "typed_graph_from_pyg"),
    "in-edges": (lambda given, _: InEdges.checked(given, torch.zeros(1)), "as_tensor"),
    "data set": (lambda given, _: check_dataset(given), "from_pyg"),
    "report": (report_partition, "load_partition"),
    "save": (lambda given, comm: save_partition(given, "unused", comm), "load_partition"),
    "features": (DistFeatureStore, "load_partition"),
    "edges": (DistGraphStore, "load_partition"),
    "layer": (lambda given, _: layer_graph(given, 1), "export='native'"),
    "communicator": (lambda given, _: partition(DATA, comm=given), "Communicator.create"),
    "communicator to load": (lambda given, _: load_partition("unused", given), "Communicator.create"),
}


#: Without a communicator `partition` makes one of its own.
CASES = [(kind, name) for kind in WRONG for name in CALLS if (kind, name) != ("NoneType", "communicator")]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_the_remedy_is_said(kind: str, name: str, comm: Communicator) -> None:
    (call, remedy), given = CALLS[name], WRONG[kind]
    if name in ("report", "save") and kind == "tuple":
        kind = "Tensor"  # a tuple of parts is allowed
    with pytest.raises(TypeError, match=rf"(?s)(got|is) (a )?{kind}.*({remedy})"):
        call(given, comm)


@pytest.mark.parametrize("kind", ["tuple", "NoneType", "str"])
def test_neither_a_data_set_nor_a_data(kind: str, tmp_path: Path, comm: Communicator) -> None:
    with pytest.raises(TypeError, match=f"got {kind}; make one with load_dataset, from_pyg"):
        write_folder(WRONG[kind], tmp_path / "folder")
    with pytest.raises(TypeError, match=f"got {kind}; make one with load_dataset, from_pyg"):
        partition(WRONG[kind], comm=comm)
    assert not list(tmp_path.iterdir())


def test_a_data_is_written_and_partitioned(tmp_path: Path, comm: Communicator) -> None:
    read = read_folder(write_folder(DATA, tmp_path / "folder"))
    assert torch.equal(read.edge_index, DATA.edge_index) and torch.equal(read.nodes.tables["x"], DATA.x)
    part = partition(DATA, comm=comm)
    assert isinstance(part, Part) and part.num_nodes == 6
    assert torch.equal(part.attributes[NODES]["x"], DATA.x[part.node])
    assert part.node[part.split("train")].tolist() == [0, 1, 2]
    alone = partition(DATA, "ldg")
    assert alone.num_nodes == 6 and torch.equal(alone.node, torch.arange(6))
