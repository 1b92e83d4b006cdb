"""The jobs of ranks in test_ranks.py: every option, typed or not, against one process."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition import move
from pyg_batchgnn.sample import LABOR, Subgraph
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support import loader_cases
from tests.support.backends import needs_ccl
from tests.support.rank_coverings import TIMEOUT, check_settings, over_ranks, run_covering, settings_of
from tests.support.rank_epochs import OneProcess, RankEpoch, assert_same, resumed_at, some_positions
from tests.support.rank_graphs import (
    GRAPHS,
    OPTIONS,
    SpreadGraphs,
    arguments_of,
    owners_in,
    policies,
    stores_of,
)
from tests.support.ranks import run_ranks
from tests.support.reference_partition import split_dataset
from tests.support.tiers import ALL, WORLDS, own_slices
from tests.support.typed_datasets import typed_dataset
from tests.support.typed_graphs import SCHEMAS

#: The factors that one process knows too.
IN_ONE_PROCESS = ("graph", "option", "seeds", "export")
#: How epochs are made, by name. One process takes other ways.
SIZES: dict[str, dict[str, Any]] = {
    "one by one, ahead, in order": {"macrobatch_size": 1, "fetch_size": 1, "prefetch": 2, "shuffle": False},
    "on a device": {"macrobatch_size": 3, "fetch_size": 2, "device": "cpu"},
    "all together, whole ones": {"macrobatch_size": "all", "fetch_size": 1, "drop_last": True},
    "automatic, ahead": {"macrobatch_size": "auto", "fetch_size": "auto", "prefetch": 2},
}


def factors(ranks: int) -> dict[str, tuple[Any, ...]]:
    return {
        "option": tuple(OPTIONS),
        "graph": ("typed", "plain"),
        "policy": policies(ranks),
        "hybrid": (False, True),
        "sizes": tuple(SIZES),
        "seeds": ("one", "several"),
        "schedule": ("local", "balanced", "global"),
        "export": ("pyg", "native"),
    }


def allowed(setting: Mapping[str, Any]) -> bool:
    drops = SIZES[setting["sizes"]].get("drop_last") if "sizes" in setting else False
    return not (
        (setting.get("export") == "native" and setting.get("option") == "bidirectional")
        or (drops and setting.get("schedule") == "balanced")
    )


def settings(ranks: int) -> list[dict[str, Any]]:
    return settings_of(factors(ranks), allowed, IN_ONE_PROCESS)


def epochs(backend: str, every: int) -> int:
    """Minibatches are those of one process, in the rounds of the formulas."""
    return check_settings(backend, every, settings, IN_ONE_PROCESS, _in_one_process, _check)


def _arguments_of(setting: Mapping[str, Any]) -> dict[str, Any]:
    chosen = arguments_of(setting["graph"], setting["option"], setting["seeds"])
    return {**chosen, "export": setting["export"]}


def _in_one_process(setting: Mapping[str, Any]) -> OneProcess:
    arguments = _arguments_of(setting)
    loader = MacrobatchNeighborLoader(GRAPHS[setting["graph"]], **arguments, macrobatch_size=1, fetch_size=1)
    return OneProcess(loader, functools.partial(positions, nodes=arguments["input_nodes"]))


def _check(graphs: SpreadGraphs, reference: OneProcess, setting: Mapping[str, Any]) -> None:
    comm, sizes = graphs.comm, SIZES[setting["sizes"]]
    loader = MacrobatchNeighborLoader(
        graphs.stores(setting["graph"], setting["policy"], setting["hybrid"]),
        **{**_arguments_of(setting), **sizes},
        schedule=setting["schedule"],
    )
    epoch = RankEpoch.of(comm, loader, reference.positions)
    owner = _owner_of_inputs(loader, setting, comm.size)
    order = reference.order() if sizes.get("shuffle", True) else reference.in_order()
    own = some_positions(loader, comm.rank)
    epoch.check(reference, setting["schedule"], owner, own, order, drops=sizes.get("drop_last", False))
    _check_counts(epoch, setting)


def positions(batch: Any, nodes: Any) -> Tensor:
    if isinstance(batch, Minibatch):
        counts = [batch.nodes[number].nodes_per_hop[0] for number in batch.seed_types]
        assert batch.input_id is not None
        ids = list(batch.input_id.split(counts))
    elif isinstance(nodes, Mapping):
        ids = [batch[name].input_id for name in nodes]
    else:
        ids = [batch[nodes[0]].input_id if isinstance(nodes, tuple) else batch.input_id]
    sizes = [len(own) for own in nodes.values()] if isinstance(nodes, Mapping) else [0]
    begins = [0, *itertools.accumulate(sizes)]
    return torch.cat([own + begin for own, begin in zip(ids, begins, strict=False)])


def _owner_of_inputs(loader: Any, setting: Mapping[str, Any], ranks: int) -> list[int]:
    own, schema = owners_in(setting["graph"], setting["policy"], ranks)
    inputs = loader._setup.pipeline.inputs
    return [rank for part in inputs.parts for rank in own[schema.type_number(part.name)][part.node].tolist()]


def _check_counts(epoch: RankEpoch, setting: Mapping[str, Any]) -> None:
    comm, loader, counts = epoch.comm, epoch.loader, epoch.counts
    plan, sizes, made = loader._setup.plan, loader.sizes, range(len(epoch.batches))
    macrobatches = [made[first : first + sizes.macrobatch] for first in made[:: sizes.macrobatch]]
    groups = [-(-len(one) // sizes.fetch) for one in macrobatches]
    assert counts[MessageKind.PARTITION].rounds == 0
    if comm.size == 1:
        return
    schedule, relayed = setting["schedule"], not setting["hybrid"]
    relays = plan.num_hops + (plan.subgraph is Subgraph.INDUCED) - (schedule == "local")
    assert counts[MessageKind.TOPOLOGY].rounds == 2 * relays * len(macrobatches) * relayed
    assert counts[MessageKind.FEATURES].rounds == 2 * sum(groups)
    assert counts[MessageKind.LOOKUP].rounds == 2 * relayed * (schedule == "global")


def splits_and_refusals(comm: Communicator) -> None:
    data = GRAPHS["typed"]
    both = stores_of(comm, data, "random")
    named = MacrobatchNeighborLoader(both, [2], ("paper", "even"), batch_size=4, seed=1)
    assert torch.equal(named.input_data.node, torch.arange(0, 60, 2))
    several = MacrobatchNeighborLoader(both, [2], {"author": None, "paper": "even"}, batch_size=50, seed=1)
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


def attributes_that_differ(comm: Communicator) -> None:
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


def odd_graphs(comm: Communicator, first: int, count: int) -> None:
    """Takes random graphs: types without nodes, relations without edges, ranks without a type."""
    warnings.simplefilter("ignore")
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
    rules: dict[str, Any] = {
        "replace": bool(draw.integers(2)),
        "disjoint": bool(draw.integers(2)),
        **({"time_attr": "time", "input_time": times} if draw.integers(2) else {}),
        **({"subgraph_type": "induced"} if draw.integers(2) else {}),
    }
    if draw.integers(3) == 0:
        rules = {"labor": LABOR[draw.integers(3)]}
    return {
        "num_neighbors": [[3, 2], [-1], [0.5, 1, 2]][draw.integers(3)],
        "input_nodes": nodes,
        "batch_size": int(draw.choice([2, 5])),
        "shuffle": True,
        "seed": 3,
        **rules,
        **({"weight_attr": "weight"} if draw.integers(2) and has_weights else {}),
        **({"export": "native"} if draw.integers(2) else {}),
    }


def resumed(comm: Communicator) -> None:
    """A typed loader goes on at any minibatch, and refuses a state of other rules."""
    both = stores_of(comm, GRAPHS["typed"], "random")
    options = {"local": "uniform", "balanced": "last", "global": "weights and times"}
    for prefetch, (schedule, option) in enumerate(options.items()):
        arguments = {**arguments_of("typed", option, "several"), "schedule": schedule}
        loader = MacrobatchNeighborLoader(both, **arguments, macrobatch_size=2, prefetch=prefetch)
        ahead = 2 - prefetch
        make = functools.partial(MacrobatchNeighborLoader, both, **{**arguments, "seed": 5}, prefetch=ahead)
        stops = range(len(loader) + 1) if ALL else (0, len(loader) // 2, len(loader))
        *_, (other, state) = resumed_at(loader, make, 3, stops, assert_same)
        for name, value in (
            ("time_attr", "weight"),
            ("seed_types", []),
            ("temporal", "x"),
            *([("ranks", 17)] if schedule != "global" else []),
        ):
            changed = {**state, "settings": {**state["settings"], name: value}}
            with pytest.raises(ValueError, match=name):
                other.load_state_dict(changed)


def times_in_pieces(comm: Communicator) -> None:
    """Times of other ranks' nodes come once, when a loader is made, in pieces of bounded size."""
    move.ROUND_BYTES = 1  # then a piece has 256 rows
    data = loader_cases.make_data(nodes=1500, edges=4000, time=torch.arange(1500) * 7 % 1000)
    data.even_mask = torch.arange(1500) % 2 == 0  # of the split
    arguments: dict[str, Any] = {"time_attr": "time", "batch_size": 300, "seed": 3}
    reference = MacrobatchNeighborLoader(data, [3], **arguments)
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


@over_ranks
def test_minibatches_are_those_of_one_process(ranks: int, hosts: Sequence[int], every: int) -> None:
    run_covering(epochs, ranks, hosts, every)


@own_slices
@needs_ccl
@pytest.mark.timeout(TIMEOUT)
def test_minibatches_over_ccl_are_those_of_one_process() -> None:
    run_covering(epochs, 2, [0, 1], 5, backend="ccl")


@pytest.mark.parametrize("job", [splits_and_refusals, attributes_that_differ, resumed, times_in_pieces])
def test_two_ranks(job: Callable[..., Any]) -> None:
    run_ranks(job, 2, hosts=[0, 1])


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS[1:3], ids=str)
def test_graphs_of_odd_shapes(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(odd_graphs, ranks, {"first": 100 * ranks, "count": 25 if ALL else 10}, hosts=hosts)
