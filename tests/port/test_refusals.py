"""Whatever a ``forward`` does, its results, gradients and effects are those of the plain call, or a
warning says what is different."""

from __future__ import annotations

import abc
import collections
import copy
import functools
import itertools
import math
import os
import random
import re
import sys
import time
import types
import warnings
from collections import Counter as Counted
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tests.support.recorded_models import (
    HIDDEN,
    Middle,
    Net,
    assert_as_plain,
    assert_close,
    batches,
    found_in,
    gradients,
    pair,
    tensors,
)
from tests.support.tiers import in_all

OUTSIDE = torch.linspace(0, 1, HIDDEN, dtype=torch.float64)
#: What models write outside of themselves.
COUNTS: dict[str, Any] = {}
LOG: list[Any] = []
CALLS = 0
RANDOM = random.Random(1)
Acts: Any = type("Acts", (), {})


#: Attributes of models that calls do not write.
SETTINGS = {"middle", "functions", "steps"}


class Warmup:
    step = 0

    def next(self) -> float:
        self.step += 1
        return min(1.0, 0.25 * self.step)


class Kind(type):
    rate = 1.0


class OfKind(metaclass=Kind):
    def __init__(self, rate: float = 1.0) -> None:
        self.scale = rate


class Answers:
    def __class_getitem__(cls, _: Any) -> float:
        return float(COUNTS["rate"])


@functools.lru_cache(maxsize=1)
def remembered() -> float:
    return COUNTS["rate"]


class Rich(Net):
    calls = 0

    def __init__(self, middle: Middle) -> None:
        super().__init__(middle)
        self.args, self.warmup = SimpleNamespace(rate=0.5), Warmup()
        self.functions = [torch.tanh]
        self.rows = [torch.linspace(0.5, 1, HIDDEN, dtype=torch.float64)]
        self.steps = itertools.count(1)
        self.scales = torch.nn.Parameter(torch.zeros(HIDDEN))
        self.down = torch.nn.Parameter(torch.linspace(-1, 1, HIDDEN * 2).view(HIDDEN, 2))
        self.lazy, self.other = torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)
        self.norm, self.drop = torch.nn.LayerNorm(HIDDEN), torch.nn.Dropout(0.5)

    @property
    def tau(self) -> float:
        return self.alpha * 2


# Outcomes #########################################################################################


@dataclass(frozen=True)
class Case:
    """What a model does between its layers."""

    middle: Middle
    why: str | None = None  # words of the one warning where all rows are computed; None where none may come
    prepare: Callable[[Any], Any] = lambda _: None  # is called with the model before its calls
    #: is called with the model and the number of a call before each but the first
    change: Callable[[Any, int], Any] = lambda _, __: None


@dataclass(frozen=True)
class Step:
    output: Tensor
    gradients: dict[str, Tensor] | None
    x: Tensor
    effects: Any


def _reset() -> None:
    global CALLS
    COUNTS.clear()
    COUNTS.update(calls=0, rate=0.5)
    LOG.clear()
    CALLS = Rich.calls = 0
    RANDOM.seed(1)
    Acts.act = lambda _, h: h / 2
    Kind.rate, OfKind.__init__.__defaults__, Rich.__doc__ = 1.0, (1.0,), "a"
    vars(time).pop("of_tests", None)
    _put_module(None, 0)
    remembered.cache_clear()
    OUTSIDE.copy_(torch.linspace(0, 1, HIDDEN))
    os.environ.pop("BATCHGNN_TEST_RATE", None)


def _effects(model: Any) -> Any:
    own = {name: one for name, one in vars(model).items() if name not in SETTINGS and name[0] != "_"}
    own |= {"args": vars(model.args), "warmup": vars(model.warmup)}
    own |= {"of class": type(model).calls}
    own |= {name: one.detach() for name, one in (*model.named_buffers(), *model.named_parameters())}
    own |= {f"{name} takes gradients": one.requires_grad for name, one in model.named_parameters()}
    return copy.deepcopy((own, COUNTS, LOG, CALLS, OUTSIDE))


