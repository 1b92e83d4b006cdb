"""`nn.SAGEConv` beside PyG's, on minibatches and on graphs held whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn

from pyg_batchgnn.nn import RowView, SAGEConv, Update
from tests.support.accuracy import assert_as_pygs
from tests.support.layer_cases import FEATURES, batch_cases, layer_edges, relative_error, table
from tests.support.layer_pairs import assert_updates, both, gradients

CASES = batch_cases()
OPTIONS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"aggr": "sum", "bias": False},
    "max": {"aggr": "max"},
    "no root": {"root_weight": False},
    "no root, max": {"root_weight": False, "aggr": "max"},
    "project": {"project": True},
    "normalize": {"normalize": True, "aggr": "add"},
}


def pair(dtype: torch.dtype = torch.float64, **options: Any) -> tuple[SAGEConv, torch.nn.Module]:
    return both(SAGEConv, torch_geometric.nn.SAGEConv, FEATURES, 5, dtype=dtype, **options)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_pyg_on_a_minibatch(case: str, dtype: torch.dtype, options: str) -> None:
    ours, pygs = pair(dtype, **OPTIONS[options])
    minibatch = CASES[case]
    for layer in (1, 2, 3):
        edges, sources, targets = layer_edges(minibatch, layer)
        x = table(dtype)[minibatch.node[:sources]].relu()  # zeros make maxima tie
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, x, layer=layer: conv(x, minibatch, layer),
            lambda conv, x, edges=edges, targets=targets: conv((x, x[:targets]), edges),
            x,
        )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_reads_rows_of_a_table_in_place(dtype: torch.dtype, options: str) -> None:
    ours, _ = pair(torch.float32, **OPTIONS[options])
    minibatch = CASES["ordinary"]
    gathered = table(dtype)[minibatch.node].float()
    found, wanted = ours(RowView(table(dtype), minibatch.node), minibatch, 1), ours(gathered, minibatch, 1)
    assert found.dtype is torch.float32 and torch.equal(found, wanted)
    for one, two in zip(gradients(ours, found), gradients(ours, wanted), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form", ["tensor", "pair", "no targets' rows", "size third"])
def test_equals_pyg_on_a_whole_graph(form: str, options: str) -> None:
    ours, pygs = pair(**OPTIONS[options])
    torch.manual_seed(2)
    edge_index = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    x, y = (torch.randn(rows, FEATURES, dtype=torch.float64, requires_grad=True) for rows in (30, 20))
    calls: dict[str, Callable[[Any], torch.Tensor]] = {
        "tensor": lambda conv: conv(x, edge_index),
        "pair": lambda conv: conv((x, y), edge_index),
        "no targets' rows": lambda conv: conv((x, None), edge_index, size=(30, 20)),
        "size third": lambda conv: conv((x, y), edge_index, (30, 20)),
    }
    found, wanted = calls[form](ours), calls[form](pygs)
    assert relative_error(found, wanted) < 1e-10
    for one, two in zip(gradients(ours, found, x, y), gradients(pygs, wanted, x, y), strict=True):
        assert relative_error(one, two) < 1e-10


def test_widths_of_two_kinds_of_nodes() -> None:
    ours, pygs = both(SAGEConv, torch_geometric.nn.SAGEConv, (3, 4), 5, dtype=torch.float64)
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    edge_index = torch.tensor([[0, 5, 2, 2], [0, 0, 1, 0]])
    assert relative_error(ours((x, y), edge_index), pygs((x, y), edge_index)) < 1e-10


def test_unknown_widths_come_from_the_first_call() -> None:
    torch.manual_seed(0)
    ours = SAGEConv(-1, 5)
    minibatch = CASES["ordinary"]
    ours(RowView(table(), minibatch.node), minibatch, 1)
    torch.manual_seed(0)
    pygs = torch_geometric.nn.SAGEConv(-1, 5)
    pygs(table(), torch.zeros(2, 1, dtype=torch.int64))
    states = ours.state_dict(), pygs.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[1])


@pytest.mark.parametrize("options", ["mean", "project", "max"])
def test_gradcheck(options: str) -> None:
    ours, _ = pair(**OPTIONS[options])
    minibatch = CASES["duplicate seeds"]
    x = table(torch.float64)[minibatch.node].requires_grad_()
    parameters = tuple(ours.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: ours(x, minibatch, 1), (x, *parameters))


@pytest.mark.parametrize("options", OPTIONS)
def test_update_is_relu_and_dropout_of_the_plain_output(options: str) -> None:
    ours, _ = pair(torch.float32, **OPTIONS[options])
    assert_updates(ours, CASES["all neighbours"])


def test_whole_graphs_draw_dropout_from_torchs_generator() -> None:
    ours, _ = pair(torch.float32)
    edge_index = torch.randint(table().size(0), (2, 50))
    update = Update(drop=0.5)
    torch.manual_seed(4)
    first, second = ours(table(), edge_index, update=update), ours(table(), edge_index, update=update)
    torch.manual_seed(4)
    assert torch.equal(first, ours(table(), edge_index, update=update)) and not torch.equal(first, second)


def test_normalised_rows_have_length_one() -> None:
    ours, _ = pair(normalize=True)
    out = ours(table(torch.float64), torch.randint(table().size(0), (2, 50)))
    assert relative_error(out, F.normalize(out, dim=-1)) < 1e-12


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: SAGEConv(4, 4, aggr="lstm"), ValueError, ["aggr='lstm'", "'mean'"]),
        (lambda: SAGEConv(4, 4, aggr=["mean", "max"]), ValueError, ["['mean', 'max']"]),
        (lambda: SAGEConv(4, 4, aggr="median"), ValueError, ["median"]),
        (lambda: SAGEConv(4, 4, aggr=torch_geometric.nn.MedianAggregation()), ValueError, ["'mean'"]),
        (lambda: SAGEConv(4, 4, flow="target_to_source"), ValueError, ["flow", "flip"]),
        (lambda: SAGEConv(4, 4, node_dim=0), ValueError, ["node_dim=0"]),
        (lambda: SAGEConv(4, 4, decomposed_layers=2), ValueError, ["decomposed_layers=2"]),
        (lambda: SAGEConv(-1, 4, project=True), ValueError, ["lazy"]),
        (lambda: conv()(table(), torch.eye(20).to_sparse()), TypeError, ["to_edge_index"]),
        (lambda: conv()(table()[:, :3], torch.zeros(2, 1).long()), ValueError, [f"{FEATURES}"]),
        (lambda: conv()(table(torch.float64), torch.zeros(2, 1).long()), TypeError, ["float64"]),
        (lambda: conv()(table(), torch.tensor([[0], [99]])), IndexError, ["99"]),
        (lambda: conv()(table(), torch.zeros(2, 1).long(), 1), ValueError, ["layer=1"]),
        (lambda: conv()(table(), CASES["ordinary"]), ValueError, ["layer"]),
        (lambda: conv()(table(), CASES["ordinary"], 4), ValueError, ["layers 1 to 3", "layer 4"]),
        (lambda: conv()(table()[:3], CASES["ordinary"], 1), ValueError, ["3 rows"]),
        (lambda: hooked()(table(), torch.zeros(2, 1).long()), ValueError, ["hooks"]),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def conv() -> SAGEConv:
    return SAGEConv(FEATURES, 5)


def hooked() -> SAGEConv:
    layer = conv()
    layer.register_message_forward_hook(lambda *_: None)
    return layer
