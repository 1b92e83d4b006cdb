"""Aggregation and dense layers of one minibatch, timed alone. Started by ``layers.py``.

Reads one JSON object, the options of the workload, from standard input; answers with one line of
JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.networks.recipe import DROPOUT
from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Options
from pyg_batchgnn import ops
from pyg_batchgnn.sample import Layout, MacrobatchSampler, SampledMinibatch, SamplingPlan
from pyg_batchgnn.store import CscGraph

SECONDS = 0.5
Run = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One kernel, and how much it moves or computes.

    Attributes:
        name: what is done.
        by: whose.
        dtype: of its input.
        amount: bytes of the rows gathered, or floating point operations.
        run: does it once.
    """

    name: str
    by: str
    dtype: str
    amount: float
    run: Run


def minibatch(options: Options) -> tuple[SampledMinibatch, Tensor]:
    """The run's first minibatch, and all features."""
    folder = GraphFolder.open(options.graph)
    graph = CscGraph.from_csc(folder.colptr, folder.row.to(torch.int32))
    sampler = MacrobatchSampler(
        graph, SamplingPlan(options.fanouts), options.seed, options.threads, Layout.CSC
    )
    (batch,) = sampler.sample(seed_lists(folder, 1, options.batch_size, options.seed), 0)
    return batch, folder.x


def aggregations(batch: SampledMinibatch, x: Tensor, hidden: int) -> Iterator[Case]:
    """The mean over neighbours of the first layer, of the second, and the second's gradient."""
    last = len(batch.edges_per_hop)
    rows = [sum(batch.nodes_per_hop[: last - layer]) for layer in range(2)]  # of layers 1 and 2
    edges = [sum(batch.edges_per_hop[: last - layer]) for layer in range(2)]
    name = str(x.dtype).removeprefix("torch.")
    first = batch.indptr[: rows[0] + 1], batch.indices[: edges[0]]
    size = edges[0] * x.size(1) * x.element_size()
    in_place = partial(ops.aggregate, x, *first, row=batch.node, reduce="mean")
    yield Case("mean, layer 1", "ours, in place", name, size, in_place)
    if x.dtype is torch.float32:
        wide = first[1].long()

        def by_torch() -> Tensor:
            matrix = torch.sparse_csr_tensor(
                first[0], wide, ones, (rows[0], batch.num_nodes), check_invariants=False
            )
            return torch.sparse.mm(matrix, x.index_select(0, batch.node), "mean")

        ones = torch.ones(edges[0])
        yield Case("mean, layer 1", "torch, gather and CSR", name, size, by_torch)
    inner = batch.indptr[: rows[1] + 1], batch.indices[: edges[1]]
    h = torch.randn(rows[0], hidden).to(x.dtype)
    size = edges[1] * hidden * x.element_size()
    yield Case("mean, layer 2", "ours", name, size, lambda: ops.aggregate(h, *inner, reduce="mean"))
    graph = ops.transpose(*inner, rows[0])
    gradient = torch.randn(rows[1], hidden).to(x.dtype)
    yield Case(
        "gradient, layer 2", "ours", name, size, lambda: ops.aggregate(gradient, graph.ptr, graph.targets)
    )
    yield Case("transpose, layer 2", "ours", name, 4.0 * edges[1], lambda: ops.transpose(*inner, rows[0]))


def dense_layers(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> Iterator[Case]:
    """The first layer's update: product, bias, ReLU and dropout."""
    x = torch.randn(rows, inputs).to(dtype)
    weight, bias = torch.randn(outputs, inputs) / inputs**0.5, torch.randn(outputs)
    near, near_bias = weight.to(dtype), bias.to(dtype)
    name, work = str(dtype).removeprefix("torch."), 2.0 * rows * inputs * outputs
    what = f"linear {inputs} to {outputs}"
    yield Case(what, "ours", name, work, lambda: ops.linear([x], [weight], bias, out_dtype=dtype))
    yield Case(
        f"{what}, ReLU, dropout",
        "ours, fused",
        name,
        work,
        lambda: ops.linear([x], [weight], bias, relu=True, drop=DROPOUT, out_dtype=dtype),
    )
    yield Case(what, "torch", name, work, lambda: F.linear(x, near, near_bias))
    yield Case(
        f"{what}, ReLU, dropout",
        "torch",
        name,
        work,
        lambda: F.dropout(F.linear(x, near, near_bias).relu_(), DROPOUT),
    )


def seconds(run: Run) -> float:
    """Returns the median of the runs that fit half a second, at least nine, after a warm-up."""
    run()
    times: list[float] = []
    while len(times) < 9 or sum(times) < SECONDS:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def main() -> None:
    """Times every case in float32 and bfloat16."""
    options = Options.from_dict(json.loads(sys.stdin.read()))
    torch.set_num_threads(options.threads)
    batch, features = minibatch(options)
    rows = sum(batch.nodes_per_hop[:-1])
    found = []
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            x = features.to(dtype)
            cases = [
                *aggregations(batch, x, options.hidden),
                *dense_layers(rows, x.size(1), options.hidden, dtype),
                *dense_layers(rows, options.hidden, options.hidden, dtype),
            ]
            for case in cases:
                took = seconds(case.run)
                rate = case.amount / took
                found.append(
                    {"name": case.name, "by": case.by, "dtype": case.dtype, "seconds": took, "rate": rate}
                )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
