"""The jobs of ranks in test_rank_links.py: links with every option, typed or not, against one
process."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import MacrobatchLinkNeighborLoader, Minibatch
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.partition import move
from pyg_batchgnn.sample import ExistingPairs, RankPlanner, Subgraph
from pyg_batchgnn.store import CscGraph
from tests.support.backends import needs_ccl
from tests.support.hetero_cases import CITES, COUNTS, REV_WRITES, WRITES
from tests.support.rank_coverings import TIMEOUT, check_settings, over_ranks, run_covering, settings_of
from tests.support.rank_epochs import OneProcess, RankEpoch, some_positions
from tests.support.rank_graphs import GRAPHS, SpreadGraphs, owners, owners_in, policies, stores_of
from tests.support.ranks import run_ranks
from tests.support.reference_partition import typed_parts
from tests.support.thread_ranks import run_threads
from tests.support.tiers import all_only, own_slices

NODES = GRAPHS["plain"].num_nodes
RULES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "disjoint": {"disjoint": True},
    "times of nodes": {"time_attr": "time"},
    "times of edges": {"time_attr": "stamp", "temporal_strategy": "last"},
    "window": {"time_attr": "stamp", "time_window": 6, "freeze": 7},
    "weights": {"weight_attr": "weight"},
    "induced": {"subgraph_type": "induced"},
    "shared words": {"labor": "layers", "weight_attr": "weight"},
    "bidirectional": {"subgraph_type": "bidirectional", "disjoint": True},
}
#: Modes and amounts; "weighted" ones draw nodes by weight.
NEGATIVES: dict[str, Any] = {
    "none": None,
    "in-batch": "in-batch",
    "binary": ("binary", 1),
    "binary 2.5": ("binary", 2.5),
    "triplet": ("triplet", 1),
    "triplet 3": ("triplet", 3),
    "given": ("triplet", 2),
    "weighted binary": ("binary", 1.5),
    "weighted triplet": ("triplet", 2),
}
#: The factors that one process knows too.
IN_ONE_PROCESS = ("graph", "rule", "negatives", "existing", "exclude", "links", "labels", "export")


def factors(ranks: int) -> dict[str, tuple[Any, ...]]:
    return {
        "rule": tuple(RULES),
        "negatives": tuple(NEGATIVES),
        "existing": (False, True),
        "exclude": (False, True, "reverse", "edges"),
        "graph": ("typed", "plain"),
        "policy": policies(ranks),
        "hybrid": (False, True),
        "links": ("one", "several", "all"),
        "labels": (False, True),
        "sizes": ((1, 1), (3, 2), ("all", 1), ("auto", "auto")),
        "schedule": ("local", "balanced", "global"),
        "export": ("pyg", "native"),
        "prefetch": (0, 2),
        "feature_cache": (None, 1000),
    }


def allowed(setting: Mapping[str, Any]) -> bool:
    """Returns whether one process allows some factors together, and ranks do."""
    negatives, rule = setting.get("negatives", "binary"), setting.get("rule", "uniform")
    mode = NEGATIVES[negatives] and NEGATIVES[negatives][0]
    forbidden = (
        negatives in ("none", "given", "in-batch") and setting.get("existing"),
        negatives == "in-batch" and "time_attr" in RULES[rule],
        mode == "triplet" and setting.get("labels"),
        rule == "bidirectional" and setting.get("export") == "native",
        # Each rank holds its own edges.
        setting.get("links") == "all"
        and setting.get("schedule") in ("balanced", "global")
        and not setting.get("hybrid", True),
        # The triplets of two relations would have the same entries in a batch.
        mode == "triplet" and setting.get("links") == "several" and setting.get("graph") == "typed",
    )
    return not any(forbidden)


def links_of(graph: str, links: str) -> Any:
    if links == "all":
        return GRAPHS["plain"].edge_index if graph == "plain" else (CITES, GRAPHS["typed"][CITES].edge_index)
    if graph == "plain":
        edges = GRAPHS["plain"].edge_index[:, ::20]
        others = torch.stack([torch.arange(40) * 7 % NODES, torch.arange(40) // 2 * 11 % NODES])
        return edges if links == "one" else torch.cat([edges, others], dim=1)
    cites, writes = GRAPHS["typed"][CITES].edge_index[:, ::6], GRAPHS["typed"][WRITES].edge_index[:, ::5]
    return (CITES, cites) if links == "one" else {WRITES: writes, CITES: cites}


def counts_of(links: Any) -> Any:
    if isinstance(links, Mapping):
        return {relation: index.size(1) for relation, index in links.items()}
    return (links[1] if isinstance(links, tuple) else links).size(1)


def each(links: Any, make: Any) -> Any:
    count = counts_of(links)
    return {name: make(one) for name, one in count.items()} if isinstance(count, dict) else make(count)


def link_times(count: int, early: bool) -> Tensor:
    """Returns the times of links. With ``early`` some are earlier than all nodes and edges."""
    times = torch.arange(count) * 5 % 9 + 3
    times[::13] -= 20 * early
    return times


def negatives_of(graph: str, links: Any, name: str) -> Any:
    wanted = NEGATIVES[name]
    if wanted is None:
        return None
    if name == "given":
        count = NODES if graph == "plain" else COUNTS[links[0][2]]
        return torch.arange(2 * counts_of(links)).view(-1, 2) * 7 % count
    if "weighted" not in name:
        return wanted

    def weighted(relation: Any) -> NegativeSampling:
        ends = (NODES, NODES) if relation is None else (COUNTS[relation[0]], COUNTS[relation[2]])
        weights = [torch.arange(float(count)) % 4 / 2 for count in ends]
        return NegativeSampling(wanted[0], wanted[1], *weights)

    if isinstance(links, Mapping):
        return {relation: weighted(relation) for relation in links}
    return weighted(None if graph == "plain" else links[0])


def arguments_of(setting: Mapping[str, Any]) -> dict[str, Any]:
    graph, rule = setting["graph"], RULES[setting["rule"]]
    links = links_of(graph, setting["links"])
    exclude = setting["exclude"]
    if exclude == "reverse" and graph == "typed":
        exclude = {CITES: CITES, WRITES: REV_WRITES}
    return {
        "num_neighbors": [3, 2],
        "edge_label_index": (None if graph == "plain" else CITES) if setting["links"] == "all" else links,
        "edge_label": each(links, lambda count: torch.arange(count) % 4) if setting["labels"] else None,
        "edge_label_time": each(links, lambda count: link_times(count, early=not setting["existing"]))
        if "time_attr" in rule
        else None,
        "neg_sampling": negatives_of(graph, links, setting["negatives"]),
        "exclude_existing": setting["existing"],
        "exclude_seed_edges": exclude,
        "batch_size": 60 if setting["links"] == "all" else 9,
        "shuffle": True,
        "seed": 11,
        "export": setting["export"],
        **rule,
    }


def epochs(backend: str, every: int) -> int:
    move.ROUND_BYTES = 1
    made = lambda ranks: settings_of(factors(ranks), allowed, IN_ONE_PROCESS)  # noqa: E731
    return check_settings(backend, every, made, IN_ONE_PROCESS, _in_one_process, _check)


def _in_one_process(setting: Mapping[str, Any]) -> OneProcess:
    loader = MacrobatchLinkNeighborLoader(
        GRAPHS[setting["graph"]], **arguments_of(setting), macrobatch_size=1, fetch_size=1
    )
    links = links_of(setting["graph"], setting["links"])
    return OneProcess(loader, functools.partial(positions, links=links))


def _check(graphs: SpreadGraphs, reference: OneProcess, setting: Mapping[str, Any]) -> None:
    comm, (macrobatch, fetch) = graphs.comm, setting["sizes"]
    loader = MacrobatchLinkNeighborLoader(
        graphs.stores(setting["graph"], setting["policy"], setting["hybrid"]),
        **arguments_of(setting),
        schedule=setting["schedule"],
        macrobatch_size=macrobatch,
        fetch_size=fetch,
        prefetch=setting["prefetch"],
        feature_cache=setting["feature_cache"],
    )
    epoch = RankEpoch.of(comm, loader, reference.positions)
    own = some_positions(loader, comm.rank)
    if setting["links"] == "all":  # each rank has links of its own
        own = torch.cat([place[:2] for place in epoch.places])
    epoch.check(reference, setting["schedule"], _owner_of_links(setting, comm.size), own)
    _check_counts(epoch, setting)


def positions(batch: Any, links: Any) -> Tensor:
    if isinstance(batch, Minibatch):
        ids = [one.input_id for one in batch.links]
    elif isinstance(links, Mapping):
        ids = [batch[relation].input_id for relation in links]
    else:
        ids = [batch[links[0]].input_id if isinstance(links, tuple) else batch.input_id]
    counts = counts_of(links)
    begins = [0, *itertools.accumulate(counts.values())] if isinstance(counts, dict) else [0]
    return torch.cat([own + begin for own, begin in zip(ids, begins, strict=False)])


def _owner_of_links(setting: Mapping[str, Any], ranks: int) -> list[int]:
    own, schema = owners_in(setting["graph"], setting["policy"], ranks)
    links = links_of(setting["graph"], setting["links"])
    by_relation = links if isinstance(links, Mapping) else dict([links] if isinstance(links, tuple) else [])
    by_relation = by_relation or {schema.relations[0]: links}
    owner: list[int] = []
    for relation, index in by_relation.items():
        owner += own[schema.type_number(relation[2])][index[1]].tolist()
    return owner


def _check_counts(epoch: RankEpoch, setting: Mapping[str, Any]) -> None:
    comm, counts, plan = epoch.comm, epoch.counts, epoch.loader._setup.plan
    macrobatches = -(-len(epoch.batches) // epoch.loader.sizes.macrobatch)
    assert counts[MessageKind.PARTITION].rounds == 0
    if comm.size == 1 or setting["hybrid"]:
        assert counts[MessageKind.LOOKUP].rounds == counts[MessageKind.TOPOLOGY].rounds == 0
        return
    relays = plan.num_hops + (plan.subgraph is Subgraph.INDUCED)
    assert counts[MessageKind.TOPOLOGY].rounds == 2 * relays * macrobatches
    assert counts[MessageKind.LOOKUP].rounds == (4 if setting["existing"] else 2) * macrobatches


def refusals(comm: Communicator) -> None:
    both, index = stores_of(comm, GRAPHS["plain"], "random"), links_of("plain", "one")
    timed = {"time_attr": "time", "edge_label_time": torch.full((index.size(1),), 9)}
    for text, arguments in (
        ("use schedule='local'", {"edge_label_index": None, "schedule": "global"}),
        ("exclude_existing=True is about negatives", {"exclude_existing": True}),
        ("use transform", {"transform_sampler_output": lambda out: out}),
        ("'edge_label_time' is not set", {"time_attr": "time"}),
    ):
        with pytest.raises(ValueError, match=text):
            MacrobatchLinkNeighborLoader(both, [2], **{"edge_label_index": index, **arguments})
    every = MacrobatchLinkNeighborLoader(both, [2], batch_size=60, seed=1)
    others = owners((NODES,), "random", comm.size)[0][GRAPHS["plain"].edge_index[1]] != comm.rank
    with pytest.raises(IndexError, match="is an edge of another rank"):
        every(others.nonzero().view(-1)[:1])
    early = {**timed, "edge_label_time": torch.full((index.size(1),), -1), "neg_sampling": "binary"}
    with pytest.raises(ValueError, match=r"link 0 of .*, at time -1\), and late_negatives='raise'"):
        MacrobatchLinkNeighborLoader(both, [2], index, **early, late_negatives="raise")
    with pytest.warns(UserWarning, match="links are earlier than every node") as warned:
        loader = MacrobatchLinkNeighborLoader(both, [2], index, macrobatch_size=1, fetch_size=1, **early)
        batches = list(loader)
    assert len(warned) == 1
    count = sum(batch.input_id.numel() for batch in batches)
    assert loader.stats().total.late_negatives == count > 0


@over_ranks
def test_minibatches_are_those_of_one_process(ranks: int, hosts: Sequence[int], every: int) -> None:
    run_covering(epochs, ranks, hosts, every)


@all_only
@own_slices
@needs_ccl
@pytest.mark.timeout(TIMEOUT)
def test_minibatches_over_ccl_are_those_of_one_process() -> None:
    run_covering(epochs, 2, [0, 1], 9, backend="ccl")


def test_impossible_links_are_refused() -> None:
    run_ranks(refusals, 2, hosts=[0, 1])


@pytest.mark.parametrize(("weighted", "entries"), [(False, [[0], [500]]), (True, [[1], [500, 501]])])
def test_all_ranks_know_the_pairs_that_a_search_may_end_at(
    weighted: bool, entries: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, hubs, source = 1000, torch.tensor([0, 500]), torch.arange(1, 900)
    edge_index = torch.stack([source.repeat(2), hubs.repeat_interleave(len(source))])
    graph = CscGraph.from_edge_index(edge_index, nodes).typed
    parts = typed_parts(graph, [torch.arange(nodes) % 2], 2)

    def existing(comm: Communicator) -> ExistingPairs | None:
        planner = RankPlanner(parts[comm.rank], comm, None)
        weights = [torch.arange(1.0 * nodes) % 2, torch.arange(1.0 * nodes)] if weighted else []
        sampling, relation = NegativeSampling("binary", 1, *weights), HOMOGENEOUS.relations[0]
        return planner.plan(sampling, relation, None, True).plan.existing

    monkeypatch.setattr(move, "ROUND_BYTES", 1)  # then a piece has 256 rows
    for rank, found in enumerate(run_threads(existing, 2)):
        known = {*range(500 * rank, 500 * rank + 500), *entries[0], *entries[1]}
        pairs = [nodes * hub + source for hub in (0, 500) if hub in known]
        assert found is not None and found.code.tolist() == torch.cat(pairs).tolist()
        assert found.known.tolist() == sorted(known)
