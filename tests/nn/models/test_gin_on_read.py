"""GIN whose layers normalise what they read, beside GIN that writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pyg_batchgnn import Minibatch, nn, ops
from pyg_batchgnn.nn import norm as norm_module
from pyg_batchgnn.nn.inputs import NormedRows
from pyg_batchgnn.nn.models import LayerEdges
from tests.support.layer_cases import FEATURES, table
from tests.support.model_pairs import (
    CLASSES,
    HIDDEN,
    cases,
    larger,
    same_start,
    step_gradients,
    with_features,
)

CASES = cases()


class WritingGIN(nn.GIN):
    """Overrides what follows a layer, so every layer's values are written."""

    def compute(self, *arguments: Any) -> Tensor:
        return super().compute(*arguments)


@pytest.fixture(autouse=True)
def _few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm_module, "MANY_ROWS", 2)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each product that a layer normalised while it read it."""
    seen: list[int] = []
    real = ops.aggregate_normed

    def spy(product: Tensor, columns: Tensor, indptr: Tensor, indices: Tensor, **options: Any) -> Tensor:
        if indices.numel():  # not the last hidden rows, which are written out
            seen.append(product.size(0))
        return real(product, columns, indptr, indices, **options)

    monkeypatch.setattr(ops, "aggregate_normed", spy)
    return seen


def pair(layers: int = 3, **options: Any) -> tuple[nn.GIN, nn.GIN]:
    """Returns two models of the same weights; one leaves values to the next layer."""
    torch.manual_seed(5)
    options = {"norm": "batch_norm", "inner_channels": HIDDEN, **options}
    one = nn.GIN(FEATURES, HIDDEN, layers, CLASSES, **options)
    other = WritingGIN(FEATURES, HIDDEN, layers, CLASSES, **options)
    other.load_state_dict(one.state_dict())
    return one, other


def assert_near(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Compares to a part of the largest gradient: some gradients of biases are only rounding."""
    scale = max(float(grad.abs().max()) for grad in wanted.values())
    for name, grad in found.items():
        assert float((grad - wanted[name]).abs().max()) <= 2e-6 * scale, name


def assert_same_step(one: nn.GIN, other: nn.GIN, *source: Any) -> None:
    """Values to the bit; of the gradients, columns are summed in other blocks."""
    found, wanted = one.outputs(*source), other.outputs(*source)
    assert torch.equal(found.logits, wanted.logits) and torch.equal(found.hidden, wanted.hidden)
    weight = torch.linspace(0.5, 1.0, found.hidden.size(1))  # hidden rows may be part of a loss
    mixed = [torch.cat([got.logits, got.hidden * weight], dim=1) for got in (found, wanted)]
    assert_near(step_gradients(one, mixed[0]), step_gradients(other, mixed[1]))
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.parametrize("jk", [None, "last"])
@pytest.mark.parametrize("case", CASES)
def test_same_step(case: str, jk: str | None) -> None:
    assert_same_step(*pair(jk=jk), with_features(CASES[case]))


def test_every_layer_but_the_first_normalises_what_it_reads(reads: list[int]) -> None:
    minibatch = larger()
    assert_same_step(*pair(), minibatch)
    nodes = minibatch.nodes_per_hop
    assert reads == [sum(nodes[:3]), sum(nodes[:2])]


def test_gradients_arrive_with_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    real = ops.GradientSums.take

    def spy(self: ops.GradientSums, grad: Tensor) -> Tensor | None:
        sums = real(self, grad)
        taken.append(sums is not None)
        return sums

    monkeypatch.setattr(ops.GradientSums, "take", spy)
    (one, other), minibatch = pair(), larger()
    assert_near(step_gradients(one, one(minibatch)), step_gradients(other, other(minibatch)))
    assert taken == [True, True]
    logits, hidden = one.outputs(minibatch)
    step_gradients(one, torch.cat([logits, hidden], dim=1))
    assert taken == [True, True, False, True]  # two gradients of the last hidden rows were added up


@pytest.mark.parametrize("layers", [1, 2])
def test_fewer_layers(layers: int, reads: list[int]) -> None:
    x = table()
    edges = torch.randint(60, (2, 300))
    assert_same_step(*pair(layers), x, edges)
    assert len(reads) == layers - 1


