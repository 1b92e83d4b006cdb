"""Message passing layers of the user's own: whether the messages of a node follow from its in-edges
alone.

The layer's ``forward`` is captured as the rest of the model is. Its ``propagate`` is captured as
well, though it is called as one step: so everything that ``message``, ``aggregate`` and ``update``
read is guarded, and each of their calls must compute each edge, or each target, by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from pyg_batchgnn.port import rules
from pyg_batchgnn.port.recording import Recording, refs
from pyg_batchgnn.port.values import Edges, Fixed

#: The files of PyG that gather rows of nodes for edges, and aggregate rows of edges for nodes.
_PYGS = (
    *("/nn/conv/message_passing.py", "/nn/aggr/", "/utils/_scatter.py", "/utils/_softmax.py"),
    *("/utils/_segment.py", "/utils/num_nodes.py", "/nn/conv/utils/"),
)
_GATHERS = {*rules.GETITEM, Tensor.index_select}


def is_pygs(files: Sequence[str]) -> bool:
    """Returns whether the innermost call is one of PyG's own message passing."""
    inner = next((one for one in reversed(files) if "/torch/" not in one), "")
    template = "_propagate_" in inner.rsplit("/", 1)[-1]
    return template or ("/torch_geometric/" in inner and any(one in inner for one in _PYGS))


def whole_reason(recording: Recording, result: int, begin: Collection[int]) -> str | None:
    """Returns why messages must be passed for all rows, in a clause, or None.

    Args:
        result: what ``propagate`` returned, whose calls were captured.
        begin: what it was called with.
    """
    makers = {number: call for call in recording.calls for number in call.results}
    seen, open_ones = set(begin), [result]
    while open_ones:
        number = open_ones.pop()
        if number in seen or number not in makers:
            continue
        seen.add(number)
        call = makers[number]
        open_ones += refs((call.args, call.kwargs))
        axes = [recording.axes[one] for one in call.results]
        gathers = call.target in _GATHERS and isinstance(axes[0], Edges)
        if call.by_row or gathers or is_pygs(call.files) or all(isinstance(one, Fixed) for one in axes):
            continue
        return f"is not known, and {call.note or 'it looks at all rows or edges'} ({call.where})"
    return None
