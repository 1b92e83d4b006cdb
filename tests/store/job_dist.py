"""Jobs of the ranks in test_dist.py: each runs all cases and raises where something differs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyg_batchgnn.comm import AgreementError, Communicator
from pyg_batchgnn.data import NODES, Group, RowKind
from pyg_batchgnn.store import (
    EDGE_TYPE,
    Columns,
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    HybridTopology,
)
from tests.support.partitioned_graphs import CASES, part_of, whole


def some_ids(size: int, rank: int, how: str) -> torch.Tensor:
    """Returns ids with repetitions, others on each rank; sometimes none."""
    draw = torch.Generator().manual_seed(rank + 10 * len(how))
    if how == "none here" and rank == 0:
        return torch.empty(0, dtype=torch.int64)
    return torch.randint(size, (7 * rank + 3,), generator=draw)


def no_columns() -> None:
    """An attribute without columns has no bytes to send."""
    with Communicator.create("stores", timeout=20) as comm:
        part = part_of(CASES[0], comm.size, comm.rank)
        part.attributes[NODES]["none"] = torch.empty(part.num_nodes, 0)
        store = DistFeatureStore(part, comm, share=False)
        assert store.get_tensor(None, "none", index=torch.arange(7)).shape == (7, 0)


def dtypes() -> None:
    """Attributes of all types and shapes are read and written, shared or not."""
    draw = torch.Generator().manual_seed(5)
    wholes = {
        str(dtype): torch.randint(0, 2, (CASES[0].nodes, *shape), generator=draw).to(dtype)
        for dtype, shape in (
            *((torch.bool, (10,)), (torch.bfloat16, (3,)), (torch.float64, (2, 3)), (torch.int8, ())),
            *((torch.complex64, ()), (torch.float16, (1, 1, 2)), (torch.uint8, (5,))),
        )
    }
    with Communicator.create("stores", timeout=20) as comm:
        for share in (True, False):
            part = part_of(CASES[0], comm.size, comm.rank)
            tables = {name: table[part.node] for name, table in wholes.items()}
            part.attributes[NODES].update(tables)
            store = DistFeatureStore(part, comm, share=share)
            index = some_ids(CASES[0].nodes, comm.rank, "some")
            for name, table in wholes.items():
                assert torch.equal(store.get_tensor(None, name, index=index), table[index])
                store.put_tensor(table[index], None, name, index=index)
                found = store.get_tensor(None, name, index=slice(None))
                assert torch.equal(found, table) and found.dtype == table.dtype


def writes() -> None:
    """The last row of the highest rank stays if ranks write the same row."""
    with Communicator.create("stores", timeout=20) as comm:
        for case in CASES:
            data = whole(case)
            store = DistFeatureStore(part_of(case, comm.size, comm.rank), comm)
            for rank in range(comm.size):  # in one process, in the order of ranks
                index = some_ids(case.nodes, rank, "write")
                for at, node in enumerate(index.tolist()):
                    data.x[node] = 1000 * rank + at
                index = some_ids(case.edges, rank, "write") if case.edges else index[:0]
                for at, edge in enumerate(index.tolist()):
                    data.edge_kind[edge] = 100 * rank + at
            index = some_ids(case.nodes, comm.rank, "write")
            rows = 1000.0 * comm.rank + torch.arange(len(index)).view(-1, 1).expand(-1, 5)
            assert store.put_tensor(rows, None, "x", index=index)
            if case.edges:
                index = some_ids(case.edges, comm.rank, "write")
                rows = 100 * comm.rank + torch.arange(len(index), dtype=torch.int16)
                store.put_tensor(rows, EDGE_TYPE, "edge_kind", index=index)
                found = store.get_tensor(EDGE_TYPE, "edge_kind", index=slice(None))
                assert torch.equal(found, data.edge_kind)
            assert torch.equal(store.get_tensor(None, "x", index=slice(None)), data.x)


def refusals() -> None:
    """The stores refuse wrong arguments, with a remedy, before anything is exchanged."""
    with Communicator.create("stores", timeout=20) as comm:
        part = part_of(CASES[0], comm.size, comm.rank)
        features, graph = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        refused: list[tuple[type[Exception], str, Any]] = [
            (ValueError, "no rank holds all of 'x'", lambda: features.get_tensor(None, "x", index=None)),
            (KeyError, "no node attribute 'z'", lambda: features.get_tensor(None, "z", index=[1])),
            (KeyError, "no edge attribute 'x'", lambda: features.get_tensor(EDGE_TYPE, "x", index=[1])),
            (IndexError, "holds 120", lambda: features.get_tensor(None, "x", index=[120])),
            (TypeError, "integer ids", lambda: features.get_tensor(None, "x", index=torch.ones(2))),
            (NotImplementedError, "leave it out", lambda: features.remove_tensor(None, "x", index=None)),
            (ValueError, r"shape \[2, 5\]", lambda: features.put_tensor(torch.ones(2), None, "x", [1, 2])),
            (TypeError, "convert", lambda: features.put_tensor(torch.ones(1), None, "y", [1])),
            (ValueError, "'coo'", lambda: graph.get_edge_index(EDGE_TYPE, "csc")),
            (
                NotImplementedError,
                "cannot be changed",
                lambda: graph.put_edge_index((1, 2), EDGE_TYPE, "coo"),
            ),
            (
                ValueError,
                "cannot be on rank",
                lambda: DistGraphStore(part_of(CASES[0], comm.size + 1, 0), comm),
            ),
            (TypeError, "floating-point type", lambda: DistFeatureStore(part, comm, floats=torch.int8)),
            (ValueError, "topology has 3 nodes", lambda: DistGraphStore(part, comm, _small())),
        ]
        for error, text, call in refused:
            with pytest.raises(error, match=text):
                call()
        with pytest.raises(ValueError, match="node attribute 'x' already"):
            features.with_attribute(NODES, "x", {})
        with pytest.raises(KeyError, match="no node type 'other'"):
            features.reader({NODES: Columns(), Group(RowKind.NODE, "other"): Columns()})
        with pytest.raises(AgreementError, match="edge attributes"):
            DistFeatureStore(part_of(CASES[0], comm.size, comm.rank, edge_attributes=comm.rank == 0), comm)


def _small() -> HybridTopology:
    graph = CscGraph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 3)
    return HybridTopology(graph.typed, (torch.arange(3),))
