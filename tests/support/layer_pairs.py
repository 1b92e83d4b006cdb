"""A layer of ours and the same one of PyG's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import SampledMinibatch
from pyg_batchgnn.nn import Update
from tests.support.accuracy import assert_as_pygs
from tests.support.layer_cases import layer_edges, table


def both(ours: type, pygs: type, *arguments: Any, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Both with the same parameters, which went from ours into PyG's and back."""
    torch.manual_seed(3)
    one, other = ours(*arguments, **options).to(dtype), pygs(*arguments, **options).to(dtype)
    other.load_state_dict(one.state_dict())
    one.load_state_dict(other.state_dict())
    for parameter in (*one.parameters(), *other.parameters()):
        if parameter.dim() == 1:  # biases begin at zero, where they prove little
            parameter.data.copy_(torch.linspace(-0.5, 0.5, parameter.numel()))
    return one, other


def gradients(module: torch.nn.Module, out: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Returns the gradients of a weighted sum of the output, for parameters and inputs."""
    weights = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [*module.parameters(), *inputs]
    found = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True, materialize_grads=True)
    return list(found)


def assert_attention_as_pygs(
    ours: Any, pygs: Any, minibatch: SampledMinibatch, layers: Sequence[int]
) -> None:
    """Fails unless a layer with attention gives what PyG's gives on layers of a minibatch.

    Edges have attributes where the layer takes them.
    """
    dtype = next(ours.parameters()).dtype
    attributes = []
    if ours.edge_dim is not None:
        attributes = [torch.randn(minibatch.num_edges, ours.edge_dim, dtype=dtype)]
    for layer in layers:
        edges, sources, targets = layer_edges(minibatch, layer)

        def on_minibatch(conv: Any, x: Tensor, *attr: Tensor, layer: int = layer) -> Tensor:
            return conv(x, minibatch, layer, edge_attr=attr[0] if attr else None)

        def on_edges(
            conv: Any, x: Tensor, *attr: Tensor, edges: Tensor = edges, targets: int = targets
        ) -> Tensor:
            return conv((x, x[:targets]), edges, attr[0][: edges.size(1)] if attr else None)

        rows = table(dtype)[minibatch.node[:sources]]
        assert_as_pygs(ours, pygs, on_minibatch, on_edges, rows, *attributes)


def assert_updates(conv: Any, minibatch: SampledMinibatch) -> None:
    """Fails unless a layer's update is ReLU and keyed dropout of what it gives without one."""
    x = table()[minibatch.node]
    relu, dropping = Update(relu=True), Update(relu=True, drop=0.5)
    plain = conv(x, minibatch, 1)
    assert torch.equal(conv(x, minibatch, 1, update=relu), plain.relu())
    dropped = conv(x, minibatch, 1, update=dropping)
    assert torch.equal(dropped, conv(x, minibatch, 1, update=dropping))
    kept = dropped != 0
    assert torch.equal(dropped[kept], plain.relu()[kept] * 2) and 0.05 < float(kept.float().mean()) < 0.6
    conv.eval()
    assert torch.equal(conv(x, minibatch, 1, update=dropping), plain.relu())
