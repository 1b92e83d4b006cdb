"""The arguments that `nn.HeteroConv` refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.data import Relation
from tests.support.hetero_layers import (
    CASES,
    LAYERS,
)
from tests.support.typed_layers import (
    CITES,
    WRITES,
    rows_of,
    tables,
)


def _edges(minibatch: Any) -> dict[Relation, Tensor]:
    return {CITES: minibatch.edges_of(CITES).edge_index}


SAGE = LAYERS["sage"](nn)
REFUSED: dict[str, tuple[Callable[[Any, dict[str, Tensor]], Any], type[Exception], str]] = {
    "pyg's layers": (lambda *_: nn.HeteroConv(LAYERS["sage"](pyg)), TypeError, "pyg_batchgnn.nn"),
    "aggregation": (lambda *_: nn.HeteroConv(SAGE, "mul"), ValueError, "'mul'"),
    "loops": (lambda *_: nn.HeteroConv({WRITES: nn.GATConv(3, 4)}), ValueError, "add_self_loops"),
    "loops of gcn": (lambda *_: nn.HeteroConv({WRITES: nn.GCNConv(3, 4)}), ValueError, "add_self_loops"),
    "gcn between types": (
        lambda batch, x: nn.HeteroConv({WRITES: nn.GCNConv(7, 4, add_self_loops=False).double()})(
            x, batch, 1
        ),
        ValueError,
        "bipartite",
    ),
    "no layer": (lambda batch, x: nn.HeteroConv(SAGE)(x, batch), ValueError, "number of the layer"),
    "layer of edges": (lambda batch, x: nn.HeteroConv(SAGE)(x, _edges(batch), 1), ValueError, "layer=1"),
    "layer 3": (lambda batch, x: nn.HeteroConv(SAGE)(x, batch, 3), ValueError, "layers 1 to 2"),
    "edges": (lambda _, x: nn.HeteroConv(SAGE)(x, [1]), TypeError, "dict of edges"),
    "no rows": (
        lambda batch, x: nn.HeteroConv(SAGE)({"paper": x["paper"]}, batch, 1),
        KeyError,
        "reads rows of 'author'",
    ),
    "few rows": (
        lambda batch, x: nn.HeteroConv(SAGE)({**x, "author": x["author"][:1]}, batch, 1),
        ValueError,
        "x_dict\\['author'\\] has 1 rows",
    ),
    "many rows": (lambda batch, _: nn.HeteroConv(SAGE)(tables(), batch, 1), ValueError, "features_by_type"),
    "no matrix": (
        lambda batch, x: nn.HeteroConv(SAGE)({**x, "author": x["author"][0]}, batch, 1),
        ValueError,
        "x_dict\\['author'\\] must be",
    ),
    "keyword": (
        lambda batch, x: nn.HeteroConv(SAGE)(x, batch, 1, edge_attr=x),
        ValueError,
        "end with '_dict'",
    ),
    "values": (
        lambda batch, x: nn.HeteroConv(SAGE).double()(x, batch, 1, edge_attr_dict={CITES: x["paper"]}),
        TypeError,
        "takes no edge_attr_dict",
    ),
    "values in third place": (
        lambda batch, x: nn.HeteroConv(SAGE).double()(x, _edges(batch), {CITES: x["paper"]}),
        TypeError,
        "takes no values",
    ),
    "a layer of one relation": (
        lambda batch, x: nn.SAGEConv(12, 3)(x["paper"], batch, 1),
        TypeError,
        "HeteroConv",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    call, error, words = REFUSED[what]
    minibatch = CASES["papers"]
    with pytest.raises(error, match=words):
        call(minibatch, rows_of(minibatch, 1, torch.float64))
