"""The execution of a program: its steps on a batch."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn.models import is_row_wise_norm
from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.program import (
    Program,
    ProgramStep,
    is_dropout,
    is_relu,
    may_overwrite,
    module_of,
    rate_of,
)
from pyg_batchgnn.port.recording import Count, Edges, Nodes, Ref, Refusal, Way, mapped, refs, tensors
from pyg_batchgnn.port.structure import FLOATS, CopiedNodes, Copies, Known, Structure, looked_up, prefix


@dataclass
class Frame:
    program: Program
    model: torch.nn.Module
    structure: Structure
    #: by number, a tensor, a `RowView`, or a function that makes the tensor when it is needed
    values: MutableMapping[int, Any]
    drops: bool = True  # False leaves out dropout, for comparisons
    #: by node type, how many rows its copies would have, and how many were computed instead
    encoded: dict[Any, tuple[int, int]] = field(default_factory=dict)

    def rows(self, axis: Any, hops: int) -> int:
        return prefix(self.structure, axis.kind, axis.name, hops)


def run(frame: Frame, inputs: Sequence[Any], copies: Copies, known: Known | None = None) -> list[Any]:
    """Returns the outputs of the graph. ``inputs``: the values of its placeholders. ``copies``: the
    nodes that the batch holds several times. ``known``: the rows of earlier batches."""
    program = frame.program
    frame.values.update(zip(program.recording.inputs, inputs, strict=True))
    rows = copies.rows(program.recording, program.shared, inputs) if program.shared else {}
    own = {number: one for number, one in rows.items() if one is not None}
    if known is not None and own:
        copies, own = copies.renewed(own, known)
    structure = copies.distinct() if own else frame.structure
    distinct = replace(frame, structure=structure, values=ChainMap(own, frame.values))
    of_values: dict[int | None, tuple[Frame, CopiedNodes | None]] = {None: (frame, None)}
    for step in program.steps:
        shares = step.shares is not None and own.keys() >= set(step.shares)
        if step.origin not in of_values:
            of_values[step.origin] = _by_value(frame, step.origin, copies)
        inside, nodes = of_values[step.origin]
        if not (shares and known is not None and known.has(program.axes[step.result])):
            run_step(distinct if shares else inside, step)
        for one in step.results(program):
            if step.shares is not None:
                _share(frame, one, distinct if shares else None, copies, known)
            elif nodes is not None:
                rows = take(inside, Ref(one), step.hops)
                frame.values[one] = partial(nodes.spread, rows, frame.rows(program.axes[one], step.hops))
        for one in step.frees:
            frame.values.pop(one, None)
            own.pop(one, None)
    if known is not None:
        known.memo.known[program] = known  # now that the batch has computed all of its rows
    return [_value(frame, *output) for output in program.outputs]


def _by_value(frame: Frame, number: Any, copies: Copies) -> tuple[Frame, CopiedNodes | None]:
    """Returns a frame of the distinct numbers of a vector, and where they are, if they are few."""
    name, value = frame.program.axes[number].name, take(frame, Ref(number), frame.program.need[number])
    nodes = copies.of_values(name, value)
    if nodes is None:
        return frame, None
    values = ChainMap({number: value[nodes.first]}, frame.values)
    return replace(frame, structure=copies.distinct({name: nodes}), values=values), nodes


def _share(frame: Frame, number: int, distinct: Frame | None, copies: Copies, known: Known | None) -> None:
    """Counts the rows of a value for `encoded_rows`. If they were computed once per distinct node,
    all copies get theirs when they are read, and rows of earlier batches are there, too."""
    axis: Any = frame.program.axes[number]
    hops = frame.program.need[number]
    count = computed = frame.rows(axis, hops)
    if distinct is not None and known is not None and known.has(axis):
        rows, computed = known.of(axis.name).tables.get(number), 0
        distinct.values[number] = rows
    elif distinct is not None:
        rows = take(distinct, Ref(number), hops)
        computed = rows.size(0)
        if known is not None:
            rows = known.of(axis.name).keep(number, rows) if number in frame.program.kept else None
    if distinct is not None:
        frame.values[number] = partial(copies.nodes(axis.name).spread, rows, count)  # type: ignore[union-attr]
    before = frame.encoded.get(axis.name, (0, 0))
    frame.encoded[axis.name] = max(before[0], count), max(before[1], computed)


def _value(frame: Frame, leaf: Any, hops: int | None) -> Any:
    if isinstance(leaf, Count):
        return leaf.form.value(frame.structure.counter)
    if not isinstance(leaf, Ref):
        return leaf
    return take(frame, leaf, frame.program.full(leaf.number) if hops is None else hops)


def take(frame: Frame, ref: Ref, hops: int, *, in_place: bool = False) -> Any:
    """Returns a value's rows up to ``hops``. They may be a `RowView` only if ``in_place``."""
    value = frame.values[ref.number]
    axis = frame.program.axes[ref.number]
    if callable(value) and not isinstance(value, Tensor):
        value = frame.values[ref.number] = value()
    if isinstance(axis, (Nodes, Edges)):
        rows = frame.rows(axis, min(hops, axis.hops))
        if value.size(0) != rows:
            if isinstance(value, nn.RowView):
                value = value.head(rows)
            else:
                value = ops.first_rows(value, rows) if value.dim() == 2 else value[:rows]
        if isinstance(value, nn.RowView) and not in_place:
            value = value.gather()
    return value


