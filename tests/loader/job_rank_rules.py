"""The jobs of ranks in test_rank_options.py: what loaders are given, refuse and resume."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition import move
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support import loader_cases
from tests.support.rank_epochs import assert_same
from tests.support.rank_graphs import (
    GRAPHS,
    arguments_of,
    stores_of,
)
from tests.support.reference_partition import split_dataset
from tests.support.resumed_epochs import resumed_at
from tests.support.typed_datasets import typed_dataset
from tests.support.typed_graphs import SCHEMAS

from .job_rank_options import positions


def splits_and_refusals() -> None:
    """Splits name seeds, and arguments that cannot be are refused on every rank."""
    with Communicator.create("loader", timeout=30) as comm:
        data = GRAPHS["typed"]
        both = stores_of(comm, data, "random")
        named = MacrobatchNeighborLoader(both, [2], ("paper", "even"), batch_size=4, seed=1)
        assert torch.equal(named.input_data.node, torch.arange(0, 60, 2))
        several = MacrobatchNeighborLoader(
            both, [2], {"author": None, "paper": "even"}, batch_size=50, seed=1
        )
        assert len(several.dataset) == 70
        for text, arguments in (
            ("'paper' have no split 'odd'; there is even", {"input_nodes": ("paper", "odd")}),
            ("names the node type 'papers'", {"input_nodes": ("papers", "even")}),
            ("neither an attribute of nodes", {"time_attr": "z"}),
            ("is no attribute of edges", {"weight_attr": "time"}),
            ("nodes of type 'author' have no 'time'", {"time_attr": "time", "input_nodes": "author"}),
            ("edges have 'stamp'", {"time_attr": "stamp"}),
            ("is_sorted=True", {"time_attr": "time", "is_sorted": True}),
            ("for export='pyg'", {"subgraph_type": "bidirectional", "export": "native"}),
            ("Missing number of neighbors", {"num_neighbors": {("paper", "cites", "paper"): [1]}}),
        ):
            with pytest.raises(ValueError, match=text):
                MacrobatchNeighborLoader(both, **{"num_neighbors": [2], "input_nodes": "paper", **arguments})
        assert comm.sum(len(named.all_nodes().node_of("paper"))) == 60


def attributes_that_differ() -> None:
    """A weight that cannot be is refused on all ranks; edges in order are not."""
    with Communicator.create("loader", timeout=30) as comm:
        data = GRAPHS["plain"].clone()
        data.weight = data.weight.clone()
        data.weight[17] = -1.0
        both = stores_of(comm, data, "random")
        with pytest.raises(ValueError, match="must be finite and not negative"):
            MacrobatchNeighborLoader(both, [2], weight_attr="weight", batch_size=9)
        times = MacrobatchNeighborLoader(both, [2], time_attr="time", batch_size=9, seed=1)
        assert comm.sum(sum(batch.batch_size for batch in times)) == data.num_nodes
        order = torch.argsort(data.edge_index[1] * 100 + data.stamp)
        ordered = Data(edge_index=data.edge_index[:, order], stamp=data.stamp[order], x=data.x)
        at_end = torch.full((data.num_nodes,), 99)
        for hybrid in (False, True):
            both = stores_of(comm, ordered, "random", hybrid)
            arguments = {"time_attr": "stamp", "is_sorted": True, "input_time": at_end}
            MacrobatchNeighborLoader(both, [2], **arguments, batch_size=9)


def odd_graphs(first: int, count: int) -> None:
    """Takes random graphs: types without nodes, relations without edges, ranks without a type."""
    warnings.simplefilter("ignore")
    with Communicator.create("loader", timeout=30) as comm:
        for seed in range(first, first + count):
            try:
                _check_odd(comm, seed)
            except Exception as error:
                raise AssertionError(f"odd graph {seed}: {error}") from error


def _check_odd(comm: Communicator, seed: int) -> None:
    draw = np.random.default_rng(seed)
    schema = SCHEMAS[int(draw.integers(len(SCHEMAS)))]
    nodes, edges = draw.choice([0, 1, 2, 7, 30], 4), draw.choice([0, 1, 20, 150], 5)
    nodes[0] = max(nodes[0], 1)
    dataset = typed_dataset(seed, schema, nodes.tolist(), edges.tolist())
    allowed_ranks = [draw.choice(comm.size, draw.integers(1, comm.size + 1)) for _ in dataset.node_sets]
    owner = [
        torch.from_numpy(draw.choice(ranks, one.num_nodes))
        for ranks, one in zip(allowed_ranks, dataset.node_sets, strict=True)
    ]
    part = split_dataset(dataset, owner, comm.size, comm.rank)
    both = DistFeatureStore(part, comm), DistGraphStore(part, comm)
    arguments = _odd_arguments(draw, dataset)
    of_ranks = {
        "schedule": str(draw.choice(["local", "balanced", "global"])),
        "feature_cache": [None, 0, 1000][draw.integers(3)],
        "macrobatch_size": 3,
        "fetch_size": 2,
    }
    loader = MacrobatchNeighborLoader(both, **arguments, **of_ranks)
    reference = MacrobatchNeighborLoader(dataset.to_pyg(), **arguments, macrobatch_size=1, fetch_size=1)
    for epoch in range(2):
        reference.set_epoch(epoch)
        for batch in loader:
            assert_same(batch, reference(positions(batch, arguments["input_nodes"])))


def _odd_arguments(draw: np.random.Generator, dataset: Dataset) -> dict[str, Any]:
    """Draws seeds of some types, with duplicates or none, and the options of a loader."""
    counts = {one.name: one.num_nodes for one in dataset.node_sets}
    names = draw.permutation(list(counts))[: draw.integers(1, len(counts) + 1)].tolist()
    sizes = {name: int(draw.choice([0, 1, 9])) if counts[name] else 0 for name in names}
    nodes: Any = {
        name: torch.from_numpy(draw.integers(0, max(counts[name], 1), size)) for name, size in sizes.items()
    }
    times: Any = {name: torch.from_numpy(draw.integers(0, 1 << 40, size)) for name, size in sizes.items()}
    if not dataset.schema.has_names:
        nodes, times = next(iter(nodes.values())), next(iter(times.values()))
    has_weights = bool(dataset.edge_sets)
    return {
        "num_neighbors": [[3, 2], [-1], [0.5, 1, 2]][draw.integers(3)],
        "input_nodes": nodes,
        "batch_size": int(draw.choice([2, 5])),
        "shuffle": True,
        "seed": 3,
        "replace": bool(draw.integers(2)),
        "disjoint": bool(draw.integers(2)),
        **({"time_attr": "time", "input_time": times} if draw.integers(2) else {}),
        **({"weight_attr": "weight"} if draw.integers(2) and has_weights else {}),
        **({"export": "native"} if draw.integers(2) else {}),
        **({"subgraph_type": "induced"} if draw.integers(2) else {}),
    }


def resumed() -> None:
    """A typed loader goes on at any minibatch, and refuses a state of other rules."""
    with Communicator.create("loader", timeout=30) as comm:
        both = stores_of(comm, GRAPHS["typed"], "random")
        for schedule, option in (("balanced", "last"), ("global", "weights and times")):
            arguments = {**arguments_of("typed", option, "several"), "schedule": schedule}
            loader = MacrobatchNeighborLoader(both, **arguments, macrobatch_size=2)
            make = functools.partial(MacrobatchNeighborLoader, both, **{**arguments, "seed": 5}, prefetch=2)
            *_, (other, state) = resumed_at(loader, make, 3, None, assert_same)
            for name, value in (("time_attr", "weight"), ("seed_types", []), ("temporal", "x")):
                changed = {**state, "settings": {**state["settings"], name: value}}
                with pytest.raises(ValueError, match=name):
                    other.load_state_dict(changed)


def times_in_pieces() -> None:
    """Times of other ranks' nodes come once, when a loader is made, in pieces of bounded size."""
    move.ROUND_BYTES = 1  # then a piece has 256 rows
    data = loader_cases.make_data(nodes=1500, edges=4000, time=torch.arange(1500) * 7 % 1000)
    data.even_mask = torch.arange(1500) % 2 == 0  # of the split
    arguments: dict[str, Any] = {"time_attr": "time", "batch_size": 300, "seed": 3}
    reference = MacrobatchNeighborLoader(data, [3], **arguments)
    with Communicator.create("loader", timeout=30) as comm:
        for hybrid in (False, True):
            both = stores_of(comm, data, "random", hybrid)
            before = comm.counters.snapshot()
            loader = MacrobatchNeighborLoader(both, [3], **arguments)
            counts = comm.counters.snapshot() - before
            part = both[1].part
            sources = comm.max(part.in_edges.indices.unique().numel())
            pieces, own = -(-sources // 256), -(-comm.max(part.num_nodes) // 256)
            # ids and values; or questions and answers of sources, and the times of seeds
            wanted = 2 * own if hybrid else 2 * pieces + own
            assert pieces > 1 and counts[MessageKind.PARTITION].rounds == wanted, counts
            for batch in loader:
                assert_same(batch, reference(batch.input_id))
