"""Message passing layers of the user's own: whether row i depends on row i and its in-edges alone.

A layer's ``forward`` is recorded, as that of a model is. Everything in it must be computed row by
row, but for one call of ``propagate`` with the edges as they came. ``message``, ``aggregate`` and
``update`` are taken for what PyG says they are: functions of an edge, of the messages of a target,
and of a target.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.port import rules
from pyg_batchgnn.port.record import Recorder, record
from pyg_batchgnn.port.recording import Ref
from pyg_batchgnn.port.structure import UnsampledGraph
from pyg_batchgnn.port.values import Axis, BatchEdges, Edges, Fixed, Nodes, Refusal


def whole_reason(conv: MessagePassing, x: Any, edge_index: Tensor, values: Mapping[str, Any]) -> str | None:
    """Returns why a user's layer must compute all rows, in a clause, or None.

    Args:
        x: [N, F], the rows of all nodes.
        values: its other arguments, values of edges.
    """
    for name in ("message", "update", "aggregate", "edge_update", "message_and_aggregate"):
        method = getattr(type(conv), name)
        if method is not getattr(MessagePassing, name) and "training" in method.__code__.co_names:
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

    def propagate(edges: Any, size: Any = None, **arguments: Any) -> Tensor:
        with recorder.suspended():
            _check(recorder, edges, own_edges, size, arguments)
            propagated.append(1)
            found: Tensor = original(edges, size=None, **arguments)
            recorder.add(found, Nodes(None, 0) if found.size(0) == x.size(0) else Fixed())
        return found

    vars(conv)["propagate"] = propagate
    try:
        recording, _ = record(
            recorder, functools.partial(type(conv).forward, conv), (own_x, own_edges), given
        )
    except Refusal as refusal:
        return f"is not known, and {refusal.reason}"
    finally:
        del vars(conv)["propagate"]
    if len(propagated) != 1:
        return f"calls propagate {len(propagated)} times"
    for call in recording.calls:
        if call.by_row or all(isinstance(recording.axes[one], Fixed) for one in call.results):
            continue
        return f"is not known, and {call.note or 'it looks at all rows or edges'} ({call.where})"
    output = recording.output
    rows: Axis | None = recording.axes[output.number] if isinstance(output, Ref) else None
    return None if isinstance(rows, Nodes) else "returns something else than rows of nodes"


def _check(recorder: Recorder, edges: Any, own: Tensor, size: Any, arguments: Mapping[str, Any]) -> None:
    """Raises Refusal unless messages are passed over the edges as they came."""
    if edges is not own:
        raise Refusal("it passes messages over other edges than it is called with")
    if size is not None and not (isinstance(size, (tuple, list)) and len(size) == 2):
        raise Refusal("it passes messages between other nodes")
    for one in rules.tensors(dict(arguments)):
        if not isinstance(recorder.axis(one), (Nodes, Edges, Fixed)):
            raise Refusal("it gives messages values that are of neither nodes nor edges")
