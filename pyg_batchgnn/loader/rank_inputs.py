"""The inputs of a loader over ranks: its stores, the seeds that each rank trains, and its links."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.comm import Communicator, Handle
from pyg_batchgnn.loader.link_inputs import (
    IN_BATCH,
    LinkPlace,
    Planned,
    RelationLinks,
    WantedNegatives,
    described,
    links_sum,
)
from pyg_batchgnn.loader.node_inputs import NodeInputs, OwnPositions, TypeInputs
from pyg_batchgnn.loader.options import Features
from pyg_batchgnn.loader.prefetch import Executor, T
from pyg_batchgnn.loader.schedule import ScheduleName, SeedStep
from pyg_batchgnn.loader.setup import World, drawn_seed
from pyg_batchgnn.ops import keyed_permutation
from pyg_batchgnn.partition import Part, send_rows
from pyg_batchgnn.sample import RankFinder, RankPlanner
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, OwnRowFinder, first_times_of_part, own_edges
from pyg_batchgnn.types import Relation

NO_IDS = torch.empty(0, dtype=torch.int64)
_OF_WORKERS = ("num_workers", "persistent_workers", "prefetch_factor", "multiprocessing_context")


def partitioned_stores(data: Any) -> tuple[DistFeatureStore, DistGraphStore]:
    features, graph = data
    if not isinstance(features, DistFeatureStore) or not isinstance(graph, DistGraphStore):
        raise TypeError(
            f"data must be (DistFeatureStore, DistGraphStore), got ({type(features).__name__}, "
            f"{type(graph).__name__})"
        )
    if features.comm is not graph.comm:
        raise ValueError("the feature store and the graph store must be made with the same communicator")
    return features, graph


def dataloader_arguments(features: Features, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns DataLoader's arguments without those of workers, which ranks cannot use. Raises
    ValueError for other arguments that one process alone can have."""
    for name in ("generator", "sampler", "batch_sampler"):
        if kwargs.get(name) is not None:
            raise ValueError(
                f"{name} may draw another order on every rank; over ranks use shuffle=True, which is a keyed "
                f"permutation by seed and epoch"
            )
    if features is Features.IN_PLACE:
        raise ValueError("features='in_place' is for one process; over ranks rows are copied")
    if kwargs.get("num_workers", 0) > 0:
        warnings.warn(
            f"num_workers={kwargs['num_workers']}: worker processes cannot talk to other ranks, so the "
            f"loader does the work itself; use prefetch=1 to prepare macrobatches beside training",
            stacklevel=4,
        )
    return {name: value for name, value in kwargs.items() if name not in _OF_WORKERS}


def with_splits(graph: DistGraphStore, nodes: Any) -> Any:
    """Returns ``input_nodes`` with the names of splits replaced by node ids; collective. With one
    node type a string is a split. With several it is a type, and the nodes of a type may be a
    split: ("paper", "train"), or a dict with such values."""
    schema = graph.part.schema
    if not schema.has_names:
        return _split_nodes(graph, schema.node_types[0], nodes) if isinstance(nodes, str) else nodes
    if isinstance(nodes, Mapping):
        return {name: with_splits(graph, (name, own))[1] for name, own in nodes.items()}
    is_pair = isinstance(nodes, (tuple, list)) and len(nodes) == 2 and isinstance(nodes[0], str)
    if is_pair and isinstance(nodes[1], str) and nodes[0] in schema.node_types:
        return nodes[0], _split_nodes(graph, nodes[0], nodes[1])
    return nodes


def _split_nodes(graph: DistGraphStore, node_type: str, name: str) -> Tensor:
    """Returns the original ids of a split's nodes on all ranks, ascending; collective."""
    part = graph.part
    number = part.schema.type_number(node_type)
    own = part.splits.get(part.schema.node_groups[number], {})
    names = sorted({key for keys in graph.comm.all_gather_json(sorted(own)) for key in keys})
    if name not in names:
        whose = f"nodes of type {node_type!r} have" if part.schema.has_names else "the graph has"
        raise ValueError(f"{whose} no split {name!r}; there is {', '.join(names) or 'none'}")
    nodes = part.original_ids(number)[part.split(name, node_type)]
    return graph.comm.all_gather(nodes).rows.sort().values


def looked_up(inputs: NodeInputs, graph: DistGraphStore, steps: Iterable[SeedStep]) -> list[SeedStep]:
    """Looks up the internal ids of all steps' seeds; collective, two rounds for all types."""
    steps = list(steps)
    positions = [inputs.by_type(step.positions) for step in steps]
    every = torch.cat([NO_IDS, *positions])
    ids = graph.comm.run_job(lambda: _internal_ids(inputs, graph, every))
    parts = ids.split([one.numel() for one in positions])
    return [replace(step, internal=part) for step, part in zip(steps, parts, strict=True)]


