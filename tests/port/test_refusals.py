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

OUTSIDE = torch.linspace(0, 1, HIDDEN, dtype=torch.float64)
HOLDER = type("Holder", (), {"table": OUTSIDE})()


def truth(model: Any, x: Tensor, h: Tensor) -> Tensor:
    if h.sum() > 0:  # refused
        return h * 2
    return h


def iterated_later(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """The number of rows is not known before the second batch."""
    return torch.stack([row * 2 for row in h.roll(1, 0)])  # refused


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


def adds_to_input(model: Any, x: Tensor, h: Tensor) -> Tensor:
    x += 1.0  # refused
    return h + x.sum(dim=1, keepdim=True)


def writes_to_view_of_input(model: Any, x: Tensor, h: Tensor) -> Tensor:
    x[:, :2].add_(1.0)  # refused
    return h + x.sum(dim=1, keepdim=True)


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


#: By name, what a model does between its layers, and why that is refused.
REFUSED: dict[str, tuple[Middle, str]] = {
    "truth": (truth, "asks for the truth of a tensor"),
    "item": (lambda _, __, h: h / (1 + h.abs().max().item()), "reads values of a tensor"),
    "as float": (lambda _, __, h: h * float(h.mean()), "reads values of a tensor"),
    "length": (lambda _, __, h: h / len(h), "takes the length of a tensor"),
    "iterated": (
        lambda _, __, h: torch.stack([row * 2 for row in h]),
        r"takes a tensor apart row by row \(unbind\)",
    ),
    "iterated later": (iterated_later, "another number of tensors for this batch"),
    "as numpy": (lambda _, __, h: h * float(h.detach().numpy().max()), "reads values of a tensor"),
    "as array": (lambda _, __, h: h * float(np.asarray(h.detach()).max()), "reads values of a tensor"),
    "as list": (lambda _, __, h: h * h[0].tolist()[0], "reads values of a tensor"),
    "masked": (lambda _, __, h: h + torch.masked_select(h, h > 0).mean(), "reads values of a tensor"),
    "normal": (
        lambda _, __, h: h + torch.randn(h.size(0), HIDDEN).to(h),
        "randn makes a tensor that is no input",
    ),
    "noise": (lambda _, __, h: h + torch.randn_like(h), "randn_like makes a tensor that is no input"),
    "permuted": (
        lambda _, __, h: h + h[torch.randperm(h.size(0))],
        "randperm makes a tensor that is no input",
    ),
    "drawn by method": (
        lambda _, __, h: h + h.detach().clone().uniform_(),
        "uniform_ writes to a tensor|uniform_ draws random numbers",
    ),
    "gumbel": (lambda _, __, h: F.gumbel_softmax(h), "gumbel_softmax draws random numbers"),
    "zeros": (
        lambda _, __, h: torch.cat([h, torch.zeros(h.size(0), 0).to(h)], dim=-1),
        "zeros makes a tensor",
    ),
    "new ones": (lambda _, __, h: h + h.new_ones(HIDDEN), "new_ones makes a tensor"),
    "made": (lambda _, __, h: h * torch.tensor([0.5]).to(h), "tensor makes a tensor"),
    "numbers": (lambda _, __, h: h + torch.arange(h.size(0)).view(-1, 1), "arange makes a tensor"),
    "asked for gradients": (
        lambda _, __, h: h.detach().requires_grad_() + h,
        "requires_grad_ writes to a tensor",
    ),
    "without gradients": (without_gradients, "switches gradients"),
    "in inference mode": (in_inference_mode, "switches gradients"),
    "in bfloat16": (in_bfloat16, "enters or leaves autocast"),
    "checkpointed": (
        lambda _, __, h: checkpoint(lambda rows: rows.tanh() * 2, h, use_reentrant=False),
        "uses gradient checkpointing",
    ),
    "keeps rows": (keeps_rows, r"writes to self\.last"),
    "counts calls": (counts_calls, r"writes to self\.alpha"),
    "keeps average": (keeps_average, r"writes to self\.average"),
    "average in place": (average_in_place, "writes to an input or a parameter"),
    "writes held": (writes_held, r"writes to self\.held"),
    "appends": (appends, r"writes to self\.seen"),
    "draws from python": (
        lambda _, __, h: h * random.random(),
        "random numbers from the generator of Python or NumPy",
    ),
    "draws from numpy": (
        lambda _, __, h: h * float(np.random.rand()),
        "random numbers from the generator of Python or NumPy",
    ),
    "halved": (lambda _, __, h: h[: h.size(0) // 2].sum() + h, "computes with the number of rows"),
    "root of size": (lambda _, __, h: h / math.sqrt(h.size(0)), "computes with the number of rows"),
    "share of size": (lambda _, __, h: h * (1 / h.shape[0]), "computes with the number of rows"),
    "size as int": (lambda _, __, h: h / int(h.size(0)), "computes with the number of rows"),
    "elements": (lambda _, __, h: h * (h.numel() % 7), "reads the number of elements"),
    "from outside": (lambda _, __, h: h * OUTSIDE, "neither an input nor a parameter"),
    "from another object": (lambda _, __, h: h * HOLDER.table, "neither an input nor a parameter"),
    "adds to input": (adds_to_input, "writes to an input or a parameter"),
    "doubles input": (
        lambda _, x, h: h + x.mul_(2.0).sum(dim=1, keepdim=True),
        "writes to an input or a parameter",
    ),
    "writes to view of input": (writes_to_view_of_input, "writes to an input or a parameter"),
    "clamps input by function": (
        lambda _, x, h: h + F.elu(x, inplace=True).sum(dim=1, keepdim=True),
        "writes to an input or a parameter",
    ),
    "sets rows": (sets_rows, "writes to a tensor"),
    "writes to view": (writes_to_view, "shares memory with another one"),
    "reads view of written": (reads_view_of_written, "shares memory with another one"),
    "writes result": (writes_result, "writes to a tensor"),
}
#: Those that change the batch, and so what gradients need.
CHANGING = {"adds to input", "doubles input", "writes to view of input", "clamps input by function"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_hold_for_other_batches_is_refused(name: str) -> None:
    """The results and what is left behind are those of the plain model."""
    middle, why = REFUSED[name]
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
        if name not in CHANGING:
            assert_close(gradients(ours, found), gradients(plain, wanted))
        assert torch.equal(batch.x, other.x)
        assert (ours.alpha, ours.held, ours.seen) == (plain.alpha, plain.held, plain.seen)
        assert torch.allclose(ours.average, plain.average, rtol=1e-12)
    found_now = found_in(ours)
    assert found_now.graphs == [] and len(found_now.reasons) == 1
    (reason,) = found_now.reasons
    assert re.search(why, reason), reason
    place = re.search(r"\((\w+\.py):(\d+)\)", reason)
    assert place is not None, reason
    if name in WITHOUT_LINE:
        assert place[1] == "recorded_models.py"
    else:
        line = int(place[2])
        assert place[1] == Path(__file__).name
        assert line in {number for *_, number in middle.__code__.co_lines()}
        assert middle.__name__ == "<lambda>" or "# refused" in linecache.getline(__file__, line)


#: Those of which the reason names the ``forward`` alone.
WITHOUT_LINE = {"writes held", "appends", "draws from python", "draws from numpy"}
