"""A sampled minibatch: its parts by node type and relation, and the prefix that a layer takes
(design, section 3)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.types.schema import Relation, Schema


@dataclass(frozen=True)
class LayerHops:
    """The hops of edges that a layer takes: layer l of L takes the first L - l + 1 hops."""

    #: the number of hops. None in an induced subgraph: every layer takes all edges, and every node
    #: is source and target
    hops: int | None

    @classmethod
    def of(cls, layers: int | None, layer: int) -> LayerHops:
        """Returns the hops of a layer. ``layers``: the number of layers that the minibatch was
        sampled for, None if induced. ``layer``: from 1 at the input. Raises ValueError if there is
        none."""
        if layer >= 1 and (layers is None or layer <= layers):
            return cls(None if layers is None else layers - layer + 1)
        known = "is an induced subgraph" if layers is None else f"was sampled for layers 1 to {layers}"
        raise ValueError(
            f"the minibatch {known}, there is no layer {layer}; give as many fanouts as the model has "
            f"layers, and count layers from 1 at the input"
        )

    def targets(self, nodes_per_hop: Sequence[int]) -> int:
        """Returns the number of nodes that it computes."""
        return sum(nodes_per_hop[: self.hops])

    def sources(self, nodes_per_hop: Sequence[int]) -> int:
        """Returns the number of nodes that the layer reads."""
        return sum(nodes_per_hop[: None if self.hops is None else self.hops + 1])

    def edges(self, edges_per_hop: Sequence[int], every: int) -> int:
        """Returns the number of edges that it takes; ``every`` edge if the subgraph is induced."""
        return every if self.hops is None else sum(edges_per_hop[: self.hops])


class Layout(enum.Enum):
    """The form of a minibatch's edges."""

    CSC = "csc"  # int32 sources by destination: what native layers read
    COO = "coo"  # int64 sources and destinations as well: what PyG's edge_index is


@dataclass(frozen=True, eq=False)
class SampledNodes:
    """The sampled nodes of one type."""

    node: Tensor  # [N_t] int64, node ids within the type in order of discovery, seeds first
    #: the number of seeds, then of the nodes discovered at hop 0, 1, ...; one more entry than hops
    nodes_per_hop: list[int]
    example: Tensor | None = None  # [N_t] int64, in disjoint sampling the number of each node's example

    @property
    def nbytes(self) -> int:
        return self.node.nbytes + (0 if self.example is None else self.example.nbytes)


@dataclass(frozen=True, eq=False)
class SampledEdges:
    """The sampled edges of one relation, as one CSC by target that holds every layer."""

    indptr: Tensor  # [D_t + 1] int64, where the in-edges of each expanded row of the target type begin
    #: [E_r] local ids of the sources within their type, int32 in native batches, int64 in PyG's
    indices: Tensor
    edge: Tensor | None  # [E_r] int64 input edge ids, or None if the plan does not ask for them
    edges_per_hop: list[int]  # the number of edges of hop 0, 1, ...; empty in an induced subgraph
    coo: Tensor | None = None  # [2, E_r] int64, local sources above local targets, if sampled for PyG

    @property
    def num_edges(self) -> int:
        """The number of edges, E_r."""
        return self.indices.numel()

    @property
    def destination(self) -> Tensor:
        """[E_r] int64, the local target of each edge."""
        if self.coo is not None:
            return self.coo[1]
        degrees = self.indptr[1:] - self.indptr[:-1]
        targets = torch.arange(degrees.numel(), device=degrees.device)
        return torch.repeat_interleave(targets, degrees, output_size=self.num_edges)

    @property
    def edge_index(self) -> Tensor:
        """[2, E_r] int64, local sources above local targets, by target in hop order."""
        return torch.stack([self.indices.long(), self.destination]) if self.coo is None else self.coo

    @property
    def nbytes(self) -> int:
        edges = self.indices if self.coo is None else self.coo
        return sum(one.nbytes for one in (self.indptr, edges, self.edge) if one is not None)


@dataclass(frozen=True, eq=False)
class LabelledLinks:
    """The links of one relation in a sampled minibatch, followed by their negatives."""

    relation: Relation
    input_id: Tensor  # [P] int64, the positions of the links in the loader's input
    index: Tensor  # [2, P + N] int64, local ids of sources above targets, links first
    label: Tensor | None  # [P + N, ...], zeros for negatives; None without labels and negatives
    time: Tensor | None  # [P + N] int64, a negative has the time of its link; None without times
    #: [P] float32, the log of the share of all links that have the target, for in-batch negatives
    log_q: Tensor | None = None
    hits: Tensor | None = None  # [2, H] int64, for these: links (i, j), j's target is one of i's source

    @property
    def metadata(self) -> tuple[Any, ...]:
        """The entries of PyG's ``SamplerOutput.metadata``; for in-batch negatives log_q and hits,
        too."""
        in_batch = () if self.log_q is None else (self.log_q, self.hits)
        return self.input_id, self.index, self.label, self.time, *in_batch


