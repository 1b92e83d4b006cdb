"""The jobs of ranks in test_rank_options.py: every option, typed or not, against one process."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch
from pyg_batchgnn.comm import Communicator, Counts, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.sample import Subgraph
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, typed_graph_from_pyg
from tests.support import hetero_cases, loader_cases
from tests.support.pairwise import pairwise, product
from tests.support.rank_graphs import (
    GRAPHS,
    OPTIONS,
    POLICIES,
    arguments_of,
    owners,
    stores_of,
    tables_of,
)
from tests.support.reference_partition import split_dataset
from tests.support.traffic import asked_nodes, remote_edges
from tests.support.typed_datasets import typed_dataset
from tests.support.typed_graphs import SCHEMAS

FACTORS: dict[str, tuple[Any, ...]] = {
    "option": tuple(OPTIONS),
    "graph": ("typed", "plain"),
    "policy": POLICIES,
    "hybrid": (False, True),
    #: B, F and the macrobatches that are prepared ahead.
    "sizes": ((1, 1, 2), (3, 2, 0), ("all", 1, 0), ("auto", "auto", 2)),
    "seeds": ("one", "several"),
    "schedule": ("local", "global"),
    "export": ("pyg", "native"),
}
#: The forms that only PyG batches have.
FOR_PYG = ("induced", "induced by time", "bidirectional")


def allowed(setting: Mapping[str, Any]) -> bool:
    return setting.get("export") != "native" or setting.get("option") not in FOR_PYG


def settings(full: bool) -> list[dict[str, Any]]:
    return (product if full else pairwise)(FACTORS, allowed)


def epochs(backend: str = "gloo", full: bool = False, every: int = 1) -> int:
    """Minibatches are those of one process, in the rounds and rows of the formulas.

    ``every``: 1 takes all settings, n every n-th.
    """
    warnings.simplefilter("ignore")  # PyG's, of relations that have no reverse
    chosen = settings(full)[::every]
    with Communicator.create("loader", timeout=30, backend=backend) as comm:
        keys = [*itertools.product(*(FACTORS[name] for name in ("graph", "policy", "hybrid")))]
        both = {(graph, *others): stores_of(comm, GRAPHS[graph], *others) for graph, *others in keys}
        for setting in chosen:
            try:
                _check(comm, both[setting["graph"], setting["policy"], setting["hybrid"]], setting)
            except Exception as error:
                raise AssertionError(f"{setting}: {error}") from error
    return len(chosen)


def _check(
    comm: Communicator, both: tuple[DistFeatureStore, DistGraphStore], setting: Mapping[str, Any]
) -> None:
    arguments = arguments_of(setting["graph"], setting["option"], setting["seeds"])
    arguments["export"] = setting["export"]
    macrobatch, fetch, prefetch = setting["sizes"]
    loader = MacrobatchNeighborLoader(
        both,
        **arguments,
        schedule=setting["schedule"],
        macrobatch_size=macrobatch,
        fetch_size=fetch,
        prefetch=prefetch,
    )
    reference = MacrobatchNeighborLoader(
        GRAPHS[setting["graph"]], **arguments, macrobatch_size=1, fetch_size=1
    )
    loader.set_epoch(2)
    reference.set_epoch(2)
    before = comm.counters.snapshot()
    made, weights = [], []
    for batch in loader:
        made.append(batch)
        weights.append(loader.loss_weight)
    after = comm.counters.snapshot() - before
    assert len(made) == len(loader)
    for batch in made:
        assert_same(batch, reference(positions(batch, arguments["input_nodes"])))
    _check_schedule(comm, loader, reference, made, setting)
    sizes = [len(positions(batch, arguments["input_nodes"])) for batch in made]
    steps = [sum(step) for step in zip(*comm.all_gather_json(sizes), strict=True)]
    assert weights == [comm.size / max(seeds, 1) for seeds in steps]
    own = (torch.arange(4) * 5 + comm.rank) % len(loader.dataset)
    assert_same(loader(own), reference(own))
    _check_counts(comm, loader, setting, made, after)


def positions(batch: Any, nodes: Any) -> Tensor:
    """Returns the positions of a batch's seeds in the loader's input, type by type."""
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


def assert_same(batch: Any, right: Any) -> None:
    """Asserts that two batches have the same bits and attributes."""
    if isinstance(batch, Minibatch):
        assert batch.key == right.key and (batch.seed, batch.epoch) == (right.seed, right.epoch)
        assert batch.seed_types == right.seed_types and batch.attributes.keys() == right.attributes.keys()
        for mine, theirs in zip(batch.edges, right.edges, strict=True):
            assert mine.indices.dtype == theirs.indices.dtype and torch.equal(mine.indptr, theirs.indptr)
        batch, right = batch.to_data(), right.to_data()
    assert type(batch) is type(right)
    cases = hetero_cases if hasattr(batch, "node_types") else loader_cases
    left, other = cases.contents(batch), cases.contents(right)
    names = {name for name in left.keys() | other.keys() if "num_nodes" not in (name, name[-1])}
    different = [name for name in names if not loader_cases.equal(left.get(name), other.get(name))]
    assert not different, (different, [(left.get(name), other.get(name)) for name in different])


def _check_schedule(
    comm: Communicator, loader: Any, reference: Any, made: list[Any], setting: Mapping[str, Any]
) -> None:
    """Every seed is trained once: by its owner, or in turn as in one process."""
    nodes = loader.input_nodes
    everyones = comm.all_gather_json([positions(batch, nodes).tolist() for batch in made])
    assert len({len(steps) for steps in everyones}) == 1
    if setting["schedule"] == "global":
        reference.set_epoch(2)
        wanted = [positions(batch, nodes).tolist() for batch in reference]
        dealt = [step for steps in zip(*everyones, strict=True) for step in steps]
        assert dealt[: len(wanted)] == wanted and not any(dealt[len(wanted) :])
        return
    owner = _owner_of_inputs(loader, setting, comm.size)
    seeds = [list(itertools.chain.from_iterable(steps)) for steps in everyones]
    assert sorted(itertools.chain.from_iterable(seeds)) == list(range(len(loader.dataset)))
    assert all(owner[seed] == rank for rank, own in enumerate(seeds) for seed in own)


def _owner_of_inputs(loader: Any, setting: Mapping[str, Any], ranks: int) -> list[int]:
    own, schema = _owners(setting, ranks)
    inputs = loader._parts.pipeline.inputs
    return [rank for part in inputs.parts for rank in own[schema.type_number(part.name)][part.node].tolist()]


def _owners(setting: Mapping[str, Any], ranks: int) -> tuple[list[Tensor], Any]:
    graph = typed_graph_from_pyg(GRAPHS[setting["graph"]])
    return owners(graph.num_nodes, setting["policy"], ranks), graph.schema


def _check_counts(
    comm: Communicator, loader: Any, setting: Mapping[str, Any], made: list[Any], counts: Counts
) -> None:
    """Checks rounds, and rows of native batches, whose nodes and edges are as they were sampled."""
    plan, sizes = loader._setup.plan, loader.sizes
    macrobatches = [made[first : first + sizes.macrobatch] for first in range(0, len(made), sizes.macrobatch)]
    groups = [list(_groups(one, sizes.fetch)) for one in macrobatches]
    assert counts[MessageKind.PARTITION].rounds == 0
    if comm.size == 1:
        return
    is_local, relayed = setting["schedule"] == "local", not setting["hybrid"]
    relays = plan.num_hops + (plan.subgraph is Subgraph.INDUCED) - is_local
    assert counts[MessageKind.TOPOLOGY].rounds == 2 * relays * len(macrobatches) * relayed
    assert counts[MessageKind.FEATURES].rounds == 2 * sum(map(len, groups))
    assert counts[MessageKind.LOOKUP].rounds == 2 * relayed * (not is_local)
    own, schema = _owners(setting, comm.size)
    tables = tables_of(GRAPHS[setting["graph"]])
    hosts = torch.tensor(comm.hosts)
    fetched = 0
    for group in itertools.chain.from_iterable(groups):
        for number, owner in enumerate(own):
            if setting["hybrid"] and not tables[schema.node_groups[number]]:
                continue  # nothing is wanted of them, as their original ids are known
            nodes = torch.cat([_nodes(batch, number) for batch in group]).unique()
            fetched += int((hosts[owner[nodes]] != comm.host).sum())
    assert loader.stats().total.rows_fetched == fetched
    sent = comm.sum(counts[MessageKind.TOPOLOGY].rows_sent)
    if setting["export"] == "native":
        away = [
            [owner[nodes.node] != comm.rank for owner, nodes in zip(own, batch.nodes, strict=True)]
            for batch in made
        ]
        pairs = list(zip(made, away, strict=True))
        mine = sum(asked_nodes(plan, *pair) + remote_edges(*pair) for pair in pairs)
        assert relayed * comm.sum(mine) == sent


def _groups(macrobatch: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(macrobatch), size):
        yield macrobatch[first : first + size]


def _nodes(batch: Any, number: int) -> Tensor:
    """Returns the original ids of a batch's nodes of one type."""
    if isinstance(batch, Minibatch):
        return batch.nodes[number].node
    if hasattr(batch, "node_types"):
        ids: Tensor = batch[GRAPHS["typed"].node_types[number]].n_id
        return ids
    return torch.as_tensor(batch.n_id)


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
            ("for export='pyg'", {"subgraph_type": "induced", "export": "native"}),
            ("Missing number of neighbors", {"num_neighbors": {("paper", "cites", "paper"): [1]}}),
        ):
            with pytest.raises(ValueError, match=text):
                MacrobatchNeighborLoader(both, **{"num_neighbors": [2], "input_nodes": "paper", **arguments})
        with pytest.raises(NotImplementedError, match="inference of all nodes"):
            named.all_nodes()


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
        "schedule": str(draw.choice(["local", "global"])),
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
        **[{"export": "native"}, {"subgraph_type": "induced"}, {}][draw.integers(3)],
    }


def resumed() -> None:
    """A typed loader goes on at any minibatch, and refuses a state of other rules."""
    with Communicator.create("loader", timeout=30) as comm:
        both = stores_of(comm, GRAPHS["typed"], "random")
        for schedule, option in (("local", "last"), ("global", "weights and times")):
            arguments = {**arguments_of("typed", option, "several"), "schedule": schedule}
            loader = MacrobatchNeighborLoader(both, **arguments, macrobatch_size=2)
            loader.set_epoch(3)
            whole = list(loader)
            for stop in range(len(whole)):
                loader.set_epoch(3)
                batches = iter(loader)
                for _ in range(stop):
                    next(batches)
                state = json.loads(json.dumps(loader.state_dict()))
                del batches
                other = MacrobatchNeighborLoader(both, **{**arguments, "seed": 5}, prefetch=2)
                other.load_state_dict(state)
                for batch, right in zip(other, whole[stop:], strict=True):
                    assert_same(batch, right)
            for name, value in (("time_attr", "weight"), ("seed_types", []), ("temporal", "x")):
                changed = {**state, "settings": {**state["settings"], name: value}}
                with pytest.raises(ValueError, match=name):
                    other.load_state_dict(changed)
