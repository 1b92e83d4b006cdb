"""The weights of edges, by which weighted sampling draws."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from pyg_batchgnn.data import Group
from pyg_batchgnn.store.sharing import shared_sums
from pyg_batchgnn.store.time_order import TimeOrder
from pyg_batchgnn.store.times import by_position
from pyg_batchgnn.store.typed_graph import TypedGraph
from pyg_batchgnn.store.weight_sums import WeightSums


def sum_weights(
    name: str, found: Mapping[Group, Tensor], graph: TypedGraph, orders: Sequence[TimeOrder | None]
) -> tuple[WeightSums | None, ...]:
    """Returns the prefix sums of the weights of each relation; None where edges have no weight.

    Args:
        name: the attribute's name.
        found: the attribute by group, with all rows; edges are by input edge id.
        graph: the graph.
        orders: by relation the time order, in which sums are then taken, or None.

    Raises:
        ValueError: no relation has the attribute, or a weight is negative or not finite.
        TypeError: weights are no floating-point numbers.
    """
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
    """Raises ValueError unless an attribute is one of edges. ``found``: the groups that have it."""
    if not any(group.is_edge for group in found):
        whose = f"; nodes have it ({', '.join(map(str, found))})" if found else ""
        raise ValueError(
            f"weight_attr={name!r} is no attribute of edges{whose}: name an attribute with one "
            f"floating-point weight for each edge"
        )


def checked_weight(name: str, group: Group, weight: Tensor, rows: int) -> Tensor:
    """Returns the weights of a relation's edges, [rows].

    Raises:
        TypeError, ValueError: they are no floating-point numbers or not one for each edge, or one
            is negative or not finite.
    """
    if not isinstance(weight, Tensor):
        raise TypeError(
            f"weights must be a tensor, but {name!r} of {group} is a {type(weight).__name__}; use "
            f"torch.tensor"
        )
    if not weight.dtype.is_floating_point:
        raise TypeError(
            f"weights must be floating-point numbers, but {name!r} of {group} is {weight.dtype}; use .float()"
        )
    if weight.dim() == 0 or weight.numel() != rows or weight.size(0) != rows:
        raise ValueError(
            f"{name!r} of {group} has shape {list(weight.shape)} for {rows} edges; give one weight for each"
        )
    weight = weight.detach().cpu().reshape(-1)
    wrong = ~(torch.isfinite(weight) & (weight >= 0))
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise ValueError(
            f"weights must be finite and not negative, but {name!r} of {group} holds {float(weight[at])} at "
            f"edge {at}; clamp or remove such edges (weight 0 is never picked)"
        )
    return weight
