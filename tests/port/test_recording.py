"""A ``forward`` is recorded only where the graph holds for other batches; results stay the same."""

from __future__ import annotations

import copy
import linecache
import math
import random
import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.port import accelerate
from tests.support.ported_models import GRAPH
from tests.support.ranks import run_ranks
from tests.support.recorded_models import (
    as_data,
    assert_close,
    assert_recorded,
    assert_trimmed,
    batches,
    compare,
    compare_plain_calls,
    found_in,
    gradients,
    pair,
)

#: What a model does with the rows between its convolutions: of the model, the input and the rows.
Middle = Callable[[Any, Tensor, Tensor], Tensor]
FEATURES, HIDDEN, CLASSES = 6, 8, 5


class Net(torch.nn.Module):
    """Two convolutions with something between them."""

    def __init__(self, middle: Middle) -> None:
        super().__init__()
        self.first = pyg.SAGEConv(FEATURES, HIDDEN)
        self.second = pyg.SAGEConv(HIDDEN, CLASSES)
        self.register_buffer("table", torch.linspace(0, 1, HIDDEN))
        self.register_buffer("average", torch.zeros(HIDDEN))
        self.alpha, self.held, self.seen = 0.5, {"rate": 0.5}, []
        self.middle = middle

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index)
        h = self.middle(self, x, h)
        return self.second(h, edge_index)


# Refused ##########################################################################################

OUTSIDE = torch.linspace(0, 1, HIDDEN, dtype=torch.float64)
HOLDER = type("Holder", (), {"table": OUTSIDE})()


def truth(model: Any, x: Tensor, h: Tensor) -> Tensor:
    if h.sum() > 0:  # refused
        return h * 2
    return h


