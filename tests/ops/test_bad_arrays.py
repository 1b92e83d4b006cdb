"""Every operator refuses arrays that would lead its kernel out of bounds.

All cases run in one process of their own, which must end by itself.
"""

from __future__ import annotations

from typing import Any

import torch

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges
from tests.support.damaged_arrays import Calls, E, N, assert_all_refused, indices, indptr, print_accepted


def _calls() -> Calls:
    """Operators with arguments that they take. Vectors of integers are those to damage."""
    x = torch.ones(N, 4)
    graph: dict[str, Any] = {"indptr": indptr(), "indices": indices()}
    by_source = ops.transpose(indptr(), indices(), N)
    columns = torch.ones(3, 4)
    weight = torch.ones(2, 4)
    row = torch.arange(N)
    return {
        "aggregate": (ops.aggregate, {"x": x, **graph, "row": row}),
        "aggregate by edge": (
            ops.aggregate,
            {"x": x, **graph, "edge_weight": torch.ones(E), "edge": torch.arange(E)},
        ),
        "aggregate max": (ops.aggregate, {"x": x, **graph, "reduce": "max"}),
        "aggregate_with_targets": (ops.aggregate_with_targets, {"x": x, **graph}),
        "aggregate_normed": (
            ops.aggregate_normed,
            {"product": x, "columns": columns, **graph, "self_scale": torch.ones(1)},
        ),
        "attention": (ops.attention, {"x": x, **graph, "source_weight": weight, "row": row, "node": row}),
        "transpose": (ops.transpose, {**graph, "num_sources": N}),
        "drop_self_loops": (ops.drop_self_loops, dict(graph)),
        "gather_rows": (ops.gather_rows, {"table": x, "index": row}),
        "put_rows": (ops.put_rows, {"out": torch.empty(N, 4), "table": x, "index": row}),
        "unique_nodes": (lambda node: ops.unique_nodes([node], N), {"node": row}),
        "count_unique_nodes": (lambda node: ops.count_unique_nodes([node], N), {"node": row}),
        "in edges": (InEdges.checked, dict(graph)),
        "by source": (
            lambda ptr, targets, edge: ops.aggregate(
                x.clone().requires_grad_(), indptr(), indices(), by_source=(ptr, targets, edge)
            ),
            dict(zip(("ptr", "targets", "edge"), by_source, strict=True)),
        ),
        "linear": (ops.linear, {"inputs": [x], "weights": [weight], "node": row}),
        "activate": (ops.activate, {"x": torch.ones(N, 4), "drop": 0.5, "node": row}),
        "group_by_owner": (ops.group_by_owner, {"owner": row, "groups": N}),
        "minibatch_key": (ops.minibatch_key, {"seeds": row}),
    }


#: Ids that only key a random choice, or are only compared, may be any numbers.
_ANY = {
    ("drop_self_loops", "indices"),
    ("attention", "node"),
    ("linear", "node"),
    ("activate", "node"),
    ("minibatch_key", "seeds"),
}
#: Arrays that may have any length.
_ANY_LENGTH = {"index", "node", "seeds", "owner"}


def _is_harmless(name: str, key: str, kind: str) -> bool:
    if kind == "too short":
        return key in _ANY_LENGTH
    return kind in ("negative", "far") and (name, key) in _ANY


def run_all() -> None:
    """Prints the cases that were not refused."""
    print_accepted(_calls(), _is_harmless)


def test_every_damaged_array_is_refused() -> None:
    assert_all_refused("tests.ops.test_bad_arrays")
