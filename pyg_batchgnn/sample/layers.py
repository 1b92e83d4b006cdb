"""The layers of a minibatch for convolutions that are not native."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.data import EDGE_FEATURES, FEATURES, Group, Relation
from pyg_batchgnn.sample.attribute_rows import AttributeRows
from pyg_batchgnn.sample.layer_extent import LayerExtent
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import SampledEdges

#: Rows of all types, or of the only type that is meant.
TypedRows = Tensor | Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class MinibatchLayer:
    """One layer of a minibatch, with the edges of one relation, for PyG's layers and the user's
    own.

    ``conv(layer.rows(x), layer.edge_index)`` computes the targets of the layer, which are the
    sources of the next one.

    Attributes:
        relation: the names of the relation.
        num_sources: N, the number of rows that the layer reads.
        num_targets: D, the number of rows that it computes.
        edge_index: [2, E] int64, local sources above local targets, by target.
        sources, targets: the attributes of the nodes; None if the minibatch carries none.
        edges: the attributes of the edges of the relation, likewise.
    """

    relation: Relation
    num_sources: int
    num_targets: int
    edge_index: Tensor
    sources: AttributeRows | None
    targets: AttributeRows | None
    edges: AttributeRows | None

    def rows(self, x: TypedRows | None = None) -> tuple[Tensor, Tensor]:
        """Returns the rows of the sources, [N, ...], and of the targets, [D, ...].

        Args:
            x: the result of the layer before, or one per node type; where None, copies of the
                features of the nodes.

        Raises:
            KeyError: there are no rows of a type.
            ValueError: there are fewer rows than the layer reads.
        """
        if x is None:
            return self.attribute(FEATURES)
        if not isinstance(x, Mapping):
            x = dict.fromkeys((self.relation[0], self.relation[2]), x)
        found = []
        for name, count in ((self.relation[0], self.num_sources), (self.relation[2], self.num_targets)):
            if name not in x:
                raise KeyError(f"relation {self.relation} reads rows of {name!r}, but x has {sorted(x)}")
            if len(x[name]) < count:
                raise ValueError(
                    f"x has {len(x[name])} rows of {name!r}, but the layer reads {count}; give the result of "
                    f"the layer before, or the rows of all nodes of the minibatch"
                )
            found.append(x[name][:count])
        return found[0], found[1]

    def attribute(self, name: str) -> tuple[Tensor, Tensor]:
        """Returns copies of an attribute of the sources and of the targets.

        Raises:
            KeyError: the nodes of an end have no such attribute.
        """
        source, _, target = self.relation
        return (
            _gathered(self.sources, name, self.num_sources, f"nodes of {source!r}"),
            _gathered(self.targets, name, self.num_targets, f"nodes of {target!r}"),
        )

    def edge_attribute(self, name: str = EDGE_FEATURES) -> Tensor:
        """Returns a copy of an attribute of the edges, [E, ...], in the order of ``edge_index``.

        Raises:
            KeyError: the edges have no such attribute.
        """
        return _gathered(self.edges, name, self.edge_index.size(1), f"edges of {self.relation}")


def minibatch_layer(
    minibatch: SampledMinibatch,
    attributes: Mapping[Group, AttributeRows],
    number: int,
    relation: Relation | None = None,
) -> MinibatchLayer:
    """Returns a layer of a minibatch; see `Minibatch.layer`."""
    schema = minibatch.schema
    if relation is None and schema.num_relations != 1:
        raise ValueError(f"say which relation, minibatch.layer({number}, relation): {list(schema.relations)}")
    at = 0 if relation is None else schema.relation_number(relation)
    extent, edges = LayerExtent.of(minibatch, number), minibatch.edges[at]
    source, target = schema.source_types[at], schema.target_types[at]
    targets = extent.targets(minibatch.nodes[target])
    return MinibatchLayer(
        schema.relations[at],
        num_sources=extent.sources(minibatch.nodes[source]),
        num_targets=targets,
        edge_index=_edge_index(edges, targets, extent.edges(edges)),
        sources=attributes.get(schema.node_groups[source]),
        targets=attributes.get(schema.node_groups[target]),
        edges=attributes.get(schema.edge_groups[at]),
    )


def _edge_index(edges: SampledEdges, targets: int, count: int) -> Tensor:
    """Returns the first ``count`` edges, which lead to the first ``targets`` nodes."""
    if edges.coo is not None:
        return edges.coo[:, :count]
    ends = torch.repeat_interleave(torch.arange(targets), edges.indptr[: targets + 1].diff())
    return torch.stack([edges.indices[:count].long(), ends])


def _gathered(held: AttributeRows | None, name: str, count: int, what: str) -> Tensor:
    if held is None or name not in held.tables:
        known = "none" if held is None else sorted(held.tables)
        raise KeyError(f"the {what} carry no attribute {name!r} (carried: {known})")
    return held.gather(name, count)
