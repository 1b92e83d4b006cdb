"""The times of nodes or of edges, by which temporal sampling chooses."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store.graph import TypedGraph
from pyg_batchgnn.store.time_order import TimeOrder, WeightSums, first_fall, shared_order, shared_sums
from pyg_batchgnn.types import Group, Relation


class TimeLevel(enum.Enum):
    """Which rows have a time."""

    NODE = "node"
    EDGE = "edge"
    BOTH = "both"  # nodes of some types, and edges of some relations


class Sortedness(enum.Enum):
    """Whether the user promises that edges are sorted (PyG's ``is_sorted``)."""

    UNKNOWN = "unknown"
    PROMISED = "promised"  # by destination, and by time within it


@dataclass(frozen=True, eq=False)
class Times:
    """The times of all nodes of some types and all edges of some relations. If an edge and its
    source both have a time, the later one counts for the edge."""

    name: str  # the attribute's name
    level: TimeLevel  # which rows have a time
    # [rows] int64, for each node type or relation that has it; of edges by input edge id.
    by_group: Mapping[Group, Tensor]

    @classmethod
    def of(cls, name: str, found: Mapping[Group, Tensor], rows: Mapping[Group, int]) -> Times:
        """Checks an attribute, given by group with all rows, and finds out which rows have times.
        ``rows``: the number of rows of every group of the graph or part."""
        levels = {TimeLevel.NODE if group.is_node else TimeLevel.EDGE for group in found}
        if not levels:
            raise ValueError(
                f"time_attr={name!r} is neither an attribute of nodes nor one of edges: name an attribute "
                f"with one int64 time per node or per edge"
            )
        checked = {group: _checked(name, group, time, rows[group]) for group, time in found.items()}
        return cls(name, levels.pop() if len(levels) == 1 else TimeLevel.BOTH, checked)

    def of_seeds(self, group: Group, node: Tensor) -> Tensor:
        """Returns [S] int64, the times of seeds. Raises ValueError if their type has none."""
        self.check_seeds(group)
        return self.by_group[group][node]

    def of_inputs(self, nodes: Mapping[Group, Tensor]) -> Times:  # noqa: ARG002
        """Returns itself: it holds the times of all nodes."""
        return self

    def check_seeds(self, group: Group) -> None:
        """Raises ValueError unless nodes of this type have times."""
        if group not in self.by_group:
            what = "edges have" if self.level is TimeLevel.EDGE else f"nodes of type {str(group)!r} have no"
            raise ValueError(
                f"seed nodes need a time, but {what} {self.name!r}: give input_time, one int64 for each of "
                f"input_nodes"
            )

    def orders(self, graph: TypedGraph, sortedness: Sortedness) -> tuple[TimeOrder | None, ...]:
        """Returns the time order of each relation; None if its edges have no time. Raises
        ValueError if the user promises sorted edges, but they are not."""
        orders: list[TimeOrder | None] = []
        for number, edges in enumerate(graph.relations):
            time = self._of_edges(graph, number, edges)
            if time is not None and sortedness is Sortedness.PROMISED:
                relation = graph.schema.relations[number]
                by_target = edges.edge_ids is None or ops.is_ascending(edges.edge_ids)
                check_promise(self.name, relation, edges, time, by_target=by_target)
            orders.append(None if time is None else shared_order(self.name, edges, time))
        return tuple(orders)

    def _of_edges(self, graph: TypedGraph, number: int, edges: InEdges) -> Tensor | None:
        schema = graph.schema
        of_source = self.by_group.get(schema.node_groups[schema.source_types[number]])
        own = self.by_group.get(schema.edge_groups[number])
        return later_of(
            None if own is None else by_position(edges, own),
            None if of_source is None else of_source[edges.indices],
        )


def later_of(own: Tensor | None, of_source: Tensor | None) -> Tensor | None:
    """Returns the later of the times of edges and of their sources; the other if one is None."""
    if own is None or of_source is None:
        return of_source if own is None else own
    return torch.maximum(own, of_source)


def check_promise(name: str, relation: Relation, edges: InEdges, time: Tensor, *, by_target: bool) -> None:
    """Raises ValueError unless edges are sorted as the user promises. ``by_target``: the user's
    edge list is sorted by target."""
    at = first_fall(edges, time) if by_target else None
    if by_target and at is None:
        return
    fact = (
        "by destination"
        if at is None
        else f"by {name!r}: time {int(time[at])} comes after {int(time[at - 1])}"
    )
    raise ValueError(
        f"is_sorted=True, but the edges of {relation} are not sorted {fact}; leave is_sorted out, and the "
        f"loader sorts them"
    )


def by_position(edges: InEdges, values: Tensor) -> Tensor:
    """Returns values of edges in CSC order. ``values``: by input edge id."""
    return values if edges.edge_ids is None else values[edges.edge_ids]


def _checked(name: str, group: Group, time: Tensor, rows: int) -> Tensor:
    _check_tensor("times", name, group, time)
    if time.dtype is not torch.int64:
        raise TypeError(
            f"times must be torch.int64, but {name!r} of {group} is {time.dtype}; convert it once with "
            f".to(torch.int64), in a unit that keeps what matters (seconds as milliseconds, for instance)"
        )
    return _one_each("time", name, group, time, f"{rows} rows", rows)


def _check_tensor(what: str, name: str, group: Group, values: object) -> None:
    if not isinstance(values, Tensor):
        found = type(values).__name__
        raise TypeError(f"{what} must be a tensor, but {name!r} of {group} is a {found}; use torch.tensor")


def _one_each(what: str, name: str, group: Group, values: Tensor, wanted: str, rows: int) -> Tensor:
    if values.dim() == 0 or values.numel() != rows or values.size(0) != rows:
        shape = list(values.shape)
        raise ValueError(f"{name!r} of {group} has shape {shape} for {wanted}; give one {what} for each")
    return values.detach().cpu().reshape(-1)


#: The time of nodes that have none: before all others.
ALWAYS = torch.iinfo(torch.int64).min
#: Later than all times.
NEVER = torch.iinfo(torch.int64).max


def first_times(times: Times, graph: TypedGraph) -> Mapping[Group, Tensor]:
    """Returns the time from which each node exists, [N_t] int64 for each node type that has times:
    its own time, or in a type without times the earliest time of a timed edge at it, in either
    direction and any relation. A node without a timed edge exists always."""
    if times.level is TimeLevel.NODE:
        return times.by_group
    schema = graph.schema
    first = {
        group: torch.full((count,), NEVER)
        for group, count in zip(schema.node_groups, graph.num_nodes, strict=True)
    }
    for number, edges in enumerate(graph.relations):
        time = times.by_group.get(schema.edge_groups[number])
        if time is not None:
            time = by_position(edges, time)
            source, target = (types[number] for types in (schema.source_types, schema.target_types))
            for end, node in ((source, edges.indices.long()), (target, edges.targets())):
                first[schema.node_groups[end]].scatter_reduce_(0, node, time, "amin")
    return {
        group: times.by_group.get(group, torch.where(time == NEVER, ALWAYS, time))
        for group, time in first.items()
    }


def sum_weights(
    name: str, found: Mapping[Group, Tensor], graph: TypedGraph, orders: Sequence[TimeOrder | None]
) -> tuple[WeightSums | None, ...]:
    """Returns the prefix sums of each relation's weights, in its time order if there is one; None
    for a relation without weights. ``found``: the weights by group, by input edge id."""
    check_has_edges(name, found)
    sums: list[WeightSums | None] = []
    for group, edges, order in zip(graph.schema.edge_groups, graph.relations, orders, strict=True):
        if group not in found:
            sums.append(None)
            continue
        weight = by_position(edges, checked_weight(name, group, found[group], edges.num_edges))
        sums.append(shared_sums(name, edges, order, weight))
    return tuple(sums)


def check_has_edges(name: str, found: Collection[Group]) -> None:
    """Raises ValueError unless edges have the attribute. ``found``: the groups that have it."""
    if not any(group.is_edge for group in found):
        whose = f"; nodes have it ({', '.join(map(str, found))})" if found else ""
        raise ValueError(
            f"weight_attr={name!r} is no attribute of edges{whose}: name an attribute with one "
            f"floating-point weight for each edge"
        )


def checked_weight(name: str, group: Group, weight: Tensor, rows: int) -> Tensor:
    """Returns a relation's weights [rows]. Raises ValueError unless finite and not negative."""
    _check_tensor("weights", name, group, weight)
    if not weight.dtype.is_floating_point:
        raise TypeError(
            f"weights must be floating-point numbers, but {name!r} of {group} is {weight.dtype}; use .float()"
        )
    weight = _one_each("weight", name, group, weight, f"{rows} edges", rows)
    wrong = ~(torch.isfinite(weight) & (weight >= 0))
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise ValueError(
            f"weights must be finite and not negative, but {name!r} of {group} holds {float(weight[at])} at "
            f"edge {at}; clamp or remove such edges (weight 0 is never picked)"
        )
    return weight
