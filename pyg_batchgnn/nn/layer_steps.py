"""The steps of layers: the terms of a convolution, what follows it, the loop over layers.

What several relations give one node type is the sum of all their products: one pass, in which no
result of a single relation is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, refuse_aggregated
from pyg_batchgnn.nn.inputs import Edges, Rows, Targets, conv_input, head
from pyg_batchgnn.nn.modules import BatchNorm, is_watched, row_norm
from pyg_batchgnn.types import Relation


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


class ModelOutput(NamedTuple):
    """The result of a model for the seed nodes of a minibatch, or for all nodes."""

    logits: Tensor  # [S, out_channels] float32, or float64 from float64 weights
    # [S, C], the input of the last layer, which is the last linear layer if there is jumping
    # knowledge. In a model of one layer these are the features.
    hidden: Tensor


def wrong_hops(layers: int, hops: int | None, hint: str = "") -> ValueError:
    """Returns the error for a minibatch with another number of hops than the model has layers."""
    return ValueError(
        f"a model of {layers} layers needs minibatches of {layers} hops, but this one has {hops}; "
        f"give the loader {layers} entries in num_neighbors{hint}"
    )


def run_layers(
    compute: Callable[[int, Any], Any], layers: int, x: Any, *, keep_all: bool
) -> tuple[Any, list[Any]]:
    """Calls ``compute(index, x)`` for each layer with the result of the one before. Returns the
    input of the last layer, and the results of all layers, or of the last without ``keep_all``."""
    before: Any = x
    results: list[Any] = []
    for index in range(layers):
        before, x = x, compute(index, x)
        results = [*results, x] if keep_all else [x]
    return before, results


def module_key(names: str | Relation) -> str:
    """Returns the name of the module of a type or relation, as PyG's `to_hetero` forms it."""
    text = names if isinstance(names, str) else "__".join(names)
    return text.replace(" ", "_").replace("-", "_").replace(":", "_")


def end_of(model: torch.nn.Module, node_type: str) -> list[Any]:
    """Returns the jumping knowledge and the linear layer behind a model's layers, None if it has
    none. A typed model has one of each per node type."""
    parts: list[Any] = [model._modules.get(name) for name in ("jk", "lin")]
    key = module_key(node_type)
    return [one[key] if isinstance(one, torch.nn.ModuleDict) else one for one in parts]


def last_rows(results: Sequence[Any], rows: int, knowledge: torch.nn.Module | None) -> Tensor:
    """Returns the first ``rows`` rows of the last layer's result, or of the jumping knowledge."""
    if knowledge is not None:
        joined: Tensor = knowledge([one[:rows] for one in results])
        return joined
    return _values(results[-1], rows)


def model_output(
    model: torch.nn.Module, before: Any, results: Sequence[Any], rows: int, node_type: str = ""
) -> ModelOutput:
    """Returns the output of a model for its first ``rows`` rows, of one type in a typed model."""
    knowledge, last = end_of(model, node_type)
    out = last_rows(results, rows, knowledge)
    if last is not None:
        return ModelOutput(wide(last(out)), out)
    return ModelOutput(wide(out), out[:, :0] if before is None else _values(before, rows))


def _values(x: Rows, rows: int) -> Tensor:
    first = head(x, rows)
    return first if isinstance(first, Tensor) else first.gather()


def wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x


def fuses_relu(act: Any) -> bool:
    """Returns whether an activation is a ReLU without hooks, which a product can compute."""
    return type(act) is torch.nn.ReLU and not is_watched(act)


def fused_norm(norm: torch.nn.Module) -> BatchNorm | None:
    """Returns the native batch normalisation with ReLU inside an unwatched module, or None."""
    inside = norm.module if type(norm) is torch_geometric.nn.BatchNorm and not is_watched(norm) else None
    return inside if isinstance(inside, BatchNorm) and inside.relu else None


def is_row_wise_norm(norm: torch.nn.Module) -> bool:
    """Returns whether a normalisation works row by row, and its gradient without its result."""
    if type(norm) is torch.nn.LayerNorm:
        return len(norm.normalized_shape) == 1
    is_by_node = type(norm) is torch_geometric.nn.LayerNorm and norm.mode == "node"
    return is_by_node or type(norm) is torch.nn.Identity


@dataclass(frozen=True)
class LayerEnd:
    """The steps that follow a convolution: normalisation, activation and dropout."""

    norm: torch.nn.Module
    act: Callable[[Tensor], Tensor] | None
    act_first: bool  # applies the activation before the normalisation, not after it
    drop: float
    fuses_drop: bool = True  # whether the convolution can drop elements in its own pass

    def apply(
        self,
        convolve: Callable[[Update | None], Tensor],
        dropout: Callable[[], tuple[int, Tensor | None]],
        normed: Callable[[BatchNorm], Tensor] | None = None,
    ) -> Tensor:
        """Returns a layer's rows after all steps, in as few passes as possible. ``convolve``:
        computes the convolution with an `Update`. ``dropout``: returns key and node ids.
        ``normed``: computes convolution and batch normalisation together."""
        relu = fuses_relu(self.act)
        norm = fused_norm(self.norm) if relu else None
        plain = type(self.norm) is torch.nn.Identity and (relu or self.act is None)
        if plain and (self.fuses_drop or self.drop == 0.0):
            return convolve(Update(relu=relu, drop=self.drop))
        relu_is_left = False
        if relu and self.act_first:
            out = self.norm(convolve(Update(relu=True)))
        elif norm is not None:
            out = self.norm(convolve(None)) if normed is None else normed(norm)
        else:
            out = convolve(None)
            # ReLU may overwrite the normalised rows where no gradient needs them.
            inside = self.norm.module if type(self.norm) is torch_geometric.nn.BatchNorm else None
            relu_is_left = relu and (isinstance(inside, BatchNorm) or is_row_wise_norm(self.norm))
            by_row = row_norm(self.norm, out) if relu_is_left or self.act is None else None
            if by_row is not None:
                key, node = dropout() if self.drop > 0.0 else (0, None)
                return ops.layer_norm(out, *by_row, relu=relu, drop=self.drop, key=key, node=node)
            steps: list[Any] = [self.norm] if relu_is_left or self.act is None else [self.norm, self.act]
            for step in reversed(steps) if self.act_first else steps:
                out = step(out)
        if self.drop == 0.0 and not relu_is_left:
            return out
        key, node = dropout() if self.drop > 0.0 else (0, None)
        # Autograd may need the values that dropout alone would overwrite.
        out = out if relu_is_left else out.clone()
        return ops.activate(out, relu=relu_is_left, drop=self.drop, key=key, node=node)