def _internal_ids(inputs: NodeInputs, graph: DistGraphStore, positions: Tensor) -> Tensor:
    node, of_type = inputs.node[positions], inputs.type_of(positions)
    places = {number: (of_type == number).nonzero().view(-1) for number in inputs.types}
    found = graph.internal_ids_by_type({number: node[place] for number, place in places.items()})
    ids = torch.empty_like(positions)
    for number, place in places.items():
        ids[place] = found[number]
    return ids


@dataclass(frozen=True, eq=False)
class OwnSeeds:
    """Some seeds of a loader: the ones a rank owns, or trains."""

    positions: Tensor  # [S_r] int64, ascending
    internal: Tensor  # [S_r] int64, the internal ids of their nodes

    @classmethod
    def of(cls, part: Part, nodes: Sequence[TypeInputs] | Sequence[RelationLinks]) -> OwnSeeds:
        finder = OwnRowFinder(part)
        positions, internal, begin = [NO_IDS], [NO_IDS], 0
        for one in nodes:
            number = part.schema.type_number(one.name)
            own = finder.find(number, one.node)
            place = own.position if one.here is None else one.here.position[own.position]
            positions.append(place + begin)
            internal.append(own.row + part.nodes_of(number).start)
            begin += len(one)
        return cls(torch.cat(positions), torch.cat(internal))


@dataclass(frozen=True, eq=False)
class TrainedSeeds:
    """Which seeds a rank owns, and which it trains."""

    seeds: OwnSeeds  # the seeds that this rank trains
    own: OwnSeeds  # the seeds that it owns
    trainer: Tensor  # [S_r] int64, the rank that trains each of its own

    @classmethod
    def by_owner(cls, own: OwnSeeds, rank: int) -> TrainedSeeds:
        return cls(own, own, torch.full_like(own.positions, rank))

    @classmethod
    def balanced(cls, own: OwnSeeds, comm: Communicator) -> TrainedSeeds:
        """Returns equally many seeds on every rank, most of them the rank's own. Collective."""
        counts = comm.all_gather_json(own.positions.numel())
        trainer = balanced_trainers(counts, comm.hosts, comm.rank)
        rows = send_rows(comm, torch.stack([own.positions, own.internal], dim=1), trainer)
        rows = rows[torch.argsort(rows[:, 0])]
        return cls(OwnSeeds(rows[:, 0].contiguous(), rows[:, 1].contiguous()), own, trainer)


def balanced_trainers(counts: Sequence[int], hosts: Sequence[int], rank: int) -> Tensor:
    """Returns the rank that trains each of a rank's own seeds, [S_r] int64, for
    ``schedule="balanced"``.

    Ranks with too many seeds give some away, to ranks of the same host first. Which seeds move is
    random, by a fixed key and not the loader's seed.

    Args:
        counts: the number of seeds that each rank owns.
        hosts: the host of each rank.
        rank: the rank whose S_r seeds are assigned.
    """
    given = torch.tensor(moved_seeds(counts, hosts)[rank])
    trainer = torch.full((counts[rank],), rank)
    away = keyed_permutation(counts[rank], 0, rank)[: int(given.sum())]
    trainer[away] = torch.repeat_interleave(torch.arange(len(counts)), given)
    return trainer


