"""`nn.GCNConv` against PyG's normalisation of the whole minibatch and its convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pyg_batchgnn import SampledMinibatch
from pyg_batchgnn.nn import GCNConv, RowView, Update
from tests.support.accuracy import assert_as_pygs
from tests.support.layer_cases import FEATURES, batch_cases, layer_edges, relative_error, table
from tests.support.layer_pairs import both, gradients

CASES = batch_cases()
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no loops": {"add_self_loops": False, "bias": False},
    "not normalised": {"normalize": False},
    "improved": {"improved": True},
}


def pair(dtype: torch.dtype = torch.float64, **options: Any) -> tuple[GCNConv, torch.nn.Module]:
    return both(GCNConv, torch_geometric.nn.GCNConv, FEATURES, 5, dtype=dtype, **options)


def reference(pygs: Any, x: Tensor, minibatch: SampledMinibatch, layer: int, weight: Tensor | None) -> Tensor:
    """`gcn_norm` on all nodes and edges, then the layer's edges and its targets' loops alone."""
    edges, _, targets = layer_edges(minibatch, layer)
    every = minibatch.edge_index
    if pygs.normalize:
        every, weight = gcn_norm(
            every, weight, minibatch.num_nodes, pygs.improved, pygs.add_self_loops, dtype=x.dtype
        )
        wanted = every[1] < targets
    else:
        wanted = torch.arange(every.size(1)) < edges.size(1)
        weight = x.new_ones(every.size(1)) if weight is None else weight
    plain = torch_geometric.nn.GCNConv(FEATURES, 5, normalize=False, bias=pygs.bias is not None).to(x.dtype)
    plain.lin, plain.bias = pygs.lin, pygs.bias
    return plain(x, every[:, wanted], weight[wanted])[:targets]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_pyg_on_a_minibatch(case: str, dtype: torch.dtype, options: str, weighted: bool) -> None:
    ours, pygs = pair(dtype, **OPTIONS[options])
    minibatch = CASES[case]
    for layer in (1, 2, 3):
        _, sources, _ = layer_edges(minibatch, layer)
        weights = [torch.linspace(0.5, 2.0, minibatch.num_edges, dtype=dtype)] if weighted else []
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, x, weight=None, layer=layer: conv(x, minibatch, layer, edge_weight=weight),
            lambda conv, x, weight=None, layer=layer: reference(conv, x, minibatch, layer, weight),
            table(dtype)[minibatch.node[:sources]],
            *weights,
        )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("loops", ["none", "some", "several a node"])
def test_equals_pyg_on_a_whole_graph(loops: str, options: str, weighted: bool) -> None:
    ours, pygs = pair(**OPTIONS[options])
    torch.manual_seed(5)
    edge_index = torch.randint(20, (2, 60))
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    own = {"none": [], "some": [3, 4, 19], "several a node": [3, 3, 3, 7, 7]}[loops]
    edge_index = torch.cat([torch.tensor([own, own], dtype=torch.int64), edge_index], 1)
    edge_index = edge_index[:, torch.randperm(edge_index.size(1))]
    weight = torch.rand(edge_index.size(1), dtype=torch.float64).requires_grad_() if weighted else None
    x = torch.randn(20, FEATURES, dtype=torch.float64, requires_grad=True)
    found, wanted = ours(x, edge_index, weight), pygs(x, edge_index, weight)
    assert relative_error(found, wanted) < 1e-10
    leaves = [x, weight] if weight is not None else [x]
    for one, two in zip(gradients(ours, found, *leaves), gradients(pygs, wanted, *leaves), strict=True):
        assert relative_error(one, two) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_reads_rows_of_a_table_in_place(dtype: torch.dtype) -> None:
    ours, _ = pair(torch.float32)
    minibatch = CASES["ordinary"]
    gathered = table(dtype)[minibatch.node].float()
    found, wanted = ours(RowView(table(dtype), minibatch.node), minibatch, 1), ours(gathered, minibatch, 1)
    assert found.dtype is torch.float32 and torch.equal(found, wanted)


@pytest.mark.parametrize("case", ["ordinary", "duplicate seeds"])
def test_gradcheck(case: str) -> None:
    ours, _ = pair()
    minibatch = CASES[case]
    x = table(torch.float64)[minibatch.node].requires_grad_()
    weight = torch.rand(minibatch.num_edges, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w, *_: ours(x, minibatch, 1, edge_weight=w), (x, weight))


def test_update_is_relu_and_dropout_of_the_plain_output() -> None:
    ours, _ = pair(torch.float32)
    minibatch = CASES["all neighbours"]
    x = table()[minibatch.node]
    plain = ours(x, minibatch, 1)
    dropped = ours(x, minibatch, 1, update=Update(relu=True, drop=0.5))
    kept = dropped != 0
    assert torch.equal(dropped[kept], plain.relu()[kept] * 2) and 0.05 < float(kept.float().mean()) < 0.6
    ours.eval()
    assert torch.equal(ours(x, minibatch, 1, update=Update(relu=True, drop=0.5)), plain.relu())


def test_degrees_are_counted_once_a_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyg_batchgnn import ops

    counted = []
    real = ops.degree_scale
    monkeypatch.setattr(ops, "degree_scale", lambda *a, **k: counted.append(1) or real(*a, **k))
    ours, _ = pair(torch.float32)
    minibatch = batch_cases()["ordinary"]
    for layer in (1, 2, 3):
        _, sources, _ = layer_edges(minibatch, layer)
        ours(table()[minibatch.node[:sources]], minibatch, layer)
    assert len(counted) == 2  # d^-1/2 and d^-1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: GCNConv(4, 4, cached=True), ValueError, ["cached=True", "degrees"]),
        (lambda: GCNConv(4, 4, aggr="mean"), ValueError, ["aggr='mean'"]),
        (lambda: GCNConv(4, 4, flow="target_to_source"), ValueError, ["flip"]),
        (lambda: conv()((table(), table()), torch.zeros(2, 1).long()), ValueError, ["separate"]),
        (
            lambda: conv()(table(), torch.zeros(2, 1).long(), torch.ones(2)),
            ValueError,
            ["edge_weight", "[1]"],
        ),
        (lambda: conv()(table(), torch.eye(20).to_sparse()), TypeError, ["to_edge_index"]),
        (lambda: conv()(table(), CASES["ordinary"]), ValueError, ["layer"]),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def conv() -> GCNConv:
    return GCNConv(FEATURES, 5)
