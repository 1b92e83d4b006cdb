"""`nn.GATConv` beside PyG's, on minibatches and on graphs held whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pyg_batchgnn.nn import ActivatedGAT, ActivatedGATConv, GATConv, RowView, Update, layer_graph
from tests.support.layer_cases import FEATURES, batch_cases, layer_edges, relative_error, small_graph, table
from tests.support.layer_pairs import assert_attention_as_pygs
from tests.support.model_pairs import step_gradients

# Gat ##############################################################################################


CASES = batch_cases()
OPTIONS: list[dict[str, Any]] = [
    {},
    {"heads": 4},
    {"heads": 3, "concat": False, "bias": False},
    {"heads": 2, "add_self_loops": False, "negative_slope": 0.5},
    {"heads": 4, "residual": True},
    {"heads": 2, "residual": True, "concat": False},
    {"heads": 4, "edge_dim": 3},
    {"heads": 2, "edge_dim": 3, "add_self_loops": False},
    {"heads": 2, "edge_dim": 1, "fill_value": 0.5},
    {"heads": 2, "edge_dim": 3, "fill_value": torch.tensor([0.1, 0.2, -0.3])},
    *({"heads": 2, "edge_dim": 3, "fill_value": fill} for fill in ("add", "min", "max", "mul")),
]


def both(
    dtype: torch.dtype, in_channels: Any = FEATURES, out_channels: int = 5, **options: Any
) -> tuple[GATConv, torch_geometric.nn.GATConv]:
    torch.manual_seed(3)
    ours = GATConv(in_channels, out_channels, **options).to(dtype)
    pygs = torch_geometric.nn.GATConv(in_channels, out_channels, **options).to(dtype)
    if pygs.bias is not None:
        torch.nn.init.normal_(pygs.bias)
    ours.load_state_dict(pygs.state_dict())
    pygs.load_state_dict(ours.state_dict())
    return ours, pygs


def assert_equal_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """Asserts that gradients are equal relative to their own magnitude.

    A sum may cancel to less, as the softmax makes it do for the targets' part of the logits; it is
    compared relative to a quarter of the largest gradient.
    """
    assert found.keys() == wanted.keys()
    largest = max((float(grad.abs().max()) for grad in wanted.values() if grad.numel()), default=0.0)
    for name, grad in found.items():
        own = float(wanted[name].abs().max()) if grad.numel() else 0.0
        scale = max(own, largest / 4)
        error = float((grad - wanted[name]).abs().max()) if grad.numel() else 0.0
        assert error <= tolerance * scale, (name, error, scale)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_pyg_on_minibatches(dtype: torch.dtype, options: dict[str, Any]) -> None:
    ours, pygs = both(dtype, **options)
    for minibatch in CASES.values():
        assert_attention_as_pygs(ours, pygs, minibatch, (1, 2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{"heads": 4}, {"heads": 2, "residual": True}], ids=str)
def test_reads_rows_of_a_table_in_place(options: dict[str, Any], dtype: torch.dtype) -> None:
    ours, _ = both(torch.float32, **options)
    minibatch = CASES["ordinary"]
    rows = RowView(table(dtype), minibatch.node)
    gathered = table(dtype)[minibatch.node].float()
    found, wanted = ours(rows, minibatch, 1), ours(gathered, minibatch, 1)
    assert found.dtype is torch.float32 and relative_error(found, wanted) < 1e-6
    assert_equal_gradients(step_gradients(ours, found), step_gradients(ours, wanted), 1e-5)


@pytest.mark.parametrize("form", ["tensor", "pair", "no targets' rows", "weights apart", "both the same"])
@pytest.mark.parametrize("options", [{"heads": 2}, {"heads": 2, "edge_dim": 3, "residual": True}], ids=str)
def test_equals_pyg_on_a_whole_graph(options: dict[str, Any], form: str) -> None:
    apart = form in ("pair", "weights apart")
    channels = (FEATURES, 7) if form == "weights apart" else FEATURES
    ours, pygs = both(torch.float64, channels, **options)
    edge_index = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    x = torch.randn(30, FEATURES, dtype=torch.float64, requires_grad=True)
    y = torch.randn(20, 7 if form == "weights apart" else FEATURES, dtype=torch.float64, requires_grad=True)
    attr = torch.randn(90, 3, dtype=torch.float64, requires_grad=True) if "edge_dim" in options else None
    calls: dict[str, Callable[[Any], Tensor]] = {
        "tensor": lambda conv: conv(x, edge_index, attr),
        "both the same": lambda conv: conv((x, x), edge_index, attr),
        "pair": lambda conv: conv((x, y), edge_index, attr),
        "weights apart": lambda conv: conv((x, y), edge_index, edge_attr=attr),
        "no targets' rows": lambda conv: conv((x, None), edge_index, attr, size=(30, 20)),
    }
    found, wanted = calls[form](ours), calls[form](pygs)
    assert relative_error(found, wanted) < 1e-10
    inputs = [x, *([y] if apart else []), *([] if attr is None else [attr])]
    assert_equal_gradients(step_gradients(ours, found, *inputs), step_gradients(pygs, wanted, *inputs), 1e-10)


@pytest.mark.parametrize("add_self_loops", [True, False])
def test_returns_attention_weights_as_pyg(add_self_loops: bool) -> None:
    ours, pygs = both(torch.float64, heads=3, add_self_loops=add_self_loops)
    edge_index = torch.randint(20, (2, 90))
    x = torch.randn(20, FEATURES, dtype=torch.float64, requires_grad=True)
    found, (edges, alpha) = ours(x, edge_index, return_attention_weights=True)
    wanted, (their_edges, their_alpha) = pygs(x, edge_index, return_attention_weights=True)
    assert torch.equal(edges, their_edges) and relative_error(alpha, their_alpha) < 1e-10
    mine = step_gradients(ours, torch.cat([found.flatten(), alpha.flatten()]), x)
    theirs = step_gradients(pygs, torch.cat([wanted.flatten(), their_alpha.flatten()]), x)
    assert_equal_gradients(mine, theirs, 1e-10)


def test_attention_weights_of_a_minibatch_are_those_summed_with() -> None:
    ours, _ = both(torch.float64, heads=2, dropout=0.4, bias=False)
    minibatch = CASES["all neighbours"]
    x = table(torch.float64)[minibatch.node]
    found, (edges, alpha) = ours(x, minibatch, 1, return_attention_weights=True)
    product = ours.lin(x).view(-1, 2, 5)
    messages = product[edges[0]] * alpha.unsqueeze(-1)
    wanted = torch.zeros(found.size(0), 2, 5, dtype=torch.float64).index_add(0, edges[1], messages)
    assert relative_error(found, wanted.view(-1, 10)) < 1e-10
    assert 0.2 < float((alpha == 0).double().mean()) < 0.6


def test_dropout_of_attention_belongs_to_the_minibatch() -> None:
    ours, _ = both(torch.float32, heads=2, dropout=0.5)
    minibatch, x = CASES["all neighbours"], table()[CASES["all neighbours"].node]
    state = torch.get_rng_state()
    first, again = ours(x, minibatch, 1), ours(x, minibatch, 1)
    assert torch.equal(first, again) and torch.equal(torch.get_rng_state(), state)
    ours.eval()
    assert not torch.equal(first, ours(x, minibatch, 1))
    ours.train()
    edge_index = minibatch.edge_index
    assert not torch.equal(ours(x, edge_index), ours(x, edge_index))
    torch.manual_seed(4)
    once = ours(x, edge_index)
    torch.manual_seed(4)
    assert torch.equal(once, ours(x, edge_index))


def test_gradcheck() -> None:
    ours, _ = both(torch.float64, heads=2, dropout=0.3, residual=True)
    minibatch = CASES["duplicate seeds"]
    x = table(torch.float64)[minibatch.node].requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: ours(x, minibatch, 1), (x, *ours.parameters()))


def test_autocast_computes_in_bfloat16() -> None:
    ours, _ = both(torch.float32, heads=4)
    minibatch = CASES["all neighbours"]
    x = table()[minibatch.node].requires_grad_()
    wanted = ours(x, minibatch, 1)
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(x, minibatch, 1)
    assert found.dtype is torch.bfloat16 and relative_error(found, wanted) < 2**-6
    mine, theirs = step_gradients(ours, found.float(), x), step_gradients(ours, wanted, x)
    assert all(mine[name].dtype is torch.float32 for name in mine)
    for name in ("lin.weight", "bias", "x0"):
        assert relative_error(mine[name], theirs[name]) < 2**-5, name


@pytest.mark.parametrize(
    "options",
    [{"heads": 4}, {"heads": 4, "concat": False}, {"heads": 4, "residual": True}],
    ids=str,
)
def test_update_follows_the_layer(options: dict[str, Any]) -> None:
    ours, _ = both(torch.float32, **options)
    minibatch = CASES["all neighbours"]
    x = table()[minibatch.node]
    plain = ours(x, minibatch, 1)
    assert torch.equal(ours(x, minibatch, 1, update=Update(relu=True)), plain.relu())
    dropped = ours(x, minibatch, 1, update=Update(relu=True, drop=0.5))
    kept = dropped != 0
    assert torch.equal(dropped[kept], plain.relu()[kept] * 2) and 0.1 < float(kept.float().mean()) < 0.6
    ours.eval()
    assert torch.equal(ours(x, minibatch, 1, update=Update(relu=True, drop=0.5)), plain.relu())


def test_the_same_bits_on_any_number_of_threads() -> None:
    ours, _ = both(torch.float32, heads=4, dropout=0.2)
    edge_index = torch.randint(3000, (2, 20000))
    x = torch.randn(3000, FEATURES, requires_grad=True)

    def bits(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        out = ours(x, edge_index)
        return [out, *torch.autograd.grad(out.square().sum(), [x, *ours.parameters()])]

    once = bits(1)
    for threads in (2, 3, 8):
        assert all(torch.equal(a, b) for a, b in zip(once, bits(threads), strict=True))


def test_recomputation_gives_the_same_gradients() -> None:
    ours, _ = both(torch.float32, heads=2, dropout=0.5)
    minibatch = CASES["ordinary"]
    x = table()[minibatch.node].requires_grad_()
    plain = step_gradients(ours, ours(x, minibatch, 1), x)
    again = step_gradients(ours, checkpoint(ours, x, minibatch, 1, use_reentrant=False), x)
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_lazy_channels_and_layer_graphs() -> None:
    minibatch = CASES["ordinary"]
    x = table()[minibatch.node]
    lazy = GATConv(-1, 5, heads=2)
    assert lazy(x, layer_graph(minibatch, 1)).shape == (layer_edges(minibatch, 1)[2], 10)
    assert lazy.lin.weight.shape == (10, FEATURES)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: GATConv(4, 2, aggr="max"), ValueError, ["aggr='max'", "torch_geometric"]),
        (lambda: GATConv(4, 2, flow="target_to_source"), ValueError, ["flow", "flip"]),
        (lambda: GATConv(4, 2, dropout=1.0), ValueError, ["1.0"]),
        (lambda: GATConv(4, 2, edge_dim=3, fill_value="median"), ValueError, ["median", "mean"]),
        (lambda: conv()(table()[CASES["ordinary"].node], CASES["ordinary"]), ValueError, ["layer"]),
        (lambda: conv()(table()[:3], CASES["ordinary"], 1), ValueError, ["3 rows"]),
        (lambda: conv()(table()[:, :5], torch.zeros(2, 1).long()), ValueError, ["12"]),
        (lambda: conv()(table(), small_graph().indptr.to_sparse()), TypeError, ["to_edge_index"]),
        (lambda: conv()(table(torch.float64), torch.zeros(2, 1).long()), TypeError, ["float64"]),
        (lambda: conv()(table(), torch.zeros(2, 1).long(), torch.zeros(1, 3)), ValueError, ["edge_dim"]),
        (
            lambda: conv(edge_dim=3)(table(), torch.zeros(2, 1).long(), torch.zeros(1, 2)),
            ValueError,
            ["[E, 3]", "[1, 2]"],
        ),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def conv(**options: Any) -> GATConv:
    return GATConv(FEATURES, 5, **options)


# Activated gat ####################################################################################


def reference(conv: ActivatedGATConv, x: Tensor, edge_index: Tensor) -> Tensor:
    """Computes equation 2 with a self loop for every node, in plain torch."""
    nodes = torch.arange(len(x))
    source, target = torch.cat([edge_index[:, edge_index[0] != edge_index[1]], nodes.expand(2, -1)], dim=1)
    z = torch.relu(x @ conv.lin.weight.t() + (0 if conv.bias is None else conv.bias))
    z = z.view(len(x), conv.heads, -1)
    score = ((z * conv.att_src).sum(-1))[source] + ((z * conv.att_dst).sum(-1))[target]
    score = torch.nn.functional.leaky_relu(score, conv.negative_slope).exp()
    total = torch.zeros(len(x), conv.heads, dtype=x.dtype).index_add(0, target, score)
    weight = score / total[target]
    out = torch.zeros_like(z).index_add(0, target, weight[..., None] * z[source])
    return out.flatten(1) if conv.concat else out.mean(dim=1)


@pytest.mark.parametrize(("heads", "concat", "bias"), [(1, True, True), (3, True, False), (2, False, True)])
def test_layer_is_the_equation(heads: int, concat: bool, bias: bool) -> None:
    random = torch.Generator().manual_seed(heads)
    edge_index = torch.randint(9, (2, 40), generator=random)
    conv = ActivatedGATConv(5, 4, heads, concat, bias=bias).double()
    if conv.bias is not None:
        torch.nn.init.normal_(conv.bias, generator=random)
    found, wanted = [], []
    for compute, results in ((conv, found), (lambda x, edges: reference(conv, x, edges), wanted)):
        x = torch.randn(9, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        x.requires_grad_()
        conv.zero_grad()
        out = compute(x, edge_index)
        (out**2).sum().backward()
        results += [out.detach(), x.grad, *(one.grad for one in conv.parameters())]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_what_it_has_not_is_refused() -> None:
    for arguments in ({"edge_dim": 2}, {"residual": True}):
        with pytest.raises(ValueError, match="take GATConv"):
            ActivatedGATConv(5, 4, **arguments)
    edge_index = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="return_attention_weights"):
        ActivatedGATConv(5, 4)(torch.ones(2, 5), edge_index, return_attention_weights=True)
    with pytest.raises(ValueError, match="leave v2 out"):
        ActivatedGAT(5, 8, 2, 7, v2=True)
