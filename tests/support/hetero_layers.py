"""The convolutions of typed layers, ours and PyG's, and the comparison of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.data import Relation
from tests.support.accuracy import assert_as_pygs
from tests.support.typed_layers import (
    ABOUT,
    CITES,
    KNOWS,
    SCHEMA,
    TOPIC,
    WIDTHS,
    WRITES,
    WROTE,
    joined,
    pyg_layer,
    rows_of,
    typed_cases,
)

CASES = typed_cases()
OUT = 6


def _perceptron(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.ReLU(), torch.nn.Linear(8, OUT))


def _each(make: Callable[[Any, Relation], Any]) -> Callable[[Any], dict[Relation, Any]]:
    """The same layer for every relation, of our module or of PyG's."""
    return lambda room: {one: make(room, one) for one in SCHEMA.relations}


def _widths(relation: Relation) -> tuple[int, int]:
    return WIDTHS[relation[0]], WIDTHS[relation[2]]


def _gin(room: Any, relation: Relation) -> Any:
    """Sums of both ends need one width."""
    return room.GINConv(_perceptron(WIDTHS[relation[0]]), train_eps=True)


def attention_layer(kind: str, **options: Any) -> Callable[[Any, Relation], Any]:
    def make(room: Any, relation: Relation) -> Any:
        width = _widths(relation)
        loops = relation[0] == relation[2]
        return getattr(room, kind)(width[0] if loops else width, 3, 2, add_self_loops=loops, **options)

    return make


#: By name, what makes the convolutions of all relations.
LAYERS: dict[str, Callable[[Any], dict[Relation, Any]]] = {
    "sage": _each(lambda room, one: room.SAGEConv(_widths(one), OUT)),
    "sage, sum, no root": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, "sum", root_weight=False)),
    "sage, max": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, "max")),
    "sage, project": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, project=True)),
    "sage, normalize": _each(lambda room, one: room.SAGEConv(_widths(one), OUT, normalize=True)),
    "gat": _each(attention_layer("GATConv")),
    "gat, residual": _each(attention_layer("GATConv", residual=True)),
    "gatv2": _each(attention_layer("GATv2Conv", residual=True)),
    "transformer": _each(lambda room, one: room.TransformerConv(_widths(one), 3, 2)),
    "transformer, beta": _each(lambda room, one: room.TransformerConv(_widths(one), OUT, beta=True)),
    "gin": lambda room: {one: _gin(room, one) for one in (CITES, KNOWS)},
    "mixed": lambda room: {
        CITES: room.GCNConv(WIDTHS["paper"], OUT),
        WRITES: room.SAGEConv(_widths(WRITES), OUT),
        ABOUT: room.GATConv(_widths(ABOUT), 3, 2, add_self_loops=False, residual=True),
        WROTE: room.GATConv(_widths(WROTE), OUT, 2, concat=False, add_self_loops=False, residual=True),
        KNOWS: _gin(room, KNOWS),
        TOPIC: room.GATv2Conv(_widths(TOPIC), OUT, add_self_loops=False),
    },
}


def pair(name: str, aggr: str | None = "sum", dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    """Ours and PyG's with the same weights, which went both ways."""
    torch.manual_seed(3)
    ours = nn.HeteroConv(LAYERS[name](nn), aggr).to(dtype)
    pygs = pyg.HeteroConv(LAYERS[name](pyg), aggr).to(dtype)
    pygs.load_state_dict(ours.state_dict())
    ours.load_state_dict(pygs.state_dict())
    for one, other in zip(ours.parameters(), pygs.parameters(), strict=True):
        if one.dim() == 1 and one.numel() > 1:  # biases begin at zero, where they prove little
            one.data.uniform_(-0.5, 0.5)
            other.data.copy_(one.data)
    return ours, pygs


def gradients(out: dict[str, Tensor], module: torch.nn.Module, x: dict[str, Tensor]) -> list[Tensor]:
    leaves = [*module.parameters(), *x.values()]
    return list(torch.autograd.grad(joined(out).sum(), leaves, allow_unused=True, materialize_grads=True))


def assert_equal_layers(
    ours: Any, pygs: Any, case: str, dtype: torch.dtype, aggr: str | None = "sum", layers: Any = (1, 2)
) -> None:
    minibatch = CASES[case]
    for layer in layers:
        x = rows_of(minibatch, layer, dtype)
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, *rows, layer=layer, types=tuple(x): conv(
                dict(zip(types, rows, strict=True)), minibatch, layer
            ),
            lambda conv, *rows, layer=layer, types=tuple(x): pyg_layer(
                dict(conv.convs.items()), aggr, dict(zip(types, rows, strict=True)), minibatch, layer
            ),
            *x.values(),
        )


def named(minibatch: Any) -> Any:
    return zip(SCHEMA.node_types, minibatch.nodes, strict=True)
