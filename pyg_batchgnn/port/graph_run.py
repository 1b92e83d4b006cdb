"""A captured graph that is run as it is, on all rows: the reference of its programs, and what
computes it where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.port import capture
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.capture import BETWEEN, INSIDE, Captured
from pyg_batchgnn.port.recording import WHOLE, Axis, BatchEdges, Edges, form_of


def run_graph(
    captured: Captured, values: Sequence[Any], model: Any, forward: Any = lambda module: module
) -> list[Any]:
    """Returns the outputs of a graph for the values of its placeholders. ``forward``: what is
    called of a module that is a leaf; the module itself by default."""
    env: dict[torch.fx.Node, Any] = {}
    modules = {id(one): one for one in model.modules()}
    each = iter(values)
    last = captured.last_uses()
    grads = torch.is_grad_enabled()
    try:
        for node in captured.module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(each)
                continue
            args = torch.fx.node.map_arg(node.args, env.__getitem__)
            kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
            if node.op == "output":
                return list(args[0])
            env[node] = _value(node, args, kwargs, modules, forward)
            for one in last.get(node, ()):
                del env[one]
    finally:
        torch.set_grad_enabled(grads)
    raise AssertionError("a graph ends with its output")


def _value(node: torch.fx.Node, args: Any, kwargs: Any, modules: Mapping[int, Any], forward: Any) -> Any:
    target: Any = node.target
    if node.op == "call_method":
        if target == "item" and not isinstance(args[0], Tensor):
            return args[0]
        return getattr(args[0], target)(*args[1:], **kwargs)
    if node.op == "get_attr":
        value: Any = node.graph.owning_module
        for name in target.split("."):
            value = getattr(value, name)
        return value
    if target is capture.PROPAGATE or target is capture.RETURNED:
        return args[0]
    if target is torch.ops.aten._assert_scalar.default:
        return None
    if target not in (capture.LEAF, capture.LEAF_BY_TYPE):
        return target(*args, **kwargs)
    tensors, number, names, _ = args
    module = modules[number]
    each = names.split(BETWEEN)
    if target is capture.LEAF_BY_TYPE:
        given = dict(zip(each[:-1], tensors, strict=True))
        x = {name: one for name, one in given.items() if INSIDE not in name}
        edges = {tuple(name.split(INSIDE)): one for name, one in given.items() if INSIDE in name}
        found = forward(module)(x, edges)
        return [found[name] for name in each[-1].split(INSIDE)[1:]]
    if not isinstance(module, MessagePassing):
        return forward(module)(list(tensors) if names == BETWEEN else tensors[0])
    given = dict(zip(each, tensors, strict=True))
    rows = (given.pop("x.0"), given.pop("x.1")) if "x.0" in given else given.pop("x")
    return forward(module)(rows, **given)


def symbols(captured: Captured) -> dict[str, Axis]:
    """Returns what the symbols of sizes count, of those that count one thing alone."""
    found: dict[str, Axis | None] = {}
    placeholders = (one for one in captured.module.graph.nodes if one.op == "placeholder")
    for node, place, dim in zip(placeholders, captured.places, captured.dims, strict=True):
        if not isinstance(place, ArgumentTensor) or dim is not None or form_of(place.axis) is None:
            continue
        axis = place.axis
        size = node.meta["example_value"].shape[1 if isinstance(axis, BatchEdges) else 0]
        counted = Edges(axis.relation, axis.hops) if isinstance(axis, BatchEdges) else axis
        if not isinstance(size, int):
            known = found.setdefault(str(size), counted)
            found[str(size)] = counted if known == counted else None
    return {symbol: axis for symbol, axis in found.items() if axis is not None}


def axis_of(value: Any, known: Mapping[str, Axis]) -> Axis:
    if not isinstance(value, Tensor) or value.dim() == 0 or isinstance(value.shape[0], int):
        return WHOLE
    return known.get(str(value.shape[0]), WHOLE)


def axes_of_outputs(captured: Captured) -> list[Axis | None]:
    """Returns what the rows of each output that ``forward`` returns are; None of the others."""
    known = symbols(captured)
    output = next(one for one in captured.module.graph.nodes if one.op == "output")
    return [
        axis_of(one.meta.get("example_value"), known)
        if isinstance(one, torch.fx.Node) and one.target is capture.RETURNED
        else None
        for one in output.args[0]
    ]


def axes_of_result(captured: Captured) -> list[Axis]:
    known = symbols(captured)
    nodes = (one for one in captured.module.graph.nodes if one.target is capture.RETURNED)
    return [axis_of(one.meta.get("example_value"), known) for one in nodes]
