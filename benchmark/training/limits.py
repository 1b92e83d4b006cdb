"""The time that the gathers and matrix products of a training step need, at measured rates.

Rates are taken by programs that do nothing else: random 8-byte loads (``gather_limit.cpp``), random
rows of tables of the sizes that occur (``row_gather_limit.cpp``), and every matrix product of the
step by torch, oneDNN and this project, the fastest of which counts (``limits_worker.py``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmark.support.jobs import Options
from benchmark.support.native import gather_limit, row_gather_limit
from benchmark.support.settings import MallocSetting, ProcessSetting
from benchmark.support.tables import LOADS_PER_EDGE
from benchmark.training.needs import Gather, MinibatchCounts, Needs, Product, needs

ITEM_BYTES = {"float32": 4, "bfloat16": 2}
COUNTED_MINIBATCHES = 8


def ask(order: dict[str, Any], threads: int, module: str = "benchmark.training.limits_worker") -> Any:
    """Returns the answer of a program of this project, under this interpreter."""
    ended = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(order),
        env=ProcessSetting(threads, MallocSetting.KEPT).environment(),
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise RuntimeError(f"{module} failed:\n{ended.stderr}")
    return json.loads(ended.stdout.splitlines()[-1])


@dataclass(frozen=True)
class ModelStep:
    """The workload of one model."""

    counts: MinibatchCounts
    needs: Needs

    @property
    def edges(self) -> float:
        """The number of sampled edges."""
        return sum(self.counts.edges_per_hop)


def steps(options: Options, models: list[str], graph_rows: int) -> dict[str, ModelStep]:
    """Returns what a step of each model needs on the run's minibatches."""
    found = ask({"counts": replace(options, batches=COUNTED_MINIBATCHES).as_dict()}, options.threads)
    counts = MinibatchCounts(tuple(found["nodes_per_hop"]), tuple(found["edges_per_hop"]))
    widths = (found["features"], options.hidden, found["classes"])
    return {model: ModelStep(counts, needs(model, counts, graph_rows, *widths)) for model in models}


def row_bytes(gather: Gather, dtype: str) -> int:
    """Bytes of one row of a table of ``dtype``, up to the next multiple of 4."""
    return -(-gather.columns * ITEM_BYTES[dtype] // 4) * 4


def widest(product: Product) -> Product:
    """Joins two products into one result (SAGE's) with their inputs side by side."""
    return replace(product, k=2 * product.k, times=1) if product.times == 2 else product


def shape(product: Product) -> tuple[str, int, int, int]:
    """The fields that decide the rate of a product."""
    return product.role, product.m, product.k, product.n


@dataclass(frozen=True)
class Rates:
    """The rates measured at one moment with a number of threads, per second."""

    loads: float
    rows: dict[tuple[int, int], float]
    products: dict[tuple[str, tuple[str, int, int, int]], dict[str, float]]

    @classmethod
    def measure(
        cls, wanted: dict[str, ModelStep], threads: int, dtypes: Sequence[str] = tuple(ITEM_BYTES)
    ) -> Rates:
        """Measures all that the steps need; takes about half a minute on one thread."""
        gathers = {gather for step in wanted.values() for gather in step.needs.gathers}
        tables = sorted({(g.table_rows, row_bytes(g, dtype)) for g in gathers for dtype in dtypes})
        rows = row_gather_limit(threads, tables)
        singles = {product for step in wanted.values() for product in step.needs.products}
        shapes = sorted({shape(p) for p in singles} | {shape(widest(p)) for p in singles})
        order = {"products": shapes, "dtypes": list(dtypes), "threads": threads}
        found = {
            (one["dtype"], (one["role"], one["m"], one["k"], one["n"])): one["rates"]
            for one in ask(order, threads)
        }
        return cls(
            gather_limit(threads)["loads_per_second"],
            {(one["rows"], one["row_bytes"]): one["bytes_per_second"] for one in rows},
            found,
        )

    def better(self, other: Rates) -> Rates:
        """The higher of every rate: a neighbour on the machine must not flatter us."""
        return Rates(
            max(self.loads, other.loads),
            {table: max(rate, other.rows[table]) for table, rate in self.rows.items()},
            {
                one: {name: max(rate, other.products[one].get(name, 0.0)) for name, rate in rates.items()}
                for one, rates in self.products.items()
            },
        )

    def product_rate(self, product: Product, dtype: str) -> float:
        """Operations a second of the fastest who multiplies it, alone or several side by side."""
        both = [self.products[dtype, shape(one)] for one in (product, widest(product))]
        return max(rate for rates in both for rate in rates.values())

    def seconds(self, step: ModelStep, dtype: str) -> dict[str, float]:
        """Returns the seconds that loads, gathers and products need, one after another."""
        gathered = [
            (g.rows * row_bytes(g, dtype), self.rows[g.table_rows, row_bytes(g, dtype)])
            for g in step.needs.gathers
        ]
        return {
            "sampling": LOADS_PER_EDGE * step.edges / self.loads,
            "gathers": sum(size / rate for size, rate in gathered),
            "products": sum(p.operations / self.product_rate(p, dtype) for p in step.needs.products),
        }

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "loads_per_second": self.loads,
            "rows": [
                {"rows": rows, "row_bytes": size, "bytes_per_second": rate}
                for (rows, size), rate in self.rows.items()
            ],
            "products": [
                {"dtype": dtype, "role": role, "m": m, "k": k, "n": n, "operations_per_second": rates}
                for (dtype, (role, m, k, n)), rates in self.products.items()
            ],
        }


def summary(step: ModelStep, rates: Rates, dtypes: Sequence[str] = tuple(ITEM_BYTES)) -> dict[str, Any]:
    """Returns what is stored of a model's limit: the work and its seconds in each dtype."""
    gathers, products = step.needs.gathers, step.needs.products
    return {
        "nodes_per_hop": step.counts.nodes_per_hop,
        "edges_per_hop": step.counts.edges_per_hop,
        "operations": sum(product.operations for product in products),
        "gathered_bytes": {dtype: sum(g.rows * row_bytes(g, dtype) for g in gathers) for dtype in dtypes},
        "seconds": {dtype: rates.seconds(step, dtype) for dtype in dtypes},
    }
