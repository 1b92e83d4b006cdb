"""The data that a cache was made of, recognised without reading it again where it is the same."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.cache.contexts import LocalContext
from pyg_batchgnn.cache.fingerprint import GraphFingerprint, digest_edges, digest_features
from pyg_batchgnn.cache.relation_context import RelationContext
from pyg_batchgnn.store import CscGraph, TypedGraph


@dataclass(frozen=True)
class Origin:
    """The edges and the features that a cache was made of, held weakly.

    Attributes:
        edges: the ``edge_index`` of a ``Data``, or the sources of a `CscGraph`.
        x: the features.
        versions: the version counters of both.
    """

    edges: weakref.ref[Tensor]
    x: weakref.ref[Tensor]
    versions: tuple[int, int]

    @classmethod
    def of(cls, data: Any) -> Origin | None:
        """Returns the origin of a cache of ``data``; None if it could not be recognised."""
        if isinstance(data, HeteroData):
            return None
        if isinstance(data, Data):
            edges, x = data.edge_index, data.x
        elif isinstance(data[0], CscGraph):
            edges, x = data[0].indices, data[1]
        else:
            return None
        if not all(isinstance(one, Tensor) and not one.is_inference() for one in (edges, x)):
            return None
        return cls(weakref.ref(edges), weakref.ref(x), (edges._version, x._version))

    def is_of(self, data: Data | HeteroData, graph: TypedGraph) -> bool:
        """Returns whether a ``Data`` or its graph has the same tensors, not written to since."""
        if isinstance(data, HeteroData):
            return False
        edges, x = self.edges(), self.x()
        if edges is None or x is None or x is not data.x:
            return False
        known = edges is graph.relations[0].indices or edges is data.edge_index
        return known and self.versions == (edges._version, x._version)


def differences(known: GraphFingerprint, graph: TypedGraph, relation: int, x: Any) -> list[str]:
    """Returns, in words, what a relation and the features of its sources differ in from those of a
    fingerprint. ``relation``: its number."""
    context = RelationContext(LocalContext(graph, {graph.schema.source_types[relation]: x}), relation)
    own, features = context.own, context.features
    counts = context.num_targets, own.num_edges, features.size(1), str(features.dtype).removeprefix("torch.")
    found = known.differences(GraphFingerprint(*counts, known.edges, known.features))
    if found:
        return found
    edges = sum(digest_edges(own, piece) for piece in context.pieces({}, None))
    seen = GraphFingerprint.of(*counts, edges, digest_features(context.source_node, features))
    return known.differences(seen)
