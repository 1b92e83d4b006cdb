"""The time that the gathers and products of typed steps and link steps need, at measured rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmark.support import mag
from benchmark.support.graphs import GraphFolder
from benchmark.support.jobs import Options
from benchmark.training.limits import ModelStep, Rates, ask, summary
from benchmark.training.needs import needs
from benchmark.typed_layers.needs import TypedCounts, typed_needs
from benchmark.typed_layers.rows import Row

DTYPES = ("float32",)


def step(row: Row, options: Options) -> ModelStep:
    """Returns what a step of a row needs on minibatches of the run."""
    typed = options.typed_graph if row.typed else ""
    work = replace(options, fanouts=row.fanouts, typed_graph=typed)
    found = ask(work.as_dict(), 1, "benchmark.typed_layers.counts")
    counts = TypedCounts(found["nodes"], {tuple(relation): hops for relation, hops in found["edges"]})
    if row.typed:
        rows = mag.TypedFolder.open(options.typed_graph).num_nodes
        widths = (mag.FEATURES, options.hidden, mag.CLASSES)
        return ModelStep(counts.total(), typed_needs(row.model, counts, rows, *widths))
    graph = GraphFolder.open(options.graph).describe()
    widths = (graph["features"], options.hidden, options.hidden)
    return ModelStep(counts.total(), needs(row.model, counts.total(), graph["nodes"], *widths))


def limits(rows: Sequence[Row], options: Options, threads: Sequence[int]) -> dict[str, Any]:
    """Returns what each row's step needs and its seconds, by number of threads."""
    wanted = {row.name: step(row, options) for row in rows}
    found = {}
    for count in threads:
        print(f"rates of gathers and products, {count} thread(s)", flush=True)
        rates = Rates.measure(wanted, count, DTYPES)
        found[str(count)] = {name: summary(one, rates, DTYPES) for name, one in wanted.items()}
    return found
