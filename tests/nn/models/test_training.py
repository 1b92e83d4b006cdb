"""Native models in training: bits, dropout, and torch's own tools around them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn import CscGraph, MacrobatchSampler, Minibatch, SamplingPlan, nn
from tests.support.accuracy import distance
from tests.support.layer_cases import FEATURES, sampled, table
from tests.support.model_pairs import KINDS, larger, native, with_features


@functools.cache
def wide_batches() -> list[Minibatch]:
    """Two minibatches of a random graph of 20,000 nodes."""
    generator = torch.Generator().manual_seed(3)
    graph = CscGraph.from_edge_index(torch.randint(20_000, (2, 300_000), generator=generator), 20_000)
    features = torch.randn(20_000, FEATURES, generator=generator)
    sampler = MacrobatchSampler(graph, SamplingPlan((10, 10, 5)), seed=1)
    found = sampler.sample([torch.arange(200), torch.arange(200, 400)], 0)
    assert min(batch.num_nodes for batch in found) > 15_000
    return [Minibatch.in_place(batch, {"x": features}) for batch in found]


def train(
    model: nn.NativeModel, steps: int, batch_of: Callable[[int], Minibatch] = larger
) -> dict[str, Tensor]:
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        batch = batch_of(step)
        optimiser.zero_grad()
        F.cross_entropy(model(batch), batch.node[: batch.batch_size] % 5).backward()
        optimiser.step()
    grads = {f"{name}.grad": one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {**model.state_dict(), **grads}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_on_any_number_of_threads(kind: str, precision: str) -> None:
    """Minibatches of 17,000 rows, more than one block of every kernel."""
    start = native(kind, drop=0.5)
    batches = wide_batches()

    def run(threads: int) -> dict[str, Tensor]:
        torch.set_num_threads(threads)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return train(copy.deepcopy(start), 2, lambda step: batches[step])

    once = run(1)
    for threads in (2, 3, 4, 8, 16):
        again = run(threads)
        assert all(torch.equal(value, again[name]) for name, value in once.items())


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_what_rounding_explains(kind: str) -> None:
    model = native(kind)
    batch = larger()
    wanted = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(batch)
    assert found.dtype is torch.float32
    found.square().sum().backward()
    assert all(one.grad is not None and one.grad.dtype is torch.float32 for one in model.parameters())
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for one in rounded.parameters():
            one.copy_(one.bfloat16())
    noise = distance(rounded(batch, x=table()[batch.node].bfloat16().float()), wanted)
    assert 0 < distance(found, wanted) < max(8 * noise, 2**-5)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda model: model(sampled([1, 2], (3, 3, 3))), ValueError, ["no features 'x'", "x="]),
        (
            lambda model: model(with_features(sampled([1, 2], (3, 3)))),
            ValueError,
            ["3 layers", "2", "num_neighbors"],
        ),
        (lambda model: model(larger(), torch.zeros(2, 1).long()), TypeError, ["own edges"]),
        (lambda model: model(larger(), x=table()[: larger().num_nodes, :5]), ValueError, ["12", "5"]),
        (lambda model: model(larger(), edge_weight=torch.ones(1)), TypeError, ["SAGE", "edge_weight"]),
        (
            lambda _: nn.SAGE(12, 16, 5, 3)(larger()),  # the order of other libraries
            ValueError,
            ["5 layers", "num_layers=5", "out_channels=3", "SAGE(in_channels, hidden_channels, num_layers"],
        ),
        (lambda _: nn.GAT(12, 18, 2, 5, heads=4), ValueError, ["18", "multiple", "4"]),
    ],
)
def test_refused(call: Callable[[Any], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call(native("sage"))
    assert all(word in str(caught.value) for word in words), caught.value
