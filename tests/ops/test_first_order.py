"""Second derivatives through native operators raise an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from pyg_batchgnn import accelerate, ops

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
LOSSES: list[Callable[[Tensor], Tensor]] = [torch.sum, lambda out: out.pow(2).sum()]


@pytest.mark.parametrize("loss", LOSSES, ids=["constant gradient", "gradient of the output"])
@pytest.mark.parametrize("norm", [None, "batch_norm"])
@pytest.mark.parametrize("kind", [GraphSAGE, GCN, GIN, GAT])
def test_penalties_on_gradients_are_refused(
    kind: type[torch.nn.Module], norm: str | None, loss: Callable[[Tensor], Tensor]
) -> None:
    x = torch.randn(4, 5, requires_grad=True)
    model = accelerate(kind(5, 8, 2, 3, norm=norm))
    first = loss(model(x, EDGES))
    (grad,) = torch.autograd.grad(first, x, create_graph=True)
    (plain,) = torch.autograd.grad(loss(model(x, EDGES)), x)
    assert torch.allclose(grad, plain)
    penalised = first + grad.pow(2).sum()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(penalised, list(model.parameters()), allow_unused=True, retain_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        penalised.backward()


@pytest.mark.parametrize("kind", [GraphSAGE, GCN, GIN, GAT])
def test_hessians_are_refused(kind: type[torch.nn.Module]) -> None:
    model = accelerate(kind(5, 8, 2, 3))
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.functional.hessian(lambda x: model(x, EDGES).pow(2).sum(), torch.randn(4, 5))


def test_lists_and_missing_gradients_are_guarded() -> None:
    def backward(ctx: None, grad: Tensor) -> tuple[Tensor | list[Tensor] | None, ...]:
        return grad, None, [grad]

    one, nothing, several = ops.first_order(backward)(None, torch.ones(2))
    assert nothing is None and one.requires_grad and several[0].requires_grad
    with torch.no_grad():
        assert not ops.first_order(backward)(None, torch.ones(2))[0].requires_grad
