"""The links that a loader's minibatches begin with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.loader.node_inputs import GraphShape, OwnerNodes, OwnPositions, Places, StepInputs
from pyg_batchgnn.loader.schedule import WorkItem
from pyg_batchgnn.ops import INTEGERS, check_range, digest_text, fold_key, minibatch_key
from pyg_batchgnn.sample import (
    GivenNegatives,
    LinkInfo,
    Links,
    LinkSeeder,
    LinkStart,
    Names,
    NegativePlan,
    SampleInfo,
    named_relation,
)
from pyg_batchgnn.types import Relation, Schema

# Checked links ####################################################################################


@dataclass(frozen=True, eq=False)
class RelationLinks:
    """The links of one relation, checked."""

    relation: Relation
    index: Tensor  # [2, n] int64, sources above targets, ids within their types
    label: Tensor | None = None  # [n, ...], or None
    time: Tensor | None = None  # [n] int64, or None
    input_id: Tensor | None = None  # [n] int64; None for the positions in ``index``
    here: OwnPositions | None = None  # the positions of the columns of ``index``; None if it has all links

    def __len__(self) -> int:
        return self.index.size(1) if self.here is None else self.here.total

    @cached_property
    def digest(self) -> str:
        """The digest of all links, those of other ranks included, in their order."""
        return digest_text(links_sum(self.index) if self.here is None else self.here.sum)

    def take(self, at: Tensor) -> Links:
        """Returns the links at some positions. Raises IndexError if a link is an edge of another
        rank."""
        source, target = self.index[:, at if self.here is None else self.here.column(at)]
        return Links(
            self.relation,
            source,
            target,
            at if self.input_id is None else self.input_id[at],
            None if self.label is None else self.label[at],
            None if self.time is None else self.time[at],
        )


class LinkInputs:
    """The links of a loader, one relation after the other."""

    def __init__(self, parts: Sequence[RelationLinks], seeder: LinkSeeder, names: Names) -> None:
        self.parts, self.seeder, self._names = tuple(parts), seeder, names
        self._places = Places(self.parts)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def info(self) -> SampleInfo:
        plans = self.seeder.negatives
        modes = {relation: plan.mode for relation, plan in plans.items()}
        relations = [(part.relation, modes.get(part.relation)) for part in self.parts]
        return LinkInfo(relations, self.parts[0].time is not None)

    @property
    def excluding(self) -> bool:
        return self.seeder.excluded is not None

    @property
    def owned_by(self) -> list[OwnerNodes]:
        return [OwnerNodes(part.relation[2], part.index[1], part.here) for part in self.parts]

    def take(self, item: WorkItem, seed: int) -> list[StepInputs]:
        """Keeps the links of a relation in the order of their positions. Raises IndexError if there
        is no such position. Raises ValueError if a negative cannot be drawn. The message names its
        link."""
        links = [self._links(step.positions) for step in item.steps]
        starts = self.seeder.start_all(links, seed, item.epoch, item.number)
        return [_inputs(*one) for one in zip(links, starts, strict=True)]

    def _links(self, positions: Tensor) -> list[Links]:
        places = self._places.within(positions)
        return [part.take(at) for part, at in zip(self.parts, places, strict=True)]

    def for_pyg(self, data: Any) -> dict[str, Any]:
        """Returns the arguments of PyG's `LinkLoader` that describe the links. PyG knows links of
        one type only. Links of several types go under the first one's name."""
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
        if not self.seeder.schema.is_plain:
            found["relations"] = [[*part.relation, len(part)] for part in self.parts]
        if times := [part.time for part in self.parts if part.time is not None]:
            found["times_digest"] = _digest(times)
        if self.seeder.excluded is not None:
            found["excluded"] = [
                [list(one), [[list(name) for name in names] for names in pairs]]
                for one, pairs in self.seeder.excluded.relations.items()
            ]
        return found


def _inputs(links: Sequence[Links], start: LinkStart) -> StepInputs:
    ids = [one.input_id for one in links]
    input_id = ids[0] if len(ids) == 1 else torch.cat(ids)
    return StepInputs(start.seeds, input_id, None, start.links, start.internal, start.late_negatives)


def _settings(plan: NegativePlan) -> dict[str, Any]:
    weights = [pool.weight for pool in (plan.sources, plan.targets) if pool.weight is not None]
    given = {"targets_digest": _digest([plan.table.view(-1)])} if isinstance(plan, GivenNegatives) else {}
    return {
        **given,
        "mode": plan.mode.value,
        "amount": plan.amount,
        "exclude_existing": plan.existing is not None,
        "weights_digest": _digest([weight.view(torch.int64) for weight in weights]) if weights else None,
    }


def _digest(parts: Sequence[Tensor]) -> str:
    return digest_text(minibatch_key(torch.cat(list(parts)).contiguous()))


