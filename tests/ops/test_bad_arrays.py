"""Every operator refuses arrays that would lead its kernel out of bounds.

All cases run in one process of their own, which must end by itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges

ROOT = Path(__file__).resolve().parents[2]
REFUSALS = (TypeError, ValueError, IndexError, RuntimeError)
N, E = 6, 12


def _indptr() -> Tensor:
    return torch.arange(0, E + 1, 2)


def _indices() -> Tensor:
    return torch.arange(E, dtype=torch.int32) % N


def _calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Operators with arguments that they take. Vectors of integers are those to damage."""
    x, indptr, indices = torch.ones(N, 4), _indptr(), _indices()
    graph = {"indptr": indptr, "indices": indices}
    by_source = ops.transpose(indptr, indices, N)
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
                x.clone().requires_grad_(), indptr, indices, by_source=(ptr, targets, edge)
            ),
            dict(zip(("ptr", "targets", "edge"), by_source, strict=True)),
        ),
        "linear": (ops.linear, {"inputs": [x], "weights": [weight], "node": row}),
        "activate": (ops.activate, {"x": torch.ones(N, 4), "drop": 0.5, "node": row}),
        "group_by_owner": (ops.group_by_owner, {"owner": row, "groups": N}),
        "minibatch_key": (ops.minibatch_key, {"seeds": row}),
    }


def _damaged(values: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield "floats", values.double()
    yield "two dimensions", values.view(1, -1)
    yield "not contiguous", torch.stack([values, values], 1)[:, 0]
    yield "sparse", values.to_sparse()
    yield "no storage", values.to("meta")
    yield "too short", values[:1]
    for name, change in {"negative": -7, "far": 2**31 - 5}.items():
        damaged = values.clone()
        damaged[len(values) // 2] = change
        yield name, damaged


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


def run_all() -> None:
    """Prints the cases that were not refused."""
    for name, (call, good) in _calls().items():
        call(**good)
        vectors = [
            key for key, value in good.items() if isinstance(value, Tensor) and not value.is_floating_point()
        ]
        for key in vectors:
            for kind, bad in _damaged(good[key]):
                try:
                    call(**{**good, key: bad})
                except REFUSALS:
                    continue
                if kind == "too short" and key in _ANY_LENGTH:
                    continue
                if kind in ("negative", "far") and (name, key) in _ANY:
                    continue
                print(f"{name}: {key}: {kind}")
    print("ended")


def test_every_damaged_array_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tests.ops.test_bad_arrays import run_all; run_all()"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ended"], done.stdout
