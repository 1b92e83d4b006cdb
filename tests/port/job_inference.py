"""Jobs of the ranks in test_inference.py."""

from __future__ import annotations

import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import MacrobatchNeighborLoader, accelerate
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.nn import GAT, GCN, GIN, SAGE, NativeModel
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support.partitioned_graphs import CASES, Case, owners, whole
from tests.support.reference_aggregates import with_loops
from tests.support.reference_partition import split_graph

MODELS = {
    "sage": lambda: SAGE(5, 8, 3, 3),
    "gcn": lambda: GCN(5, 8, 2, 3),
    "gin": lambda: GIN(5, 8, 2, 3, norm="batch_norm"),
    "gat": lambda: GAT(5, 8, 2, 3, heads=2),
    "of PyG": lambda: accelerate(torch_geometric.nn.GCN(5, 8, 3, 3, jk="max")),
}


def part_of(case: Case, comm: Communicator) -> Part:
    data = with_loops(whole(case))
    return split_graph(
        data.edge_index, owners(case, comm.size), comm.size, comm.rank,
        tables={"x": data.x}, edge_tables={}, splits={},
    )  # fmt: skip


def model_of(name: str) -> NativeModel:
    torch.manual_seed(4)
    return MODELS[name]().eval()


@torch.no_grad()
def expected_of(name: str, case: Case) -> Tensor:
    data = with_loops(whole(case))
    expected: Tensor = model_of(name)(data.x, data.edge_index)
    return expected


def equality() -> None:
    """A rank's rows are those of the whole graph's forward pass, shared memory or not."""
    with Communicator.create("inference", timeout=30) as comm:
        for number, case in enumerate(CASES):
            part = part_of(case, comm)
            both = (
                DistFeatureStore(part, comm, share=number % 2 == 0),
                DistGraphStore(part, comm),
            )
            loader = MacrobatchNeighborLoader(both, [2], batch_size=4)
            for name in MODELS if number == 0 else ("gcn", "gat"):
                expected = expected_of(name, case)
                for budget in (None, 20_000) if number < 2 else (None,):
                    found = model_of(name).inference(loader, memory_budget=budget)
                    error = (found - expected[part.node]).abs().max() if len(part.node) else torch.zeros(())
                    assert found.shape == (len(part.node), 3), found.shape
                    assert error <= 1e-5 * expected.abs().max(), (case.name, name, budget, error)


def rows_exchanged() -> None:
    """Each halo row travels once per layer and each halo degree once, counted as inference."""
    with Communicator.create("inference", timeout=30) as comm:
        part = part_of(CASES[0], comm)
        both = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        loader = MacrobatchNeighborLoader(both, [2], batch_size=4)
        own = range(part.first, part.first + part.num_nodes)
        halo = [int(node) for node in part.in_edges.indices.unique() if int(node) not in own]
        asked = sum(int(node) in own for other in comm.all_gather_json(halo) for node in other)
        for name, times in (("sage", 3), ("gcn", 2 + 1)):
            before = comm.counters.snapshot()
            model_of(name).inference(loader)
            spent = comm.counters.snapshot() - before
            assert spent[MessageKind.INFERENCE].rounds == 2 * times
            assert spent[MessageKind.INFERENCE].rows_received == times * (len(halo) + asked)
            assert spent[MessageKind.FEATURES].rounds == spent[MessageKind.TOPOLOGY].rounds == 0
        before = comm.counters.snapshot()
        model_of("sage").inference(loader, memory_budget=9_000)
        assert (comm.counters.snapshot() - before)[MessageKind.INFERENCE].rounds > 6
