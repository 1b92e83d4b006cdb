"""A change of a layer, before or after acceleration, acts as it does on PyG's layer.

Each change is made on a layer alone, in a model of PyG and in a `HeteroConv`. An accelerated copy
then gives the output and the gradients of PyG's, or an error of the same type.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.utils import parametrizations, parametrize, prune

from pyg_batchgnn import nn
from pyg_batchgnn.port import accelerate
from tests.support.ported_models import CLASSES, FEATURES, HIDDEN, assert_same, batch_of, results, stirred
from tests.support.recorded_models import Written
from tests.support.tiers import each, in_all, some

Module = torch.nn.Module
#: What undoes changes that are not of the layer alone.
UNDO: list[Callable[[], Any]] = []

BATCH = batch_of(2)
NODES = BATCH.num_nodes
DRAW = torch.Generator().manual_seed(7)
X = torch.randn(NODES, FEATURES, generator=DRAW, dtype=torch.float64)
OTHERS = torch.randn(9, FEATURES, generator=DRAW, dtype=torch.float64)
EDGES = BATCH.edge_index.clone()
FROM_OTHERS = torch.stack([torch.arange(9), torch.arange(9) * 2])
SELF, BETWEEN = ("a", "to", "a"), ("b", "to", "a")


def _perceptron(columns: int, out: int) -> Module:
    return pyg.MLP([columns, 6, out], norm=None)


LAYERS: dict[str, Callable[[], Module]] = {
    "sage": lambda: pyg.SAGEConv(FEATURES, HIDDEN),
    "sage, max, projected": lambda: pyg.SAGEConv(FEATURES, HIDDEN, aggr="max", project=True),
    "gcn": lambda: pyg.GCNConv(FEATURES, HIDDEN),
    "gin": lambda: pyg.GINConv(_perceptron(FEATURES, HIDDEN), train_eps=True),
    "gat": lambda: pyg.GATConv(FEATURES, HIDDEN // 2, heads=2, residual=True),
    "gatv2": lambda: pyg.GATv2Conv(FEATURES, HIDDEN // 2, heads=2),
    "transformer": lambda: pyg.TransformerConv(FEATURES, HIDDEN // 2, heads=2, beta=True),
}


def transformer_net() -> Module:
    convs = [pyg.TransformerConv(FEATURES, HIDDEN // 2, heads=2), pyg.TransformerConv(HIDDEN, CLASSES)]
    forward = lambda model, x, edges: model.convs[1](model.convs[0](x, edges).relu(), edges)  # noqa: E731
    return Written(forward, convs=torch.nn.ModuleList(convs))


MODELS: dict[str, Callable[[], Module]] = {
    "sage": lambda: pyg.GraphSAGE(FEATURES, HIDDEN, 2, CLASSES),
    "sage, max, projected": lambda: pyg.GraphSAGE(FEATURES, HIDDEN, 2, CLASSES, aggr="max", project=True),
    "gcn": lambda: pyg.GCN(FEATURES, HIDDEN, 2, CLASSES),
    "gin": lambda: pyg.GIN(FEATURES, HIDDEN, 2, CLASSES, train_eps=True),
    "gat": lambda: pyg.GAT(FEATURES, HIDDEN, 2, CLASSES, heads=2, residual=True),
    "gatv2": lambda: pyg.GAT(FEATURES, HIDDEN, 2, CLASSES, heads=2, v2=True),
    "transformer": transformer_net,
}


# Changes ##########################################################################################


class OwnLinear(pyg.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 1.5


def _linear(conv: Any) -> tuple[str, Any]:
    for name in ("lin_l", "lin", "lin_src", "lin_value"):
        if isinstance(getattr(conv, name, None), Module):
            return name, getattr(conv, name)
    return "nn", conv.nn.lins[0]


def _put_linear(conv: Any, linear: Module) -> None:
    name, _ = _linear(conv)
    if name == "nn":
        conv.nn.lins[0] = linear
    else:
        setattr(conv, name, linear)


def _replaced(conv: Any, make: Callable[..., Module], bias: bool = False) -> None:
    _, old = _linear(conv)
    made = make(old.in_channels, old.out_channels, bias=bias or old.bias is not None).double()
    _put_linear(conv, made)


def _doubled(*given: Any) -> Any:
    return given[-1] * 2


def _wrapped(module: Any, name: str) -> None:
    old = getattr(module, name)

    def doubled(*given: Any, **named: Any) -> Any:
        return old(*given, **named) * 2

    setattr(module, name, doubled)


def _explained(conv: Any) -> None:
    conv.explain = True
    loops = isinstance(conv, (pyg.GCNConv, pyg.GATConv, pyg.GATv2Conv))
    kept = EDGES[0] != EDGES[1] if loops else torch.ones(EDGES.size(1), dtype=torch.bool)
    conv._edge_mask, conv._loop_mask = torch.linspace(-1, 1, EDGES.size(1), dtype=torch.float64), kept


def _explained_before(conv: Any) -> None:
    _explained(conv)
    conv.explain, conv._edge_mask, conv._loop_mask = False, None, None


def _everywhere(_conv: Any) -> None:
    def hook(module: Any, _given: Any, out: Any) -> Any:
        return out * 2 if type(module) is pyg.Linear or isinstance(module, pyg.Aggregation) else None

    UNDO.append(torch.nn.modules.module.register_module_forward_hook(hook).remove)


def _class_patched(conv: Any) -> None:
    kind = getattr(conv, "stands_for", type(conv))
    old = kind.message

    if not {"edge_weight", "alpha"} & {*old.__code__.co_varnames}:
        kind.message = lambda self, x_j: old(self, x_j) * 2
        UNDO.append(partial(setattr, kind, "message", old))


def _as_own_class(conv: Any) -> None:
    kind = getattr(conv, "stands_for", type(conv))

    def forward(self: Any, x: Any, edge_index: Tensor, *_given: Any, **_named: Any) -> Tensor:
        found: Tensor = kind.forward(self, x, edge_index)
        return found + 1

    conv.__class__ = type("Own", (kind,), {"forward": forward})


def _number_as_bias(conv: Any) -> None:
    del conv.bias
    conv.bias = 0.5


def _biases_learn(conv: Any) -> None:
    for name, parameter in conv.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))


def _set(**values: Any) -> Callable[[Any], None]:
    def change(conv: Any) -> None:
        for name, value in values.items():
            if hasattr(conv, name):
                setattr(conv, name, value() if callable(value) else value)

    return change


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda _: None,
    "flow": _set(flow="target_to_source"),
    "flow in the dict": lambda conv: vars(conv).update(flow="target_to_source", own=1),
    "no flow": lambda conv: delattr(conv, "flow"),
    "node_dim": _set(node_dim=-1),
    "decomposed layers": _set(decomposed_layers=2),
    "explain": _explained,
    "explained before": _explained_before,
    "aggr max": _set(aggr_module=pyg.MaxAggregation),
    "aggr learned": _set(aggr_module=lambda: pyg.SoftmaxAggregation(learn=True).double()),
    "no aggr": _set(aggr_module=None),
    "hook on aggr": lambda conv: conv.aggr_module.register_forward_hook(_doubled),
    "hooks of aggr replaced": lambda conv: (
        setattr(conv.aggr_module, "_forward_hooks", type(conv._forward_hooks)())
        or (conv.aggr_module.register_forward_hook(_doubled))
    ),
    "forward of aggr": lambda conv: _wrapped(conv.aggr_module, "forward"),
    "class of aggr": lambda conv: setattr(conv.aggr_module, "__class__", pyg.MinAggregation),
    "message": lambda conv: _wrapped(conv, "message"),
    "message of the class": _class_patched,
    "update": lambda conv: _wrapped(conv, "update"),
    "propagate": lambda conv: _wrapped(conv, "propagate"),
    "forward": lambda conv: _wrapped(conv, "forward"),
    "hook": lambda conv: conv.register_forward_hook(_doubled),
    "hook on messages": lambda conv: conv.register_message_forward_hook(_doubled),
    "hook on propagate": lambda conv: conv.register_propagate_forward_hook(_doubled),
    "hook on all modules": _everywhere,
    "own class": _as_own_class,
    "own linear": lambda conv: _replaced(conv, OwnLinear),
    "class of linear": lambda conv: setattr(_linear(conv)[1], "__class__", OwnLinear),
    "torch's linear": lambda conv: _replaced(conv, torch.nn.Linear),
    "linear with bias": lambda conv: _replaced(conv, pyg.Linear, bias=True),
    "a module around linear": lambda conv: _put_linear(
        conv, torch.nn.Sequential(_linear(conv)[1], torch.nn.Tanh())
    ),
    "no linear": lambda conv: setattr(conv, _linear(conv)[0], None),
    "hook on linear": lambda conv: _linear(conv)[1].register_forward_hook(_doubled),
    "forward of linear": lambda conv: _wrapped(_linear(conv)[1], "forward"),
    "weight norm": lambda conv: parametrizations.weight_norm(_linear(conv)[1]),
    "parametrised": lambda conv: (
        parametrize.register_parametrization(conv, "bias", torch.nn.Tanh())
        if getattr(conv, "bias", None) is not None
        else None
    ),
    "pruned": lambda conv: prune.l1_unstructured(_linear(conv)[1], "weight", 0.5),
    "bias of linear": lambda conv: setattr(_linear(conv)[1], "bias", None),
    "narrow bias of linear": lambda conv: setattr(
        _linear(conv)[1], "bias", torch.nn.Parameter(torch.full((1,), 0.5, dtype=torch.float64))
    ),
    "weight of linear": lambda conv: setattr(
        _linear(conv)[1], "weight", torch.nn.Parameter(_linear(conv)[1].weight.detach() * 2)
    ),
    "float": lambda conv: conv.float(),
    "on another device": lambda conv: conv.to("meta"),
    "bias of a number": lambda conv: _number_as_bias(conv) if hasattr(conv, "bias") else None,
    "biases alone": _biases_learn,
    "plain weight": lambda conv: (
        (weight := _linear(conv)[1].weight.detach(), delattr(_linear(conv)[1], "weight"))
        and setattr(_linear(conv)[1], "weight", weight)
    ),
    "columns first": lambda conv: setattr(
        _linear(conv)[1].weight, "data", _linear(conv)[1].weight.data.t().contiguous().t()
    ),
    "frozen": lambda conv: conv.requires_grad_(False),
    "dropout of 1": _set(dropout=1.0),
    "no bias": _set(bias=None),
    "narrow bias": lambda conv: (
        setattr(conv, "bias", torch.nn.Parameter(torch.full((1,), 0.5, dtype=torch.float64)))
        if hasattr(conv, "bias")
        else None
    ),
    "normalize": lambda conv: setattr(conv, "normalize", not getattr(conv, "normalize", True)),
    "cached": _set(cached=True),
    "add_self_loops": _set(add_self_loops=False),
    "improved": _set(improved=True),
    "project": _set(project=True),
    "negative_slope": _set(negative_slope=0.7),
    "eps of each column": lambda conv: (
        setattr(conv, "eps", torch.nn.Parameter(torch.linspace(0, 1, FEATURES, dtype=torch.float64)))
        if isinstance(conv, pyg.GINConv)
        else None
    ),
    "an attribute of one's own": lambda conv: setattr(conv, "own", 1),
    "norm in the perceptron": lambda conv: (
        conv.nn.norms.__setitem__(0, pyg.GraphNorm(conv.nn.lins[0].weight.size(0)).double())
        if isinstance(conv, pyg.GINConv)
        else None
    ),
}


# Places ###########################################################################################


def _made(make: Callable[[], Module]) -> Module:
    torch.manual_seed(3)
    return stirred(make().double())


def _copied(module: Any) -> Any:
    """Copies a module, but not what PyG found out about the methods of its class, which takes
    long."""
    found = [one.inspector for one in module.modules() if isinstance(one, pyg.MessagePassing)]
    return copy.deepcopy(module, {id(one): one for one in found})


def _typed(name: str) -> Module:
    return pyg.HeteroConv({SELF: LAYERS[name](), BETWEEN: pyg.SAGEConv((FEATURES, FEATURES), HIDDEN)})


def _of_types(module: Any, x: Tensor, others: Tensor) -> Tensor:
    found: Tensor = module({"a": x, "b": others}, {SELF: EDGES, BETWEEN: FROM_OTHERS})["a"]
    return found


PLACES: dict[str, tuple[Callable[[str], Module], Callable[[Any], Any], Callable[..., Tensor]]] = {
    "alone": (lambda name: LAYERS[name](), lambda module: module, lambda module, x, _: module(x, EDGES)),
    "in a model": (
        lambda name: MODELS[name](),
        lambda module: module.convs[0],
        lambda module, x, _: module(x, BATCH.edge_index)[:8],
    ),
    "by type": (_typed, lambda module: module.convs[SELF], _of_types),
}


@cache
def _unchanged(place: str, name: str) -> Any:
    return _made(partial(PLACES[place][0], name))


def _outcome(module: Any, call: Callable[..., Tensor]) -> dict[str, Tensor] | type[Exception]:
    x, others = X.clone().requires_grad_(), OTHERS.clone().requires_grad_()
    try:
        return results(module, call(module, x, others), x)
    except Exception as error:
        return type(error)


@contextlib.contextmanager
def _undone() -> Iterator[None]:
    try:
        yield
    finally:
        while UNDO:
            UNDO.pop()()


def _changed(module: Any, conv: Any, change: str, call: Callable[..., Tensor]) -> Any:
    torch.manual_seed(5)
    with _undone():
        try:
            CHANGES[change](conv)
        except AttributeError as error:  # a method that the layer does not have
            return type(error)
        return _outcome(module, call)


def _cases() -> Iterator[Any]:
    """Every change in every place. `make test` has all on a layer alone, and some elsewhere."""
    for number, change in enumerate(CHANGES):
        for at, place in enumerate(PLACES):
            yield from [(place, change)] if at == 0 or number % 12 == at else in_all((place, change))


@each
@pytest.mark.parametrize(("place", "change"), list(_cases()))
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore")
def test_changes_act_as_on_pygs_layer(place: str, name: str, change: str) -> None:
    _, conv_of, call = PLACES[place]
    plain, before, after = (_copied(_unchanged(place, name)) for _ in range(3))
    accelerate(after)
    call(after, X, OTHERS)
    wanted = _changed(plain, conv_of(plain), change, call)
    torch.manual_seed(5)
    with _undone():
        try:
            CHANGES[change](conv_of(before))
            accelerate(before)
            found = _outcome(before, call)
        except AttributeError as error:
            found = type(error)
    outcomes = {"before": found, "after": _changed(after, conv_of(after), change, call)}
    for when, one in outcomes.items():
        if isinstance(wanted, type) or isinstance(one, type):
            assert one is wanted, (when, one, wanted)
        else:
            assert_same(one, wanted, 1e-9)


# What follows from it #############################################################################


@pytest.mark.parametrize("name", LAYERS)
def test_copies_and_files_take_no_mark_along(name: str) -> None:
    conv: Any = accelerate(_made(LAYERS[name]))
    wanted = conv(X, EDGES)
    assert nn.as_made(conv) is not None
    for other in (copy.copy(conv), copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert type(other) is type(conv) and "_as_made" not in vars(other)
        assert torch.equal(other(X, EDGES), wanted)
    twin = copy.deepcopy(conv)
    twin.flow = "target_to_source"
    assert torch.equal(conv(X, EDGES), wanted) and not torch.equal(twin(X, EDGES), wanted)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("flow", "flow='target_to_source'"),
        ("message", "a method message"),
        ("hook on aggr", "aggr_module has hooks"),
        ("torch's linear", "lin_l is a Linear, not PyG's"),
        ("explain", "explanations"),
    ],
)
def test_native_layers_refuse_what_they_would_not_follow(change: str, words: str) -> None:
    conv = nn.SAGEConv(FEATURES, HIDDEN).double()
    conv(X, EDGES)
    typed = nn.HeteroConv({SELF: nn.SAGEConv(FEATURES, HIDDEN)}).double()
    for layer, call in (
        (conv, lambda: conv(X, EDGES)),
        (typed.convs[SELF], lambda: typed({"a": X}, {SELF: EDGES})),
    ):
        CHANGES[change](layer)
        with pytest.raises(ValueError, match="nn.SAGEConv does not support .*" + words):
            call()


def test_a_subclass_with_a_message_of_its_own_is_refused() -> None:
    class Own(nn.SAGEConv):
        def message(self, x_j: Tensor) -> Tensor:
            return x_j * 2

    with pytest.raises(ValueError, match="a method message"):
        Own(FEATURES, HIDDEN)


def test_native_layers_follow_the_aggregation_and_parametrised_weights() -> None:
    conv, plain = (kind(FEATURES, HIDDEN).double() for kind in (nn.SAGEConv, pyg.SAGEConv))
    plain.load_state_dict(conv.state_dict())
    for one in (conv, plain):
        one.aggr = "sum"  # says nothing, as in PyG
        one.aggr_module = pyg.MaxAggregation()
        parametrizations.weight_norm(one.lin_l)
    assert_same(results(conv, conv(X, EDGES)), results(plain, plain(X, EDGES)), 1e-10)
    given = pyg.SAGEConv(FEATURES, HIDDEN, aggr=pyg.MaxAggregation()).double()
    ours: Any = accelerate(copy.deepcopy(given))
    assert ours.takes_call(X, EDGES)
    assert_same(results(ours, ours(X, EDGES)), results(given, given(X, EDGES)), 1e-10)


# Models ###########################################################################################


class Centred(Module):
    def __init__(self, columns: int, out: int) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(columns, out).double()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x - x.mean(dim=0))
        return found


def _inner_batch_norm(model: Any) -> None:
    model.convs[0].nn = pyg.MLP([FEATURES, HIDDEN, HIDDEN], norm="batch_norm").double()


MODEL_CHANGES: dict[str, tuple[Callable[[], Module], Callable[[Any], Any]]] = {
    "own lin": (
        lambda: pyg.GraphSAGE(FEATURES, HIDDEN, 2, CLASSES, jk="cat"),
        lambda model: setattr(model, "lin", Centred(2 * HIDDEN, CLASSES)),
    ),
    "hook on jk": (
        lambda: pyg.GCN(FEATURES, HIDDEN, 2, CLASSES, jk="max"),
        lambda model: model.jk.register_forward_hook(lambda *given: given[-1] - given[-1].mean(dim=0)),
    ),
    "batch norm in a perceptron": (lambda: pyg.GIN(FEATURES, HIDDEN, 2, CLASSES), _inner_batch_norm),
    "own act": (
        lambda: pyg.GraphSAGE(FEATURES, HIDDEN, 2, CLASSES),
        lambda model: setattr(model, "act", torch.nn.Softmax(dim=0)),
    ),
}


@pytest.mark.parametrize("what", some(MODEL_CHANGES))
def test_changes_of_models_act_as_on_pygs(what: str) -> None:
    make, change = MODEL_CHANGES[what]
    plain: Any = _made(make)
    after, before = accelerate(copy.deepcopy(plain)), copy.deepcopy(plain)
    for model in (plain, after, before):
        torch.manual_seed(5)
        change(model)
    accelerate(before)
    wanted = results(plain, plain(BATCH.x, BATCH.edge_index)[:8])
    for model in (after, before):
        assert_same(results(model, model(BATCH.x, BATCH.edge_index)[:8]), wanted, 1e-9)
        with torch.no_grad():
            wanted_rows = plain.eval()(BATCH.x, BATCH.edge_index)[:8]
            assert torch.allclose(model.eval()(BATCH), wanted_rows, atol=1e-9)


def test_statistics_that_are_no_longer_tracked_stay() -> None:
    norm: Any = accelerate(torch.nn.BatchNorm1d(4))
    plain: Any = torch.nn.BatchNorm1d(4)
    x = torch.randn(9, 4)
    for one in (norm, plain):
        one.track_running_stats = False
        one(x)
    assert torch.equal(norm.running_mean, plain.running_mean)
    assert torch.allclose(norm(x), plain(x), atol=1e-6)
