"""The cost of relations that a minibatch does not reach.

The same minibatches are made of a graph of two relations and of one that has 500 relations more,
between other node types. The difference, divided by their number, is what each of them costs. For
PyG batches, PyG's own filter (``torch_geometric.loader.utils.filter_hetero_data``) is measured on
the same ids. All take turns in one process, on one thread.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader.utils import filter_hetero_data

from benchmark.support.rounds import typical
from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.sample import Layout, MacrobatchSampler, SamplingPlan, Seeds
from pyg_batchgnn.store import typed_graph_from_pyg

NODES, EDGES, FANOUTS, SEEDS, MINIBATCHES = 1000, 10_000, (10, 5), 64, 8
#: The relations that are added.
ADDED = 500
#: Makes the minibatches of a round.
Work = Callable[[], Any]


def data_with(added: int) -> HeteroData:
    """Returns a graph of two relations, and ``added`` more that they do not lead to."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    relations = [("a", "to", "b"), ("b", "to", "a")]
    relations += [(f"t{number // 2}", f"r{number}", f"t{number // 2}") for number in range(added)]
    for source, name, target in relations:
        for node_type in (source, target):
            data[node_type].x = torch.randn(NODES, 8, generator=generator)
        edges = torch.randint(0, NODES, (2, EDGES), generator=generator)
        data[source, name, target].edge_index = edges
        data[source, name, target].edge_attr = torch.randn(EDGES, 2, generator=generator)
    return data


def works(data: HeteroData) -> dict[str, Work]:
    """Returns each way of making minibatches, by name."""
    graph = typed_graph_from_pyg(data)
    sampler = MacrobatchSampler(graph, SamplingPlan(FANOUTS), 0, 1, Layout.CSC)
    ids = torch.arange(SEEDS * MINIBATCHES).split(SEEDS)
    seeds = [Seeds.of(graph.schema, {"a": one}) for one in ids]
    native, pyg = (
        MacrobatchNeighborLoader(
            data,
            list(FANOUTS),
            ("a", torch.cat(ids)),
            batch_size=SEEDS,
            seed=0,
            threads=1,
            macrobatch_size=MINIBATCHES,
            export=export,
        )
        for export in ("native", "pyg")
    )
    batches = list(pyg)
    return {
        "sampling": lambda: sampler.sample(seeds, 0),
        "native minibatches": lambda: list(native),
        "PyG batches": lambda: list(pyg),
        "PyG's filter on the same ids": lambda: [filtered(data, batch) for batch in batches],
    }


def filtered(data: HeteroData, batch: HeteroData) -> HeteroData:
    """Returns what PyG's filter makes of the nodes and edges of a batch."""
    node = {name: store.n_id for name, store in batch._node_store_dict.items()}
    edges = batch._edge_store_dict.items()
    return filter_hetero_data(
        data,
        node,
        {names: store.edge_index[0] for names, store in edges},
        {names: store.edge_index[1] for names, store in edges},
        {names: store.e_id for names, store in edges},
    )


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Returns, by way, the CPU seconds per minibatch of either graph, and per added relation."""
    torch.set_num_threads(1)
    small, large = (works(data_with(added)) for added in (0, ADDED))
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in small}
    gc.collect()
    gc.disable()  # as timeit does
    for number in range(3 * rounds + 1):
        for name in small:
            pair = cpu_seconds(small[name]), cpu_seconds(large[name])
            if number > 0:
                taken[name].append(pair)
    gc.enable()
    found = {}
    for name, pairs in taken.items():
        few, many = (typical(pair[at] for pair in pairs) / MINIBATCHES for at in (0, 1))
        found[name] = {"few": few, "many": many, "each": (many - few) / ADDED}
        print(f"  {name:<30} {1e6 * found[name]['each']:8.3f} us per relation", flush=True)
    return found


def cpu_seconds(work: Work) -> float:
    """Returns the CPU seconds that a round takes after one like it, which warms the caches."""
    work()
    begin = time.process_time()
    work()
    return time.process_time() - begin
