"""The links that a loader's minibatches begin with, and their negatives."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.loader.node_inputs import (
    GraphShape,
    LoaderGraph,
    NodeInputs,
    OwnPositions,
    Places,
    StepInputs,
    aligned,
    as_array,
    by_key,
)
from pyg_batchgnn.loader.schedule import WorkItem
from pyg_batchgnn.ops import INTEGERS, check_range, digest_text, fold_key, minibatch_key
from pyg_batchgnn.sample import (
    LinkFinder,
    LinkInfo,
    LinkRules,
    Links,
    LinkSeeder,
    LinkStart,
    LocalFinder,
    Names,
    NegativeMode,
    NegativePlan,
    SampleInfo,
    SeedEdges,
    check_early_links,
    frozen,
    named_relation,
    negative_plan,
)
from pyg_batchgnn.store import first_times
from pyg_batchgnn.types import Relation, Schema


@dataclass(frozen=True, eq=False)
class RelationLinks:
    """The links of one relation, checked."""

    relation: Relation
    index: Tensor  # [2, n] int64, sources above targets, ids within their types
    label: Tensor | None = None  # [n, ...], or None
    time: Tensor | None = None  # [n] int64, or None
    input_id: Tensor | None = None  # [n] int64; None for the positions in ``index``
    given: Tensor | None = None  # [n, k] int64, targets that are the negatives of each, or None
    log_q: Tensor | None = None  # [columns of ``index``] float32, for in-batch negatives; or None
    here: OwnPositions | None = None  # the positions of the columns of ``index``; None if it has all links

    @property
    def name(self) -> str:
        """The node type of the targets. The owner of a link's target trains the link."""
        return self.relation[2]

    @property
    def node(self) -> Tensor:
        return self.index[1]

    def __len__(self) -> int:
        return self.index.size(1) if self.here is None else self.here.total

    @cached_property
    def digest(self) -> str:
        """The digest of all links in their order, including those of other ranks."""
        return digest_text(links_sum(self.index) if self.here is None else self.here.sum)

    def take(self, at: Tensor) -> Links:
        """Returns the links at positions ``at`` [n] int64. Raises IndexError if one is an edge that
        another rank holds."""
        column = at if self.here is None else self.here.column(at)
        source, target = self.index[:, column]
        return Links(
            self.relation,
            source,
            target,
            at if self.input_id is None else self.input_id[at],
            None if self.label is None else self.label[at],
            None if self.time is None else self.time[at],
            None if self.given is None else self.given[at],
            None if self.log_q is None else self.log_q[column],
        )

    def in_batch(self) -> RelationLinks:
        """Returns the links with ``log_q``, the correction that in-batch negatives need."""
        if self.time is not None:
            raise ValueError(
                f"neg_sampling={IN_BATCH!r} does not go with edge_label_time: targets of other links are "
                f"sampled at the times of those; give 'binary' or 'triplet'"
            )
        # Targets lie with their owners, so that all links of a target are here.
        share = torch.bincount(self.node)[self.node].double() / max(1, len(self))
        return dataclasses.replace(self, log_q=share.log().float())