def _arguments(frame: Frame, step: ProgramStep) -> tuple[tuple[Any, ...], dict[str, Any]]:
    call = step.call
    args, hops = call.args, step.hops if call.by_row or call.of_ends else None
    if hops is not None and call.target in rules.RESHAPES:
        axis = frame.program.axes[call.results[0]]
        args = rules.new_shape(args, frame.rows(axis, hops))
    return mapped((args, call.kwargs), lambda leaf: _value(frame, leaf, hops))


def run_step(frame: Frame, step: ProgramStep) -> None:
    call, model = step.call, frame.model
    rate = _rate(frame, step)
    if not 0.0 <= rate < 1.0:  # torch's dropout knows 1, and says what it thinks of others
        run_step(replace(frame, drops=False), step)
        frame.values[step.result] = torch.nn.functional.dropout(frame.values[step.result], rate)
        return
    module = module_of(call, model)
    activates = is_relu(call, model) or is_dropout(call, model)
    is_linear = module is not None and rules.kind_of(module) in rules.LINEAR and not nn.is_watched(module)
    result: Any
    if step.parts:
        result, done = _add_up(frame, step)
    elif call.message_passing:
        assert module is not None
        result, done = _convolve(frame, step, module)
    elif activates:
        first, *_ = refs((call.args, call.kwargs))
        result, done = take(frame, Ref(first), step.hops), False
    elif is_linear and len(call.args) == 1:
        result, done = _multiply(frame, step, module)
    elif call.target in _LAYER_NORMS or (module is not None and is_row_wise_norm(module)):
        result, done = _normalise(frame, step, module)
    else:
        result, done = _plain_call(frame, step, module), False
    if not done:
        in_place = step.overwrites if activates else may_overwrite(call, model)
        result = _end(frame, step, result, in_place=in_place)
    if len(call.results) > 1 or isinstance(result, (tuple, list, dict)):
        parts = tensors(result)
        if len(parts) != len(call.results):
            raise Refusal(f"a function returns another number of tensors for this batch ({call.where})")
        made = dict(zip(call.results, parts, strict=True))
    else:
        made = {step.result: result}
    frame.values.update({number: one for number, one in made.items() if number in frame.program.need})


def _rate(frame: Frame, step: ProgramStep) -> float:
    drops = step.dropout is not None and frame.drops
    return rate_of(step.dropout[0], frame.model, frame.values) if drops else 0.0  # type: ignore[index]


def _ending(frame: Frame, step: ProgramStep, shape: Sequence[int]) -> dict[str, Any]:
    """Returns the arguments of an operator for the ReLU and the dropout that follow a step."""
    drop, key, node = _rate(frame, step), 0, None
    axis = frame.program.axes[step.result]
    if step.dropout is not None and drop > 0.0:
        call, place = step.dropout
        if isinstance(axis, Nodes):
            key, node = frame.structure.dropout(axis.name, call.layer, place, shape[0])
        else:
            key = ops.drawn_key()
    return {"relu": step.relu, "drop": drop, "key": key, "node": node if len(shape) == 2 else None}


