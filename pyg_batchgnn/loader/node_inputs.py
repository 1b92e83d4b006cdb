"""The nodes that a loader's minibatches begin with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn.loader.schedule import SeedStep, WorkItem
from pyg_batchgnn.ops import check_range, check_vector, digest_text, minibatch_key
from pyg_batchgnn.sample import Direction, Names, NeighborChoice, SampledLinks, SampleInfo, SeedInfo, Seeds
from pyg_batchgnn.types import Group, Schema

if TYPE_CHECKING:
    from pyg_batchgnn.store import PartTimes, SeedTimes, Times

    #: The times of a graph, and those that its nodes have themselves.
    GraphTimes: TypeAlias = Times | PartTimes
    OwnTimes: TypeAlias = Times | SeedTimes


@dataclass(frozen=True, eq=False)
class StepInputs:
    """The seeds, and the links if there are any, that one minibatch begins with."""

    seeds: Seeds  # the seeds, as the sampler takes them
    input_id: Tensor  # [S] int64, what PyG calls the seeds in ``input_id``
    #: [S] int64, the times that the user gave for the seeds; None if there are none
    time: Tensor | None = None
    links: tuple[SampledLinks, ...] = ()  # the links that the seeds are ends of, by local ids
    #: [S] int64, the internal ids of the seeds, by type in the order of the schema; None if the
    #: sampler holds the whole graph
    internal: Tensor | None = None
    late_negatives: int = 0  # how many negatives of the links are later than their link


class GraphShape(Protocol):
    """The sizes of a graph, whose edges may lie on other ranks."""

    @property
    def schema(self) -> Schema: ...

    @property
    def num_nodes(self) -> Sequence[int]: ...


class LoaderGraph(Protocol):
    """The graph that a loader samples, and the rules of sampling."""

    graph: GraphShape
    times: GraphTimes | None  # None if sampling is not temporal
    names: Names
    choice: NeighborChoice
    direction: Direction
    link_place: Any  # a `LinkPlace`


@dataclass(frozen=True, eq=False)
class TypeInputs:
    """The input nodes of one type."""

    name: str  # the node type
    node: Tensor  # [n] int64 node ids
    input_id: Tensor | None = None  # [n] int64; None for the positions in ``node``
    time: Tensor | None = None  # [n] int64, the times that the user gave; None if there are none
    here = None  # every rank has all of them

    def __len__(self) -> int:
        return self.node.numel()

    def ids(self, at: Tensor) -> Tensor:
        return at if self.input_id is None else self.input_id[at]


class NodeInputs:
    """The seed nodes of a loader, one type after the other. ``parts``: by type, in the user's
    order; all have times or none. ``times``: the nodes' own times, for seeds to which the user
    gives none; None if sampling is not temporal."""

    excluding = False

    def __init__(
        self,
        schema: Schema,
        parts: Sequence[TypeInputs],
        times: OwnTimes | None = None,
        names: Names = Names.NONE,
    ) -> None:
        self._schema, self.parts, self._times, self._names = schema, tuple(parts), times, names
        self._places = Places(self.parts)
        #: The number of the node type of each part.
        self.types = tuple(schema.type_number(part.name) for part in self.parts)

    def with_times(self, times: GraphTimes) -> NodeInputs:
        """Returns the same seed nodes for temporal sampling; collective over ranks."""
        own = times.of_inputs(self.untimed)
        inputs = NodeInputs(self._schema, self.parts, own, self._names)
        inputs.step(SeedStep.of(torch.empty(0, dtype=torch.int64)))  # raises here if seeds have no time
        return inputs

    @property
    def info(self) -> SampleInfo:
        return SeedInfo([part.name for part in self.parts])

    def __len__(self) -> int:
        return len(self._places)

    def take(self, item: WorkItem, seed: int) -> list[StepInputs]:  # noqa: ARG002
        return [self.step(step) for step in item.steps]

    def step(self, step: SeedStep) -> StepInputs:
        """Returns the seeds of one minibatch. Those of one type keep the order of ``step``."""
        places = self._places.within(step.positions)
        nodes = {part.name: part.node[at] for part, at in zip(self.parts, places, strict=True)}
        given = [part.time[at] for part, at in zip(self.parts, places, strict=True) if part.time is not None]
        time = torch.cat(given) if given else None
        seeds = Seeds.of(self._schema, nodes, time=self._own_times(nodes) if time is None else time)
        ids = [part.ids(at) for part, at in zip(self.parts, places, strict=True)]
        return StepInputs(seeds, ids[0] if len(ids) == 1 else torch.cat(ids), time, internal=step.internal)

    @cached_property
    def node(self) -> Tensor:
        return self.parts[0].node if len(self.parts) == 1 else torch.cat([part.node for part in self.parts])

    @property
    def untimed(self) -> dict[Group, Tensor]:
        """The seed nodes for which the user gave no times, by group."""
        groups = self._schema.node_groups
        parts = zip(self.types, self.parts, strict=True)
        return {groups[number]: part.node for number, part in parts if part.time is None}

    def type_of(self, positions: Tensor) -> Tensor:
        return torch.tensor(self.types)[self._places.parts_of(positions)]

    def by_type(self, positions: Tensor) -> Tensor:
        """Returns positions sorted stably by the node type of their seeds."""
        if len(self.parts) == 1:
            return positions
        return positions[torch.argsort(self.type_of(positions), stable=True)]

    def for_pyg(self) -> dict[str, Any]:
        """Returns the arguments that describe the seed nodes for PyG's `NodeLoader`, which knows
        one type: seeds of several are listed under the first one's name."""
        first, nodes = self.parts[0], self.node
        given = [part.time for part in self.parts if part.time is not None]
        return {
            "input_nodes": nodes if self._names is Names.NONE else (first.name, nodes),
            "input_id": first.input_id if len(self.parts) == 1 else None,
            "input_time": torch.cat(given) if given else None,
        }

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "num_seeds": len(self),
            "seeds_digest": digest_text(minibatch_key(self.node.contiguous())),
        }
        if self._schema.num_types > 1:
            found["seed_types"] = [[part.name, len(part)] for part in self.parts]
        if given := [part.time for part in self.parts if part.time is not None]:
            found["times_digest"] = digest_text(minibatch_key(torch.cat(given)))
        return found

    def _own_times(self, nodes: dict[str, Tensor]) -> Tensor | None:
        times, groups, number = self._times, self._schema.node_groups, self._schema.type_number
        if times is None:
            return None
        return torch.cat([times.of_seeds(groups[number(name)], node) for name, node in nodes.items()])