def item(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h / (1 + h.abs().max().item())  # refused


def as_float(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * float(h.mean())  # refused


def length(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h / len(h)  # refused


def iterated(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return torch.stack([row * 2 for row in h])  # refused


def iterated_later(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """The number of rows is not known before the second batch."""
    return torch.stack([row * 2 for row in h.roll(1, 0)])  # refused


def as_numpy(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * float(h.detach().numpy().max())  # refused


def as_array(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * float(np.asarray(h.detach()).max())  # refused


def as_list(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * h[0].tolist()[0]  # refused


def masked(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + torch.masked_select(h, h > 0).mean()  # refused


def normal(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + torch.randn(h.size(0), HIDDEN).to(h)  # refused


def noise(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + torch.randn_like(h)  # refused


def permuted(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + h[torch.randperm(h.size(0))]  # refused


def drawn_by_method(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + h.detach().clone().uniform_()  # refused


def gumbel(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return F.gumbel_softmax(h)  # refused


def zeros(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return torch.cat([h, torch.zeros(h.size(0), 0).to(h)], dim=-1)  # refused


def new_ones(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + h.new_ones(HIDDEN)  # refused


def made(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * torch.tensor([0.5]).to(h)  # refused


def numbers(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + torch.arange(h.size(0)).view(-1, 1)  # refused


def asked_for_gradients(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h.detach().requires_grad_() + h  # refused


def without_gradients(model: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():  # refused
        scale = h.abs().amax(dim=1, keepdim=True)
    return h / (1 + scale)


def in_inference_mode(model: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.inference_mode():
        scale = x.abs() * 2  # refused
    return h + scale.sum().clone()


def in_bfloat16(model: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return h * 2 + 1  # refused


def checkpointed(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return checkpoint(lambda rows: rows.tanh() * 2, h, use_reentrant=False)  # refused


def keeps_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.last = h.detach()  # refused
    return h


def counts_calls(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.alpha += 0.25  # refused
    return h * model.alpha


def keeps_average(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.average = model.average * 0.5 + h.detach().mean(dim=0)  # refused
    return h - model.average


def average_in_place(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.average.mul_(0.5).add_(h.detach().mean(dim=0))  # refused
    return h - model.average


def writes_held(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.held["rows"] = model.held["rate"] * 2
    return h * model.held["rows"]


def appends(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.seen.append(len(model.seen))
    return h * len(model.seen)


def draws_from_python(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * random.random()


def draws_from_numpy(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * float(np.random.rand())


def halved(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h[: h.size(0) // 2].sum() + h  # refused


def root_of_size(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h / math.sqrt(h.size(0))  # refused


def share_of_size(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * (1 / h.shape[0])  # refused


def size_as_int(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h / int(h.size(0))  # refused


def elements(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * (h.numel() % 7)  # refused


def from_outside(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * OUTSIDE  # refused


def from_another_object(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * HOLDER.table  # refused


def adds_to_input(model: Any, x: Tensor, h: Tensor) -> Tensor:
    x += 1.0  # refused
    return h + x.sum(dim=1, keepdim=True)


def doubles_input(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + x.mul_(2.0).sum(dim=1, keepdim=True)  # refused


def writes_to_view_of_input(model: Any, x: Tensor, h: Tensor) -> Tensor:
    x[:, :2].add_(1.0)  # refused
    return h + x.sum(dim=1, keepdim=True)


def clamps_input_by_function(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + F.elu(x, inplace=True).sum(dim=1, keepdim=True)  # refused


def sets_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h.clone()
    h[0] = 0.0  # refused
    return h


def writes_to_view(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h * 2
    left = h[:, :4]
    left.relu_()  # refused
    return h + 1


def reads_view_of_written(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h * 2
    left = h[:, :4]
    h.relu_()  # refused
    return h + left.sum(dim=1, keepdim=True)


def writes_result(model: Any, x: Tensor, h: Tensor) -> Tensor:
    other = h.detach().clone()
    torch.mul(h.detach(), 2.0, out=other)  # refused
    return h + other


REFUSED: dict[Middle, str] = {
    truth: "asks for the truth of a tensor",
    item: "reads values of a tensor",
    as_float: "reads values of a tensor",
    length: "takes the length of a tensor",
    iterated: r"takes a tensor apart row by row \(unbind\)",
    iterated_later: "another number of tensors for this batch",
    as_numpy: "reads values of a tensor",
    as_array: "reads values of a tensor",
    as_list: "reads values of a tensor",
    masked: "reads values of a tensor",
    normal: "randn makes a tensor that is no input",
    noise: "randn_like makes a tensor that is no input",
    permuted: "randperm makes a tensor that is no input",
    drawn_by_method: "uniform_ writes to a tensor|uniform_ draws random numbers",
    gumbel: "gumbel_softmax draws random numbers",
    zeros: "zeros makes a tensor",
    new_ones: "new_ones makes a tensor",
    made: "tensor makes a tensor",
    numbers: "arange makes a tensor",
    asked_for_gradients: "requires_grad_ writes to a tensor",
    without_gradients: "switches gradients",
    in_inference_mode: "switches gradients",
    in_bfloat16: "enters or leaves autocast",
    checkpointed: "uses gradient checkpointing",
    keeps_rows: r"writes to self\.last",
    counts_calls: r"writes to self\.alpha",
    keeps_average: r"writes to self\.average",
    average_in_place: "writes to an input or a parameter",
    writes_held: r"writes to self\.held",
    appends: r"writes to self\.seen",
    draws_from_python: "random numbers from the generator of Python or NumPy",
    draws_from_numpy: "random numbers from the generator of Python or NumPy",
    halved: "computes with the number of rows",
    root_of_size: "computes with the number of rows",
    share_of_size: "computes with the number of rows",
    size_as_int: "computes with the number of rows",
    elements: "reads the number of elements",
    from_outside: "neither an input nor a parameter",
    from_another_object: "neither an input nor a parameter",
    adds_to_input: "writes to an input or a parameter",
    doubles_input: "writes to an input or a parameter",
    writes_to_view_of_input: "writes to an input or a parameter",
    clamps_input_by_function: "writes to an input or a parameter",
    sets_rows: "writes to a tensor",
    writes_to_view: "shares memory with another one",
    reads_view_of_written: "shares memory with another one",
    writes_result: "writes to a tensor",
}
#: Those that change the batch, and so what gradients need.
CHANGING = {adds_to_input, doubles_input, writes_to_view_of_input, clamps_input_by_function}


@pytest.mark.parametrize("middle", REFUSED, ids=lambda one: one.__name__)
def test_what_does_not_hold_for_other_batches_is_refused(middle: Middle) -> None:
    """The results and what is left behind are those of the plain model."""
    ours, plain = pair(Net(middle))
    for batch in batches():
        batch = batch.clone()
        other = batch.clone()
        outputs = []
        for model, one in ((ours, batch), (plain, other)):
            torch.manual_seed(1)
            random.seed(1)
            np.random.seed(1)
            outputs.append(model(one) if model is ours else model(one.x, one.edge_index)[: one.batch_size])
        found, wanted = outputs
        assert_close(found, wanted)
        if middle not in CHANGING:
            assert_close(gradients(ours, found), gradients(plain, wanted))
        assert torch.equal(batch.x, other.x)
        assert (ours.alpha, ours.held, ours.seen) == (plain.alpha, plain.held, plain.seen)
        assert torch.allclose(ours.average, plain.average, rtol=1e-12)
    found_now = found_in(ours)
    assert found_now.graphs == [] and len(found_now.reasons) == 1
    (reason,) = found_now.reasons
    assert re.search(REFUSED[middle], reason), reason
    place = re.search(r"\(test_recording\.py:(\d+)\)", reason)
    assert place is not None, reason
    line = linecache.getline(__file__, int(place[1]))
    assert "# refused" in line or middle in WITHOUT_LINE, line


#: Those of which the reason names the ``forward`` alone.
WITHOUT_LINE = {writes_held, appends, draws_from_python, draws_from_numpy}


# Recorded #########################################################################################


def relu_in_place(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h.relu_()
    return h


def relu_by_option(model: Any, x: Tensor, h: Tensor) -> Tensor:
    F.relu(h, inplace=True)
    return F.leaky_relu(h - 0.1, 0.2, True)


def added_in_place(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h * 1
    h += model.skip(x)
    h *= 0.5
    return h.add_(1.0)


def alias_of_written(model: Any, x: Tensor, h: Tensor) -> Tensor:
    before = h
    F.elu_(h)
    return h + before


def modules_in_place(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """The sum reads what a module overwrites, and the product is computed before."""
    before = h
    product = model.square(h)
    h = model.elu(h)
    h = model.relu(h - 0.1) + product
    return h + model.square(before)


def types_and_presence(model: Any, x: Tensor, h: Tensor) -> Tensor:
    if isinstance(h, Tensor) and h.dim() == 2 and h.dtype.is_floating_point and x is not h:
        return h * 2
    return torch.zeros(3)


def sizes_compared(model: Any, x: Tensor, h: Tensor) -> Tensor:
    if h.size(0) > 100 and h.shape[1] == HIDDEN:
        return h.tanh()
    return h.sigmoid()


def shapes_compared(model: Any, x: Tensor, h: Tensor) -> Tensor:
    assert x.shape[0] == h.shape[0] and h.shape != x.shape
    return h.tanh()


def reshaped(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h.view(-1, 2, HIDDEN // 2).tanh()
    h = h.reshape(h.size(0), HIDDEN).view(h.shape[0], 2, -1)
    return h.flatten(1) + h.mean(dim=1).repeat(1, 2)


def reshaped_to_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return (h.view(-1, 2) * 2).view(-1, HIDDEN)


def columns(model: Any, x: Tensor, h: Tensor) -> Tensor:
    left, right = h.chunk(2, dim=-1)
    a, b = h.split([3, 5], dim=1)
    one, *_ = h.unbind(1)
    h = torch.cat([left, right, a, b[:, :1], h[:, 2:3], h[..., -1:], one.unsqueeze(1)], dim=-1)
    return h[:, [0, 2, 4, 6, 8, 10, 12, 13]] + h[:, -1, None]


def softmaxes(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h.softmax(-1) + F.log_softmax(h, dim=1) + F.normalize(h) + h / h.norm(dim=-1, keepdim=True)


def parameters_and_buffers(model: Any, x: Tensor, h: Tensor) -> Tensor:
    gate = torch.sigmoid(model.table * 2).unsqueeze(0)
    return torch.where(h > 0, h * gate, -h) + torch.maximum(h, model.table)


def products(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h @ model.square.weight + F.linear(x, model.skip.weight, model.skip.bias)


def stacked(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return torch.stack([h, h.relu(), model.skip(x)], dim=1).max(dim=1)[0] + torch.stack([h, h], -1).sum(-1)


def skipped_if_unused(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.square(h)
    return h


def softmax_over_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h.softmax(0) + h


def mean_of_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h - h.mean(dim=0)


def mean_by_size(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h - h.sum(dim=0) / h.shape[0]


def number_of_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h / h.size(0)


def others(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + h.flip(0) + h.cumsum(0) + h.roll(1, 0) + h.sort(dim=0)[0]


def tuples_of_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    left, right = h[: h.size(0) - 1], h[1:]
    return torch.cat([left + right, h[-1:]])


def transposed(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return (h.t() * model.table.unsqueeze(1)).T + torch.einsum("ij,j->ij", h, model.table)


def first_row(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h + h[0] + h[:1] + h.select(0, 1)


def broadcast_of_one_row(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """A value of one row for each node meets a row for all."""
    return h + h.sum(dim=1)[:HIDDEN] + h.amax(dim=0, keepdim=True)


def summed_over_everything(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h / (1 + h.abs().sum()) + h.max()


#: Those that compute the rows of the seeds, and those that compute all rows.
BY_ROW: list[Middle] = [
    relu_in_place, relu_by_option, added_in_place, alias_of_written, modules_in_place, types_and_presence,
    shapes_compared, reshaped, columns, softmaxes, parameters_and_buffers, products, stacked,
    skipped_if_unused, number_of_rows,
]  # fmt: skip
#: With the hops of the convolutions: the second one is over the rows of the nodes or over others.
WHOLE: dict[Middle, list[int]] = {
    **dict.fromkeys((softmax_over_rows, mean_of_rows, mean_by_size, first_row), [2, 0]),
    **dict.fromkeys((summed_over_everything, broadcast_of_one_row), [2, 0]),
    **dict.fromkeys((others, tuples_of_rows, transposed, reshaped_to_rows), [2]),
}


class Fuller(Net):
    """A `Net` with more layers for its middle."""

    def __init__(self, middle: Middle) -> None:
        super().__init__(middle)
        self.skip, self.square = torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)
        self.elu, self.relu = torch.nn.ELU(inplace=True), torch.nn.ReLU(inplace=True)


@pytest.mark.parametrize("middle", [*BY_ROW, *WHOLE], ids=lambda one: one.__name__)
def test_operations_on_rows(middle: Middle) -> None:
    torch.set_grad_enabled(middle is not modules_in_place)  # torch cannot differentiate it
    ours, plain = pair(Fuller(middle))
    compare(ours, plain)
    if middle in BY_ROW:
        assert_trimmed(ours, [1, 0])
    else:
        assert found_in(ours).reasons == [] and found_in(ours).notes
        assert found_in(ours).hops == [WHOLE[middle]]
    compare_plain_calls(ours, plain)
    assert found_in(ours).reasons == []
    ours, plain = pair(Fuller(middle), torch.float32)
    compare(ours, plain, batches(dtype=torch.float32), tolerance=1e-4)


def test_sizes_that_are_compared_choose_another_graph() -> None:
    ours, plain = pair(Net(sizes_compared))
    sizes = {batch.num_nodes > 100 for batch in batches()}
    assert sizes == {True, False}
    compare(ours, plain)
    assert found_in(ours).reasons == []


# Arguments and attributes #########################################################################


class Options(torch.nn.Module):
    """A model whose ``forward`` looks at attributes and arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([pyg.GCNConv(FEATURES, HIDDEN), pyg.GCNConv(HIDDEN, CLASSES)])
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(HIDDEN)])
        self.alpha, self.act, self.rates, self.option = 0.5, "relu", [0.5, 2.0], SimpleNamespace(scale=1.0)
        self.uses_norm, self.head = True, None

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, power: int = 1
    ) -> Tensor:
        x = x**power
        for number, conv in enumerate(self.convs):
            x = conv(x, edge_index, edge_weight) if edge_weight is not None else conv(x, edge_index)
            if number < len(self.convs) - 1:
                x = self.norms[number](x) if self.uses_norm else x
                x = getattr(x, self.act)() * self.alpha * self.rates[1] * self.option.scale
        return x if self.head is None else self.head(x)


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


def _alpha(model: Any) -> None:
    model.alpha = 2.0


def _act(model: Any) -> None:
    model.act = "tanh"


def _rates(model: Any) -> None:
    model.rates[1] = 3.0


def _option(model: Any) -> None:
    model.option.scale = 3.0


def _norm_off(model: Any) -> None:
    model.uses_norm = False


def _head(model: Any) -> None:
    torch.manual_seed(9)
    model.head = torch.nn.Linear(CLASSES, 3).double()


def _norm(model: Any) -> None:
    model.norms[0] = torch.nn.LayerNorm(HIDDEN, eps=0.5).double()


def _graph_norm(model: Any) -> None:
    model.norms[0] = pyg.GraphNorm(HIDDEN).double()


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


def _option_of_conv(model: Any) -> None:
    model.convs[0].add_self_loops = False


def _eps(model: Any) -> None:
    model.norms[0].eps = 0.5


def _weights(model: Any) -> None:
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.5)


def _other_parameter(model: Any) -> None:
    model.norms[0].weight = torch.nn.Parameter(torch.full((HIDDEN,), 3.0, dtype=torch.float64))


def _no_bias(model: Any) -> None:
    model.norms[0].bias = None


def _frozen(model: Any) -> None:
    model.norms[0].requires_grad_(False)


def _forward_of_instance(model: Any) -> None:
    model.norms[0].forward = lambda x: x * 3


def _forward_of_model(model: Any) -> None:
    kind = type(model)
    model.forward = lambda *args, **kwargs: 2 * kind.forward(model, *args, **kwargs)


def _hook(model: Any) -> None:
    model.norms[0].register_forward_hook(lambda module, args, output: output * 3)


def _pre_hook_of_conv(model: Any) -> None:
    model.convs[1].register_forward_pre_hook(lambda module, args: (args[0] * 3, *args[1:]))


def _hook_of_model(model: Any) -> None:
    model.register_forward_hook(lambda module, args, output: output * 3)


def _parametrized(model: Any) -> None:
    torch.manual_seed(9)
    parametrizations.weight_norm(model.convs[0].lin)
    with torch.no_grad():
        model.convs[0].lin.parametrizations.weight.original0.mul_(2.0)


CHANGES = [
    _alpha, _act, _rates, _option, _norm_off, _head, _norm, _graph_norm, _conv, _another_conv, _longer,
    _option_of_conv, _eps, _weights, _other_parameter, _no_bias, _frozen, _forward_of_instance,
    _forward_of_model, _hook, _pre_hook_of_conv, _hook_of_model, _parametrized,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_a_change_between_calls_acts_as_on_the_plain_model(change: Callable[[Any], None]) -> None:
    ours, plain = pair(Options())
    compare(ours, plain)
    assert_recorded(ours)
    before = ours(batches()[0])
    for model in (ours, plain):
        change(model)
    compare(ours, plain)
    compare_plain_calls(ours, plain)
    changed = ours(batches()[0])
    assert changed.shape != before.shape or change is _frozen or not torch.allclose(changed, before)


def test_a_change_back_finds_the_first_graph() -> None:
    ours, plain = pair(Options())
    for alpha in (0.5, 2.0, 0.5, 2.0):
        ours.alpha = plain.alpha = alpha
        compare(ours, plain)
    assert_recorded(ours, 2)


def test_a_function_in_the_place_of_one_that_is_gone_is_another_one() -> None:
    """It may have the address of the first one."""
    ours, plain = pair(Net(relu_in_place))
    for power in range(1, 6):
        for model in (ours, plain):
            model.middle = None
            model.middle = lambda model, x, h, power=power: h.tanh() ** power
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


# Dropout ##########################################################################################


class Dropped(torch.nn.Module):
    """Rows that are one, and what dropouts make of them."""

    def __init__(self, drops: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(FEATURES, 64, aggr="sum", bias=False)
        torch.nn.init.zeros_(self.conv.lin_l.weight)
        torch.nn.init.zeros_(self.conv.lin_r.weight)
        self.last, self.first = torch.nn.Dropout(0.5), torch.nn.Dropout(0.25)
        self.p, self.drops = 0.5, drops

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.drops(self, self.conv(x, edge_index) + 1)


def _kept(rows: Tensor) -> float:
    """The share that is kept."""
    return float((rows.detach() != 0).double().mean())


def _near(share: float, expected: float) -> bool:
    return abs(share - expected) < 0.08


def dropped(ours: torch.nn.Module) -> Any:
    """Returns what comes out for all seeds."""
    found = [ours(batch) for batch in batches(dtype=torch.float32)]
    if isinstance(found[0], Tensor):
        return torch.cat(found)
    return tuple(map(torch.cat, zip(*found, strict=True)))


def dropping(drops: Callable[[Any, Tensor], Any]) -> Any:
    torch.manual_seed(0)
    return accelerate(Dropped(drops)).train()


def test_rates_of_dropout_are_those_of_now() -> None:
    ours = dropping(lambda model, h: F.dropout(h, p=model.p, training=model.training))
    for p in (0.5, 0.2, 0.8, 0.0):
        ours.p = p
        assert _near(_kept(dropped(ours)), 1 - p)
    ours.p = 0.5
    assert torch.equal(dropped(ours.eval()), torch.ones_like(dropped(ours)))
    ours = dropping(lambda model, h: model.last(h))
    for p in (0.5, 0.2, 0.8, 0.0):
        ours.last.p = p
        assert _near(_kept(dropped(ours)), 1 - p)
    ours.last.p = 0.5
    ours.last.eval()
    assert _kept(dropped(ours)) == 1.0
    assert found_in(ours).reasons == []


@pytest.mark.parametrize("training", [False, True])
def test_dropout_in_evaluation_drops_where_it_was_asked_to(training: bool) -> None:
    for drops in (
        lambda model, h: F.dropout(h, 0.5, training=True),
        lambda model, h: F.dropout(h, 0.5),
        lambda model, h: torch.dropout(h, 0.5, True),
        lambda model, h: F.dropout(h, 0.5, True, inplace=True).relu(),
    ):
        ours = dropping(drops).train(training)
        one, other = dropped(ours), dropped(ours)
        assert _near(_kept(one), 0.5) and not torch.equal(one, other)
        assert found_in(ours).reasons == []


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_two_dropouts_of_a_layer_are_independent(export: str) -> None:
    def twice(model: Any, h: Tensor) -> Any:
        return (
            F.dropout(h, 0.5, model.training),
            model.last(h),
            F.dropout(model.first(h), 1 / 3, model.training),
        )

    ours = dropping(twice)
    given = batches(dtype=torch.float32, export=export)
    outputs = [torch.cat(rows) for rows in zip(*(ours(batch) for batch in given), strict=True)]
    a, b, c = (rows != 0 for rows in outputs)
    assert all(torch.allclose(rows[rows != 0], torch.tensor(2.0), atol=1e-3) for rows in outputs)
    for one, other in ((a, b), (a, c), (b, c)):
        assert _near(float((one & other).double().mean()), 0.25)
    again = [torch.cat(rows) for rows in zip(*(ours(batch) for batch in given), strict=True)]
    assert not any(map(torch.equal, outputs, again))
    torch.manual_seed(5)
    one = ours(given[0])
    torch.manual_seed(5)
    assert all(map(torch.equal, one, ours(given[0])))


def test_rows_before_a_dropout_are_not_those_after_it() -> None:
    def beside(model: Any, h: Tensor) -> Any:
        first, second = model.last(h), F.dropout(h, 0.5, model.training)
        return h, first, second, model.last(first.relu_()), h * 2

    ours = dropping(beside)
    before, first, second, twice, after = dropped(ours)
    assert _kept(before) == _kept(after) == 1.0 and torch.equal(after, 2 * before)
    assert _near(_kept(first), 0.5) and _near(_kept(second), 0.5) and _near(_kept(twice), 0.25)


def test_gradients_of_dropout_are_those_of_what_was_kept() -> None:
    ours = dropping(lambda model, h: F.dropout(h, 0.5, model.training) * model.scale)
    ours.scale = torch.nn.Parameter(torch.ones(64))
    for batch in batches(dtype=torch.float32):
        out = ours(batch)
        (found,) = torch.autograd.grad(out.sum(), [ours.scale], retain_graph=True)
        assert torch.allclose(found, out.detach().sum(dim=0))
        (found,) = torch.autograd.grad(out.sum(), [ours.conv.lin_r.weight])
        assert torch.allclose(found, out.detach().t() @ batch.x[: batch.batch_size], atol=1e-4)


def test_dropout_is_no_part_of_a_comparison() -> None:
    """The first calls compare with plain ones, and leave generators as they were."""
    ours = dropping(lambda model, h: F.dropout(h, 0.5, model.training))
    (first, *_) = batches(dtype=torch.float32)
    torch.manual_seed(3)
    one = ours(first)
    torch.manual_seed(3)
    assert torch.equal(one, ours(first))


# Parts of a model #################################################################################


class Scaled(torch.nn.Module):
    """A part in whose ``forward`` recording fails."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x) / (1.0 + x.detach().abs().max().item())


class Nested(torch.nn.Module):
    """Parts in parts, one of which fails, and one that is called twice."""

    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.body = Net(lambda model, x, h: h.relu())
        self.part, self.conv = part, pyg.SAGEConv(CLASSES, HIDDEN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        h = self.conv(self.body(x, edge_index), edge_index)
        return {"rows": self.part(h), "others": (h, self.part(h.relu())), "none": None, "rate": 0.5}


def test_a_part_that_cannot_be_recorded_is_one_step() -> None:
    ours, plain = pair(Nested(Scaled()))
    compare(ours, plain)
    found = found_in(ours)
    assert found.reasons == [] and len(found.graphs) == 1
    assert any("reads values" in note for note in found.graphs[0].recording.notes.values())
    assert found.graphs[0].recording.inlined == ["body"]
    compare_plain_calls_of_dicts(ours, plain)


def compare_plain_calls_of_dicts(ours: Any, plain: Any) -> None:
    for batch in batches():
        found, wanted = (model(batch.x, batch.edge_index) for model in (ours, plain))
        assert_close(found, wanted)
        assert_close(gradients(ours, found), gradients(plain, wanted))


class WritesInside(torch.nn.Module):
    """A part that cannot be recorded, and writes to its input."""

    def forward(self, x: Tensor) -> Tensor:
        scale = x.detach().abs().max().item()
        return x.mul_(0.5) / (1 + scale)


class Keeps(torch.nn.Module):
    """A part that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.log = 0, SimpleNamespace(seen=[])

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.log.seen.append(self.calls)
        return x * self.calls


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(WritesInside, "part writes to what it is called with"), (Keeps, r"writes to part\.(calls|log)")],
)
def test_a_part_that_writes_leaves_the_model_as_it_is(kind: type[torch.nn.Module], reason: str) -> None:
    torch.set_grad_enabled(False)
    ours, plain = pair(Nested(kind()))
    compare(ours, plain)
    (found,) = found_in(ours).reasons
    assert re.search(reason, found) and "(test_recording.py:" in found
    if kind is Keeps:
        assert (ours.part.calls, ours.part.log.seen) == (plain.part.calls, plain.part.log.seen)


class Shared(torch.nn.Module):
    """Two layers of one convolution, norm and linear layer."""

    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.conv = torch.nn.Linear(FEATURES, HIDDEN), conv
        self.norm, self.lin = torch.nn.LayerNorm(HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)
        self.again = self.lin

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(3):
            x = x + self.lin(self.norm(self.conv(x, edge_index)).relu()) + self.again(x)
        return x


@pytest.mark.parametrize("kind", [pyg.SAGEConv, pyg.GCNConv, pyg.GATConv, pyg.GraphConv])
def test_layers_that_share_weights(kind: type[torch.nn.Module]) -> None:
    ours, plain = pair(Shared(kind(HIDDEN, HIDDEN)))
    compare(ours, plain)
    assert_trimmed(ours, [2, 1, 0])
    compare_plain_calls(ours, plain)
    compare(ours, plain, batches(fanouts=(3, 2, 2)))
    assert_trimmed(ours)


class TakesData(torch.nn.Module):
    """A ``forward`` that takes the batch itself."""

    def __init__(self, cuts: bool = False) -> None:
        super().__init__()
        self.conv = pyg.GINEConv(torch.nn.Linear(FEATURES, CLASSES), edge_dim=3)
        self.plain, self.cuts = pyg.SAGEConv(FEATURES, CLASSES), cuts

    def forward(self, data: Any, scale: float = 1.0) -> Tensor:
        if hasattr(data, "edge_attr") and "edge_attr" in data:
            x = self.conv(data.x, data.edge_index, data.edge_attr)
        else:
            x = self.plain(data.x, data.edge_index)
        return (x[: data.batch_size] if self.cuts else x) * scale


def without_attributes() -> list[Any]:
    found = [batch.clone() for batch in batches()]
    for batch in found:
        del batch.edge_attr
    return found


@pytest.mark.parametrize("rows", [None, "seeds"])
@pytest.mark.parametrize("cuts", [False, True])
def test_a_forward_that_takes_the_batch(rows: str | None, cuts: bool) -> None:
    ours, plain = pair(TakesData(cuts), rows=rows)
    for given in (batches(), without_attributes()):
        for batch in given:
            keys = list(batch.keys())
            found, wanted = ours(batch), plain(batch)
            wanted = wanted[: batch.batch_size] if rows == "seeds" else wanted
            assert_close(found, wanted)
            assert_close(gradients(ours, found), gradients(plain, wanted))
            assert_close(ours(batch, scale=2.0), 2 * wanted)
            assert list(batch.keys()) == keys
    assert_recorded(ours, 4)
    if rows or cuts:
        assert all(one == [0] for one in found_in(ours).hops)


# Batches ##########################################################################################


def test_native_batches_and_those_of_pyg_share_a_graph() -> None:
    ours, plain = pair(Options())
    for one, other in zip(batches(), batches(export="native"), strict=True):
        for given in (one, other):
            found, wanted = ours(given), plain(one.x, one.edge_index)[: one.batch_size]
            assert_close(found, wanted)
            assert_close(gradients(ours, found), gradients(plain, wanted))
    assert len(found_in(ours).graphs) <= 2 and found_in(ours).reasons == []


def test_batches_of_worker_processes() -> None:
    ours, plain = pair(Options())
    compare(ours, plain, batches(num_workers=1))
    assert_trimmed(ours, [1, 0])


def _batch(seeds: list[int], fanouts: Sequence[int] = (4, 3)) -> Any:
    loader = MacrobatchNeighborLoader(GRAPH, list(fanouts), torch.tensor(seeds), batch_size=100, seed=1)
    (batch,) = loader
    return batch


ODD = {
    "isolated": lambda: _batch([190, 199, 185]),
    "one isolated": lambda: _batch([190]),
    "duplicates": lambda: _batch([3, 3, 5, 3]),
    "all neighbours": lambda: _batch([1, 2], (-1, -1)),
    "no neighbours": lambda: _batch([1, 2], (0, 3)),
    "many hops": lambda: _batch([1, 2], (2, 1, 1, 1)),
    "one hop": lambda: _batch([1, 2], (2,)),
    "empty": lambda: as_data(GRAPH.x[:0], torch.empty(2, 0, dtype=torch.int64), [0, 0, 0], [0, 0]),
    "without counts": lambda: Data(x=GRAPH.x, edge_index=GRAPH.edge_index, batch_size=4),
    "wrong counts": lambda: as_data(GRAPH.x, GRAPH.edge_index, [4, 100, 96], [700, 870]),
    "induced": lambda: next(iter(_induced())),
    "bidirectional": lambda: next(iter(_induced("bidirectional"))),
    "disjoint": lambda: next(iter(_induced("directional", disjoint=True))),
}


def _induced(kind: str = "induced", **options: Any) -> Any:
    return MacrobatchNeighborLoader(
        GRAPH, [4, 3], torch.arange(9), batch_size=9, seed=1, subgraph_type=kind, **options
    )


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_odd_batches(name: str, first: bool) -> None:
    ours, plain = pair(Options())
    if not first:
        compare(ours, plain)
    batch = ODD[name]()
    compare(ours, plain, [batch])
    found, wanted = (model(batch.x, batch.edge_index) for model in (ours, plain))
    assert_close(found, wanted)
    assert_close(gradients(ours, found), gradients(plain, wanted))
    compare(ours, plain)
    assert found_in(ours).reasons == []


def test_rows_of_other_widths_and_types() -> None:
    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.conv = torch.nn.Embedding(200, 4), pyg.SAGEConv(4, 3)

        def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.table(n_id), edge_index)

    ours, plain = pair(Wide())
    compare(ours, plain, call=lambda model, batch: model(batch.n_id, batch.edge_index))
    assert_trimmed(ours, [0])
    compare_native = [ours(batch) for batch in batches(export="native")]
    for found, batch in zip(compare_native, batches(), strict=True):
        assert_close(found, plain(batch.n_id, batch.edge_index)[: batch.batch_size])


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_features_that_take_gradients(export: str) -> None:
    ours, plain = pair(Options())
    for batch in batches():
        batch = batch.clone()
        batch.x.requires_grad_()
        found, wanted = ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(gradients(ours, found, [batch.x]), gradients(plain, wanted, [batch.x]))


# What surrounds a model ###########################################################################


def test_copies_and_files(tmp_path: Path) -> None:
    ours, plain = pair(Options())
    keys = list(plain.state_dict())
    for when in ("before the first call", "after it"):
        assert list(ours.state_dict()) == keys, when
        torch.save(ours, tmp_path / "model")
        others = [copy.deepcopy(ours), torch.load(tmp_path / "model", weights_only=False), copy.copy(ours)]
        fresh = accelerate(Options().double())
        fresh.load_state_dict(ours.state_dict())
        for other in (*others, fresh):
            assert isinstance(other, Options) and type(other) is type(ours)
            compare(other, plain)
            assert_trimmed(other)
        with torch.no_grad():
            others[0].norms[0].weight.zero_()
        compare(ours, plain)


def test_a_compiled_or_traced_model_runs_pygs_code() -> None:
    ours, plain = pair(Options())
    (first, *_) = batches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(ours, (first.x, first.edge_index), check_trace=False)
    for batch in batches():
        assert_close(traced(batch.x, batch.edge_index), plain(batch.x, batch.edge_index))
    compiled = torch.compile(ours, backend="eager")
    assert_close(compiled(first.x, first.edge_index), plain(first.x, first.edge_index))
    symbolic = torch.fx.symbolic_trace(copy.deepcopy(ours), concrete_args={"edge_weight": None, "power": 1})
    assert_close(symbolic(first.x, first.edge_index), plain(first.x, first.edge_index))
    assert found_in(ours).graphs == []
    compare(ours, plain)


def test_a_part_of_another_model_is_recorded_alone() -> None:
    """A module of Lightning, or one like it, calls the accelerated model."""

    class Task(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any, **named: Any) -> Any:
            return self.model(*given, **named)

        def training_step(self, batch: Any) -> Tensor:
            return self(batch).square().mean()

    inner, plain = pair(Options())
    task = Task(inner)
    compare(task, plain)
    assert task.training_step(batches()[0]).requires_grad
    assert_trimmed(inner, [1, 0])
    whole = accelerate(Task(Options().double()))
    whole.model.load_state_dict(plain.state_dict())
    for batch in batches():
        found = whole(batch.x, batch.edge_index)
        assert_close(found, plain(batch.x, batch.edge_index))


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_autocast_in_bfloat16(export: str) -> None:
    torch.manual_seed(0)
    ours, plain = pair(Options(), torch.float32)
    for batch, given in zip(
        batches(dtype=torch.float32), batches(dtype=torch.float32, export=export), strict=True
    ):
        exact = plain(batch.x, batch.edge_index)[: batch.batch_size]
        with torch.autocast("cpu", torch.bfloat16):
            found, wanted = ours(given), plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(found.float(), wanted.float(), 5e-2)
        rough = gradients(ours, found)
        assert all(
            map(torch.allclose, rough.values(), gradients(plain, exact).values(), repeat(0.2), repeat(1.0))
        )
        assert_close(ours(given), exact, 1e-4)
    assert_recorded(ours, 2 if export == "pyg" else len(found_in(ours).graphs))


def test_checkpoints_around_a_call() -> None:
    ours, plain = pair(Options())
    for batch in batches():
        found = checkpoint(ours, batch.x, batch.edge_index, use_reentrant=False)
        assert_close(gradients(ours, found), gradients(plain, plain(batch.x, batch.edge_index)))
        found = checkpoint(lambda given: ours(given), batch, use_reentrant=False)
        wanted = plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(gradients(ours, found), gradients(plain, wanted))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    ours, _ = pair(Options(), torch.float32)
    ours.uses_norm = False  # gradients of torch's LayerNorm have other bits, in plain models as well
    outcomes = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found = [ours(batch) for batch in batches(dtype=torch.float32)]
        grads = [one for out in found for one in gradients(ours, out).values()]
        outcomes.append([*found, *grads])
    assert all(all(map(torch.equal, outcomes[0], other)) for other in outcomes[1:])


def test_threads_that_call_one_model() -> None:
    ours, plain = pair(Options())
    given = batches() * 4
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(ours, given))
    for one, batch in zip(found, given, strict=True):
        assert_close(one, plain(batch.x, batch.edge_index)[: batch.batch_size])


def test_gradients_that_are_off_have_a_graph_of_their_own() -> None:
    ours, plain = pair(Options())
    for context in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        for batch in batches():
            with context():
                found, wanted = ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size]
            assert_close(found, wanted)
            assert found.requires_grad == wanted.requires_grad
            if wanted.requires_grad:
                assert_close(gradients(ours, found), gradients(plain, wanted))


def test_training_learns_what_the_plain_model_learns() -> None:
    ours, plain = pair(Options())
    for model in (ours, plain):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(3):
            for batch in batches():
                out = model(batch) if model is ours else model(batch.x, batch.edge_index)[: batch.batch_size]
                optimizer.zero_grad()
                out.square().mean().backward()
                optimizer.step()
    assert_close(dict(ours.named_parameters()), dict(plain.named_parameters()), 1e-6)


def test_data_parallel_ranks_with_the_hook_of_a_communicator() -> None:
    run_ranks("tests.port.job_recording:gradients_are_means", 2, timeout=120)


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


def test_what_a_layer_writes_to_itself_is_no_reason_against_a_graph() -> None:
    """Its real calls write it. What the model writes to a layer is one."""

    class Conv(pyg.GraphConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out = super().forward(x, edge_index) * getattr(self, "scale", 1.0)
            self.largest = out.detach().max()
            return out

    class Net(torch.nn.Module):
        def __init__(self, writes: bool) -> None:
            super().__init__()
            self.conv, self.writes, self.calls = Conv(FEATURES, CLASSES), writes, torch.nn.Identity()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            if self.writes:
                self.conv.scale = 2.0 + x.size(1)
            return self.conv(x, edge_index)

    ours, plain = pair(Net(writes=False))
    compare(ours, plain)
    assert_recorded(ours)
    assert torch.allclose(ours.conv.largest, plain.conv.largest)
    ours, plain = pair(Net(writes=True))
    compare(ours, plain)
    assert found_in(ours).graphs == [] and "writes to conv.scale" in found_in(ours).reasons[0]
