"""The weights of the edges of a partitioned graph."""

from __future__ import annotations

from collections.abc import Sequence

from pyg_batchgnn.store.dist_features import DistFeatureStore
from pyg_batchgnn.store.part_checks import on_all_ranks, own_attribute
from pyg_batchgnn.store.sharing import shared_sums
from pyg_batchgnn.store.time_order import TimeOrder
from pyg_batchgnn.store.weight_sums import WeightSums
from pyg_batchgnn.store.weights import check_has_edges, checked_weight


def own_sums(
    store: DistFeatureStore, name: str, orders: Sequence[TimeOrder | None]
) -> tuple[WeightSums | None, ...]:
    """Returns the sums of the weights of a rank's own in-edges by relation; None without weights.

    It is collective. The weights lie with the edges, so nothing is fetched.

    Args:
        store: the attributes of the partitioned graph.
        name: the attribute that holds the weights.
        orders: by relation the time order, in which sums are then taken, or None.

    Raises:
        TypeError, ValueError: as `sum_weights`; ValueError on all ranks if on one.
    """
    part, found = store.part, own_attribute(store, name)
    check_has_edges(name, found)

    def sums() -> tuple[WeightSums | None, ...]:
        relations = zip(part.schema.edge_groups, part.relations, orders, strict=True)
        return tuple(
            shared_sums(name, edges, order, checked_weight(name, group, found[group], edges.num_edges))
            if group in found
            else None
            for group, edges, order in relations
        )

    return on_all_ranks(store.comm, sums)