class LinkInputs:
    """The links of a loader, one relation after the other."""

    def __init__(self, parts: Sequence[RelationLinks], seeder: LinkSeeder, names: Names) -> None:
        self.parts, self.seeder, self._names = tuple(parts), seeder, names
        self._places = Places(self.parts)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def info(self) -> SampleInfo:
        modes = {part.relation: NegativeMode.TRIPLET for part in self.parts if part.given is not None}
        modes |= {relation: plan.mode for relation, plan in self.seeder.negatives.items()}
        relations = [(part.relation, modes.get(part.relation)) for part in self.parts]
        return LinkInfo(relations, self.parts[0].time is not None)

    @property
    def excluding(self) -> bool:
        return self.seeder.excluded is not None

    def take(self, item: WorkItem, seed: int) -> list[StepInputs]:
        """Returns the links of each minibatch of a macrobatch, with their negatives. Within a
        relation they keep the order of their positions. Raises IndexError for a position that is
        not there, and ValueError, with the link, if no negative can be drawn."""
        links = [self._links(step.positions) for step in item.steps]
        starts = self.seeder.start_all(links, seed, item.epoch, item.number)
        return [_inputs(*one) for one in zip(links, starts, strict=True)]

    def _links(self, positions: Tensor) -> list[Links]:
        places = self._places.within(positions)
        return [part.take(at) for part, at in zip(self.parts, places, strict=True)]

    def for_pyg(self, data: Any) -> dict[str, Any]:
        """Returns the arguments that describe the links for PyG's `LinkLoader`, which knows one
        edge type: links of several are listed under the first one's name."""
        first = self.parts[0]
        if any(part.here is not None for part in self.parts):  # PyG asks for their number alone
            index = torch.zeros(2, 1, dtype=torch.int64).expand(2, len(self))
        else:
            index = torch.cat([part.index for part in self.parts], dim=1)
        name = None if self._names is Names.NONE else first.relation
        is_one = len(self.parts) == 1
        return {
            "edge_label_index": index if isinstance(data, Data) else (name, index),
            "edge_label": first.label if is_one else None,
            "edge_label_time": first.time if is_one else None,
            "input_id": first.input_id if is_one else None,
        }

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "num_links": len(self),
            "links_digest": [part.digest for part in self.parts],
            "negatives": [[*relation, _settings(plan)] for relation, plan in self.seeder.negatives.items()],
        }
        for part in self.parts:
            if part.given is not None or part.log_q is not None:
                said = IN_BATCH if part.given is None else _digest([part.given.view(-1)])
                found["negatives"].append([*part.relation, said])
        if not self.seeder.schema.is_plain:
            found["relations"] = [[*part.relation, len(part)] for part in self.parts]
        if times := [part.time for part in self.parts if part.time is not None]:
            found["times_digest"] = _digest(times)
        if self.seeder.excluded is not None:
            found["excluded"] = [
                [list(one), [[list(name) for name in names] for names in pairs]]
                for one, pairs in self.seeder.excluded.relations.items()
            ]
            if self.seeder.excluded.by_id:
                paired = self.seeder.excluded.paired
                found["excluded_by_id"] = None if paired is None else _digest([paired])
        return found


def _inputs(links: Sequence[Links], start: LinkStart) -> StepInputs:
    ids = [one.input_id for one in links]
    input_id = ids[0] if len(ids) == 1 else torch.cat(ids)
    return StepInputs(start.seeds, input_id, None, start.links, start.internal, start.late_negatives)


def _settings(plan: NegativePlan) -> dict[str, Any]:
    weights = [pool.weight for pool in (plan.sources, plan.targets) if pool.weight is not None]
    return {
        "mode": plan.mode.value,
        "amount": plan.amount,
        "exclude_existing": plan.existing is not None,
        "weights_digest": _digest([weight.view(torch.int64) for weight in weights]) if weights else None,
    }


def _digest(parts: Sequence[Tensor]) -> str:
    return digest_text(minibatch_key(torch.cat(list(parts)).contiguous()))


#: The name of in-batch negatives: the targets of the minibatch's other links.
IN_BATCH = "in-batch"
#: Returns the edges of a relation as links, as far as they are here; collective over ranks.
AllEdges: TypeAlias = Callable[[Relation], RelationLinks]


@dataclass(frozen=True, eq=False)
class UserLinks:
    """The links that a user gave, unchecked."""

    index: Any  # ``edge_label_index``
    labels: Any = None  # ``edge_label``, or None
    times: Any = None  # ``edge_label_time``, or None
    ids: Any = None  # ``input_id``, or None


def links_by_relation(request: UserLinks, schema: Schema, names: Names) -> dict[Relation, UserLinks]:
    """Returns the links of each relation; their ``index`` is None for all edges. The user gives [2,
    n] or None in a graph of one type (with stores also (None, [2, n] or None)), else an edge type,
    (edge type, [2, n] or None), or a dict by edge type, as labels, times and ids are then too. The
    edge type need not be in the graph, only the node types of its ends."""
    index = request.index
    if names is not Names.TYPES:
        if isinstance(index, (tuple, list)) and len(index) == 2 and index[0] is None:
            index = index[1]
        if isinstance(index, (str, Mapping)) or _is_relation(index) or _names_relation(index):
            raise ValueError(
                f"edge_label_index={_described(index)} names an edge type, but the graph is homogeneous; "
                f"give [2, n] node ids, or None for all edges"
            )
        return {schema.relations[0]: dataclasses.replace(request, index=index)}
    if isinstance(index, Mapping):
        return _several(request, index, schema)
    if not _is_relation(index) and not _names_relation(index):
        raise ValueError(
            f"edge_label_index must name an edge type of the graph: give ('user', 'buys', 'item'), "
            f"(('user', 'buys', 'item'), index) or a dict of several types, got {_described(index)}; the "
            f"graph has {list(schema.relations)}"
        )
    relation, given = (index, None) if _is_relation(index) else index
    return {named_relation(schema, relation): dataclasses.replace(request, index=given)}


