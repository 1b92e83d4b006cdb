"""torch.func and forward-mode differentiation: native layers refuse them, accelerated ones leave
them to PyG."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.autograd import forward_ad

from pyg_batchgnn import accelerate, nn, ops

X, EDGES = torch.randn(4, 5), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
Model = Callable[[Tensor, Tensor], Tensor]


def dual(model: Model) -> Tensor:
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(model(forward_ad.make_dual(X, X), EDGES)).tangent
    assert tangent is not None
    return tangent


def of_parameters(model: Any) -> Tensor:
    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, parameters, (X, EDGES)).square().sum()

    found = torch.func.grad(loss)(dict(model.named_parameters()))
    return torch.cat([one.flatten() for one in found.values()])


TRANSFORMS: dict[str, Callable[[Any], Tensor]] = {
    "grad": of_parameters,
    "jvp": lambda model: torch.func.jvp(lambda x: model(x, EDGES), (X,), (X,))[1],
    "jacfwd": lambda model: torch.func.jacfwd(lambda x: model(x, EDGES).sum(0))(X),
    "jacrev": lambda model: torch.func.jacrev(lambda x: model(x, EDGES).sum(0))(X),
    "vmap": lambda model: torch.func.vmap(lambda x: model(x, EDGES))(torch.stack([X, X])),
    "dual numbers": dual,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GIN])
def test_accelerated_models_are_pygs_there(kind: type[torch.nn.Module], transform: str) -> None:
    reference = kind(5, 8, 2, 3).eval()
    ours = accelerate(copy.deepcopy(reference))
    wanted = TRANSFORMS[transform](reference)
    assert torch.allclose(TRANSFORMS[transform](ours), wanted, atol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", [nn.SAGE, nn.GCN, nn.GIN, nn.GAT])
def test_native_models_refuse(kind: type[nn.NativeModel], transform: str) -> None:
    model = kind(5, 8, 2, 3).eval()
    with pytest.raises(ValueError, match=r"Conv does not support transforms of torch\.func"):
        TRANSFORMS[transform](model)
    parameters = {name: 2 * value for name, value in model.named_parameters()}
    assert torch.func.functional_call(model, parameters, (X, EDGES)).shape == (4, 3)


@pytest.mark.parametrize("transform", [one for one in TRANSFORMS if one != "grad"])
def test_operators_refuse(transform: str) -> None:
    weight = torch.randn(3, 5)
    for operator in (lambda x, _: ops.linear([x], [weight]), lambda x, _: ops.activate(x * 1, relu=True)):
        with pytest.raises(RuntimeError, match=r"is transformed by torch\.func"):
            TRANSFORMS[transform](operator)
