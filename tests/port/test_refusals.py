"""A forward that does not hold for other batches is refused, and changes nothing."""

from __future__ import annotations

import linecache
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tests.support.recorded_models import (
    HIDDEN,
    Middle,
    Net,
    assert_close,
    batches,
    found_in,
    gradients,
    pair,
)

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
    place = re.search(r"\((\w+\.py):(\d+)\)", reason)
    assert place is not None, reason
    if middle in WITHOUT_LINE:
        assert place[1] == "recorded_models.py"
    else:
        assert place[1] == Path(__file__).name and "# refused" in linecache.getline(__file__, int(place[2]))


#: Those of which the reason names the ``forward`` alone.
WITHOUT_LINE = {writes_held, appends, draws_from_python, draws_from_numpy}
