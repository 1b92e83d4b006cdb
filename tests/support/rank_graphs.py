"""Graphs with times and weights, spread over ranks in several ways, and the options of loaders."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import quantize
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import EDGES, NODES, Group, RowKind, Schema
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology, typed_graph_from_pyg
from tests.support.hetero_cases import BOTH, CITES, RELATIONS, make_timed
from tests.support.partitioned_graphs import CASES, whole
from tests.support.reference_partition import typed_part

#: Ways to spread the nodes of every type.
POLICIES = ("random", "contiguous", "types apart", "hole")


def policies(ranks: int) -> tuple[str, ...]:
    """Returns the policies that differ: one rank owns all nodes under each of them."""
    return POLICIES[: 1 if ranks == 1 else None]


def typed() -> HeteroData:
    data = make_timed()
    data["lonely"].x = torch.as_tensor(data["lonely"].x)
    del data["lonely"].name, data.about
    data["paper"].even_mask = torch.arange(60) % 2 == 0  # of the split
    data["paper"].codes = codes_of(60, 5)
    for relation, count in RELATIONS.items():
        data[relation].codes = codes_of(count)
    return data


def plain() -> Data:
    data = whole(CASES[0])
    data.time = torch.arange(data.num_nodes) * 7 % 10
    data.stamp = torch.arange(data.num_edges) * 3 % 10
    data.weight = torch.arange(data.num_edges) % 3 / 2
    data.even_mask = torch.arange(data.num_nodes) % 2 == 0  # of the split
    data.codes_of_nodes, data.codes = codes_of(data.num_nodes, 5), codes_of(data.num_edges)
    return data


def codes_of(*shape: int) -> Tensor:
    return quantize(torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))))


GRAPHS: dict[str, Any] = {"typed": typed(), "plain": plain()}


def owners(counts: tuple[int, ...], policy: str, ranks: int) -> list[Tensor]:
    """Returns by type the rank that owns each node. ``counts``: the nodes of each type."""
    draw = torch.Generator().manual_seed(5)
    if policy == "contiguous":
        return [torch.arange(count) * ranks // max(count, 1) for count in counts]
    if policy == "types apart":  # ranks own nothing of most types
        return [torch.full((count,), number % ranks) for number, count in enumerate(counts)]
    low = 1 if policy == "hole" and ranks > 1 else 0
    return [torch.randint(low, ranks, (count,), generator=draw) for count in counts]


@functools.cache
def owners_in(graph: str, policy: str, ranks: int) -> tuple[list[Tensor], Schema]:
    typed = typed_graph_from_pyg(GRAPHS[graph])
    return owners(typed.num_nodes, policy, ranks), typed.schema


def tables_of(data: Any) -> dict[Group, dict[str, Tensor]]:
    if isinstance(data, Data):
        named = {name: table for name, table in data._store.items() if name != "edge_index"}
        edges = {name: table for name, table in named.items() if data.is_edge_attr(name)}
        return {NODES: {name: named[name] for name in named if name not in edges}, EDGES: edges}
    stores = {Group(RowKind.NODE, name): data[name] for name in data.node_types}
    stores |= {Group(RowKind.EDGE, name): data[name] for name in data.edge_types}
    return {
        group: {name: one for name, one in store.items() if name not in ("edge_index", "num_nodes")}
        for group, store in stores.items()
    }


def part_of(data: Any, policy: str, ranks: int, rank: int) -> Part:
    """Returns a rank's part of a graph. Its first type has the split "even"."""
    graph = typed_graph_from_pyg(data)
    own = owners(graph.num_nodes, policy, ranks)
    group = graph.schema.node_groups[0]
    splits = {group: {"even": torch.arange(0, graph.num_nodes[0], 2)}}
    return typed_part(graph, own, ranks, rank, tables_of(data), splits)


def stores_of(
    comm: Communicator, data: Any, policy: str, hybrid: bool = False
) -> tuple[DistFeatureStore, DistGraphStore]:
    part = part_of(data, policy, comm.size, comm.rank)
    topology = replicate_topology(part, comm) if hybrid else None
    return DistFeatureStore(part, comm), DistGraphStore(part, comm, topology)


