"""A minibatch before its attributes are fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor

from pyg_batchgnn.data import HOMOGENEOUS, Relation, Schema
from pyg_batchgnn.sample.links import SampledLinks
from pyg_batchgnn.sample.parts import Parts
from pyg_batchgnn.sample.sampled_parts import SampledEdges, SampledNodes

_Part = TypeVar("_Part")
_Minibatch = TypeVar("_Minibatch", bound="SampledMinibatch")


@dataclass(frozen=True, eq=False, repr=False)
class SampledMinibatch:
    """A sampled subgraph, by node type and by relation (design, section 3).

    Layer l of L (1 is nearest the input) computes, for each type, the first
    ``sum(nodes_per_hop[:L-l+1])`` rows from the first ``sum(edges_per_hop[:L-l+1])`` edges of each
    relation into it. Its inputs are the rows of the layer before. In an induced subgraph every
    layer computes all nodes from all edges.

    `node`, `indptr` and the other arrays can be read from the minibatch itself where there is one
    node type or one relation that they can belong to. Otherwise they raise an error that says what
    to read.

    Attributes:
        schema: the node types and the relations.
        nodes: the sampled nodes of each type. The ids are original ones, but for those from a
            `PartitionedSampler`, which are internal. Types that are not reached are empty.
        edges: the sampled edges of each relation. Relations into a type that is not reached are
            empty and may share their tensors. Any sequence may be given for ``nodes`` and
            ``edges``.
        key: the digest of the seeds' original ids, order included, in [0, 2**64).
        input_id: [S] int64, the positions of the seeds in the loader's input, if a loader made the
            minibatch.
        seed: the sampler's seed. Together with ``epoch`` and ``key`` it also keys dropout.
        epoch: the epoch in which the minibatch was sampled.
        seed_types: the numbers of the types that seeds were given of, in the order in which they
            were given; ``input_id`` and ``seed_time`` follow it.
        seed_time: [S] int64, the time of each seed, if times were given.
        links: the links of each relation that the seeds are ends of, by local ids; none if the
            minibatch begins with nodes.
    """

    schema: Schema
    nodes: Sequence[SampledNodes]
    edges: Sequence[SampledEdges]
    key: int
    input_id: Tensor | None = None
    seed: int = 0
    epoch: int = 0
    seed_types: tuple[int, ...] = (0,)
    seed_time: Tensor | None = None
    links: tuple[SampledLinks, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", Parts.of(self.nodes))
        object.__setattr__(self, "edges", Parts.of(self.edges))

    @classmethod
    def homogeneous(cls, nodes: SampledNodes, edges: SampledEdges, key: int) -> SampledMinibatch:
        """Returns a minibatch of a homogeneous graph."""
        return cls(HOMOGENEOUS, (nodes,), (edges,), key)

    def with_ids(self: _Minibatch, ids: Sequence[Tensor]) -> _Minibatch:
        """Returns the minibatch with other ids of the same nodes, [N_t] int64 by node type."""
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
        """The sampled nodes by number of the type; types that are not reached may be left out."""
        return Parts.of(self.nodes).reached

    @property
    def reached_edges(self) -> Mapping[int, SampledEdges]:
        """The sampled edges by number of the relation.

        Relations into a type that is not reached may be left out.
        """
        return Parts.of(self.edges).reached

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
    def has_layers(self) -> bool:
        """True if edges are counted by hop, which they are not in an induced subgraph."""
        hops = len(self.nodes[0].nodes_per_hop) - 1
        return not self.edges or len(self.edges[0].edges_per_hop) == hops

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
        """Returns the nodes of the only type; ``instead`` is what to read if there are several."""
        return _only(self.nodes, name, instead or f"nodes_of(...).{name}", self.schema.node_types)

    def _only_edges(self, name: str, instead: str | None = None) -> SampledEdges:
        """Returns the edges of the only relation; see `_only_nodes`."""
        return _only(self.edges, name, instead or f"edges_of(...).{name}", self.schema.relations)


def _only(parts: Sequence[_Part], name: str, instead: str, names: Sequence[object]) -> _Part:
    if len(parts) != 1:
        raise AttributeError(
            f"{name!r} can be read from a minibatch itself only if one node type or relation can be meant, "
            f"but there are {list(names)}; read minibatch.{instead}"
        )
    return parts[0]