@dataclass(frozen=True, eq=False)
class NodeRequest:
    """The nodes that a user gave, unchecked."""

    nodes: Any  # ``input_nodes``
    ids: Any = None  # ``input_id``, or None
    times: Any = None  # ``input_time``, or None

    def inputs(self, sampled: LoaderGraph) -> NodeInputs:
        graph, schema, names = sampled.graph, sampled.graph.schema, sampled.names
        if names is Names.TYPES:
            given = self._by_type(schema)
        elif _names_a_type(self.nodes):
            raise ValueError(
                f"input_nodes={self.nodes!r} names a node type, but the graph is homogeneous; give a mask or "
                f"node ids"
            )
        else:
            given = {schema.node_types[0]: self}
        parts = []
        for name, one in given.items():
            if name not in schema.node_types:
                known = ", ".join(schema.node_types)
                raise ValueError(f"input_nodes names the node type {name!r}; the graph has {known}")
            count = graph.num_nodes[schema.type_number(name)]
            what = f"input_nodes of type {name!r}" if names is Names.TYPES else "input_nodes"
            parts.append(_type_inputs(what, name, one.nodes, one.ids, one.times, count))
        inputs = NodeInputs(schema, parts, None, names)
        return inputs if sampled.times is None else inputs.with_times(sampled.times)

    def _by_type(self, schema: Schema) -> dict[str, NodeRequest]:
        """Returns the request by node type, from "type", ("type", None | mask | ids), or a dict."""
        if not isinstance(self.nodes, Mapping):
            name, nodes = _type_and_nodes(self.nodes, schema)
            return {name: NodeRequest(nodes, self.ids, self.times)}
        if not self.nodes:
            raise ValueError(f"input_nodes names no node type; the graph has {', '.join(schema.node_types)}")
        ids = by_key("input_id", self.ids, self.nodes, "input_nodes", "node type")
        times = by_key("input_time", self.times, self.nodes, "input_nodes", "node type")
        return {
            name: NodeRequest(nodes, ids.get(name), times.get(name)) for name, nodes in self.nodes.items()
        }


def _names_a_type(nodes: Any) -> bool:
    is_list = isinstance(nodes, (list, tuple)) and len(nodes) > 0
    return isinstance(nodes, (str, Mapping)) or (is_list and isinstance(nodes[0], str))


def _type_and_nodes(nodes: Any, schema: Schema) -> tuple[str, Any]:
    if isinstance(nodes, str):
        return nodes, None
    if _names_a_type(nodes) and len(nodes) == 2:
        return nodes[0], nodes[1]
    known = ", ".join(map(repr, schema.node_types))
    given = f"a {type(nodes).__name__}" if isinstance(nodes, (Tensor, list)) else repr(nodes)
    raise ValueError(
        f"input_nodes must name a node type of the graph ({known}): give 'type', ('type', ids or mask) or a "
        f"dict of several types, got {given}"
    )


