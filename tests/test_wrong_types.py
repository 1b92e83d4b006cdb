"""Entry points that are given something of another type say what they want."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES, check_dataset, read_folder, write_folder
from pyg_batchgnn.nn import layer_graph
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, load_partition, partition, report_partition, save_partition
from pyg_batchgnn.sample import HGTSampler, MacrobatchSampler, SamplingPlan
from pyg_batchgnn.store import CscGraph, DistFeatureStore, DistGraphStore, TypedGraph


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


def test_names_have_their_article() -> None:
    with pytest.raises(TypeError, match=r"in_edges must be an InEdges, got Data; use graph_from_pyg\(data\)"):
        CscGraph(DATA)
    with pytest.raises(TypeError, match="plan must be an HGTPlan"):
        HGTSampler(CscGraph.from_edge_index(DATA.edge_index, 6), None)
    with pytest.raises(TypeError, match="replacement must be a Replacement, got True"):
        SamplingPlan([2], replacement=True)


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
