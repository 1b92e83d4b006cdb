"""The aggregation cache of BatchGNN: what it costs to make, and epochs with it and without.

Ranks are processes of this machine with one thread each, every one a host of its own. Parts:

    initialisation  seconds, bytes and peak memory of making the cache on 1, 2 and 4 ranks
    preparation     an epoch's minibatches on 4 ranks over the network: seconds, rows, bytes (root)
    training        an epoch on 2 ranks over loopback

Every setting (model, with or without, B) that is measured replaces that setting in the results, so
that a long run can be done in pieces: --parts, --models, --macrobatches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from benchmark.support.meters import peak_bytes, release_free_memory, reset_peak, resident_bytes
from benchmark.support.ranks import JOBS as SHARED_JOBS
from benchmark.support.ranks import (
    Answer,
    Job,
    Measured,
    Meter,
    RankGraph,
    RankWorkload,
    measure_parts,
    prepared_epoch,
    train_epochs,
    workload_parser,
)
from benchmark.support.tables import MIB, Result, by, markdown, over_rounds, size_name
from benchmark.support.world import LOOPBACK
from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES
from pyg_batchgnn.nn import GCN, GIN, SAGE, NativeModel

#: By model, what its first layer aggregates by.
KINDS = {"sage": "mean", "gcn": "symmetric", "gin": "sum"}
WORKER = "benchmark.caching"
WAYS = {False: "without", True: "with"}


# What a rank does


def make(comm: Communicator, options: Answer) -> Answer:
    """Makes the cache of a model, after another one, which is not measured."""
    graph = RankGraph(comm, options)
    found = Answer()
    for _ in range(2):  # the first one makes connections and touches pages
        release_free_memory()
        before = resident_bytes()
        reset_peak()
        meter = Meter(comm)
        cache = graph.aggregates(KINDS[options["model"]])
        found = {**meter.stop(), "bytes": cache.nbytes, "peak": peak_bytes() - before}
        del cache
    return found


def _loader(graph: RankGraph, options: Answer) -> MacrobatchNeighborLoader:
    if not options["cached"]:
        return graph.loader(options["macrobatch"], attributes=["x", "y"])
    names, cache = ["x", "y"], graph.aggregates(KINDS[options["model"]])
    if options["model"] == "gcn":
        names.remove("x")
    return graph.loader(options["macrobatch"], attributes=names, aggregation_cache=cache)


def prepare(comm: Communicator, options: Answer) -> Answer:
    graph = RankGraph(comm, options)
    return prepared_epoch(graph, _loader(graph, options), 0)


def train(comm: Communicator, options: Answer) -> Answer:
    graph = RankGraph(comm, options)
    return train_epochs(graph, options, _loader(graph, options), _network(graph, options))


def _network(graph: RankGraph, options: Answer) -> NativeModel:
    torch.manual_seed(0)
    columns, layers = graph.part.attributes[NODES]["x"].shape[1], len(options["fanouts"])
    shape = (columns, options["hidden"], layers, graph.classes())
    if options["model"] == "gin":
        return GIN(*shape, norm="batch_norm")
    return {"sage": SAGE, "gcn": GCN}[options["model"]](*shape)


JOBS: dict[str, Job] = {**SHARED_JOBS, "make": make, "prepare": prepare, "train": train}


# Measuring


def _initialisation(models: Sequence[str], bench: RankWorkload) -> Iterator[Answer]:
    for ranks, _, model in itertools.product((1, 2, 4), range(bench.rounds), models):
        with bench.world(ranks, LOOPBACK) as world:
            yield bench.entry(world, "make", {"model": model}, model=model)


def _epochs(
    job: str,
    ranks: int,
    network: str | None,
    models: Sequence[str],
    sizes: Sequence[int],
    bench: RankWorkload,
) -> Iterator[Answer]:
    for number, model, size in itertools.product(range(bench.rounds), models, sizes):
        for cached in (False, True) if number % 2 else (True, False):
            setting = {"model": model, "macrobatch": size, "cached": cached}
            with bench.world(ranks, network) as world:
                yield bench.entry(world, job, setting, **setting)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the parts; keeps the results of settings that are not measured again."""
    parser = workload_parser(__doc__, WRITERS)
    parser.add_argument("--models", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--macrobatches", nargs="+", type=int, default=[1, 0], help="B, 0 for all")
    chosen = parser.parse_args(arguments)
    settings = (chosen.models, chosen.macrobatches)
    parts: dict[str, Measured] = {
        "initialisation": partial(_initialisation, chosen.models),
        "preparation": partial(_epochs, "prepare", 4, None, *settings),
        "training": partial(_epochs, "train", 2, LOOPBACK, *settings),
    }
    loopback = dict.fromkeys(("initialisation", "training"), LOOPBACK)
    measure_parts("caching", parts, loopback, RankWorkload.parse(chosen, WORKER), chosen)


# Tables


def table(result: Result) -> str:
    return "\n\n".join(WRITERS[name](result["parts"][name]) for name in WRITERS if name in result["parts"])


def _made(part: Result) -> str:
    lines = []
    for model, of_model in by(part["series"], "model"):
        for ranks, entries in by(of_model, "ranks"):
            one = entries[0]
            lines.append(
                [
                    f"{model}, {ranks} ranks" if ranks > 1 else f"{model}, 1 rank",
                    f"{over_rounds(entries, 'wall'):.2f}",
                    f"{over_rounds(entries, 'cpu'):.2f}",
                    f"{one['features']['rows']:,.0f}",
                    f"{one['features']['bytes'] / 1e6:,.0f}",
                    f"{one['bytes'] / MIB:,.0f}",
                    f"{one['peak'] / MIB:,.0f}",
                ]
            )
    header = ["making the cache", "seconds", "CPU s, all ranks", "rows and ids received per rank"]
    return markdown(
        [*header, "MB received per rank", "cache, MiB per rank", "peak on top of the graph, MiB"], lines
    )


def _pairs(part: Result) -> Iterator[tuple[list[str], list[Result]]]:
    for model, of_model in by(part["series"], "model"):
        for size, entries in by(of_model, "macrobatch"):
            of_ways = dict(by(entries, "cached"))
            for cached, way in WAYS.items():
                seconds = over_rounds(of_ways[cached], "wall")
                faster = over_rounds(of_ways[False], "wall") / seconds
                name = f"{model}, B = {size_name(size)}, {way}"
                yield [name, f"{seconds:.2f}", f"{faster:.2f}x"], of_ways[cached]


def _prepared(part: Result) -> str:
    lines = [
        [
            *cells,
            f"{over_rounds(entries, 'cpu'):.1f}",
            f"{entries[0]['nodes']:,.0f}",
            f"{entries[0]['rows_fetched']:,.0f}",
            f"{entries[0]['features']['bytes'] / 1e6:,.0f}",
            f"{entries[0]['topology']['bytes'] / 1e6:,.1f}",
        ]
        for cells, entries in _pairs(part)
    ]
    first = part["series"][0]
    what = f"preparing {first['minibatches']:.0f} minibatches per rank, {first['ranks']} hosts"
    header = [f"{what}, {part['network']} links", "seconds"]
    header += ["times as fast", "CPU s, all ranks", "nodes per rank", "rows fetched per rank"]
    return markdown([*header, "feature MB per rank", "topology MB per rank"], lines)


def _trained(part: Result) -> str:
    phases = ("prepare", "forward", "backward")
    lines = [
        [
            *cells,
            *(f"{over_rounds(entries, 'phases', phase):.2f}" for phase in phases),
            f"{over_rounds(entries, 'cpu'):.1f}",
        ]
        for cells, entries in _pairs(part)
    ]
    first = part["series"][0]
    what = f"an epoch of {first['minibatches']:.0f} minibatches per rank, {first['ranks']} ranks"
    header = [f"{what}, {part['network']}", "seconds"]
    return markdown([*header, "times as fast", "preparing", "forward", "backward", "CPU s, all ranks"], lines)


WRITERS: dict[str, Callable[[Result], str]] = {
    "initialisation": _made,
    "preparation": _prepared,
    "training": _trained,
}