def _several(request: UserLinks, index: Mapping[Any, Any], schema: Schema) -> dict[Relation, UserLinks]:
    if not index:
        raise ValueError(f"edge_label_index names no edge type; the graph has {list(schema.relations)}")
    relations = {named_relation(schema, names): given for names, given in index.items()}
    labels = by_relation("edge_label", request.labels, schema, relations)
    times = by_relation("edge_label_time", request.times, schema, relations)
    ids = by_relation("input_id", request.ids, schema, relations)
    return {
        one: UserLinks(given, labels.get(one), times.get(one), ids.get(one))
        for one, given in relations.items()
    }


def by_relation(
    name: str, given: Any, schema: Schema, relations: Mapping[Relation, Any]
) -> dict[Relation, Any]:
    """Returns labels, times, ids or negatives of links of several relations, by relation."""
    find = functools.partial(named_relation, schema)
    return by_key(name, given, relations, "edge_label_index", "edge type", find)


def checked_links(
    relation: Relation, links: UserLinks, graph: GraphShape, names: Names, all_edges: AllEdges
) -> RelationLinks:
    """Returns the links of one relation, checked; collective over ranks if they are all edges."""
    what = f"edge_label_index of {relation}" if names is Names.TYPES else "edge_label_index"
    for end in (relation[0], relation[2]):
        if end not in graph.schema.node_types:
            known = ", ".join(map(repr, graph.schema.node_types))
            raise ValueError(
                f"{what} names the node type {end!r}, which the graph does not have; it has {known}"
            )
    if links.index is not None:
        found = RelationLinks(relation, _index(what, links.index, relation, graph))
    elif relation in graph.schema.relations:
        found = all_edges(relation)
    else:
        raise ValueError(
            f"{what} stands for all edges of {relation}, which the graph has not; give [2, n] node ids, "
            f"or one of {list(graph.schema.relations)}"
        )
    label = aligned("edge_label", links.labels, len(found), f"links of {what}")
    time = aligned("edge_label_time", links.times, len(found), f"links of {what}")
    ids = aligned("input_id", links.ids, len(found), f"links of {what}")
    return dataclasses.replace(found, label=label, time=time, input_id=ids)


def _index(what: str, given: Any, relation: Relation, graph: GraphShape) -> Tensor:
    index = as_array(what, given, torch.int64)
    if index.dtype not in INTEGERS:
        raise TypeError(f"{what} must hold integer node ids, got {index.dtype}; use .long()")
    if index.dim() != 2 or index.size(0) != 2:
        raise ValueError(f"{what} must have shape [2, n], sources above targets, got {list(index.shape)}")
    index = index.to("cpu", torch.int64).contiguous()
    for row, end in zip(index, (relation[0], relation[2]), strict=True):
        check_range(f"{what}, ends of type {end!r}", row, graph.num_nodes[graph.schema.type_number(end)])
    return index


def _is_relation(names: Any) -> bool:
    return (
        isinstance(names, (tuple, list))
        and len(names) in (2, 3)
        and all(isinstance(one, str) for one in names)
    )


def _names_relation(index: Any) -> bool:
    return isinstance(index, (tuple, list)) and len(index) == 2 and _is_relation(index[0])


def _described(index: Any) -> str:
    return f"a {type(index).__name__}" if isinstance(index, (Tensor, list, Mapping)) else repr(index)


@dataclass(frozen=True, eq=False)
class WantedNegatives:
    """The negatives that a loader's links shall have."""

    links: Mapping[Relation, RelationLinks]  # the loader's links by relation
    #: PyG's description of the negatives of each relation that gets drawn ones
    sampling: Mapping[Relation, NegativeSampling]
    times: Mapping[Relation, Tensor | None]  # of each relation, the times at which its links are sampled
    rules: LinkRules


#: The plans of negatives by relation, and what draws them and finds the ends of links.
Planned: TypeAlias = tuple[Mapping[Relation, NegativePlan], LinkFinder]