def _end(frame: Frame, step: ProgramStep, x: Any, *, in_place: bool) -> Any:
    """Applies the ReLU and the dropout that follow a step. ``in_place``: x may be overwritten."""
    if not isinstance(x, Tensor):
        return x
    ending = _ending(frame, step, x.shape)
    if not ending["relu"] and ending["drop"] == 0.0:
        return x
    if x.dtype not in FLOATS or x.dim() == 0:
        x = x.relu() if ending["relu"] else x
        return torch.nn.functional.dropout(x, ending["drop"]) if ending["drop"] > 0.0 else x
    return ops.activate(x if in_place else x.clone(), **ending)


def _plain_call(frame: Frame, step: ProgramStep, module: torch.nn.Module | None) -> Any:
    call, (args, kwargs) = step.call, _arguments(frame, step)
    if module is not None:
        return module(*args, **kwargs)
    if not frame.drops and call.target in rules.DROPOUTS:
        return args[0].clone()
    if call.of_ends:
        return looked_up(args[0], args[-1])
    return call.target(*args, **kwargs)  # type: ignore[operator]


_LAYER_NORMS = {torch.nn.functional.layer_norm, torch.layer_norm}


def _normalise(frame: Frame, step: ProgramStep, module: torch.nn.Module | None) -> tuple[Any, bool]:
    call, (args, kwargs) = step.call, _arguments(frame, step)
    x: Any = args[0] if args else kwargs.get("input", kwargs.get("x"))
    norm = nn.row_norm_of(*args, **kwargs) if module is None else nn.row_norm(module, x)
    if norm is None:
        return (call.target if module is None else module)(*args, **kwargs), False  # type: ignore[operator]
    return ops.layer_norm(x, *norm, **_ending(frame, step, x.shape)), True


def _multiply(frame: Frame, step: ProgramStep, module: Any) -> tuple[Tensor, bool]:
    x = take(frame, step.call.args[0], step.hops, in_place=True)
    weight = module.weight
    takes = x.dtype == weight.dtype or (x.dtype is not torch.float64 and weight.dtype is not torch.float64)
    if len(x.shape) != 2 or not takes or not weight.is_cpu:
        return module(x if isinstance(x, Tensor) else x.gather()), False
    ending = _ending(frame, step, x.shape)
    return ops.linear([x], [weight], module.bias, num_rows=x.size(0), **ending), True


def _add_up(frame: Frame, step: ProgramStep) -> tuple[Tensor, bool]:
    """Returns a sum of convolutions and linear layers, and whether ReLU and dropout are applied."""
    rows = frame.rows(frame.program.axes[step.call.results[0]], step.hops)
    own: Any = None
    own_ref: Any = None
    terms: list[nn.Terms] = []
    of_few: list[Any] = []
    targets: Any = nn.LayerRows(rows, rows)
    for part in step.parts:
        if part.call.message_passing is None:
            continue
        conv: Any = module_of(part.call, frame.model)
        given, values = _conv_input(frame, part, conv)
        few, read = _few_sources(frame, part, given, conv, values), part.call.reads.targets
        found = nn.Terms(root=conv.lin_r.weight, bias=conv.lin_l.bias) if few else conv.terms(given, **values)
        of_few += few
        if own is None:
            own, own_ref, targets = given.own_rows(), read, given.graph
        elif read != own_ref and found.root is not None:
            own_rows: Any = given.own_rows()
            product = nn.RowProduct(own_rows, found.root)
            found = replace(found, products=(*found.products, product), root=None)
        terms.append(found)
    for part in step.parts:
        if part.call.message_passing is not None:
            continue
        linear: Any = module_of(part.call, frame.model)
        ref = part.call.args[0]
        if ref == own_ref:
            terms.append(nn.Terms(root=linear.weight, bias=linear.bias))
        else:
            x = take(frame, ref, step.hops, in_place=True)
            terms.append(nn.Terms((nn.RowProduct(x, linear.weight),), bias=linear.bias))
    ending = None if of_few else _ending_of_conv(frame, step, frame.model.training)
    total = nn.total(terms, own, targets, ending, training=True)
    return reduce(lambda sums, add: add(onto=sums), of_few, total), ending is not None