def by_key(
    name: str, given: Any, keys: Collection[Any], whose: str, kind: str, of: Callable[[Any], Any] = str
) -> dict[Any, Any]:
    """Returns a user's dict by node type or edge type, with checked keys. Raises TypeError if
    ``given`` is no dict, ValueError for an unknown key or missing times. ``whose``: the argument
    that ``keys`` come from. ``kind``: "node type" or "edge type", for errors. ``of``: turns a key
    of the user's into one of ``keys``."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a dict by {kind}, as {whose} is, got {type(given).__name__}")
    found = {of(one): value for one, value in given.items()}
    if unknown := [one for one in found if one not in keys]:
        raise ValueError(f"{name} names the {kind} {unknown[0]!r}, which {whose} does not")
    if name.endswith("_time") and (missing := [one for one in keys if one not in found]):
        raise ValueError(f"{name} lacks {missing[0]!r}: give times for every {kind} of {whose}")
    return found


def _type_inputs(what: str, name: str, nodes: Any, ids: Any, times: Any, num_nodes: int) -> TypeInputs:
    node, own_ids = (torch.arange(num_nodes), None) if nodes is None else _node_ids(what, nodes, num_nodes)
    given_ids = aligned("input_id", ids, node.numel(), what)
    time = aligned("input_time", times, node.numel(), what)
    return TypeInputs(name, node, own_ids if given_ids is None else given_ids, time)


def as_array(what: str, given: Any, empty: torch.dtype | None = None) -> Tensor:
    """Returns a user's tensor, array or list as a tensor. ``empty``: the dtype of an empty one."""
    try:
        array = torch.as_tensor(given)
        if array.layout is not torch.strided:
            raise TypeError(f"got {array.layout}; use .to_dense()")
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{what} must be a tensor, an array or a list of numbers ({error})") from None
    is_bare = empty is not None and not array.numel() and array.dtype.is_floating_point
    return array.to(empty) if is_bare else array


def aligned(name: str, given: Any, count: int, what: str) -> Tensor | None:
    """Returns a user's values as a tensor [count, ...], one for each node or link; None stays None.
    Times must be int64."""
    if given is None:
        return None
    values = as_array(name, given)
    if list(values.shape[: None if name != "edge_label" else 1]) != [count]:
        entries = values.numel() if values.dim() == 1 else f"shape {list(values.shape)}, not {count}"
        raise ValueError(f"{name} has {entries} entries for {count} {what}; give one for each")
    if name.endswith("_time") and values.dtype is not torch.int64:
        raise TypeError(
            f"{name} must be torch.int64, as the times of the graph are, got {values.dtype}; use "
            f".to(torch.int64) in the same unit"
        )
    return values.cpu().contiguous()


def _node_ids(what: str, given: Any, num_nodes: int) -> tuple[Tensor, Tensor | None]:
    """Returns node ids, and ``input_id`` where it differs from the positions: for a mask it holds
    the node ids, as in PyG."""
    nodes = as_array(what, given, torch.int64)
    if nodes.dtype is torch.bool:
        if list(nodes.shape) != [num_nodes]:
            raise ValueError(f"{what} is a mask of shape {list(nodes.shape)} for {num_nodes} nodes")
        ids = nodes.cpu().nonzero().view(-1)
        return ids, ids
    if nodes.dtype.is_floating_point or nodes.dtype.is_complex:
        raise TypeError(
            f"{what} must be a mask or integer node ids, got {nodes.dtype}; use .long() or .bool()"
        )
    ids = nodes.to("cpu", torch.int64).contiguous()
    check_vector(what, ids)
    check_range(what, ids, num_nodes)
    return ids, None


class Places:
    """Maps positions in a loader's input, where the seeds of one type follow those of another, to
    positions within each type."""

    def __init__(self, parts: Sequence[Sized]) -> None:
        self._ends = torch.tensor([0, *map(len, parts)]).cumsum(0)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def within(self, positions: Tensor) -> list[Tensor]:
        """Returns for each type the positions within it, of those given, in their order. Raises
        IndexError for a position that is not there."""
        check_range("the minibatch", positions, len(self), "positions of the loader's inputs")
        parts = self._ends.numel() - 1
        if parts == 1:
            return [positions]
        number = self.parts_of(positions)
        return [positions[number == one] - self._ends[one] for one in range(parts)]

    def parts_of(self, positions: Tensor) -> Tensor:
        """Returns [n] int64, the index of the type that each position belongs to."""
        return torch.searchsorted(self._ends[1:], positions, right=True)


@dataclass(frozen=True, eq=False)
class OwnPositions:
    """The positions of this rank's edges among all edges of their relation."""

    position: Tensor  # [m] int64, ascending
    total: int  # the number of all links
    sum: int  # the sum of the digests of all links; see `links_sum`

    def column(self, at: Tensor) -> Tensor:
        """Returns the columns of this rank's links at positions ``at`` [n] int64. Raises IndexError
        if one is an edge that another rank holds."""
        column = torch.searchsorted(self.position, at)
        found = torch.cat([self.position, torch.tensor([-1])])[column] == at
        if not bool(found.all()):
            raise IndexError(
                f"link {int(at[~found][0])} is an edge of another rank, the owner of its target: give "
                f"positions of this rank's own edges, or edge_label_index on every rank"
            )
        return column
