"""Counts sampled minibatches, and finds the fastest matrix products of this machine.

Started by ``limits.py``.

Reads one JSON object from standard input. ``{"counts": OPTIONS}`` asks for the mean counts of some
minibatches; ``{"products": [[role, m, k, n], ...], "dtypes": [...], "threads": T}`` for rates of
products. A role is one of ``needs.Product``. Answers with one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Options

SECONDS = 0.15
REPEATS = 3
Multiply = Callable[[], Any]


def counts(options: Options) -> dict[str, Any]:
    """Returns the mean nodes and edges per hop over some minibatches, and the graph's sizes."""
    from pyg_batchgnn.sample import Layout, MacrobatchSampler, SamplingPlan
    from pyg_batchgnn.store import CscGraph

    folder = GraphFolder.open(options.graph)
    graph = CscGraph.from_csc(folder.colptr, folder.row.to(torch.int32))
    sampler = MacrobatchSampler(
        graph, SamplingPlan(options.fanouts), options.seed, options.threads, Layout.CSC
    )
    lists = seed_lists(folder, options.batches, options.batch_size, options.seed)
    minibatches = sampler.sample(lists, 0)

    def means(name: str) -> list[float]:
        return [sum(hop) / len(lists) for hop in zip(*(getattr(m, name) for m in minibatches), strict=True)]

    return {
        "nodes_per_hop": means("nodes_per_hop"),
        "edges_per_hop": means("edges_per_hop"),
        "features": folder.x.size(1),
        "classes": folder.num_classes,
    }


def torch_products(role: str, x: Tensor, grad: Tensor, weight: Tensor) -> Iterator[tuple[str, Multiply]]:
    """``torch.mm`` into memory that is there already: x [m, k], grad [m, n], weight [n, k]."""
    if role == "forward":
        yield "torch.mm", lambda: torch.mm(x, weight.t(), out=grad)
    elif role == "weight":
        yield "torch.mm", lambda: torch.mm(grad.t(), x, out=weight)
    else:
        yield "torch.mm", lambda: torch.mm(grad, weight, out=x)


def onednn_products(role: str, x: Tensor, grad: Tensor, weight: Tensor) -> Iterator[tuple[str, Multiply]]:
    """oneDNN's linear layer, which has no gradient of weights in this form."""
    if role == "weight" or not torch.backends.mkldnn.is_available():
        return
    inputs, matrix = (x, weight) if role == "forward" else (grad, weight.t().contiguous())
    linear = torch.ops.mkldnn._linear_pointwise
    yield "oneDNN", lambda: linear(inputs, matrix, None, "none", [], "")


def own_products(role: str, x: Tensor, grad: Tensor, weight: Tensor) -> Iterator[tuple[str, Multiply]]:
    """This project's own."""
    from pyg_batchgnn.ops.library import kernels as own

    threads, rows = torch.get_num_threads(), x.size(0)
    if role == "forward":
        dtype = x.dtype
        yield (
            "pyg_batchgnn",
            lambda: own.linear(
                [x], [None], [weight], None, rows, 1, dtype, False, 0.0, 0, None, False, threads
            ),
        )
        return
    mask = torch.empty((0, 0), dtype=torch.uint8)
    wants_input = role == "input"

    def gradients() -> Any:
        return own.linear_grads(
            grad,
            mask,
            1.0,
            [x],
            [None],
            [weight],
            None,
            1,
            False,
            [wants_input],
            not wants_input,
            False,
            threads,
        )

    yield "pyg_batchgnn", gradients


def best_seconds(multiply: Multiply) -> float:
    """The fastest of at least ``REPEATS`` calls, after one that is not measured."""
    multiply()
    best, total, calls = float("inf"), 0.0, 0
    while calls < REPEATS or total < SECONDS:
        started = time.perf_counter()
        multiply()
        seconds = time.perf_counter() - started
        best, total, calls = min(best, seconds), total + seconds, calls + 1
    return best


def rates(role: str, m: int, k: int, n: int, dtype: torch.dtype) -> dict[str, float]:
    """Operations a second of everyone who multiplies this shape."""
    x, grad, weight = (torch.randn(shape).to(dtype) for shape in ((m, k), (m, n), (n, k)))
    found = {}
    for contenders in (torch_products, onednn_products, own_products):
        with contextlib.suppress(RuntimeError, NotImplementedError):  # not for this dtype
            for name, multiply in contenders(role, x, grad, weight):
                found[name] = 2.0 * m * k * n / best_seconds(multiply)
    return found


def products(order: dict[str, Any]) -> list[dict[str, Any]]:
    """Rates of every product asked for, in every dtype."""
    torch.set_num_threads(order["threads"])
    found = []
    with torch.no_grad():
        for dtype in order["dtypes"]:
            for role, m, k, n in order["products"]:
                shape = {"role": role, "m": m, "k": k, "n": n, "dtype": dtype}
                found.append({**shape, "rates": rates(role, m, k, n, getattr(torch, dtype))})
    return found


def main() -> None:
    """Answers the one order."""
    order = json.loads(sys.stdin.read())
    answer = counts(Options.from_dict(order["counts"])) if "counts" in order else products(order)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