@dataclass(frozen=True, eq=False)
class TripletLinks:
    """The links of one relation in a sampled minibatch, with negative targets for their sources."""

    relation: Relation
    input_id: Tensor  # [P] int64, the positions of the links in the loader's input
    source: Tensor  # [P] int64, local ids
    target: Tensor  # [P] int64, local ids
    negative: Tensor  # [P], or [P, K] for K > 1 negatives per link: int64, local ids of targets
    time: Tensor | None  # [P] int64, or None without times

    @property
    def metadata(self) -> tuple[Any, ...]:
        """The entries of PyG's ``SamplerOutput.metadata``."""
        return self.input_id, self.source, self.target, self.negative, self.time


SampledLinks: TypeAlias = LabelledLinks | TripletLinks


_Part = TypeVar("_Part")


class ByNumber(Sequence[_Part]):
    """The parts of a minibatch by number of the node type or relation. ``reached``: the few parts
    with nodes or edges, by ascending number. All others are the same object, ``rest``."""

    __slots__ = ("_length", "_rest", "reached")

    def __init__(self, length: int, reached: Mapping[int, _Part], rest: _Part | None = None) -> None:
        self._length, self.reached, self._rest = length, reached, rest

    @classmethod
    def of(cls, parts: Sequence[_Part]) -> ByNumber[_Part]:
        return parts if isinstance(parts, ByNumber) else cls(len(parts), dict(enumerate(parts)))

    def __len__(self) -> int:
        return self._length

    def map(self, change: Callable[[_Part], _Part]) -> ByNumber[_Part]:
        """Applies ``change`` to each part, once to ``rest``."""
        reached = {number: change(part) for number, part in self.reached.items()}
        return ByNumber(self._length, reached, None if self._rest is None else change(self._rest))

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return tuple(self)[number]
        at = range(self._length)[number]
        return self.reached.get(at, self._rest)

    def __iter__(self) -> Iterator[_Part]:
        get, rest = self.reached.get, self._rest
        return (get(number, rest) for number in range(self._length))  # type: ignore[misc]


_Minibatch = TypeVar("_Minibatch", bound="SampledMinibatch")


