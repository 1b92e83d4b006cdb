"""Every native convolution in the ways that torch trains: the layers' memory above all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from pyg_batchgnn import CscGraph, MacrobatchSampler, SampledMinibatch, SamplingPlan, nn, ops
from pyg_batchgnn.nn import RowView, Update
from tests.support.accuracy import distance
from tests.support.layer_cases import FEATURES, batch_cases, layer_edges, table

UPDATE = Update(relu=True, drop=0.5)
MAKERS: dict[str, Callable[..., Any]] = {
    "SAGEConv": lambda a, b: nn.SAGEConv(a, b),
    "GCNConv": lambda a, b: nn.GCNConv(a, b),
    "GINConv": lambda a, b: nn.GINConv(nn.Linear(a, b), train_eps=True),
    "GATConv": lambda a, b: nn.GATConv(a, b // 2, heads=2, dropout=0.2),
    "GATv2Conv": lambda a, b: nn.GATv2Conv(a, b // 2, heads=2, dropout=0.2),
    "TransformerConv": lambda a, b: nn.TransformerConv(a, b // 2, heads=2, beta=True, dropout=0.2),
}
each_layer = pytest.mark.parametrize("name", MAKERS)


class Stack(torch.nn.Module):
    def __init__(self, name: str, hidden: int = 8) -> None:
        super().__init__()
        torch.manual_seed(1)
        widths = [(FEATURES, hidden), (hidden, hidden), (hidden, 4)]
        self.convs = torch.nn.ModuleList(MAKERS[name](a, b) for a, b in widths)

    def forward(self, minibatch: SampledMinibatch, features: Tensor) -> Tensor:
        x: Any = RowView(features, minibatch.node)
        for layer, conv in enumerate(self.convs, start=1):
            x = conv(x, minibatch, layer, update=UPDATE if layer < 3 else None)
        return x


def backward(module: torch.nn.Module, out: Tensor) -> list[Tensor]:
    module.zero_grad()
    out.float().square().sum().backward()
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def epoch() -> list[SampledMinibatch]:
    generator = torch.Generator().manual_seed(4)
    graph = CscGraph.from_edge_index(torch.randint(60, (2, 500), generator=generator), 60)
    seeds = [torch.randperm(60, generator=generator)[:size] for size in (3, 30, 7, 1, 20)]
    return MacrobatchSampler(graph, SamplingPlan((4, 3, 2)), seed=5).sample(seeds, 0)


@each_layer
def test_backwards_in_any_order_and_forwards_that_are_abandoned(name: str) -> None:
    stack, batches = Stack(name), epoch()
    wanted = [backward(stack, stack(minibatch, table())) for minibatch in batches]
    outs = [stack(minibatch, table()) for minibatch in batches]
    stack(batches[1], table())  # nobody's
    for place in (2, 0, 4):
        assert equal(backward(stack, outs[place]), wanted[place])


@each_layer
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_recompute_the_same(name: str, reentrant: bool) -> None:
    stack, minibatch = Stack(name), batch_cases()["ordinary"]
    x = RowView(table(), minibatch.node)

    def forward(recomputed: bool) -> Tensor:
        first = stack.convs[0](x, minibatch, 1, update=UPDATE)
        if not recomputed:
            return stack.convs[1](first, minibatch, 2, update=UPDATE)

        def second(first: Tensor) -> Tensor:
            return stack.convs[1](first, minibatch, 2, update=UPDATE)

        return checkpoint(second, first, use_reentrant=reentrant)

    wanted, found = forward(False), forward(True)
    assert torch.equal(found, wanted) and equal(backward(stack, found), backward(stack, wanted))


@each_layer
def test_layers_in_bfloat16(name: str) -> None:
    stack, minibatch = Stack(name), batch_cases()["ordinary"]
    wanted = stack(minibatch, table())
    stack.bfloat16()
    found = stack(minibatch, table(torch.bfloat16))
    assert found.dtype is torch.bfloat16 and distance(found, wanted) < 0.05
    assert all(grad.dtype is torch.bfloat16 for grad in backward(stack, found))


def test_overwriting_what_a_backward_needs_is_an_error() -> None:
    minibatch = batch_cases()["ordinary"]
    conv = nn.SAGEConv(FEATURES, 4)
    x = table()[minibatch.node].requires_grad_() * 1.0
    out = conv(x, minibatch, 1)
    x.mul_(2.0)  # the product with the targets' own rows reads it once more
    with pytest.raises(RuntimeError, match=r"modified.*inplace"):
        out.sum().backward()


@each_layer
def test_input_gradients_reach_what_made_the_input(name: str) -> None:
    """An embedding before the first layer, and a leaf of more rows than the layer reads."""
    minibatch = batch_cases()["ordinary"]
    _, sources, _ = layer_edges(minibatch, 2)
    conv = MAKERS[name](FEATURES, 4)
    x = table()[minibatch.node].requires_grad_()
    (found,) = torch.autograd.grad(conv(x, minibatch, 2).square().sum(), x)
    head = x[:sources].detach().requires_grad_()
    (wanted,) = torch.autograd.grad(conv(head, minibatch, 2).square().sum(), head)
    assert torch.equal(found[:sources], wanted) and not found[sources:].any()


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@each_layer
@pytest.mark.usefixtures("process_group")
def test_distributed_data_parallel(name: str) -> None:
    stack, batches = Stack(name), epoch()
    wanted = [backward(stack, stack(minibatch, table())) for minibatch in batches]
    parallel = DistributedDataParallel(stack)
    for minibatch, grads in zip(batches, wanted, strict=True):
        assert equal(backward(parallel, parallel(minibatch, table())), grads)


@each_layer
def test_the_steady_state_asks_the_system_for_no_memory(name: str) -> None:
    stack, batches = Stack(name), epoch()
    ops.empty_cache()

    def one_epoch() -> None:
        for minibatch in batches:
            backward(stack, stack(minibatch, table()))

    one_epoch()
    one_epoch()
    gc.collect()
    before = ops.memory_stats().system_calls
    for _ in range(3):
        one_epoch()
    assert ops.memory_stats().system_calls == before