#: Returns the edges of a relation as links, as far as they are here; collective over ranks.
AllEdges: TypeAlias = Callable[[Relation], RelationLinks]

# Links of the user ################################################################################


@dataclass(frozen=True, eq=False)
class UserLinks:
    """The links that a user gave, unchecked."""

    index: Any  # ``edge_label_index``
    labels: Any = None  # ``edge_label``, or None
    times: Any = None  # ``edge_label_time``, or None
    ids: Any = None  # ``input_id``, or None


def links_by_relation(request: UserLinks, schema: Schema, names: Names) -> dict[Relation, UserLinks]:
    """Returns the links of each relation; their ``index`` is None for all edges.

    In a graph without names the user gives [2, n] or None, with stores also (None, [2, n] or None).
    Else an edge type, (edge type, [2, n] or None), or a dict of such: labels, times and ids are
    then dicts by edge type too. The graph need not have the edge type, only the types of its ends.
    """
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
    if times and (missing := [one for one in relations if one not in times]):
        raise ValueError(f"edge_label_time lacks {missing[0]}: give times for all edge types")
    return {
        one: UserLinks(given, labels.get(one), times.get(one), ids.get(one))
        for one, given in relations.items()
    }


def by_relation(
    name: str, given: Any, schema: Schema, relations: Mapping[Relation, Any]
) -> dict[Relation, Any]:
    """Returns labels, times or ids of links of several relations, by relation. Raises TypeError or
    ValueError if it is no dict, or names another relation."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{name} must be a dict by edge type, as edge_label_index is, got {type(given).__name__}"
        )
    found = {named_relation(schema, names): value for names, value in given.items()}
    if unknown := [one for one in found if one not in relations]:
        raise ValueError(f"{name} names {unknown[0]}, which edge_label_index does not")
    return found


def checked_links(
    relation: Relation, links: UserLinks, graph: GraphShape, names: Names, all_edges: AllEdges
) -> RelationLinks:
    """Returns the links of one relation, checked. Collective over ranks if all edges are meant."""
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
    label, time, ids = (
        None if values is None else _aligned(name, values, len(found), what)
        for name, values in (
            ("edge_label", links.labels),
            ("edge_label_time", links.times),
            ("input_id", links.ids),
        )
    )
    if time is not None and time.dtype is not torch.int64:
        raise TypeError(
            f"edge_label_time must be torch.int64, as the times of the graph are, got {time.dtype}; use "
            f".to(torch.int64) in the same unit"
        )
    return dataclasses.replace(found, label=label, time=time, input_id=ids)


def _index(what: str, given: Any, relation: Relation, graph: GraphShape) -> Tensor:
    index = given if isinstance(given, Tensor) else torch.as_tensor(given)
    if index.numel() == 0 and index.dtype.is_floating_point:
        index = index.long()  # an empty list
    if index.dtype not in INTEGERS:
        raise TypeError(f"{what} must hold integer node ids, got {index.dtype}; use .long()")
    if index.dim() != 2 or index.size(0) != 2:
        raise ValueError(f"{what} must have shape [2, n], sources above targets, got {list(index.shape)}")
    index = index.to("cpu", torch.int64).contiguous()
    for row, end in zip(index, (relation[0], relation[2]), strict=True):
        check_range(f"{what}, ends of type {end!r}", row, graph.num_nodes[graph.schema.type_number(end)])
    return index


def _aligned(name: str, values: Any, count: int, what: str) -> Tensor:
    values = torch.as_tensor(values)
    rows = values.size(0) if values.dim() else 0
    if rows != count:
        raise ValueError(f"{name} has {rows} entries for {count} links of {what}; give one for each")
    return values.cpu().contiguous()


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


# Digests ##########################################################################################

#: Links that are digested at once.
_LINKS = 1 << 16


def links_sum(index: Tensor, position: Tensor | None = None) -> int:
    """Returns the sum of the digests of links, modulo 2**64. ``index``: [2, n] int64, sources above
    targets. ``position``: [n] int64, the positions among all links; None for 0, 1, and so on."""
    total = 0
    for begin in range(0, index.size(1), _LINKS):
        source, target = index[:, begin : begin + _LINKS]
        if position is None:
            at = torch.arange(begin, begin + source.numel())
        else:
            at = position[begin : begin + _LINKS]
        total += int(fold_key(fold_key(fold_key(torch.zeros_like(at), at), source), target).sum())
    return total


def described(values: Tensor) -> list[Any]:
    """Returns the type, the shape and the digest of a tensor's values, which JSON can hold."""
    data = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    words = torch.nn.functional.pad(data, (0, -data.numel() % 8)).view(torch.int64)
    return [str(values.dtype), list(values.shape), digest_text(minibatch_key(words))]