@dataclass(frozen=True, eq=False, repr=False)
class SampledMinibatch:
    """A sampled subgraph, by node type and by relation (design, section 3).

    >>> graph = CscGraph.from_edge_index(data.edge_index, data.num_nodes)
    >>> sampler = MacrobatchSampler(graph, SamplingPlan((10, 5)))
    >>> sampler.sample([torch.arange(8)], epoch=0)[0].nodes_per_hop[0]  # the seeds
    8

    Layer l of L (1 is nearest the input) computes, for each type, the first
    ``sum(nodes_per_hop[:L-l+1])`` rows from the first ``sum(edges_per_hop[:L-l+1])`` edges of each
    relation into it. Its inputs are the rows of the layer before. In an induced subgraph every
    layer computes all nodes from all edges. With one node type and relation, `node`, `indptr` and
    the other arrays are the minibatch's own attributes; else they raise an error that says what to
    read.
    """

    schema: Schema  # the node types and the relations
    #: the sampled nodes of each type, by original id (by internal id from a `PartitionedSampler`).
    #: Types that are not reached are empty.
    nodes: Sequence[SampledNodes]
    #: the sampled edges of each relation. Relations into a type that is not reached are empty and
    #: may share their tensors. ``nodes`` and ``edges`` may be any sequences.
    edges: Sequence[SampledEdges]
    key: int  # the digest of the seeds' original ids in their order, in [0, 2**64)
    input_id: Tensor | None = None  # [S] int64, the positions of the seeds in the loader's input
    seed: int = 0  # the sampler's seed. Together with ``epoch`` and ``key`` it also keys dropout.
    epoch: int = 0  # the epoch in which the minibatch was sampled
    #: the numbers of the seeds' types, in the order in which seeds were given, which ``input_id``
    #: and ``seed_time`` follow
    seed_types: tuple[int, ...] = (0,)
    seed_time: Tensor | None = None  # [S] int64, the time of each seed, if times were given
    #: the links of each relation, by local ids. Their ends are the seeds. Empty if the minibatch
    #: begins with nodes.
    links: tuple[SampledLinks, ...] = ()
    tokens: Any = None  # `pyg_batchgnn.sample.Tokens` of the seeds, if a loader made them (``tokens=K``)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", ByNumber.of(self.nodes))
        object.__setattr__(self, "edges", ByNumber.of(self.edges))

    def with_ids(self: _Minibatch, ids: Sequence[Tensor]) -> _Minibatch:
        """Returns the minibatch with other ids for the same nodes, [N_t] int64 by node type."""
        nodes = tuple(replace(one, node=own) for one, own in zip(self.nodes, ids, strict=True))
        return replace(self, nodes=nodes)

    def __repr__(self) -> str:
        sizes = f"batch_size={self.batch_size}, nodes={self.num_nodes}, edges={self.num_edges}"
        return f"{type(self).__name__}({sizes}, epoch={self.epoch})"

    @property
    def n_id(self) -> Tensor:
        """[N] int64, the node ids of the only type, by PyG's name."""
        return self._only_nodes("n_id", "nodes_of(...).node").node

    def nodes_of(self, name: str) -> SampledNodes:
        """Returns the sampled nodes of a type."""
        return self.nodes[self.schema.type_number(name)]

    def edges_of(self, relation: Relation) -> SampledEdges:
        """Returns the sampled edges of a relation."""
        return self.edges[self.schema.relation_number(relation)]

    @property
    def reached_nodes(self) -> Mapping[int, SampledNodes]:
        """The sampled nodes by number of the type; types without nodes may be left out."""
        return ByNumber.of(self.nodes).reached

    @property
    def reached_edges(self) -> Mapping[int, SampledEdges]:
        """The sampled edges by number of the relation; relations without edges may be left out."""
        return ByNumber.of(self.edges).reached

    @property
    def batch_size(self) -> int:
        """The number of seed nodes, of all types."""
        return sum(one.nodes_per_hop[0] for one in self.reached_nodes.values())

    @property
    def num_nodes(self) -> int:
        """The number of sampled nodes, of all types."""
        return sum(one.node.numel() for one in self.reached_nodes.values())

    @property
    def num_edges(self) -> int:
        """The number of sampled edges, of all relations."""
        return sum(one.num_edges for one in self.reached_edges.values())

    @property
    def num_layers(self) -> int | None:
        """The number of layers that the minibatch was sampled for, one per hop; None for an induced
        subgraph, which fits any number."""
        hops = len(self.nodes[0].nodes_per_hop) - 1
        is_counted = not len(self.edges) or len(self.edges[0].edges_per_hop) > 0 or hops == 0
        return hops if is_counted else None

    @property
    def has_layers(self) -> bool:
        """True if edges are counted by hop: not in an induced subgraph."""
        return self.num_layers is not None

    @property
    def has_one_type(self) -> bool:
        """True with one node type and one relation."""
        return len(self.nodes) == 1 and len(self.edges) == 1

    @property
    def nbytes(self) -> int:
        """The bytes of the minibatch's own tensors."""
        nodes, edges = self.reached_nodes.values(), self.reached_edges.values()
        return sum(one.nbytes for one in nodes) + sum(one.nbytes for one in edges)

    @property
    def node(self) -> Tensor:
        """[N] int64, the node ids of the only type; the first ``batch_size`` are the seeds."""
        return self._only_nodes("node").node

    @property
    def example(self) -> Tensor | None:
        """[N] int64, in disjoint sampling the example of each node of the only type, else None."""
        return self._only_nodes("example").example

    @property
    def nodes_per_hop(self) -> list[int]:
        """The number of seeds, then of the nodes found by each hop, of the only type."""
        return self._only_nodes("nodes_per_hop").nodes_per_hop

    @property
    def indptr(self) -> Tensor:
        """[D + 1] int64, where the in-edges of each expanded row begin, of the only relation."""
        return self._only_edges("indptr").indptr

    @property
    def indices(self) -> Tensor:
        """[E] int32 or int64, the local sources of the only relation."""
        return self._only_edges("indices").indices

    @property
    def edge(self) -> Tensor | None:
        """[E] int64 input edge ids of the only relation, or None if not asked for."""
        return self._only_edges("edge").edge

    @property
    def edges_per_hop(self) -> list[int]:
        """The number of edges of each hop, of the only relation."""
        return self._only_edges("edges_per_hop").edges_per_hop

    @property
    def coo(self) -> Tensor | None:
        """[2, E] int64, sources above targets of the only relation, if sampled for PyG."""
        return self._only_edges("coo").coo

    @property
    def destination(self) -> Tensor:
        """[E] int64, the local target of each edge of the only relation."""
        return self._only_edges("destination").destination

    @property
    def edge_index(self) -> Tensor:
        """[2, E] int64, local sources above local targets of the only relation, in hop order."""
        return self._only_edges("edge_index").edge_index

    def _only_nodes(self, name: str, instead: str | None = None) -> SampledNodes:
        return _only(self.nodes, name, instead or f"nodes_of(...).{name}", self.schema.node_types)

    def _only_edges(self, name: str, instead: str | None = None) -> SampledEdges:
        return _only(self.edges, name, instead or f"edges_of(...).{name}", self.schema.relations)


def _only(parts: Sequence[_Part], name: str, instead: str, names: Sequence[object]) -> _Part:
    if len(parts) != 1:
        raise AttributeError(
            f"{name!r} can be read from a minibatch itself only if one node type or relation can be meant, "
            f"but there are {list(names)}; read minibatch.{instead}"
        )
    return parts[0]
