"""Native layers on rows of bytes, beside the same layers on the decoded table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.nn import (
    BatchNorm,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    HeteroConv,
    Linear,
    RowView,
    SAGEConv,
    TransformerConv,
    Update,
)
from pyg_batchgnn.nn.gin import Perceptron
from pyg_batchgnn.ops import QuantizedTensor
from tests.support.accuracy import distance
from tests.support.layer_cases import FEATURES, batch_cases, gradients, layer_edges
from tests.support.quantized_tables import decoded_rows, drawn_table

CASES = batch_cases()


def gin(train_eps: bool) -> GINConv:
    norm = torch.nn.BatchNorm1d(40)
    return GINConv(Perceptron((FEATURES, 40, 5), torch.nn.ReLU(), False, norm), 0.3, train_eps)


LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "SAGE, mean": lambda: SAGEConv(FEATURES, 5),
    "SAGE, sum": lambda: SAGEConv(FEATURES, 5, aggr="sum"),
    "SAGE, max": lambda: SAGEConv(FEATURES, 5, aggr="max"),
    "SAGE, project": lambda: SAGEConv(FEATURES, 5, project=True),
    "SAGE, normalize": lambda: SAGEConv(FEATURES, 5, normalize=True),
    "GCN": lambda: GCNConv(FEATURES, 5),
    "GIN": lambda: gin(False),
    "GIN, learned eps": lambda: gin(True),
    "GAT": lambda: GATConv(FEATURES, 5, heads=3),
    "GAT, no loops": lambda: GATConv(FEATURES, 5, heads=2, add_self_loops=False, residual=True),
    "GATv2": lambda: GATv2Conv(FEATURES, 5, heads=2),
    "Transformer": lambda: TransformerConv(FEATURES, 5, heads=2),
    "Transformer, beta": lambda: TransformerConv(FEATURES, 2, heads=8, beta=True),
}
#: Errors of float32, and of rounding to bfloat16.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


@pytest.fixture(scope="module")
def table() -> QuantizedTensor:
    made = drawn_table(60, FEATURES, seed=3, extreme=False)
    made.decoding[0] /= 60
    return made


def compared(conv: torch.nn.Module, run: Callable[[Any, Any], Tensor], coded: Any, decoded: Any) -> None:
    """The results and gradients are as near the layer in float64 as those of decoded rows are."""
    exact = copy.deepcopy(conv).double()
    wide = decoded.double() if isinstance(decoded, Tensor) else RowView(decoded.table.double(), decoded.row)
    wanted = answers(exact, run, wide)
    least = 0.01 * max([1e-9, *(float(one.detach().abs().max()) for one in wanted if one.numel())])
    for dtype, tolerance in TOLERANCE.items():
        with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
            of_coded, of_decoded = (answers(copy.deepcopy(conv), run, x) for x in (coded, decoded))
        assert of_coded[0].dtype == of_decoded[0].dtype
        for one, two, three in zip(of_coded, of_decoded, wanted, strict=True):
            bound = 4 * distance(two, three, least) + tolerance
            assert distance(one, three, least) <= bound


def answers(conv: torch.nn.Module, run: Callable[[Any, Any], Tensor], x: Any) -> list[Tensor]:
    out = run(conv, x)
    return [out, *gradients(conv, out)]


@pytest.mark.parametrize("form", ["view", "tensor"])
@pytest.mark.parametrize("case", ["ordinary", "isolated seed", "no seeds"])
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_of_a_minibatch(layer: str, case: str, form: str, table: QuantizedTensor) -> None:
    torch.manual_seed(1)
    conv, minibatch = LAYERS[layer](), CASES[case]
    forms: dict[str, Callable[[Any], Any]] = {
        "view": lambda rows: RowView(rows, minibatch.node),
        "tensor": lambda rows: (
            rows.with_codes(rows.codes[minibatch.node])
            if isinstance(rows, QuantizedTensor)
            else rows[minibatch.node]
        ),
    }
    coded, decoded = (forms[form](rows) for rows in (table, table.dequantize()))
    compared(conv, lambda conv, x: conv(x, minibatch, 1), coded, decoded)
    with decoded_rows() as found:
        conv(coded, minibatch, 1).sum().backward()
    assert found == []


@pytest.mark.parametrize("layer", [name for name in LAYERS if name not in ("GCN", "GAT, activated")])
def test_layers_of_pairs(layer: str, table: QuantizedTensor) -> None:
    torch.manual_seed(2)
    conv, edges = LAYERS[layer](), torch.randint(20, (2, 90))
    sources = table[:30]
    compared(conv, lambda conv, x: conv((x, x[:20]), edges), sources, sources.dequantize())
    other = drawn_table(20, FEATURES, seed=9, extreme=False)
    found = conv((sources, other), edges)
    assert distance(found, conv((sources.dequantize(), other.dequantize()), edges)) < 1e-4


@pytest.mark.parametrize("layer", ["SAGE, mean", "GCN", "GIN", "GAT", "Transformer"])
def test_an_update_and_a_whole_graph(layer: str, table: QuantizedTensor) -> None:
    torch.manual_seed(3)
    conv = LAYERS[layer]()
    edges, _, _ = layer_edges(CASES["all neighbours"], 1)
    compared(conv, lambda conv, x: conv(x, edges, update=Update(relu=True)), table, table.dequantize())


def test_linear_layers_and_a_norm(table: QuantizedTensor) -> None:
    torch.manual_seed(4)
    layer, norm = Linear(FEATURES, 5), BatchNorm(FEATURES)
    with decoded_rows() as decoded:
        found = layer(table)
    assert decoded == []
    assert torch.equal(found, layer(table.dequantize()))
    assert torch.equal(norm(table), norm(table.dequantize()))


def test_relations_of_a_typed_graph(table: QuantizedTensor) -> None:
    torch.manual_seed(5)
    other = drawn_table(25, 7, seed=8, extreme=False)
    relations = {("a", "to", "b"): SAGEConv((FEATURES, 7), 5), ("b", "to", "b"): SAGEConv(7, 5)}
    conv = HeteroConv(relations)
    edges = {("a", "to", "b"): torch.randint(25, (2, 70)), ("b", "to", "b"): torch.randint(25, (2, 50))}
    with decoded_rows() as decoded:
        found = conv({"a": table, "b": other}, edges)["b"]
    assert decoded == []
    wanted = conv({"a": table.dequantize(), "b": other.dequantize()}, edges)["b"]
    assert distance(found, wanted) < 1e-5
