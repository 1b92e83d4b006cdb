"""Message passing layers of the user's own: whether row i depends on row i and its in-edges alone.

A layer's ``forward`` is recorded, as that of a model is. Everything in it must be computed row by
row, but for one call of ``propagate`` with the edges as they came. ``message``, ``aggregate`` and
``update`` are taken for what PyG says they are: functions of an edge, of the messages of a target,
and of a target. Two batches are compared in evaluation. So what reads ``self.training`` is recorded
as well, and must compute each edge, or each target, by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.port import rules
from pyg_batchgnn.port.module_state import codes
from pyg_batchgnn.port.record import Recorder, record
from pyg_batchgnn.port.recording import Ref, mapped
from pyg_batchgnn.port.structure import UnsampledGraph
from pyg_batchgnn.port.values import (
    WHOLE,
    Axis,
    BatchEdges,
    Counter,
    Edges,
    Fixed,
    Nodes,
    Refusal,
    form_of,
)


def whole_reason(conv: MessagePassing, x: Any, edge_index: Tensor, values: Mapping[str, Any]) -> str | None:
    """Returns why a user's layer must compute all rows, in a clause, or None.

    Args:
        x: [N, F], the rows of all nodes.
        values: its other arguments, values of edges.
    """
    reading = _methods_that_read_training(conv)
    for name in reading:
        if name not in _BY_ROW:
            return f"reads self.training in {name}"
    if not isinstance(x, Tensor) or "propagate" in vars(conv):
        return "is called with rows of sources and of targets"
    counter = UnsampledGraph({None: edge_index}, {None: x.size(0)}).counter
    recorder = Recorder(conv, lambda *_: "passes messages in a layer of its own", counter)
    propagated: list[int] = []
    given = dict(values)
    own_x, own_edges = x.detach(), edge_index.view_as(edge_index)  # tensors that nobody else knows
    recorder.add_input(own_x, Nodes(None, 0))
    recorder.add_input(own_edges, BatchEdges(None, 0))
    for name, one in given.items():
        if isinstance(one, Tensor):
            given[name] = one.detach()
            recorder.add_input(given[name], Edges(None, 0))
    original = conv.propagate

    def propagate(edge_index: Any, size: Any = None, **arguments: Any) -> Tensor:
        with recorder.suspended():
            _check(recorder, edge_index, own_edges, size, arguments)
            propagated.append(1)
            found: Any = original(edge_index, size=None, **arguments)
            if not isinstance(found, Tensor):
                raise Refusal("propagate returns no tensor")
            recorder.add(found, Nodes(None, 0) if found.size(0) == x.size(0) else Fixed())
            return found

    for name in reading:
        vars(conv)[name] = functools.partial(_recorded_method, conv, name, counter)
    vars(conv)["propagate"] = propagate
    try:
        recording, _ = record(
            recorder, functools.partial(type(conv).forward, conv), (own_x, own_edges), given
        )
    except Refusal as refusal:
        return f"is not known, and {refusal.reason}"
    except Exception as error:  # a plain call tells the user's own errors
        return f"is not known, and could not be called alone: {type(error).__name__}"
    finally:
        for name in ("propagate", *reading):
            del vars(conv)[name]
    if len(propagated) != 1:
        return f"calls propagate {len(propagated)} times"
    for call in recording.calls:
        if call.by_row or all(isinstance(recording.axes[one], Fixed) for one in call.results):
            continue
        return f"is not known, and {call.note or 'it looks at all rows or edges'} ({call.where})"
    output = recording.output
    rows: Axis | None = recording.axes[output.number] if isinstance(output, Ref) else None
    return None if isinstance(rows, Nodes) else "returns something else than rows of nodes"


#: Methods of a layer, and what their arguments have rows of.
_BY_ROW: dict[str, Axis] = {"message": Edges(None, 0), "update": Nodes(None, 0)}


def _methods_that_read_training(conv: MessagePassing) -> list[str]:
    names = (*_BY_ROW, "aggregate", "edge_update", "message_and_aggregate")
    own = [name for name in names if getattr(type(conv), name) is not getattr(MessagePassing, name)]
    return [name for name in own if _reads_training(type(conv), name, set())]


def _reads_training(kind: type[MessagePassing], name: str, seen: set[str]) -> bool:
    """Returns whether a method, or one of the class that it names, reads ``self.training``."""
    seen.add(name)
    code = getattr(getattr(kind, name, None), "__code__", None)
    inherited = getattr(MessagePassing, name, None) is getattr(kind, name, None)
    if code is None or inherited:
        return False
    named = [one for each in codes(code) for one in each.co_names]
    return "training" in named or any(_reads_training(kind, one, seen) for one in named if one not in seen)


def _recorded_method(
    conv: MessagePassing, name: str, counter: Callable[[Counter], int], *args: Any, **given: Any
) -> Any:
    """Calls a method of a layer.

    Raises:
        Refusal: it does not compute each edge, or each target, by itself.
    """
    recorder, axis = Recorder(conv, lambda *_: "is called by another layer", counter), _BY_ROW[name]
    rows = form_of(axis)
    count = -1 if rows is None else rows.value(counter)

    def register(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach()
        return recorder.add_input(leaf, axis if leaf.dim() and leaf.size(0) == count else WHOLE)

    forward = functools.partial(getattr(type(conv), name), conv)
    recording, found = record(recorder, forward, mapped(args, register), mapped(given, register))
    output = recording.output
    if not isinstance(output, Ref) or recording.axes[output.number] != axis:
        raise Refusal(f"{name} reads self.training and returns something else than a row for each of its own")
    for call in recording.calls:
        if not (call.by_row or all(isinstance(recording.axes[one], Fixed) for one in call.results)):
            raise Refusal(
                f"{name} reads self.training, and {call.note or 'looks at all rows'} ({call.where})"
            )
    return found


def _check(recorder: Recorder, edges: Any, own: Tensor, size: Any, arguments: Mapping[str, Any]) -> None:
    """Raises Refusal unless messages are passed over the edges as they came."""
    if edges is not own:
        raise Refusal("it passes messages over other edges than it is called with")
    if size is not None and not (isinstance(size, (tuple, list)) and len(size) == 2):
        raise Refusal("it passes messages between other nodes")
    for one in rules.tensors(dict(arguments)):
        if not isinstance(recorder.axis(one), (Nodes, Edges, Fixed)):
            raise Refusal("it gives messages values that are of neither nodes nor edges")