class SpreadGraphs:
    """A rank's stores of all `GRAPHS`. They are made when they are first asked for, together."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self._made: dict[tuple[str, str, bool], tuple[DistFeatureStore, DistGraphStore]] = {}

    def stores(self, graph: str, policy: str, hybrid: bool) -> tuple[DistFeatureStore, DistGraphStore]:
        key = graph, policy, hybrid
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def _make(self, graph: str, policy: str, hybrid: bool) -> tuple[DistFeatureStore, DistGraphStore]:
        if not hybrid:
            return stores_of(self.comm, GRAPHS[graph], policy)
        features, whole = self.stores(graph, policy, False)
        topology = replicate_topology(whole.part, self.comm)
        return features, DistGraphStore(whole.part, self.comm, topology)


def assert_shared(owner: Sequence[int], seeds: Sequence[Sequence[int]], schedule: str) -> None:
    """Asserts that ranks train each position of a loader's input once, as a schedule says.
    ``owner``: of each position. Balanced: equally many a rank, and no more moved than needed."""
    assert sorted(itertools.chain.from_iterable(seeds)) == list(range(len(owner)))
    trained_by_owners = sum(owner[seed] == rank for rank, own in enumerate(seeds) for seed in own)
    if schedule == "local":
        assert trained_by_owners == len(owner)
        return
    counts = [sum(one == rank for one in owner) for rank in range(len(seeds))]
    sizes = [len(own) for own in seeds]
    assert max(sizes) - min(sizes) <= 1
    least, more = divmod(len(owner), len(seeds))
    best = sum(min(count, least) for count in counts) + min(more, sum(count > least for count in counts))
    assert trained_by_owners == best


#: The seeds of loaders by graph. Those of two types are visited as one list; some occur twice.
SEEDS: dict[tuple[str, str], Any] = {
    ("typed", "one"): ("paper", torch.arange(0, 60, 2)),
    ("typed", "several"): {name: torch.as_tensor(own) for name, own in BOTH.items()},
    ("plain", "one"): torch.arange(0, 120, 3),
    ("plain", "several"): torch.arange(60).repeat(2) % 47,
}
SEEDS["typed", "several"]["paper"] = torch.arange(60) // 2

#: The rules of sampling, by name.
OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "fanouts by relation": {"num_neighbors": {**{name: [2, 1] for name in RELATIONS}, CITES: [0, 3]}},
    "shares": {"num_neighbors": [0.4, -1]},
    "replace": {"replace": True},
    "three hops": {"num_neighbors": [2, 0, 3]},
    "disjoint": {"disjoint": True, "tokens": 5},
    "times of nodes": {"time_attr": "time", "tokens": 7},
    "last": {"time_attr": "time", "temporal_strategy": "last", "freeze": 6},
    "window of times of edges": {"time_attr": "stamp", "time_window": 4, "tokens": 9},
    "weights": {"weight_attr": "weight"},
    "shared words": {"labor": "layers"},
    "shared words and weights": {"labor": "epoch", "weight_attr": "weight"},
    "weights and times": {"weight_attr": "codes", "time_attr": "stamp", "replace": True},
    "induced": {"subgraph_type": "induced"},
    "induced by time": {"subgraph_type": "induced", "time_attr": "time"},
    "bidirectional": {"subgraph_type": "bidirectional"},
}


def arguments_of(graph: str, option: str, seeds: str) -> dict[str, Any]:
    """Returns the arguments of a loader, but for those of macrobatches and ranks."""
    nodes = SEEDS[graph, seeds]
    chosen: dict[str, Any] = {"num_neighbors": [3, 2], **OPTIONS[option]}
    if graph == "plain" and isinstance(chosen["num_neighbors"], Mapping):
        chosen["num_neighbors"] = [3, 0]
    if chosen.get("time_attr") == "stamp" or (seeds == "several" and "time_attr" in chosen):
        chosen["input_time"] = _times(nodes)
    return {"input_nodes": nodes, "batch_size": 7, "shuffle": True, "seed": 11, **chosen}


def _times(nodes: Any) -> Any:
    if isinstance(nodes, Mapping):
        return {name: _times(own) for name, own in nodes.items()}
    ids = nodes[1] if isinstance(nodes, tuple) else nodes
    return torch.arange(len(ids)) * 3 % 12
