"""The jobs of ranks in test_rank_options.py: every option, typed or not, against one process."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch
from pyg_batchgnn.comm import Communicator, Counts, MessageKind
from pyg_batchgnn.sample import Subgraph
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support import hetero_cases, loader_cases
from tests.support.pairwise import pairwise, product
from tests.support.rank_graphs import (
    GRAPHS,
    OPTIONS,
    POLICIES,
    arguments_of,
    assert_shared,
    owners_in,
    stores_of,
    tables_of,
)
from tests.support.traffic import asked_nodes, remote_edges

FACTORS: dict[str, tuple[Any, ...]] = {
    "option": tuple(OPTIONS),
    "graph": ("typed", "plain"),
    "policy": POLICIES,
    "hybrid": (False, True),
    #: B, F and the macrobatches that are prepared ahead.
    "sizes": ((1, 1, 2), (3, 2, 0), ("all", 1, 0), ("auto", "auto", 2)),
    "seeds": ("one", "several"),
    "schedule": ("local", "balanced", "global"),
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
    """Every seed is trained once: by lists of ranks, or in turn as in one process."""
    nodes = loader.input_nodes
    everyones = comm.all_gather_json([positions(batch, nodes).tolist() for batch in made])
    assert len({len(steps) for steps in everyones}) == 1
    if setting["schedule"] == "global":
        reference.set_epoch(2)
        wanted = [positions(batch, nodes).tolist() for batch in reference]
        dealt = [step for steps in zip(*everyones, strict=True) for step in steps]
        assert dealt[: len(wanted)] == wanted and not any(dealt[len(wanted) :])
        return
    seeds = [list(itertools.chain.from_iterable(steps)) for steps in everyones]
    assert_shared(_owner_of_inputs(loader, setting, comm.size), seeds, setting["schedule"])


def _owner_of_inputs(loader: Any, setting: Mapping[str, Any], ranks: int) -> list[int]:
    own, schema = owners_in(setting, ranks)
    inputs = loader._parts.pipeline.inputs
    return [rank for part in inputs.parts for rank in own[schema.type_number(part.name)][part.node].tolist()]


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
    schedule, relayed = setting["schedule"], not setting["hybrid"]
    relays = plan.num_hops + (plan.subgraph is Subgraph.INDUCED) - (schedule == "local")
    assert counts[MessageKind.TOPOLOGY].rounds == 2 * relays * len(macrobatches) * relayed
    assert counts[MessageKind.FEATURES].rounds == 2 * sum(map(len, groups))
    assert counts[MessageKind.LOOKUP].rounds == 2 * relayed * (schedule == "global")
    own, schema = owners_in(setting, comm.size)
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
