"""Ids that are no positions, such as hashes, are refused by name before a kernel sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn import MacrobatchHGTLoader, MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, ops
from pyg_batchgnn.data import Dataset, DatasetError, load_dataset, write_folder
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.partition import partition
from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.store import CscGraph
from pyg_batchgnn.train.cli.app import main

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
USER, BUYS = "user", ("user", "buys", "item")


def hashed(high: int) -> torch.Tensor:
    """Edges of which one source has a large id."""
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
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"total": 2**30}))
    assert not ops.too_many_nodes(2**27 - 1) and "this machine has 1 GiB" in ops.too_many_nodes(2**27)
    assert not ops.too_many_nodes(2**28, processes=4)
    assert "at most 2**40" in ops.too_many_nodes(2**40 + 1, processes=10**6)
