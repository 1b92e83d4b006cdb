"""Public classes that hold arrays refuse those that would lead a kernel out of bounds.

The operators have a test of their own. All cases run in one process, which must end by itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.comm import Field, RowLayout
from pyg_batchgnn.nn import LayerGraph, RowView, whole_graph
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import PartitionBook
from pyg_batchgnn.sample import MacrobatchSampler, Minibatch, SamplingPlan, Seeds
from pyg_batchgnn.store import CscGraph, RowBlock, RowFormat, TimeOrder, TypedGraph, WeightSums
from tests.ops.test_bad_arrays import REFUSALS, E, N, _damaged, _indices, _indptr

ROOT = Path(__file__).resolve().parents[1]


def _sample(**arrays: Any) -> None:
    """Samples by times and weights, whose classes take any arrays: the sampler checks them."""
    graph = CscGraph(InEdges(_indptr(), _indices()))
    good = {"position": torch.arange(E), "time": torch.arange(E), "node": torch.arange(N)} | arrays
    sampler = MacrobatchSampler(
        graph, SamplingPlan((2, 2)), times=[TimeOrder(good["position"], good["time"])]
    )
    seeds = Seeds.of(graph.typed.schema, {"node": good["node"]}, time=torch.full((N,), 99))
    sampler.sample([seeds], 0)


def _weighted(positive: Tensor) -> None:
    sums = WeightSums.of(InEdges(_indptr(), _indices()), torch.ones(E))
    sampler = MacrobatchSampler(
        CscGraph(InEdges(_indptr(), _indices())),
        SamplingPlan((1,)),
        weights=[WeightSums(sums.sums, sums.weight, positive)],
    )
    sampler.sample([torch.arange(N)], 0)


def _typed(indptr: Tensor, indices: Tensor) -> None:
    schema = CscGraph(InEdges(_indptr(), _indices())).typed.schema
    TypedGraph(schema, (N,), (InEdges(indptr, indices),))


def _layer(indptr: Tensor, indices: Tensor) -> None:
    graph = LayerGraph(InEdges(indptr, indices), N)
    for conv in (nn.SAGEConv(4, 3), nn.GCNConv(4, 3), nn.GINConv(nn.Linear(4, 3)), nn.GATConv(4, 3)):
        conv(torch.ones(N, 4, requires_grad=True), graph).sum().backward()


def _attribute(row: Tensor) -> None:
    graph = CscGraph(InEdges(_indptr(), _indices()))
    sampled = MacrobatchSampler(graph, SamplingPlan((-1,))).sample([torch.arange(N)], 0)[0]
    batch = Minibatch.in_place(sampled, {"x": torch.ones(N, 4)})
    object.__setattr__(batch.attributes[batch.schema.node_groups[0]], "row", row)
    batch.attribute("x")


def _format(call: str, **arrays: Tensor) -> None:
    tables = RowBlock({"x": torch.ones(N, 4)}, torch.arange(N))
    form = RowFormat(tables, 1)
    if call == "gather":
        form.gather(form.empty(N), tables, arrays["index"])
    else:
        form.pack(tables, arrays["index"], torch.empty(N * form.wire_bytes, dtype=torch.uint8))


def _calls() -> dict[str, tuple[Callable[..., Any], dict[str, Tensor]]]:
    edges = {"indptr": _indptr(), "indices": _indices()}
    row = torch.arange(N)
    return {
        "csc graph": (lambda **given: CscGraph(InEdges(**given)), dict(edges)),
        "from_csc": (CscGraph.from_csc, {**edges, "edge_ids": torch.arange(E)}),
        "typed graph": (_typed, dict(edges)),
        "layer": (_layer, dict(edges)),
        "row view": (lambda row: RowView(torch.ones(N, 4), row), {"row": row}),
        "whole graph": (
            lambda source: whole_graph(torch.stack([source, torch.arange(E) % N]), N, N),
            {"source": _indices().long()},
        ),
        "seeds": (_sample, {"node": row}),
        "time order": (_sample, {"position": torch.arange(E), "time": torch.arange(E)}),
        "weights": (_weighted, {"positive": torch.arange(E + 1)}),
        "book": (PartitionBook, {"offsets": torch.arange(N + 1)}),
        "attribute": (_attribute, {"row": row}),
        "gather": (lambda index: _format("gather", index=index), {"index": row}),
        "pack": (lambda index: _format("pack", index=index), {"index": row}),
    }


def _layouts() -> list[Callable[[], Any]]:
    """Calls with packed rows that do not fit."""
    layout = RowLayout({"x": Field(torch.float32, (4,)), "y": Field(torch.int64)})
    packed = layout.empty(N)
    form, tables = RowFormat(RowBlock({"x": torch.ones(N, 4)}), 1), RowBlock({"x": torch.ones(N, 4)})
    return [
        lambda: layout.views(packed[:, :8]),
        lambda: layout.views(packed.float()),
        lambda: layout.unpack(packed[::2]),
        lambda: layout.unpack(packed.view(-1)),
        lambda: layout.pack({"x": torch.ones(N, 4), "y": torch.ones(N)}),
        lambda: layout.pack({"x": torch.ones(N, 4), "y": torch.ones(2).long()}),
        lambda: form.unpack(torch.zeros(7, dtype=torch.uint8), tables),
        lambda: form.unpack(torch.zeros(form.wire_bytes, dtype=torch.uint8), tables),
        lambda: form.gather(RowBlock({"x": torch.ones(N, 5)}), tables, torch.arange(N)),
        lambda: form.gather(RowBlock({"x": torch.ones(N, 4).double()}), tables, torch.arange(N)),
        lambda: form.pack(tables, torch.arange(N), torch.zeros(form.wire_bytes, dtype=torch.uint8)),
    ]


#: What is harmless: values that are only compared, and forms that are converted.
_HARMLESS = {
    ("row view", "row", "too short"),
    ("whole graph", "source", "not contiguous"),
    ("seeds", "node", "not contiguous"),
    ("book", "offsets", "floats"),
    ("attribute", "row", "not contiguous"),
    ("time order", "time", "negative"),
    ("time order", "time", "far"),
}


def run_all() -> None:
    """Prints the cases that were not refused."""
    for name, (call, good) in _calls().items():
        call(**good)
        for key, value in good.items():
            for kind, bad in _damaged(value):
                if (name, key, kind) in _HARMLESS:
                    continue
                try:
                    call(**{**good, key: bad})
                except REFUSALS:
                    continue
                print(f"{name}: {key}: {kind}")
    for number, misfit in enumerate(_layouts()):
        try:
            misfit()
        except REFUSALS:
            continue
        print(f"layout {number}")
    print("ended")


def test_every_damaged_array_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tests.test_bad_arrays import run_all; run_all()"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ended"], done.stdout
