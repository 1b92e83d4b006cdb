"""Plans of negatives of a graph that is spread over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group, Relation
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample.negative_pools import check_relation, end_weights
from pyg_batchgnn.sample.negatives import End, NegativeMode, NegativePlan
from pyg_batchgnn.sample.node_pool import NodePool
from pyg_batchgnn.sample.spread_pairs import EndNumbers, RelationEnds, spread_by_source, spread_by_target
from pyg_batchgnn.store import NodeOrder, even_bounds


@dataclass(frozen=True, eq=False)
class RankPlan:
    """The rule by which the negatives of one relation are drawn over ranks.

    Attributes:
        plan: the rule. Its existing pairs are those that this rank answers for.
        orders: by end, the order of the nodes that it is drawn from; None by original id.
        answers: [ranks + 1] int64, the held ends of existing pairs that each rank answers for; None
            if negatives may be edges.
    """

    plan: NegativePlan
    orders: Mapping[End, NodeOrder | None]
    answers: Tensor | None


class RankPlanner:
    """Makes the plans of negatives of the links of a loader. All of it is collective.

    Args:
        part: this rank's.
        comm: of all ranks.
        first: by group of nodes, [n] int64: the time from which each own node exists, by row; None
            if links have no times.
    """

    def __init__(self, part: Part, comm: Communicator, first: Mapping[Group, Tensor] | None) -> None:
        self._part, self._comm, self._first = part, comm, first or {}
        self._orders: dict[int, NodeOrder] = {}

    def plan(
        self, sampling: NegativeSampling, relation: Relation, time: Tensor | None, avoids_edges: bool
    ) -> RankPlan:
        """Returns the rule by which the negatives of a relation are drawn; see `negative_plan`.

        Args:
            sampling: PyG's description of them.
            relation: the relation of the links.
            time: [n] int64, the times of all its links, or None.
            avoids_edges: True if negatives must not be edges of the relation.

        Raises:
            TypeError, ValueError: weights that cannot be, or edges of a relation that is not there.
        """
        mode, schema = NegativeMode(sampling.mode.value), self._part.schema
        types = [schema.type_number(name) for name in (relation[0], relation[2])]
        counts = [self._part.book.num_nodes_of(number) for number in types]
        weights = end_weights(sampling, relation, counts)
        drawn = tuple(End) if mode is NegativeMode.BINARY else (End.TARGET,)
        orders = {end: self._order(types[end]) if end in drawn else None for end in End}
        sources, targets = (
            self._pool(orders[end], count, weight, time)
            for end, count, weight in zip(End, counts, weights, strict=True)
        )
        plan = NegativePlan(mode, sampling.amount, sources, targets)
        if not avoids_edges:
            return RankPlan(plan, orders, None)
        check_relation(relation, schema)
        return self._avoiding(plan, orders, relation, types)

    def _order(self, node_type: int) -> NodeOrder | None:
        """Returns the nodes of a type by the time from which they exist; None if always."""
        group = self._part.schema.node_groups[node_type]
        if group not in self._first:
            return None
        if node_type not in self._orders:
            self._orders[node_type] = NodeOrder.of(self._part, self._comm, node_type, self._first[group])
        return self._orders[node_type]

    def _pool(
        self, order: NodeOrder | None, count: int, weight: Tensor | None, time: Tensor | None
    ) -> NodePool:
        if order is None or time is None:
            return NodePool.of(count, weight=weight)
        moment = time.unique()
        if weight is not None:  # every rank was given all weights, so it can hold them in this order
            weight = weight.double()[order.nodes(self._comm)]
        return NodePool(count, moment, order.reached(self._comm, moment), weight=weight)

    def _avoiding(
        self,
        plan: NegativePlan,
        orders: Mapping[End, NodeOrder | None],
        relation: Relation,
        types: Sequence[int],
    ) -> RankPlan:
        """Returns a plan with the existing pairs that this rank answers for."""
        number = self._part.schema.relation_number(relation)
        sources, targets = (
            self._numbers(node_type, orders[end]) for end, node_type in zip(End, types, strict=True)
        )
        if plan.mode is NegativeMode.TRIPLET:  # the sources are those of links, which have ids
            sources = self._numbers(types[0], None)
        spread = spread_by_target if plan.mode is NegativeMode.BINARY else spread_by_source
        ends = RelationEnds(number, sources, targets)
        existing = spread(ends, self._part, self._comm, plan.sources, plan.targets)
        answers = (targets if plan.mode is NegativeMode.BINARY else sources).bounds
        whole = NegativePlan(plan.mode, plan.amount, plan.sources, plan.targets, existing)
        return RankPlan(whole, orders, answers)

    def _numbers(self, node_type: int, order: NodeOrder | None) -> EndNumbers:
        if order is not None:
            return EndNumbers(order.internal.bounds, order.position)
        bounds = even_bounds(self._part.book.num_nodes_of(node_type), self._comm.size)
        return EndNumbers(bounds, self._part.original_ids(node_type))
