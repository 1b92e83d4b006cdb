"""A graph holds as long as arguments and attributes are as they were."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.utils import parametrizations

from tests.support.ported_models import CLASSES, FEATURES
from tests.support.recorded_models import (
    HIDDEN,
    Net,
    Options,
    assert_close,
    assert_recorded,
    assert_trimmed,
    batches,
    compare,
    compare_plain_calls,
    found_in,
    pair,
)


def test_arguments_that_are_none_or_numbers_have_graphs_of_their_own() -> None:
    ours, plain = pair(Options())
    compare(ours, plain)
    compare(ours, plain, call=lambda model, batch: model(batch.x, batch.edge_index, power=2), power=2)
    for batch in batches():
        weight = batch.edge_weight
        weighted = lambda model, one: model(one.x, one.edge_index, one.edge_weight)  # noqa: E731
        compare(ours, plain, [batch], weighted, edge_weight=weight)
    compare(ours, plain)
    compare_plain_calls(ours, plain)
    assert_recorded(ours, 3)
    for batch in batches():
        options = {"edge_weight": batch.edge_weight, "power": 3}
        found, wanted = (model(batch.x, batch.edge_index, **options) for model in (ours, plain))
        assert_close(found, wanted)


def _head(model: Any) -> None:
    torch.manual_seed(9)
    model.head = torch.nn.Linear(CLASSES, 3).double()


def _conv(model: Any) -> None:
    torch.manual_seed(9)
    model.convs[1] = pyg.SAGEConv(HIDDEN, CLASSES).double()
    model.convs[1].forward = lambda x, edges, *_: pyg.SAGEConv.forward(model.convs[1], x, edges)


def _another_conv(model: Any) -> None:
    torch.manual_seed(9)
    model.convs[1] = pyg.GraphConv(HIDDEN, CLASSES).double()


def _longer(model: Any) -> None:
    torch.manual_seed(9)
    model.norms.append(torch.nn.LayerNorm(CLASSES).double())
    model.convs.append(pyg.GCNConv(CLASSES, CLASSES).double())


def _weights(model: Any) -> None:
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.5)


def _other_parameter(model: Any) -> None:
    model.norms[0].weight = torch.nn.Parameter(torch.full((HIDDEN,), 3.0, dtype=torch.float64))


def _forward_of_model(model: Any) -> None:
    kind = type(model)
    model.forward = lambda *args, **kwargs: 2 * kind.forward(model, *args, **kwargs)


def _parametrized(model: Any) -> None:
    torch.manual_seed(9)
    parametrizations.weight_norm(model.convs[0].lin)
    with torch.no_grad():
        model.convs[0].lin.parametrizations.weight.original0.mul_(2.0)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "alpha": lambda model: setattr(model, "alpha", 2.0),
    "act": lambda model: setattr(model, "act", "tanh"),
    "rates": lambda model: model.rates.__setitem__(1, 3.0),
    "option": lambda model: setattr(model.option, "scale", 3.0),
    "norm off": lambda model: setattr(model, "uses_norm", False),
    "head": _head,
    "norm": lambda model: model.norms.__setitem__(0, torch.nn.LayerNorm(HIDDEN, eps=0.5).double()),
    "graph norm": lambda model: model.norms.__setitem__(0, pyg.GraphNorm(HIDDEN).double()),
    "conv": _conv,
    "another conv": _another_conv,
    "longer": _longer,
    "option of conv": lambda model: setattr(model.convs[0], "add_self_loops", False),
    "eps": lambda model: setattr(model.norms[0], "eps", 0.5),
    "weights": _weights,
    "other parameter": _other_parameter,
    "no bias": lambda model: setattr(model.norms[0], "bias", None),
    "frozen": lambda model: model.norms[0].requires_grad_(False),
    "forward of instance": lambda model: setattr(model.norms[0], "forward", lambda x: x * 3),
    "forward of model": _forward_of_model,
    "hook": lambda model: model.norms[0].register_forward_hook(lambda *given: given[-1] * 3),
    "pre hook of conv": lambda model: model.convs[1].register_forward_pre_hook(
        lambda _, args: (args[0] * 3, *args[1:])
    ),
    "hook of model": lambda model: model.register_forward_hook(lambda *given: given[-1] * 3),
    "parametrized": _parametrized,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_calls_acts_as_on_the_plain_model(change: str) -> None:
    ours, plain = pair(Options())
    compare(ours, plain)
    assert_recorded(ours)
    before = ours(batches()[0])
    for model in (ours, plain):
        CHANGES[change](model)
    compare(ours, plain)
    compare_plain_calls(ours, plain)
    changed = ours(batches()[0])
    assert changed.shape != before.shape or change == "frozen" or not torch.allclose(changed, before)


def test_a_change_back_finds_the_first_graph() -> None:
    ours, plain = pair(Options())
    for alpha in (0.5, 2.0, 0.5, 2.0):
        ours.alpha = plain.alpha = alpha
        compare(ours, plain)
    assert_recorded(ours, 2)


def test_a_function_in_the_place_of_one_that_is_gone_is_another_one() -> None:
    """It may have the address of the first one."""
    ours, plain = pair(Net(lambda _, __, h: h))
    for power in range(1, 6):
        for model in (ours, plain):
            model.middle = None
            model.middle = lambda _, __, h, power=power: h.tanh() ** power
        compare(ours, plain, batches()[:1])
    assert_recorded(ours, 5)


def test_options_of_parts_that_make_them_look_at_all_rows_are_seen() -> None:
    ours, plain = pair(Parts())
    compare(ours, plain)
    assert_trimmed(ours, [1, 0])
    for model in (ours, plain):
        model.soft.dim, model.norm.mode = 0, "graph"
    compare(ours, plain)
    for model in (ours, plain):
        model.conv.flow = "target_to_source"
    compare(ours, plain)
    for model in (ours, plain):
        model.conv.flow = "source_to_target"
        model.gin.nn[1] = pyg.PairNorm()
    compare(ours, plain)
    assert_recorded(ours, 4)


class Parts(torch.nn.Module):
    """A model of parts whose options say which rows they look at."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv(FEATURES, HIDDEN)
        self.norm, self.soft = pyg.LayerNorm(HIDDEN, mode="node"), torch.nn.Softmax(dim=1)
        inner = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.LayerNorm(HIDDEN))
        self.gin = pyg.GINConv(inner)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gin(self.soft(self.norm(self.conv(x, edge_index))), edge_index)


def test_values_that_change_in_every_call_end_as_plain_calls() -> None:
    ours, plain = pair(Options())
    for number in range(30):
        ours.alpha = plain.alpha = 0.1 * number
        compare(ours, plain, batches()[:1])
    assert any("recorded 16 times" in one for one in found_in(ours).reasons)


def test_attributes_that_forward_does_not_read_change_nothing() -> None:
    ours, plain = pair(Options())
    ours.trainer = SimpleNamespace(model=ours, step=0, log={})
    ours.trainer.again = ours.trainer
    for step in range(20):
        ours.step = ours.trainer.step = step
        ours.trainer.log[step] = step
        compare(ours, plain, batches()[:1])
    assert_recorded(ours)


def test_attributes_of_the_class_and_missing_ones_are_seen() -> None:
    class Net(torch.nn.Module):
        power = 1

        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(FEATURES, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index) ** self.power * getattr(self, "scale", 1.0)

    ours, plain = pair(Net())
    compare(ours, plain)
    ours.scale = plain.scale = 3.0
    compare(ours, plain)
    Net.power = 2
    compare(ours, plain)
    assert_recorded(ours, 3)