def _without_tensors(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return None
    if isinstance(tree, dict):
        return {name: _without_tensors(one) for name, one in tree.items()}
    return [_without_tensors(one) for one in tree] if isinstance(tree, (list, tuple)) else tree


def _steps(model: Any, case: Case, call: Callable[[Any, Any], Tensor], grads: bool = True) -> Iterator[Step]:
    _reset()
    case.prepare(model)
    for number, batch in enumerate(batches()):
        if number:
            case.change(model, number)
        batch = batch.clone()
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        output = call(model, batch)
        found = gradients(model, output) if grads else None
        yield Step(output.detach(), found, batch.x, _effects(model))


def _assert_same(found: Step, wanted: Step) -> None:
    assert_close(found.output, wanted.output)
    assert_close(found.gradients, wanted.gradients)
    assert torch.equal(found.x, wanted.x)
    assert _without_tensors(found.effects) == _without_tensors(wanted.effects)
    assert_close(tensors(found.effects), tensors(wanted.effects))


def _first_rows(model: Any, batch: Any) -> Tensor:
    return model(batch.x, batch.edge_index)[: batch.batch_size]


def _assert_right_or_said(case: Case, grads: bool = True) -> None:
    """Fails unless three calls do what the plain model does. The last one has fewer seeds."""
    ours, plain = pair(Rich(case.middle))
    said: list[str] = []

    def first_rows(model: Any, batch: Any) -> Tensor:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = model(batch)
        said.extend(str(one.message) for one in caught)
        if rows.size(0) != batch.batch_size:
            assert rows.size(0) == batch.num_nodes
            assert any("model(batch) returns all of them" in one for one in said), "no word of more rows"
        return rows[: batch.batch_size]

    steps = list(_steps(ours, case, first_rows, grads))
    for found, wanted in zip(steps, _steps(plain, case, _first_rows, grads), strict=True):
        _assert_same(found, wanted)
    reasons, plainly = found_in(ours).reasons, [one for one in said if "is called plainly" in one]
    assert len(plainly) == bool(reasons), (plainly, reasons)
    assert not plainly or (case.why is not None and re.search(case.why, plainly[0])), plainly


# What models do ###################################################################################


def truth(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * 2 if h.sum() > 0 else h


def without_gradients(model: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.no_grad():
        scale = h.abs().amax(dim=1, keepdim=True)
    return h / (1 + scale)


def in_bfloat16(model: Any, x: Tensor, h: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return h * 2 + 1


def keeps_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.last = h.detach()
    return h


def keeps_average(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.average = model.average * 0.5 + h.detach().mean(dim=0)
    return h - model.average


def average_in_place(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.average.mul_(0.5).add_(h.detach().mean(dim=0))
    return h - model.average


def appends_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.seen.append(h.detach().mean(dim=0))
    model.held["rows"] = h.detach()
    return h * model.seen[0]


def counts_global(model: Any, x: Tensor, h: Tensor) -> Tensor:
    global CALLS
    CALLS += 1
    return h * CALLS


def counts_in_class_of_model(model: Any, x: Tensor, h: Tensor) -> Tensor:
    type(model).calls += 1
    return h * model.calls * Rich.calls


def slides(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.window.append(len(model.window) + 1.0)
    return h * sum(model.window)


def counts_then_decides(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.alpha += 1
    COUNTS["calls"] += 1
    LOG.append(COUNTS["calls"])
    return h * COUNTS["calls"] if h.sum() > 0 else h


def catches_all(model: Any, x: Tensor, h: Tensor) -> Tensor:
    try:
        return h * h.sum().item()
    except Exception:
        return h * 0


def adds_to_input(model: Any, x: Tensor, h: Tensor) -> Tensor:
    x += 1.0
    return h + x.sum(dim=1, keepdim=True)


def sets_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h.clone()
    h[0] = 0.0
    return h


def writes_to_view(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h * 2
    left = h[:, :4]
    left.relu_()
    return h + 1


def writes_result(model: Any, x: Tensor, h: Tensor) -> Tensor:
    other = h.detach().clone()
    torch.mul(h.detach(), 2.0, out=other)
    return h + other


def freezes(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.down.requires_grad_(model.alpha > 1)
    return h + h @ model.down @ model.down.t()


def catches_key(model: Any, x: Tensor, h: Tensor) -> Tensor:
    try:
        return h * model.held["factor"]
    except KeyError:
        return h


def ties_weights(model: Any, x: Tensor, h: Tensor) -> Tensor:
    model.lazy.weight = model.other.weight
    return model.lazy(h)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, rate: float) -> Tensor:
        ctx.rate = rate
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return -ctx.rate * grad, None


def hooks_rows(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h * 1.0
    if h.requires_grad:
        h.register_hook(lambda grad: grad * 0.5)
    return h.tanh()


def _set(**values: tuple[Any, Any]) -> Callable[[Any, int], None]:
    def change(model: Any, number: int) -> None:
        for name, one in values.items():
            setattr(model, name, one[number - 1])

    return change


def _put_module(_: Any, number: int) -> None:
    sys.modules["batchgnn_test_rates"] = types.ModuleType("batchgnn_test_rates")
    sys.modules["batchgnn_test_rates"].rate = 1.0 + number  # type: ignore[attr-defined]


def imports(model: Any, x: Tensor, h: Tensor) -> Tensor:
    from batchgnn_test_rates import rate  # type: ignore[import-not-found]

    return h * rate  # type: ignore[no-any-return]


def _linear(weight: float) -> torch.nn.Module:
    made = torch.nn.Linear(HIDDEN, HIDDEN).double()
    torch.nn.init.constant_(made.weight, weight)
    torch.nn.init.zeros_(made.bias)
    return made


def _closure() -> Case:
    factor = 1.0

    def change(_: Any, number: float) -> None:
        nonlocal factor
        factor = 2.0 * number

    return Case(lambda _, __, h: h * factor, prepare=lambda _: change(_, 0.5), change=change)


CASES: dict[str, Case] = {
    "truth": Case(truth, why="Data-dependent branching"),
    "item": Case(lambda _, __, h: h / (1 + h.abs().max().item())),
    "iterated": Case(lambda _, __, h: torch.stack([row * 2 for row in h]), why="unbind|iterat|apart|rows"),
    "as numpy": Case(lambda _, __, h: h * float(h.detach().numpy().max()), why="trace_numpy|numpy"),
    "noise": Case(lambda _, __, h: h + torch.randn_like(h), why="randn_like draws random numbers"),
    "zeros": Case(lambda _, __, h: torch.cat([h, torch.zeros(h.size(0), 0).to(h)], dim=-1)),
    "asked for gradients": Case(lambda _, __, h: h.detach().requires_grad_() + h, why="requires_grad_"),
    "without gradients": Case(without_gradients, why="switches gradients"),
    "in bfloat16": Case(in_bfloat16, why="enters or leaves autocast"),
    "checkpointed": Case(
        lambda _, __, h: checkpoint(lambda rows: rows.tanh() * 2, h, use_reentrant=False),
        why="checkpoint|graph of its own",
    ),
    "layer in a checkpoint": Case(
        lambda model, _, h: h + checkpoint(model.other, h, use_reentrant=False),
        why="a layer within a function",
    ),
    "keeps rows": Case(keeps_rows),
    "keeps average": Case(keeps_average),
    "average in place": Case(average_in_place, why="differed from|writes to"),
    "draws from python": Case(lambda _, __, h: h * random.random(), why="Random.random"),
    "missing key": Case(catches_key, "catches", change=lambda model, n: model.held.update(factor=2.0 * n)),
    "method of an object": Case(
        lambda _, __, h: Acts().act(h), change=lambda _, n: setattr(Acts, "act", lambda _, h: h * n)
    ),
    "draws from an object": Case(lambda _, __, h: h * RANDOM.random(), why="a Random"),
    "from outside": Case(lambda _, __, h: h * OUTSIDE),
    "adds to input": Case(adds_to_input, why="writes to an input"),
    "sets rows": Case(sets_rows),
    "writes to view": Case(writes_to_view, why="shares memory with another one"),
    "writes result": Case(writes_result, why="mul writes to a tensor"),
    # Values that change between calls.
    "closure": _closure(),
    "vars of an object": Case(
        lambda model, _, h: h * vars(model.args)["rate"],
        change=lambda model, n: setattr(model.args, "rate", 2.0 * n),
        why="whose changes PyTorch's tracer does not see",
    ),
    "tensor in a list": Case(
        lambda model, _, h: h * model.rows[0], change=lambda model, _: model.rows[0].mul_(2.0)
    ),
    "remembered": Case(
        lambda _, __, h: h * remembered(), change=lambda _, n: COUNTS.update(rate=2.0 * n), why="cache"
    ),
    "variable of the environment": Case(
        lambda model, _, h: h * float(model.functions[1].get("BATCHGNN_TEST_RATE", "1")),
        prepare=lambda model: model.functions.append(os.environ),
        change=lambda _, n: os.environ.update(BATCHGNN_TEST_RATE=str(2 * n)),
        why="the environment, whose changes",
    ),
    "metaclass": Case(lambda _, __, h: h * OfKind.rate, change=lambda _, n: setattr(Kind, "rate", 2.0 * n)),
    "class that answers": Case(
        lambda _, __, h: h * Answers[0],
        change=lambda _, n: COUNTS.update(rate=2.0 * n),
        why="tells of itself",
    ),
    "registered with a class": Case(
        lambda model, _, h: h * 2 if isinstance(model.warmup, model.functions[0]) else h,
        prepare=lambda model: model.functions.__setitem__(0, abc.ABCMeta("Abstract", (), {})),
        change=lambda model, _: model.functions[0].register(Warmup),
    ),
    "imported": Case(imports, change=_put_module, why="another module batchgnn_test_rates than before"),
    "docstring": Case(
        lambda model, _, h: h * len(model.__doc__), change=lambda _, n: setattr(Rich, "__doc__", "ab" * n)
    ),
    "defaults of a class": Case(
        lambda _, __, h: h * OfKind().scale,
        change=lambda _, n: setattr(OfKind.__init__, "__defaults__", (2.0 * n,)),
    ),
    "name that a module gets": Case(
        lambda _, __, h: h * getattr(time, "of_tests", 1.0),
        change=lambda _, n: setattr(time, "of_tests", 2.0 * n),
    ),
    "chained dicts": Case(
        lambda model, _, h: h * model.functions[0]["rate"],
        prepare=lambda model: model.functions.__setitem__(0, collections.ChainMap({}, {"rate": 1.0})),
        change=lambda model, n: model.functions[0].update(rate=2.0 * n),
        why="a ChainMap",
    ),
    "time": Case(lambda _, __, h: h + 0 * time.perf_counter(), why="perf_counter"),
    "order of a dict": Case(
        lambda model, _, h: h * next(iter(model.held.values())),
        prepare=lambda model: setattr(model, "held", collections.OrderedDict(one=1.0, two=2.0, three=3.0)),
        change=lambda model, _: model.held.move_to_end(next(iter(model.held))),
        why="the order of an OrderedDict",
    ),
    "number of NumPy": Case(
        lambda model, _, h: h * int(model.beta) * model.tau,
        prepare=lambda model: setattr(model, "beta", np.int64(2)),
        change=_set(beta=(np.int64(3), np.float64(4.0))),
        why="NumPy",
    ),
    "part in a list": Case(
        lambda model, _, h: model.functions[0](h),
        prepare=lambda model: model.functions.__setitem__(0, _linear(1.0)),
        change=lambda model, n: model.functions.__setitem__(0, _linear(2.0 * n)),
    ),
    "iterator": Case(lambda model, _, h: h * next(model.steps)),
    # Effects.
    "appends rows": Case(appends_rows),
    "counts in a global": Case(counts_global),
    "counts in its class": Case(counts_in_class_of_model, why="writes to <class|builtin"),
    "state that begins in a class": Case(lambda model, _, h: h * model.warmup.next()),
    "slides": Case(
        slides,
        why="greatest length",
        prepare=lambda model: setattr(model, "window", collections.deque([1.0], maxlen=2)),
    ),
    "counts, then decides": Case(counts_then_decides, why="Data-dependent branching"),
    "catches all": Case(catches_all),
    "freezes": Case(freezes, why="not a constant|requires_grad_"),
    "registers": Case(lambda model, _, h: (model.register_buffer("rate", h.detach().mean(dim=0)), h)[1]),
    "ties weights": Case(ties_weights, why="writes|option|leaf|norm|drop|lazy|parameters"),
    "reverses": Case(
        lambda model, _, h: Reversed.apply(h * 2, model.alpha),
        change=_set(alpha=(0.25, 0.75)),
        why="autograd.Function",
    ),
    "equal tuples": Case(
        lambda model, _, h: h * (2.0 if model.pair[0] is True else math.copysign(1.0, model.pair[1])),
        prepare=lambda model: setattr(model, "pair", (1, 0.0)),
        change=_set(pair=((True, 0.0), (1, -0.0))),
    ),
    "hooks rows": Case(hooks_rows, why="hook|graph of its own"),
    "straight through": Case(lambda _, __, h: (h.round() - h).detach() + h),
}


#: Those that change the batch, and so what gradients need.
CHANGING = {"adds to input"}


def _names() -> Iterator[Any]:
    """All cases: `make test` has the first of each reason, and every eighth of those without."""
    places = Counted[Any]()
    for name, case in CASES.items():
        places[case.why] += 1
        first = places[case.why] == 1 or (case.why is None and places[None] % 8 == 0)
        yield from [name] if first else in_all(name)


@pytest.mark.parametrize("name", list(_names()))
def test_what_forwards_do_is_right_or_said(name: str) -> None:
    _assert_right_or_said(CASES[name], name not in CHANGING)


# Arguments ########################################################################################


class Takes(Net):
    def __init__(self) -> None:
        super().__init__(lambda _, __, h: h)

    def forward(self, x: Tensor, edge_index: Tensor, act: Any = None) -> Tensor:  # type: ignore[override]
        return self.second(act(self.first(x, edge_index)), edge_index)


def test_functions_as_arguments() -> None:
    ours, plain = pair(Takes())
    for power, batch in enumerate(batches(), 1):
        act = lambda h, power=power: h.tanh() ** power  # noqa: E731
        wanted = plain(batch.x, batch.edge_index, act)[: batch.batch_size]
        assert_as_plain(ours, plain, ours(batch, act=act), wanted)
    assert found_in(ours).reasons == []


class Loops(Net):
    def forward(self, x: Tensor, edge_index: Tensor, batch_size: int) -> Tensor:  # type: ignore[override]
        h = self.second(self.first(x, edge_index), edge_index)
        return torch.stack([h[number] * (1 + number % 2) for number in range(batch_size)])


def test_a_loop_over_the_seeds() -> None:
    """The last batch has fewer of them."""
    ours, plain = pair(Loops(lambda _, __, h: h))
    for batch in (*batches(), *batches()[1:]):
        assert_as_plain(ours, plain, ours(batch), plain(batch.x, batch.edge_index, batch.batch_size))


class Scores(Net):
    """A model that is refused in evaluation, and returns no rows of nodes then."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.second(self.first(x, edge_index), edge_index)
        if self.training:
            return h
        time.perf_counter()
        return self.middle(self, edge_index, h)


NO_ROWS: dict[str, Middle] = {
    "edges": lambda _, ends, h: (h[ends[0]] * h[ends[1]]).sum(dim=1),
    "numbers": lambda _, __, h: h[torch.arange(14)],
    "columns": lambda _, __, h: h.t() @ h,
}


@pytest.mark.parametrize("scores", NO_ROWS)
def test_what_is_no_row_of_a_node_is_not_cut(scores: str) -> None:
    """Another path of ``forward`` gave rows of nodes, which were cut."""
    ours, plain = pair(Scores(NO_ROWS[scores]))
    for training in (True, False, True, False):
        ours.train(training), plain.train(training)
        for one in batches():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = ours(one)
            wanted = plain(one.x, one.edge_index)
            assert_close(found, wanted[: one.batch_size] if training else wanted)


def test_numbers_that_change_in_every_call_need_no_new_graphs() -> None:
    ours, plain = pair(Net(lambda model, _, h: h * model.alpha))
    for number in range(20):
        ours.alpha = plain.alpha = 0.5 + 0.1 * number
        assert_as_plain(ours, plain, ours(batches()[0]), _first_rows(plain, batches()[0]))
    assert found_in(ours).reasons == [] and len(found_in(ours).graphs) <= 2  # 1.0 has its own


# Backward #########################################################################################


def in_mode(model: Any, x: Tensor, h: Tensor) -> Tensor:
    return (h * 2 if model.training else h.tanh()) * model.alpha + model.average


#: By name, what is done between a call of all rows and the backward pass of its loss.
BETWEEN: dict[str, Callable[[Any], Any]] = {
    "evaluation": lambda model: model.eval(),
    "number": lambda model: setattr(model, "alpha", 3.0),
    "buffer": lambda model: model.average.add_(1.0),
    "aggregation": lambda model: setattr(model.second, "aggr_module", pyg.SumAggregation()),
    "dict": lambda model: model.held.update(rate=3.0),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_backward_uses_what_forward_used(name: str) -> None:
    middle = in_mode if name != "dict" else lambda model, _, h: h.tanh() * model.held["rate"]
    ours, plain = pair(Net(middle))
    (first, *_) = batches()
    for rows in (first.batch_size, first.num_nodes):
        found, wanted = ours(first.x, first.edge_index)[:rows], plain(first.x, first.edge_index)[:rows]
        for model in (ours, plain):
            BETWEEN[name](model)
        expected = gradients(plain, wanted)
        try:
            grads = gradients(ours, found)
        except RuntimeError as error:
            assert rows > first.batch_size and re.search("changed (since|after) forward", str(error))
        else:
            assert_close(grads, expected)


@pytest.mark.parametrize("rows", [12, None], ids=["seeds", "all"])
def test_gradients_of_what_is_no_parameter(rows: int | None) -> None:
    """Prompts, buffers and the parameters of ``functional_call``."""
    (first, *_) = batches()
    found = []
    for model in pair(Rich(lambda model, _, h: h.tanh() * model.rows[0] + model.table * OUTSIDE)):
        _reset()
        given = [model.rows[0], model.table, OUTSIDE]
        for one in given:
            one.requires_grad_()
        try:
            output = model(first.x, first.edge_index)[:rows]
            found.append([output, gradients(model, output, given)])
            named = {name: (one * 2).detach().requires_grad_() for name, one in model.named_parameters()}
            output = torch.func.functional_call(model, named, (first.x, first.edge_index))[:rows]
            found[-1] += [output, gradients(model, output, [*given, *named.values()])]
        finally:
            OUTSIDE.requires_grad_(False)
    assert_close(found[0], found[1])