class LinkPlace:
    """Finds the links of a loader and plans their negatives, in a graph that one process holds
    whole. `LinksOverRanks` does so over ranks, where all methods are collective."""

    def agree(self, all_edges: Mapping[Relation, bool]) -> None:
        """Raises AgreementError unless all ranks have links of the same relations. ``all_edges``:
        by relation, True if the links are all edges, False if they are given."""

    def all_edges(self, graph: Any, relation: Relation) -> RelationLinks:
        """Returns the edges of a relation that this process holds, as links."""
        return RelationLinks(relation, graph.in_edges(relation).edge_list())

    def plan(self, graph: Any, times: Any, wanted: WantedNegatives) -> Planned:
        """Plans how negatives are drawn."""
        first = None if times is None or not wanted.sampling else first_times(times, graph)
        plans = {
            relation: negative_plan(one, relation, graph, first, wanted.rules.exclude_existing)
            for relation, one in wanted.sampling.items()
        }
        return plans, LocalFinder()


#: What a loader's minibatches begin with.
Inputs: TypeAlias = NodeInputs | LinkInputs
InputsT = TypeVar("InputsT", bound=Inputs, covariant=True)


class InputRequest(Protocol[InputsT]):
    """The nodes or links that a user asks a loader for."""

    def inputs(self, sampled: LoaderGraph) -> InputsT:
        """Returns the checked seed nodes or links; collective over ranks. Raises TypeError,
        ValueError or IndexError if they do not fit the graph."""


@dataclass(frozen=True, eq=False)
class LinkRequest:
    """The links that a user asks a loader to begin with, and their negatives."""

    links: UserLinks
    #: ``neg_sampling`` in one of PyG's forms, [n, k] targets, or a dict of such by edge type
    sampling: Any = None
    ratio: float | None = None  # ``neg_sampling_ratio``: binary negatives per link; None or 0 for none
    rules: LinkRules = field(default_factory=LinkRules)

    def inputs(self, sampled: LoaderGraph) -> LinkInputs:
        graph, times, names, place = sampled.graph, sampled.times, sampled.names, sampled.link_place
        if (self.links.times is None) != (times is None):
            lacking = "time_attr" if times is None else "edge_label_time"
            raise ValueError(
                f"'{lacking}' is not set: give edge_label_time, the times of links, together with time_attr, "
                f"the name of the graph's times"
            )
        schema, edges = graph.schema, functools.partial(place.all_edges, graph)
        links = links_by_relation(self.links, schema, names)
        place.agree({relation: one.index is None for relation, one in links.items()})
        parts = [checked_links(relation, one, graph, names, edges) for relation, one in links.items()]
        parts, drawn = self._negatives(graph, parts)
        by_relation = {part.relation: part for part in parts}
        freeze = sampled.choice.freeze
        moments = {part.relation: frozen(part.time, freeze) for part in parts}
        plans, finder = place.plan(graph, times, WantedNegatives(by_relation, drawn, moments, self.rules))
        checked = [(relation, moments[relation], plan) for relation, plan in plans.items()]
        check_early_links(checked, self.rules.late_negatives, stacklevel=4)
        excluded = SeedEdges.wanted(
            self.rules.exclude_seed_edges, schema, list(by_relation), sampled.direction
        )
        if excluded is not None and excluded.by_id:
            for part in parts:
                _check_edges(part, excluded.paired)
        is_disjoint = sampled.choice.disjoint or times is not None
        seeder = LinkSeeder(schema, plans, is_disjoint, excluded, finder, freeze)
        return LinkInputs(parts, seeder, names)

    def for_pyg(self) -> NegativeSampling | None:
        """Returns the negatives as PyG's `NegativeSampling`; None without any, or if they are given
        by edge type."""
        if self.ratio:
            return NegativeSampling("binary", self.ratio)
        return None if _is_by_type(self.sampling) else _cast(self.sampling)

    def _negatives(
        self, graph: GraphShape, links: Sequence[RelationLinks]
    ) -> tuple[list[RelationLinks], dict[Relation, NegativeSampling]]:
        """Returns the links with given or in-batch negatives attached, and PyG's description of
        drawn negatives by relation."""
        relations = {one.relation: None for one in links}
        named = dict.fromkeys(relations, self.sampling)
        if self.ratio:
            named = dict.fromkeys(relations, NegativeSampling("binary", self.ratio))
        elif _is_by_type(self.sampling):
            named = by_relation("neg_sampling", self.sampling, graph.schema, relations)
        parts, drawn = [], {}
        for one in links:
            wanted = named.get(one.relation)
            sampling = _cast(wanted)
            part = dataclasses.replace(one, label=labelled(one, sampling))
            if isinstance(wanted, Tensor):
                part = dataclasses.replace(part, given=_checked_targets(wanted, one, graph))
            elif sampling is not None:
                drawn[one.relation] = sampling
            elif wanted is not None:
                part = part.in_batch()
            parts.append(part)
        if self.rules.exclude_existing and not drawn:
            raise ValueError(
                "exclude_existing=True is about negatives that are drawn, but neg_sampling draws none: give "
                "for instance neg_sampling='binary', or leave exclude_existing out"
            )
        return parts, drawn


