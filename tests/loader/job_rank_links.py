"""The jobs of ranks in test_rank_links.py: links with every option, typed or not, against one
process.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import MacrobatchLinkNeighborLoader, Minibatch
from pyg_batchgnn.comm import AgreementError, Communicator, Counts, MessageKind
from pyg_batchgnn.partition import slice_size
from pyg_batchgnn.sample import Subgraph, TripletLinks
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology
from tests.support.hetero_cases import CITES, COUNTS, REV_WRITES, WRITES
from tests.support.loader_cases import equal
from tests.support.pairwise import pairwise, product
from tests.support.rank_graphs import GRAPHS, POLICIES, assert_shared, owners, owners_in, stores_of

from .job_rank_options import assert_same as assert_same_batches

NODES = GRAPHS["plain"].num_nodes
RULES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "disjoint": {"disjoint": True},
    "times of nodes": {"time_attr": "time"},
    "times of edges": {"time_attr": "stamp", "temporal_strategy": "last"},
    "window": {"time_attr": "stamp", "time_window": 6},
    "weights": {"weight_attr": "weight"},
    "induced": {"subgraph_type": "induced"},
    "bidirectional": {"subgraph_type": "bidirectional", "disjoint": True},
}
#: Modes and amounts; "weighted" ones draw nodes by weight.
NEGATIVES: dict[str, tuple[str, float] | None] = {
    "none": None,
    "binary": ("binary", 1),
    "binary 2.5": ("binary", 2.5),
    "triplet": ("triplet", 1),
    "triplet 3": ("triplet", 3),
    "weighted binary": ("binary", 1.5),
    "weighted triplet": ("triplet", 2),
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "rule": tuple(RULES),
    "negatives": tuple(NEGATIVES),
    "existing": (False, True),
    "exclude": (False, True, "reverse"),
    "graph": ("typed", "plain"),
    "policy": POLICIES,
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
        mode is None and setting.get("existing"),
        mode == "triplet" and setting.get("labels"),
        "subgraph_type" in RULES[rule] and setting.get("export") == "native",
        # Each rank holds its own edges.
        setting.get("links") == "all"
        and setting.get("schedule") in ("balanced", "global")
        and not setting.get("hybrid", True),
        # The triplets of two relations would have the same entries in a batch.
        mode == "triplet" and setting.get("links") == "several" and setting.get("graph") == "typed",
    )
    return not any(forbidden)


#: The factors of which a full run has the whole product. The others take turns.
MAIN = ("rule", "negatives", "existing", "exclude", "graph", "schedule")


def settings(full: bool) -> list[dict[str, Any]]:
    if not full:
        return pairwise(FACTORS, allowed)
    main = product({name: FACTORS[name] for name in MAIN}, allowed)
    others = product({name: values for name, values in FACTORS.items() if name not in MAIN}, allowed)
    turns = itertools.cycle(others[:: len(others) // 97])
    return [row for row in ({**one, **next(turns)} for one in main) if allowed(row)]


def links_of(graph: str, links: str) -> Any:
    """Returns the links of a loader: edges, and pairs that are none, some of them twice."""
    if links == "all":
        return GRAPHS["plain"].edge_index if graph == "plain" else (CITES, GRAPHS["typed"][CITES].edge_index)
    if graph == "plain":
        edges = GRAPHS["plain"].edge_index[:, ::20]
        others = torch.stack([torch.arange(40) * 7 % NODES, torch.arange(40) // 2 * 11 % NODES])
        return edges if links == "one" else torch.cat([edges, others], dim=1)
    cites, writes = GRAPHS["typed"][CITES].edge_index[:, ::6], GRAPHS["typed"][WRITES].edge_index[:, ::5]
    return (CITES, cites) if links == "one" else {WRITES: writes, CITES: cites}


def counts_of(links: Any) -> Any:
    """Returns the number of links, by relation for several."""
    if isinstance(links, Mapping):
        return {relation: index.size(1) for relation, index in links.items()}
    return (links[1] if isinstance(links, tuple) else links).size(1)


def each(links: Any, make: Any) -> Any:
    """Returns something for each link, in the form that goes with the links."""
    count = counts_of(links)
    return {name: make(one) for name, one in count.items()} if isinstance(count, dict) else make(count)


def negatives_of(graph: str, links: Any, name: str) -> Any:
    """Returns ``neg_sampling``."""
    wanted = NEGATIVES[name]
    if wanted is None:
        return None
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
    """Returns the arguments of both loaders."""
    graph, rule = setting["graph"], RULES[setting["rule"]]
    links = links_of(graph, setting["links"])
    exclude = setting["exclude"]
    if exclude == "reverse" and graph == "typed":
        exclude = {CITES: CITES, WRITES: REV_WRITES}
    return {
        "num_neighbors": [3, 2],
        "edge_label_index": (None if graph == "plain" else CITES) if setting["links"] == "all" else links,
        "edge_label": each(links, lambda count: torch.arange(count) % 4) if setting["labels"] else None,
        "edge_label_time": each(links, lambda count: torch.arange(count) * 5 % 9 + 3)
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


def epochs(backend: str = "gloo", full: bool = False, every: int = 1) -> int:
    """Minibatches are those of one process, in the rounds and rows of the formulas.

    ``every``: takes one setting of this many.
    """
    warnings.simplefilter("ignore")  # of labels that move up
    chosen = settings(full)[::every]
    with Communicator.create("loader", timeout=30, backend=backend) as comm:
        both = {
            (graph, policy): stores_of(comm, GRAPHS[graph], policy)
            for graph, policy in itertools.product(FACTORS["graph"], FACTORS["policy"])
        }
        for setting in chosen:
            features, graph = both[setting["graph"], setting["policy"]]
            topology = replicate_topology(graph.part, comm) if setting["hybrid"] else None
            try:
                check(comm, (features, DistGraphStore(graph.part, comm, topology)), setting)
            except Exception as error:
                raise AssertionError(f"{setting}: {error}") from error
    return len(chosen)


def check(
    comm: Communicator, both: tuple[DistFeatureStore, DistGraphStore], setting: Mapping[str, Any]
) -> None:
    """Compares an epoch with that of one process."""
    arguments, (macrobatch, fetch) = arguments_of(setting), setting["sizes"]
    loader = MacrobatchLinkNeighborLoader(
        both,
        **arguments,
        schedule=setting["schedule"],
        macrobatch_size=macrobatch,
        fetch_size=fetch,
        prefetch=setting["prefetch"],
        feature_cache=setting["feature_cache"],
    )
    reference = MacrobatchLinkNeighborLoader(
        GRAPHS[setting["graph"]], **arguments, macrobatch_size=1, fetch_size=1
    )
    loader.set_epoch(2)
    reference.set_epoch(2)
    links, made, weights = links_of(setting["graph"], setting["links"]), [], []
    before = comm.counters.snapshot()
    for batch in loader:
        made.append(batch)
        weights.append(loader.loss_weight)
    after = comm.counters.snapshot() - before
    assert len(made) == len(loader)
    places = [positions(batch, links) for batch in made]
    for batch, place in zip(made, places, strict=True):
        assert_same(batch, reference(place))
    _check_schedule(comm, reference, links, places, setting)
    _check_weights(comm, places, weights)
    own = (torch.arange(4) * 5 + comm.rank) % len(loader.dataset)
    if setting["links"] == "all":
        own = torch.cat([place[:2] for place in places])
    assert_same(loader(own), reference(own))
    _check_counts(comm, loader, setting, made, after)


def positions(batch: Any, links: Any) -> Tensor:
    """Returns the positions of a batch's links in the loader's input, relation by relation."""
    if isinstance(batch, Minibatch):
        ids = [one.input_id for one in batch.links]
    elif isinstance(links, Mapping):
        ids = [batch[relation].input_id for relation in links]
    else:
        ids = [batch[links[0]].input_id if isinstance(links, tuple) else batch.input_id]
    counts = counts_of(links)
    begins = [0, *itertools.accumulate(counts.values())] if isinstance(counts, dict) else [0]
    return torch.cat([own + begin for own, begin in zip(ids, begins, strict=False)])


def assert_same(batch: Any, right: Any) -> None:
    """Asserts that two batches have the same bits, links included."""
    if isinstance(batch, Minibatch):
        for mine, theirs in zip(batch.links, right.links, strict=True):
            assert type(mine) is type(theirs)
            assert all(equal(getattr(mine, one.name), getattr(theirs, one.name)) for one in fields(mine))
    assert_same_batches(batch, right)


def _check_schedule(
    comm: Communicator, reference: Any, links: Any, places: Sequence[Tensor], setting: Mapping[str, Any]
) -> None:
    """Every link is trained once: by lists of ranks, or in turn as in one process."""
    everyones = comm.all_gather_json([place.tolist() for place in places])
    assert len({len(steps) for steps in everyones}) == 1
    if setting["schedule"] == "global":
        reference.set_epoch(2)
        wanted = [positions(batch, links).tolist() for batch in reference]
        dealt = [step for steps in zip(*everyones, strict=True) for step in steps]
        assert dealt[: len(wanted)] == wanted and not any(dealt[len(wanted) :])
        return
    own, schema = owners_in(setting, comm.size)
    by_relation = links if isinstance(links, Mapping) else dict([links] if isinstance(links, tuple) else [])
    by_relation = by_relation or {schema.relations[0]: links}
    owner = torch.cat(
        [own[schema.type_number(relation[2])][index[1]] for relation, index in by_relation.items()]
    )
    mine = [list(itertools.chain.from_iterable(steps)) for steps in everyones]
    assert_shared(owner.tolist(), mine, setting["schedule"])


def _check_weights(comm: Communicator, places: Sequence[Tensor], weights: Sequence[float]) -> None:
    """Every link of a step weighs the same, negatives do not count."""
    everyones = comm.all_gather_json([place.numel() for place in places])
    steps = [sum(step) for step in zip(*everyones, strict=True)]
    assert list(weights) == [comm.size / max(links, 1) for links in steps]


def _check_counts(
    comm: Communicator, loader: Any, setting: Mapping[str, Any], made: list[Any], counts: Counts
) -> None:
    """Checks rounds, and the rows of lookups."""
    plan, sizes = loader._setup.plan, loader.sizes
    macrobatches = -(-len(made) // sizes.macrobatch)
    assert counts[MessageKind.PARTITION].rounds == 0
    if comm.size == 1 or setting["hybrid"]:
        assert counts[MessageKind.LOOKUP].rounds == counts[MessageKind.TOPOLOGY].rounds == 0
        return
    relays = plan.num_hops + (plan.subgraph is Subgraph.INDUCED)
    assert counts[MessageKind.TOPOLOGY].rounds == 2 * relays * macrobatches
    assert counts[MessageKind.LOOKUP].rounds == (4 if setting["existing"] else 2) * macrobatches
    rows = comm.sum(counts[MessageKind.LOOKUP].rows_sent)
    is_plain = not setting["existing"] and "time_attr" not in RULES[setting["rule"]]
    if setting["export"] == "native" and is_plain:
        own, schema = owners_in(setting, comm.size)
        asked = sum(_asked(comm, own, schema, batch) for batch in made)
        assert comm.sum(2 * asked) == rows


def _asked(comm: Communicator, own: Sequence[Tensor], schema: Any, batch: Minibatch) -> int:
    """Returns how many ids this rank asks others for: those of ends that it does not own."""
    asked = 0
    for one in batch.links:
        types = [schema.type_number(name) for name in (one.relation[0], one.relation[2])]
        if isinstance(one, TripletLinks):
            ends = [one.source, torch.cat([one.target, one.negative.view(-1)])]
        else:
            ends = list(one.index)
        for number, local in zip(types, ends, strict=True):
            node = batch.nodes[number].node[local]
            knows = node // slice_size(own[number].numel(), comm.size)
            asked += int(((own[number][node] != comm.rank) & (knows != comm.rank)).sum())
    return asked


def refusals() -> None:
    """Arguments that cannot be are refused on every rank, and so are others' links."""
    with Communicator.create("loader", timeout=30) as comm:
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
        early = {**timed, "edge_label_time": torch.full((index.size(1),), -1)}
        loader = MacrobatchLinkNeighborLoader(
            both, [2], index, neg_sampling="binary", macrobatch_size=1, fetch_size=1, **early
        )
        with pytest.raises(ValueError, match="has no negative source at time -1"):
            next(iter(loader))


def agreement() -> None:
    """Ranks that give different links or negatives are told so."""
    with Communicator.create("loader", timeout=30) as comm:
        both, index = stores_of(comm, GRAPHS["plain"], "random"), links_of("plain", "one")
        mine: dict[str, list[Any]] = {
            "edge_label_index": [index, index.flip(1)],
            "neg_sampling": ["binary", ("triplet", 1)],
            "exclude_existing": [False, True],
        }
        for name, values in mine.items():
            value = values[comm.rank % 2]
            arguments = {"edge_label_index": index, "neg_sampling": "binary", name: value}
            with pytest.raises(AgreementError, match=name):
                MacrobatchLinkNeighborLoader(both, [2], **arguments)