def _few_sources(frame: Frame, part: ProgramStep, given: nn.ConvInput, conv: Any, values: Any) -> list[Any]:
    """Returns what adds the neighbours' term of a SAGE layer to its others, if the rows of the
    sources are shared, and so few that their product is less work than that of the targets."""
    x, graph, shared = given.x, given.graph, part.call.reads.sources.number in frame.program.shared
    if not (shared and isinstance(x, nn.RowView) and isinstance(conv, nn.SAGEConv)):
        return []
    if 2 * len(x.table) > graph.num_targets or values or conv.normalize or conv.project:
        return []
    by = conv.aggregations[type(conv.aggr_module)]
    if not conv.root_weight or by not in ops.SUMS:
        return []
    table = ops.linear([x.table], [conv.lin_l.weight])
    return [partial(ops.aggregate, table, graph.indptr, graph.indices, row=x.row, reduce=by)]


def _conv_input(frame: Frame, step: ProgramStep, conv: Any) -> tuple[nn.ConvInput, dict[str, Any]]:
    reads = step.call.reads
    axis: Any = frame.program.axes[reads.edges.number]
    above = min(step.hops + 1, axis.hops)
    x = take(frame, reads.sources, above, in_place=True)
    drops = frame.drops and conv.training and bool(getattr(conv, "dropout", 0.0))
    drops = drops or step.dropout is not None
    graph = frame.structure.graph(axis.name, step.call.layer + 1, step.hops, axis.hops, drops)
    counted = graph.whole or graph
    values = {
        name: take(frame, ref, axis.hops)[: (counted if name == "edge_weight" else graph).num_edges]
        for name, ref in reads.values.items()
    }
    rows: Any = x
    if reads.targets != reads.sources:
        rows = (x, take(frame, reads.targets, step.hops, in_place=True))
    return nn.conv_input(rows, graph, None), values


def _convolve(frame: Frame, step: ProgramStep, conv: Any) -> tuple[Any, bool]:
    if step.call.message_passing is Way.NATIVE:
        given, values = _conv_input(frame, step, conv)
        ending = _ending_of_conv(frame, step, conv.training)
        update = {} if ending is None else {"update": ending}
        x = given.x if given.targets_in_sources else (given.x, given.own_rows())
        return conv(x, given.graph, **values, **update), ending is not None
    return _trimmed(frame, step, conv), False


def _trimmed(frame: Frame, step: ProgramStep, conv: Any) -> Tensor:
    reads, hops = step.call.reads, step.hops
    axis: Any = frame.program.axes[reads.edges.number]
    above = min(hops + 1, axis.hops)
    edge_index = take(frame, reads.edges, axis.hops)[:, : frame.rows(axis, above)]
    values, rows = (
        {name: take(frame, ref, above) for name, ref in read.items()} for read in (reads.values, reads.rows)
    )
    if isinstance(reads.sources, Mapping):  # the messages of a layer of the user's own
        rows = {name: take(frame, ref, above) for name, ref in reads.sources.items()}
        nodes = next(frame.program.axes[one] for one in refs(reads.sources))
        size = (frame.rows(nodes, above),) * 2
        return conv.propagate(edge_index, size=size, **rows, **values)[: frame.rows(nodes, hops)]
    targets = frame.program.axes[reads.targets.number]
    x: Any = take(frame, reads.sources, above)
    if reads.targets != reads.sources:
        x = (x, take(frame, reads.targets, hops))
    return foreign.call_trimmed(conv, x, edge_index, frame.rows(targets, hops), values, rows)


def _ending_of_conv(frame: Frame, step: ProgramStep, training: bool) -> nn.Update | None:
    """Returns the ReLU and dropout that a convolution applies itself, or None. It does so only in
    training, and for the first dropout after it, whose key it has."""
    drop = _rate(frame, step)
    drops = step.dropout is not None and drop > 0.0
    if (drops and (step.dropout[1] != 0 or not training)) or not may_overwrite(step.call, frame.model):  # type: ignore[index]
        return None
    return nn.Update(relu=step.relu, drop=drop) if step.relu or drop > 0.0 else None
