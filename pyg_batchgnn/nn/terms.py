"""The terms of a layer's result, which are added up in as few passes as possible.

What several relations give one node type is the sum of all their products: one pass, in which no
result of a single relation is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, refuse_aggregated
from pyg_batchgnn.nn.inputs import Edges, Rows, conv_input
from pyg_batchgnn.nn.layer_edges import Targets


@dataclass(frozen=True)
class Update:
    """ReLU and dropout in the last pass of a product, after the bias (the fused update of
    DistGNN-MB). Dropout is active in training mode, keyed as docs/reference/layers.md says.

    >>> SAGEConv(8, 16)(data.x, data.edge_index, update=Update(relu=True, drop=0.5)).min()
    tensor(0., grad_fn=<MinBackward1>)
    """

    relu: bool = False  # sets negative values to zero
    drop: float = 0.0  # the probability of dropping an element, in [0, 1)

    def __post_init__(self) -> None:
        ops.check_drop(self.drop)


def update_arguments(update: Update | None, targets: Targets, training: bool) -> dict[str, Any]:
    """Returns an `Update` as the arguments of `ops.linear` and `ops.activate`."""
    if update is None:
        return {}
    drop = update.drop if training else 0.0
    key = targets.dropout_key() if drop > 0 else 0
    return {"relu": update.relu, "drop": drop, "key": key, "node": targets.node}


@dataclass(frozen=True, eq=False)
class RowProduct:
    """The product of a layer's rows with a weight; its fields are arguments of `ops.linear`."""

    rows: Rows  # [>= D, groups * K]
    weight: Tensor  # [O, K]
    groups: int = 1  # the number of independent products side by side
    after_relu: bool = False


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms that add up to the result of a layer."""

    products: tuple[RowProduct, ...] = ()
    root: Tensor | None = None  # [O, K], the weight of the root nodes' features, if these are read
    bias: Tensor | None = None  # [O]
    values: Tensor | None = None  # [D, O] of the dtype of the result, a term that is no product

    def divided(self, by: int) -> Terms:
        if by == 1:
            return self
        return Terms(
            tuple(replace(one, weight=one.weight / by) for one in self.products),
            *(None if one is None else one / by for one in (self.root, self.bias, self.values)),
        )


def total(
    parts: Sequence[Terms],
    own: Rows | None,
    targets: Targets,
    update: Update | None = None,
    training: bool = False,
) -> Tensor:
    """Returns the sum of terms, [D, O], with ReLU and dropout in the same pass where possible.
    ``own``: [D, K], the root nodes' features; None leaves their products out."""
    products = [one for part in parts for one in part.products]
    roots = [part.root for part in parts if part.root is not None]
    if own is not None and roots:
        products.append(RowProduct(own, reduce(add, roots)))
    biases = [part.bias for part in parts if part.bias is not None]
    bias = reduce(add, biases) if biases else None
    values = [part.values for part in parts if part.values is not None]
    by_groups: dict[int, list[RowProduct]] = {}
    for one in products:
        by_groups.setdefault(one.groups, []).append(one)
    arguments = update_arguments(update, targets, training)
    if len(by_groups) == 1 and not values:
        return _multiplied(products, bias, targets.num_targets, **arguments)
    sums = []
    for together in by_groups.values():
        sums.append(_multiplied(together, bias, targets.num_targets))
        bias = None
    sums += values if bias is None else [values[0] + bias.to(values[0].dtype), *values[1:]]
    summed = reduce(add, sums)
    return summed if update is None else ops.activate(summed, **arguments)


def _multiplied(products: Sequence[RowProduct], bias: Tensor | None, rows: int, **arguments: Any) -> Tensor:
    return ops.linear(
        [one.rows for one in products],
        [one.weight for one in products],
        bias,
        num_rows=rows,
        groups=products[0].groups,
        after_relu=all(one.after_relu for one in products),
        **arguments,
    )


def convolve(
    conv: Any,
    x: Rows | Aggregated | tuple[Rows, Rows | None],
    edges: Edges,
    third: Any,
    size: tuple[int, int] | None = None,
    update: Update | None = None,
    **values: Any,
) -> Tensor:
    """Returns the result of a convolution that has ``terms``. ``third``: the number of the layer,
    or what PyG takes in this place: edge values or size. ``values``: edge values by name."""
    conv.check_call()
    values = {name: one for name, one in values.items() if one is not None}
    if isinstance(third, Tensor) and conv.edge_values is not None:
        values, third = {**values, conv.edge_values: third}, None
    elif third is not None and not isinstance(third, int):
        third, size = None, third
    if isinstance(x, Aggregated):
        if not hasattr(conv, "known_terms"):
            raise refuse_aggregated(conv, "what it takes of a neighbour depends on the edge")
        graph = x.nodes(edges)
        terms, own = conv.known_terms(x, graph, **values)
    else:
        given = conv_input(x, edges, third, size)
        graph, terms = given.graph, conv.terms(given, **values)
        own = given.own_rows()  # with a gradient that the layer has seen
    return total([terms], own, graph, update, conv.training)