def moved_seeds(counts: Sequence[int], hosts: Sequence[int]) -> list[list[int]]:
    """Returns [rank][other rank], the number of seeds that a rank gives to the other. Afterwards
    their numbers of seeds differ by at most 1. As few seeds move as possible, and within a host
    first. ``counts``: the number of seeds that each rank owns."""
    ranks, every = range(len(counts)), sum(counts)
    richest = sorted(ranks, key=lambda rank: -counts[rank])[: every % len(counts)]
    excess = [count - every // len(counts) - (rank in richest) for rank, count in enumerate(counts)]
    moved = [[0] * len(counts) for _ in ranks]
    for one_host in (True, False):
        for giver, taker in itertools.product(ranks, ranks):
            count = min(excess[giver], -excess[taker])
            if count > 0 and (hosts[giver] == hosts[taker] or not one_host):
                moved[giver][taker] = count
                excess[giver] -= count
                excess[taker] += count
    return moved


@dataclass(frozen=True, eq=False)
class LinksOverRanks(LinkPlace):
    """The links of a graph over ranks. All methods are collective."""

    store: DistGraphStore  # the graph. If its topology is on every rank, that is the graph of the inputs.
    schedule: ScheduleName  # the schedule of the loader

    def agree(self, all_edges: Mapping[Relation, bool]) -> None:
        said = [[*relation, "all edges" if every else "given"] for relation, every in all_edges.items()]
        self.store.comm.check_agreement({"edge_label_index": said})

    def all_edges(self, graph: Any, relation: Relation) -> RelationLinks:
        """Returns this rank's edges as links. Raises ValueError if ranks would train others'
        edges."""
        if self.store.topology is not None:
            return super().all_edges(graph, relation)
        if self.schedule is not ScheduleName.LOCAL:
            raise ValueError(
                f"edge_label_index stands for all edges of {relation}, and each rank holds those into its "
                f"own nodes: use schedule='local', or give [2, n] node ids, the same on every rank"
            )
        part, comm = self.store.part, self.store.comm
        own = own_edges(part, comm, part.schema.relation_number(relation))
        digest = comm.sum(links_sum(own.index, own.edge))
        return RelationLinks(relation, own.index, here=OwnPositions(own.edge, own.total, digest))

    def plan(self, graph: Any, times: Any, wanted: WantedNegatives) -> Planned:
        """Plans how negatives are drawn. Raises AgreementError if ranks ask for different
        negatives, links, labels or times."""
        part, comm, first = self.store.part, self.store.comm, None
        comm.check_agreement(_settings(wanted))
        if self.store.topology is not None:
            return super().plan(graph, times, wanted)
        if times is not None and wanted.sampling:
            first = first_times_of_part(part, comm, times.own)
        planner = RankPlanner(part, comm, first)
        plans = {
            relation: planner.plan(one, relation, wanted.times[relation], wanted.rules.exclude_existing)
            for relation, one in wanted.sampling.items()
        }
        finder = RankFinder(part, comm, plans)
        return {relation: one.plan for relation, one in plans.items()}, finder


def _settings(wanted: WantedNegatives) -> dict[str, Any]:
    links, sampling = wanted.links.items(), wanted.sampling.items()
    in_batch = [[*relation, IN_BATCH] for relation, one in links if one.log_q is not None]
    return {
        "edge_label_index": [[*relation, len(one), one.digest] for relation, one in links],
        "edge_label": [[*relation, _said(one.label)] for relation, one in links],
        "edge_label_time": [[*relation, _said(one.time)] for relation, one in links],
        "neg_sampling": in_batch + [[*relation, one.mode.value, one.amount] for relation, one in sampling],
        "src_weight": [[*relation, _said(one.src_weight)] for relation, one in sampling],
        "dst_weight": [[*relation, _said(one.dst_weight)] for relation, one in sampling],
        "targets of neg_sampling": [[*relation, _said(one.given)] for relation, one in links],
        "exclude_existing": wanted.rules.exclude_existing,
        "late_negatives": wanted.rules.late_negatives.value,
    }


def _said(values: Tensor | None) -> list[Any] | None:
    return None if values is None else described(values)


def cached_store(cache: AggregationCache, features: DistFeatureStore) -> DistFeatureStore:
    """Returns the feature store with the cache's aggregates as further attributes. Raises
    ValueError if the cache was made of another store."""
    if cache.store is not features:
        raise ValueError(
            "cache was not made of the feature store that the loader is given; make one of it: "
            "AggregationCache.build(data, kind)"
        )
    return cache.add_to(features)


class RankExecutor:
    """The communicator's thread, for tasks in which all ranks take part. A task that has started
    runs to its end even after `close`, so that all ranks make the same exchanges."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._started: list[Handle[Any]] = []

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        handle = self._comm.start_job(work)
        self._started = [*(one for one in self._started if not one.done()), handle]
        return handle.wait

    def close(self, wait: bool) -> None:
        for handle in self._started if wait else ():
            # The next use of the communicator tells of a failure.
            with contextlib.suppress(Exception):
                handle.wait()


class RankWorld(World):
    """The ranks of a communicator. All methods but `now` and `executor` are collective."""

    collective = True

    def __init__(self, comm: Communicator) -> None:
        self.size, self._comm = comm.size, comm

    def agree(self, arguments: Callable[[], Mapping[str, Any]]) -> None:
        self._comm.run_job(lambda: self._comm.check_agreement(arguments()))

    def gather(self, value: Any) -> list[Any]:
        return self._comm.all_gather_json(value)

    def seed(self, given: int | None) -> int:
        """Returns rank 0's seed. Every rank draws one, so that their generators stay in step."""
        return int(self._comm.broadcast(torch.tensor([drawn_seed()]))) if given is None else given

    def max_macrobatch(self, steps: int | None) -> int:
        """Returns the number of steps of an epoch: larger macrobatches save rounds."""
        return max(1, steps or 0)

    def now(self, work: Callable[[], T]) -> T:
        return self._comm.run_job(work)

    def executor(self) -> Executor:
        return RankExecutor(self._comm)
