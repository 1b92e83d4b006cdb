"""The ways in which the results of several relations into a node type become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from pyg_batchgnn.nn.typed import TypeTerms
from pyg_batchgnn.nn.update import Update

#: What joins the results of two relations, for aggregations that are no sums.
_JOINED: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "min": torch.min,
    "max": torch.max,
    "mul": torch.mul,
}
#: The names of the aggregations.
AGGREGATIONS = ("sum", "mean", *_JOINED)


def joined(terms: TypeTerms, aggr: str, update: Update | None, training: bool) -> Tensor:
    """Returns the rows of a type after a layer.

    Args:
        terms: the results of the relations into the type.
        aggr: one of `AGGREGATIONS`.
        update: what follows the layer, if it is computed with it.
        training: whether the model is in training mode.
    """
    if aggr == "sum":
        return terms.added(update, training)
    if aggr == "mean":
        return terms.mean(update, training)
    return terms.joined(partial(_reduced, function=_JOINED[aggr]), update, training)


def _reduced(relations: Sequence[Tensor], function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Joins the results of relations by two, as PyG's `to_hetero` does."""
    queue = list(relations)
    while len(queue) > 1:
        first, second, *rest = queue
        queue = [*rest, function(first, second)]
    return queue[0]
