"""The attention of DistGNN-MB against its equation, edge by edge."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.nn import ActivatedGAT, ActivatedGATConv


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
