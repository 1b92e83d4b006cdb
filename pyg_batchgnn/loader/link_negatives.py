"""PyG's forms of ``neg_sampling``, and what ours adds to them, as plans of negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.data import Group, Relation, RowKind, Schema
from pyg_batchgnn.loader.input_links import by_relation
from pyg_batchgnn.loader.link_inputs import RelationLinks
from pyg_batchgnn.sample import ExistingPairs, NegativeMode, NegativePlan, NodePool, SeedEdges
from pyg_batchgnn.store import TypedGraph


@dataclass(frozen=True, eq=False)
class NegativeRequest:
    """The user's wishes about negatives and the edges of links, as given to the loader.

    Attributes:
        sampling: ``neg_sampling`` in one of PyG's forms, or a dict of such by edge type.
        ratio: ``neg_sampling_ratio``: binary negatives per link; None or 0 for none.
        exclude_existing: True if negatives must not be edges.
        exclude_seed_edges: False, True, "reverse" or a dict from edge types to their reverses.
    """

    sampling: Any = None
    ratio: float | None = None
    exclude_existing: bool = False
    exclude_seed_edges: Any = False

    def for_pyg(self) -> NegativeSampling | None:
        """Returns PyG's description of the negatives; None for none, or if it is by edge type."""
        if self.ratio:
            return NegativeSampling("binary", self.ratio)
        return None if _is_by_type(self.sampling) else NegativeSampling.cast(self.sampling)

    def by_relation(self, schema: Schema, links: Sequence[RelationLinks]) -> dict[Relation, NegativeSampling]:
        """Returns PyG's description of the negatives of each relation that gets any.

        Raises:
            TypeError, ValueError: another form, or ``exclude_existing`` without negatives.
        """
        relations = {one.relation: None for one in links}
        if self.ratio:
            given = dict.fromkeys(relations, NegativeSampling("binary", self.ratio))
        elif _is_by_type(self.sampling):
            given = by_relation("neg_sampling", self.sampling, schema, relations)
        else:
            given = dict.fromkeys(relations, self.sampling)
        found = {one: NegativeSampling.cast(value) for one, value in given.items() if value is not None}
        if self.exclude_existing and not found:
            raise ValueError(
                "exclude_existing=True is about negatives, but neg_sampling gives none: give for instance "
                "neg_sampling='binary', or leave exclude_existing out"
            )
        return found


def _is_by_type(sampling: Any) -> bool:
    return isinstance(sampling, Mapping) and "mode" not in sampling


def labelled(links: RelationLinks, sampling: NegativeSampling | None) -> Tensor | None:
    """Returns the labels of links, of which negatives take the label 0.

    Labels whose minimum is 0 move up by 1, as in PyG, if there are binary negatives.

    Raises:
        ValueError: labels beside triplets.
    """
    if sampling is None or links.label is None:
        return links.label
    if sampling.is_triplet():
        raise ValueError(
            "edge_label and neg_sampling='triplet' do not go together: triplets tell links from negatives by "
            "src_index, dst_pos_index and dst_neg_index; leave edge_label out"
        )
    shifts = links.label.numel() > 0 and links.label.min() == 0
    return links.label + 1 if shifts else links.label


def negative_plan(
    sampling: NegativeSampling,
    relation: Relation,
    graph: TypedGraph,
    times: Mapping[Group, Tensor] | None,
    avoids_edges: bool,
) -> NegativePlan:
    """Returns the rule by which the negatives of a relation are drawn.

    Args:
        sampling: PyG's description of them.
        relation: the relation of the links.
        graph: the graph.
        times: by node type, the time from which each node exists; None if links have no times.
        avoids_edges: True if negatives must not be edges of the relation.

    Raises:
        TypeError, ValueError: weights that cannot be, or edges of a relation that is not there.
    """
    mode = NegativeMode(sampling.mode.value)
    sources, targets = (
        _pool(name, weight, node_type, graph, times)
        for name, weight, node_type in (
            ("src_weight", sampling.src_weight, relation[0]),
            ("dst_weight", sampling.dst_weight, relation[2]),
        )
    )
    existing = _existing(mode, relation, graph) if avoids_edges else None
    return NegativePlan(mode, sampling.amount, sources, targets, existing)


def seed_edges(wanted: Any, schema: Schema, linked: Sequence[Relation]) -> SeedEdges | None:
    """Returns which edges of the links are excluded, as ``exclude_seed_edges`` says.

    Raises:
        TypeError, ValueError: another form, or a relation whose reverse is not known.
    """
    if wanted is False or wanted is None:
        return None
    if wanted is True:
        return SeedEdges.forward(schema, linked)
    if wanted == "reverse":
        return SeedEdges.both_ways(schema, linked)
    if isinstance(wanted, Mapping):
        return SeedEdges.both_ways(
            schema, linked, {tuple(key): tuple(value) for key, value in wanted.items()}
        )
    raise TypeError(
        f"exclude_seed_edges must be True, 'reverse', or a dict from edge types to their reverses, "
        f"got {wanted!r}"
    )


def _pool(
    name: str, weight: Tensor | None, node_type: str, graph: TypedGraph, times: Mapping[Group, Tensor] | None
) -> NodePool:
    count = graph.num_nodes[graph.schema.type_number(node_type)]
    if weight is not None:
        _check_weight(name, weight, node_type, count)
        weight = weight.detach().cpu()
    time = None if times is None else times.get(Group(RowKind.NODE, node_type))
    return NodePool.of(count, time, weight)


def _check_weight(name: str, weight: Any, node_type: str, count: int) -> None:
    if not isinstance(weight, Tensor) or not weight.dtype.is_floating_point:
        found = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"{name} must be a tensor of floating point numbers, got {found}; use .float()")
    if list(weight.shape) != [count]:
        raise ValueError(
            f"{name} has shape {list(weight.shape)} for {count} nodes of type {node_type!r}; give one weight "
            f"for each"
        )
    wrong = (~torch.isfinite(weight) | (weight < 0)).nonzero().view(-1)
    if wrong.numel():
        node = int(wrong[0])
        raise ValueError(
            f"{name} of node {node} is {float(weight[node])}: weights must be finite and not negative"
        )


def _existing(mode: NegativeMode, relation: Relation, graph: TypedGraph) -> ExistingPairs:
    schema = graph.schema
    if relation not in schema.relations:
        raise ValueError(
            f"exclude_existing=True avoids edges of {relation}, which the graph does not have; it has "
            f"{list(schema.relations)}"
        )
    held_by = ExistingPairs.by_target if mode is NegativeMode.BINARY else ExistingPairs.by_source
    return held_by(graph.in_edges(relation), graph.num_nodes[schema.type_number(relation[0])])