def test_a_graph_held_whole(reads: list[int]) -> None:
    assert_same_step(*pair(), table(), torch.randint(60, (2, 300)))
    assert reads == [60, 60]


def test_a_learned_epsilon_gets_its_gradient(reads: list[int]) -> None:
    models = pair()
    for model in models:
        model.convs[1].eps = torch.nn.Parameter(torch.tensor([0.2]))
    assert_same_step(*models, larger())
    assert len(reads) == 1


def test_a_checkpoint_recomputes_it() -> None:
    one, _ = pair()
    other, minibatch = same_start(one), larger()
    found = checkpoint(one, minibatch, use_reentrant=False)
    grads = step_gradients(other, other(minibatch))
    for name, grad in step_gradients(one, found).items():
        assert torch.equal(grad, grads[name]), name


def test_forwards_without_backwards_and_backwards_in_any_order() -> None:
    one, other = pair()
    batches = [larger(epoch) for epoch in range(3)]
    outs, wanted = [one(batch) for batch in batches], [other(batch) for batch in batches]
    for at in (2, 0):
        assert_near(step_gradients(one, outs[at]), step_gradients(other, wanted[at]))


@pytest.mark.parametrize(
    ("where", "others"),
    [
        (lambda model: model.convs[0], 1),
        (lambda model: model.convs[0].nn, 1),
        (lambda model: model.convs[0].nn.lins[1], 1),
        (lambda model: model.norms[0], 1),
        (lambda model: model.norms[0].module, 1),
        (lambda model: model.convs[1], 0),
    ],
)
def test_who_watches_sees_tensors(
    where: Callable[[nn.GIN], torch.nn.Module], others: int, reads: list[int]
) -> None:
    one, other = pair()
    seen: list[Any] = []

    def watch(_: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        seen.extend([*inputs, output])

    for model in (one, other):
        where(model).register_forward_hook(watch)
    minibatch = larger()
    assert_same_step(one, other, minibatch)
    assert len(reads) == others  # layers that nobody watches
    assert seen and not any(isinstance(value, NormedRows) for value in seen)


def test_who_watches_all_modules_sees_tensors(reads: list[int]) -> None:
    one, _ = pair()
    seen: list[Any] = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *call: seen.append(call[-1]))
    try:
        one(larger())
    finally:
        handle.remove()
    assert len(seen) > 10 and not any(isinstance(value, NormedRows) for value in seen)
    assert not reads


def test_a_forward_of_an_instances_own_sees_tensors(reads: list[int]) -> None:
    one, other = pair()
    seen: list[Any] = []
    for model in (one, other):
        conv = model.convs[1]
        real = conv.forward
        conv.forward = lambda x, *args, real=real, **options: seen.append(x) or real(x, *args, **options)
    assert_same_step(one, other, larger())
    assert seen and not any(isinstance(value, NormedRows) for value in seen)
    assert not reads


def test_who_computes_a_layer_alone_gets_a_tensor(reads: list[int]) -> None:
    model, _ = pair()
    minibatch = larger()
    x = model.compute(0, nn.RowView(minibatch.block["x"], minibatch.node), LayerEdges(minibatch, 1))
    assert (
        isinstance(x, Tensor)
        and isinstance(model.compute(1, x, LayerEdges(minibatch, 2)), Tensor)
        and not reads
    )


def evaluated(model: nn.GIN, minibatch: Minibatch) -> Tensor:
    return model.eval()(minibatch)


def in_bfloat16(model: nn.GIN, minibatch: Minibatch) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(minibatch)


def in_float64(model: nn.GIN, minibatch: Minibatch) -> Tensor:
    return model.double()(minibatch)


@pytest.mark.parametrize("run", [evaluated, in_bfloat16, in_float64])
def test_written_where_it_is_not_float32_in_training(
    run: Callable[[nn.GIN, Minibatch], Tensor], reads: list[int]
) -> None:
    one, other = pair()
    minibatch = larger()
    assert torch.equal(run(one, minibatch), run(other, minibatch)) and not reads


def test_training_without_gradients(reads: list[int]) -> None:
    one, other = pair()
    with torch.no_grad():
        assert torch.equal(one(larger()), other(larger()))
    assert len(reads) == 2