#: Ids of edges that travel between ranks with ids of nodes are below this.
_MOST_EDGES = 1 << 31


def _check_edges(links: RelationLinks, paired: Tensor | None) -> None:
    """Raises IndexError unless ``input_id`` holds edge ids of the relation, with known reverses."""
    ids = torch.arange(len(links)) if links.input_id is None else links.input_id
    most = _MOST_EDGES if paired is None else paired.numel()
    check_range(f"input_id of {links.relation}, the ids of edges that are left out,", ids, most, "edges")


def _checked_targets(table: Tensor, links: RelationLinks, graph: GraphShape) -> Tensor:
    """Returns the targets that a user gave as negatives, [n, k] int64."""
    what, target = f"neg_sampling of {links.relation}", links.relation[2]
    if table.dtype not in INTEGERS:
        raise TypeError(f"{what} must hold integer node ids, got {table.dtype}; use .long()")
    if table.dim() != 2 or len(table) != len(links) or not table.size(1):
        raise ValueError(
            f"{what} has shape {list(table.shape)} for {len(links)} links; give [links, k] targets"
        )
    table = table.to("cpu", torch.int64).contiguous()
    check_range(what, table.view(-1), graph.num_nodes[graph.schema.type_number(target)])
    return table


def _cast(given: Any) -> NegativeSampling | None:
    if isinstance(given, Tensor):
        return NegativeSampling("triplet", given.size(1)) if given.dim() == 2 and given.size(1) else None
    if given is None or (isinstance(given, str) and given == IN_BATCH):
        return None
    mode = given[0] if isinstance(given, (tuple, list)) and given else given
    if isinstance(mode, str) and mode not in ("binary", "triplet"):
        raise ValueError(f"neg_sampling must be 'binary', 'triplet' or {IN_BATCH!r}, got {given!r}")
    return NegativeSampling.cast(given)


def _is_by_type(sampling: Any) -> bool:
    return isinstance(sampling, Mapping) and "mode" not in sampling


def labelled(links: RelationLinks, sampling: NegativeSampling | None) -> Tensor | None:
    if sampling is None or links.label is None:
        return links.label
    if sampling.is_triplet():
        raise ValueError(
            "edge_label and neg_sampling='triplet' do not go together: triplets tell links from negatives by "
            "src_index, dst_pos_index and dst_neg_index; leave edge_label out"
        )
    if links.label.numel() == 0 or links.label.min() != 0:
        return links.label
    warnings.warn(
        f"edge_label of {links.relation} begins with 0, which is the label of negatives: all labels of links "
        f"move up by 1, as in PyG; give labels that begin with 1 to keep them",
        stacklevel=6,
    )
    return links.label + 1


#: Links that are digested at once.
_LINKS = 1 << 16


def links_sum(index: Tensor, position: Tensor | None = None) -> int:
    """Returns an order-independent digest: the sum of the links' digests modulo 2**64. ``index``:
    [2, n] int64, sources above targets. ``position``: [n] int64, positions among all links; None
    for 0 to n - 1."""
    total = 0
    for begin in range(0, index.size(1), _LINKS):
        source, target = index[:, begin : begin + _LINKS]
        end = begin + source.numel()
        at = torch.arange(begin, end) if position is None else position[begin:end]
        total += int(fold_key(fold_key(fold_key(torch.zeros_like(at), at), source), target).sum())
    return total


def described(values: Tensor) -> list[Any]:
    """Returns the dtype, the shape and the digest of a tensor, for JSON."""
    data = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    words = torch.nn.functional.pad(data, (0, -data.numel() % 8)).view(torch.int64)
    return [str(values.dtype), list(values.shape), digest_text(minibatch_key(words))]
