"""Each model against PyG's convolution on (x, x[:D]): outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pyg_batchgnn.train.model.pyg_layers import PygGAT, PygGCN, PygGIN, PygModel, PygSAGE
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import layer_prefixes
from tests.support.reference_minibatches import SmallBatch, batch_cases

CASES = batch_cases()
MODELS: dict[str, Callable[[], PygModel]] = {
    "sage": lambda: PygSAGE(12, 16, 3, 5),
    "gcn": lambda: PygGCN(12, 16, 3, 5),
    "gcn narrow": lambda: PygGCN(12, 3, 3, 2),
    "gin": lambda: PygGIN(12, 16, 3, 5, inner_channels=16),
    "gat": lambda: PygGAT(12, 16, 3, 5, heads=4),
}


def _plain_convs(model: PygModel) -> nn.ModuleList:
    """PyG's own classes with the same parameters: `state_dict` keys must agree."""

    def plain(conv: nn.Module) -> nn.Module:
        if isinstance(conv, SAGEConv):
            made: nn.Module = SAGEConv(conv.in_channels, conv.out_channels)
        elif isinstance(conv, GCNConv):
            made = GCNConv(conv.in_channels, conv.out_channels, normalize=False)
        elif isinstance(conv, GINConv):
            return GINConv(conv.nn)
        else:
            made = GATConv(conv.in_channels, conv.out_channels, heads=conv.heads, concat=conv.concat)
        made.load_state_dict(conv.state_dict())
        return made

    return nn.ModuleList(plain(conv) for conv in model.convs)


def _reference(model: PygModel, convs: nn.ModuleList, batch: SmallBatch, x: Tensor) -> Tensor:
    prefixes = layer_prefixes(len(convs), batch.num_sampled_nodes, batch.num_sampled_edges)
    normalised, weight = gcn_norm(batch.edge_index, None, x.size(0))
    for layer, (conv, prefix) in enumerate(zip(convs, prefixes, strict=True)):
        if isinstance(conv, GCNConv):
            wanted = normalised[1] < prefix.rows_out
            x = conv(x[: prefix.rows_in], normalised[:, wanted], weight[wanted])[: prefix.rows_out]
        else:
            edges = batch.edge_index[:, : prefix.edges]
            x = conv((x, x[: prefix.rows_out]), edges)
        if layer < len(convs) - 1:
            x = F.relu(model.norms[layer](x))
    return x


def _gradients(model: nn.Module, out: Tensor, x: Tensor) -> dict[str, Tensor]:
    weights = torch.linspace(-1.0, 1.0, out.numel()).view_as(out)
    leaves = {**dict(model.named_parameters()), "x": x}
    grads = torch.autograd.grad((out * weights).sum(), list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", MODELS)
def test_outputs_and_gradients_equal_pyg(kind: str, case: str) -> None:
    torch.manual_seed(7)
    model, batch = MODELS[kind](), CASES[case]
    if isinstance(model, PygGIN) and batch.x.size(0) < 3:
        model.eval()  # PyG's batch normalisation refuses fewer than two rows in training
    convs = _plain_convs(model)
    x, x_ref = batch.x.clone().requires_grad_(), batch.x.clone().requires_grad_()
    out = model(x, *batch.model_input[1:])
    expected = _reference(model, convs, batch, x_ref)
    assert out.shape == (batch.num_sampled_nodes[0], expected.size(1))
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)

    grads = _gradients(model, out, x)
    reference = nn.Module()
    reference.convs = convs
    if isinstance(model, PygGIN):
        reference.norms = model.norms
    expected_grads = _gradients(reference, expected, x_ref)
    assert grads.keys() == expected_grads.keys()
    for name, grad in grads.items():
        message = partial("{}: {}".format, name)
        torch.testing.assert_close(grad, expected_grads[name], atol=1e-4, rtol=1e-3, msg=message)


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_prefixes_equal_the_unsliced_model_on_seeds(kind: str) -> None:
    """Computing every row of every layer gives the seeds the same values."""
    torch.manual_seed(3)
    model, batch = MODELS[kind]().eval(), CASES["all neighbours"]
    convs = _plain_convs(model)
    x = batch.x
    for layer, conv in enumerate(convs):
        x = conv(x, batch.edge_index)
        x = F.relu(x) if layer < 2 else x
    seeds = batch.num_sampled_nodes[0]
    torch.testing.assert_close(model(*batch.model_input), x[:seeds], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_whole_graph_forward_takes_edges_in_any_order(kind: str) -> None:
    torch.manual_seed(5)
    model, batch = MODELS[kind]().eval(), CASES["ordinary"]
    shuffled = batch.edge_index[:, torch.randperm(batch.edge_index.size(1))]
    convs = _plain_convs(model)
    out = model(batch.x, shuffled)
    x = batch.x
    for layer, conv in enumerate(convs):
        edges, weight = gcn_norm(shuffled, None, x.size(0)) if isinstance(model, PygGCN) else (shuffled, None)
        x = conv(x, edges, weight) if isinstance(model, PygGCN) else conv(x, edges)
        if layer < 2:
            x = F.relu(model.norms[layer](x))
    torch.testing.assert_close(out, x, atol=1e-5, rtol=1e-4)


def test_batch_norm_sees_exactly_the_rows_of_its_layer() -> None:
    torch.manual_seed(2)
    model, batch = PygGIN(12, 16, 3, 5, inner_channels=16), CASES["ordinary"]
    seen: list[int] = []
    for norm in model.norms:
        norm.register_forward_pre_hook(lambda _module, args: seen.append(args[0].size(0)))
    model(*batch.model_input)
    nodes = batch.num_sampled_nodes
    assert seen == [sum(nodes[:3]), sum(nodes[:2])]


def test_gin_trains_on_a_single_seed() -> None:
    model = PygGIN(12, 16, 3, 5, inner_channels=16).train()
    lonely = CASES["only isolated seeds"]
    out = model(lonely.x[:1], lonely.edge_index, [1, 0, 0, 0], [0, 0, 0])
    out.sum().backward()
    assert out.shape == (1, 5)
    assert torch.isfinite(out).all()


def test_hidden_is_the_input_of_the_last_layer() -> None:
    model, batch = MODELS["sage"]().eval(), CASES["ordinary"]
    output = model.outputs(*batch.model_input)
    assert output.hidden.shape == (batch.num_sampled_nodes[0], 16)
    assert (output.hidden >= 0).all()
    torch.testing.assert_close(output.logits, model(*batch.model_input))


def test_wrong_number_of_hops_is_an_error() -> None:
    batch = CASES["ordinary"]
    with pytest.raises(ValueError, match="a model of 2 layers needs minibatches of 2 hops"):
        PygSAGE(12, 16, 2, 5)(*batch.model_input)


def test_edges_that_do_not_follow_the_hops_are_an_error() -> None:
    batch = CASES["ordinary"]
    wrong = [batch.num_sampled_edges[0] + 1, batch.num_sampled_edges[1] - 1, batch.num_sampled_edges[2]]
    with pytest.raises(ValueError, match="num_sampled_edges says"):
        PygSAGE(12, 16, 3, 5)(batch.x, batch.edge_index, batch.num_sampled_nodes, wrong)


def test_heads_must_divide_hidden() -> None:
    with pytest.raises(ValueError, match="multiple of heads"):
        PygGAT(12, 10, 3, 5, heads=4)
