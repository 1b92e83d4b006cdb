"""BatchGNN: epochs and their parts, rows fetched, macrobatch sizes, the cache, imbalance, P3."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.papers import published
from benchmark.papers.forecasts import forecasts
from benchmark.papers.page import (
    DASH,
    Bar,
    Compared,
    Panel,
    Source,
    Stored,
    epoch_parts,
    quiet,
    ratio,
    shown,
    times,
    where,
)
from benchmark.papers.published import BGNN, BGNN_CACHE, DGL, DGL_METIS, PARTS
from benchmark.support.tables import over_rounds, size_name

#: The ranks of the epochs that are stored.
RANKS = 2
MODELS, GRAPHS = ("sage", "gcn", "gin"), ("arxiv", "products")


def _ours(stored: Stored, model: str, graph: str, cached: bool, macrobatch: int = 0) -> dict[str, float]:
    chosen = {"model": model, "macrobatch": macrobatch, "cached": cached}
    return epoch_parts(stored.chosen(f"caching-{graph}", "training", **chosen))


def _distdgl(stored: Stored, graph: str) -> dict[str, float]:
    return epoch_parts(stored.chosen(f"ranks-{graph}", "dist_dgl", setting="DistDGL"))


def _epochs(stored: Stored) -> Compared:
    rows, parts = [], PARTS[3:]
    for graph in GRAPHS:
        for model in MODELS:
            theirs = {name: published.EPOCHS[model, graph, RANKS, name] for name in (DGL, BGNN, BGNN_CACHE)}
            ours = {
                DGL: _distdgl(stored, graph) if model == "sage" else {},
                BGNN: _ours(stored, model, graph, cached=False),
                BGNN_CACHE: _ours(stored, model, graph, cached=True),
            }
            for name, one in theirs.items():
                here, base = ours[name], ours[DGL]
                rows.append(
                    [
                        f"{graph}, {model}, {name}",
                        *(f"{one[part]:.2f}" for part in parts),
                        times(theirs[DGL]["epoch"] / one["epoch"]),
                        *(shown(here.get(part), ".2f") for part in parts),
                        times(ratio(base.get("epoch"), here.get("epoch"))),
                    ]
                )
    header = ["2 ranks", "published: prep. s", "forward", "backward", "epoch", "against DGL"]
    return Compared(
        "Tables 4, A1 and A2: an epoch and its parts",
        "Published: 2 machines of 72 cores, Omni-Path, DistDGL 1.0, with replacement. Ours: 2 ranks of "
        "one core each on loopback, DGL 1.1.3's DistDGL on 2 hosts without limited links, graphs of the "
        "same size that are generated, without replacement, B = all; products was not measured on a quiet "
        "machine. In ours BatchGNN's lines are this package's. Compare ratios, not seconds.",
        [*header, "ours: prep. s", "forward", "backward", "epoch", "against DistDGL"],
        rows,
    )


def _breakdown(stored: Stored) -> Compared:
    rows = []
    for graph, ranks in (("arxiv", 4), ("products", 8), ("papers", 32)):
        for system in (DGL, DGL_METIS, BGNN, BGNN_CACHE):
            if one := published.EPOCHS.get(("sage", graph, ranks, system)):
                name = f"{graph}, {ranks} ranks, {system}"
                rows.append([name, *(shown(one.get(part), ".2f") for part in PARTS)])
    for system, seconds in (
        ("DistDGL", _distdgl(stored, "arxiv")),
        ("ours, B = all", _ours(stored, "sage", "arxiv", cached=False)),
        ("ours, B = all, aggregation cache", _ours(stored, "sage", "arxiv", cached=True)),
    ):
        if seconds:
            figures = (shown(seconds.get(part), ".2f") for part in PARTS)
            rows.append([f"arxiv, 2 ranks, {system}, here", *figures])
    return Compared(
        "Table 4: the parts of an epoch of SAGE",
        "Seconds, means over ranks. Published: machines of 72 cores; the third epoch. Ours: the last three "
        "lines, one core per rank, a generated graph of the size of arxiv, the second epoch; topology and "
        "features are means of two epochs. Ours exports nothing: native layers read what was fetched.",
        ["", *PARTS],
        rows,
    )


def _scaling(_: Stored) -> Compared:
    rows = []
    for graph in ("arxiv", "products", "papers"):
        for ranks in (1, 2, 4, 8, 16, 32):
            for model in MODELS:
                theirs, plain, cached = (
                    published.EPOCHS.get((model, graph, ranks, one), {}).get("epoch")
                    for one in (DGL, BGNN, BGNN_CACHE)
                )
                if theirs is not None:
                    seconds = [shown(one, ".2f") for one in (theirs, plain, cached)]
                    gains = [times(ratio(theirs, plain)), times(ratio(theirs, cached))]
                    rows.append([f"{graph}, {ranks} ranks, {model}", *seconds, *gains])
    return Compared(
        "Tables A1 and A2: epochs by ranks, as published",
        "Seconds of an epoch, all of the paper's configurations. The table before has ours on 2 ranks. The "
        "planner's forecast for papers100M on the paper's cluster is in benchmark/pages/forecasts.md: "
        "within 25 % of the published epochs without the cache.",
        ["", "DGL", "BatchGNN", "with aggregation cache", "times as fast", "times as fast"],
        rows,
    )


def _rows_fetched(stored: Stored, graph: str, macrobatch: int) -> float | None:
    entries = stored.chosen(f"ranks-{graph}", "rows", ranks=4, hybrid=False, macrobatch=macrobatch)
    return stored.total(entries, "rows_fetched")


def _rows_with_cache(stored: Stored, graph: str) -> float | None:
    entries = stored.chosen(f"caching-{graph}", "preparation", model="sage", macrobatch=0, cached=True)
    rows = stored.total(entries, "rows_fetched")
    return None if rows is None else 2 * rows


def _fetched(stored: Stored) -> Compared:
    rows = []
    for (graph, ranks), theirs in published.FETCHED.items():
        ours = {
            DGL: _rows_fetched(stored, graph, 1),
            BGNN: _rows_fetched(stored, graph, 0),
            BGNN_CACHE: _rows_with_cache(stored, graph) if graph == "arxiv" else None,
        }
        for name, millions in theirs.items():
            here, base = ours.get(name), ours[DGL]
            rows.append(
                [
                    f"{graph}, {ranks} ranks, {name}",
                    f"{millions:.1f}",
                    times(theirs[DGL] / millions),
                    shown(None if here is None else here / 1e6, ".1f"),
                    times(ratio(base, here)),
                ]
            )
    return Compared(
        "Table 5: feature vectors fetched in an epoch",
        "Millions, all ranks together. Ours: 4 ranks; the lines of DGL are B = 1, which fetches what a "
        "minibatch at a time needs; BatchGNN's are B = all. Sampled without replacement, so a minibatch "
        "has more distinct nodes than in the paper. A row of the aggregation cache counts as two "
        "vectors. Random owners. papers100M does not fit this machine.",
        ["", "published", "times fewer than DGL", "ours", "times fewer than B = 1"],
        rows,
    )


def _sweep(stored: Stored) -> Compared:
    rows = [
        [
            f"LDBC1000, 48 ranks, B = {size_name(size)}",
            f"{millions:.0f}",
            f"{published.SWEEP[1] / millions:.2f}x",
        ]
        + [DASH] * 3
        for size, millions in published.SWEEP.items()
    ]
    for graph in GRAPHS:
        series = stored.series(f"ranks-{graph}", "network")
        first: tuple[float, float] | None = None
        for size in dict.fromkeys(one["macrobatch"] for one in series):
            entries = [one for one in series if one["macrobatch"] == size]
            millions = entries[0]["ranks"] * entries[0]["rows_fetched"] / 1e6
            seconds = over_rounds(entries, "wall")
            first = first or (millions, seconds)
            gains = f"{first[0] / millions:.2f}x", f"{first[1] / seconds:.1f}x"
            rows.append([f"{graph}, 4 ranks, B = {size_name(size)}", DASH, DASH, f"{millions:.1f}", *gains])
    return Compared(
        "Figure 3: the macrobatch size",
        "Published: remote feature vectors of an epoch, in millions, 1.9 billion nodes; its seconds are "
        "only drawn. Ours: 4 hosts on links of 1 Gbit/s, graphs of the size of arxiv and products, whose "
        "minibatches overlap far more.",
        ["", "published: vectors", "times fewer", "ours: vectors", "times fewer", "prepared times as fast"],
        rows,
    )


def _settings(stored: Stored) -> Compared:
    rows = []
    for name, run, theirs, batchgnn in (
        ("P3: 2 layers of 32, fanout 25, 10", "p3", published.P3_EPOCH, published.P3_BATCHGNN_EPOCH),
        (
            "DistDGLv2: 3 layers of 256, fanout 15, 10, 5",
            "distdglv2",
            published.DISTDGLV2_EPOCH,
            published.DISTDGLV2_BATCHGNN_EPOCH,
        ),
    ):
        one, every = (
            epoch_parts(stored.chosen("papers", run, setting=setting)).get("epoch")
            for setting in ("B = 1", "B = all")
        )
        told = forecasts(64, aggregation=False)[1].epoch if run == "distdglv2" else None
        rows.append(
            [
                name,
                f"{theirs:.1f}",
                f"{batchgnn:.1f}",
                f"{theirs / batchgnn:.2f}x",
                shown(told, ".1f"),
                shown(one, ".2f"),
                shown(every, ".2f"),
                times(ratio(one, every)),
            ]
        )
    header = ["", "published: theirs, s", "BatchGNN, s", "times as fast", "planner, s"]
    return Compared(
        "Tables 2 and 3: the settings of P3 and DistDGLv2",
        "Published: papers100M, 16 ranks against 16 P100 GPUs, and 64 ranks against 64 T4 GPUs. "
        "Planner: the planner's model of BatchGNN's cluster, with the overlap of table 5. Ours: "
        f"{where(stored, 'p3')}, with replacement, batch 1,000. Ours has no GPU system to compare with, "
        "so it compares macrobatches with single minibatches.",
        [*header, "ours: B = 1, s", "B = all, s", "times as fast"],
        rows,
    )


def _cache(stored: Stored) -> Compared:
    rows = []
    for graph, by_ranks in published.CACHE_SECONDS.items():
        for ranks, seconds in by_ranks.items():
            entries = stored.chosen(f"caching-{graph}", "initialisation", model="sage", ranks=ranks)
            wall = over_rounds(entries, "wall") if entries else None
            cpu = entries[0]["cpu"] if entries else None
            here = [shown(wall, ".2f"), shown(cpu, ".2f")]
            rows.append([f"{graph}, {ranks} rank{'s' * (ranks > 1)}", f"{seconds:.2f}", *here])
    return Compared(
        "Table A3: making the aggregation cache",
        "For SAGE. Published: machines of 72 cores. Ours: one core per rank, and 4 ranks share 2 cores, "
        "so its seconds do not fall with ranks; CPU seconds are those of all ranks.",
        ["", "published, s", "ours, s", "ours, CPU s"],
        rows,
    )


def _imbalance(stored: Stored) -> Compared:
    rows = [
        [f"{graph}, {ranks} ranks, {name}", *_apart(seconds, apart), *[DASH] * 3]
        for (graph, ranks), systems in published.IMBALANCE.items()
        for name, (seconds, apart) in systems.items()
    ]
    for setting in ("B = 1", "B = all"):
        entries = quiet(stored.chosen("papers", "distdglv2", setting=setting))
        if entries:
            name = f"{where(stored, 'distdglv2').split(', ')[-1]}, 4 ranks, {setting}"
            rows.append([name, *[DASH] * 3, *_apart(entries[0]["ready"], entries[0]["apart"])])
    return Compared(
        "Table A4: imbalance",
        "Seconds of preparation and forward pass per minibatch, and the mean difference between the "
        "fastest and the slowest rank, for SAGE. Ours: 4 ranks that share 2 cores, so the scheduler of "
        "the machine adds to the difference.",
        ["", "published, s", "difference", "share", "ours, s", "difference", "share"],
        rows,
    )


def _apart(seconds: float, apart: float) -> list[str]:
    return [f"{seconds:.2f}", f"{apart:.2f}", f"{100 * apart / seconds:.0f} %"]


def panels(stored: Stored) -> Sequence[Panel]:
    """Draws times as fast as DistDGL, times fewer vectors, and the gain of the cache."""
    faster, cache = [], []
    for graph in GRAPHS:
        theirs, batchgnn = (published.EPOCHS["sage", graph, RANKS, one]["epoch"] for one in (DGL, BGNN))
        base, plain = _distdgl(stored, graph), _ours(stored, "sage", graph, cached=False)
        here = ratio(base.get("epoch"), plain.get("epoch"))
        faster.append(Bar(f"epoch, {graph}", theirs / batchgnn, here))
    for model in MODELS:
        one, other = (published.EPOCHS[model, "arxiv", RANKS, name]["epoch"] for name in (BGNN, BGNN_CACHE))
        plain, kept = (_ours(stored, model, "arxiv", cached=cached) for cached in (False, True))
        here = ratio(plain.get("epoch"), kept.get("epoch"))
        cache.append(Bar(f"{model}, arxiv", one / other, here))
    fewer = [
        Bar(
            f"{graph}, {ranks} ranks",
            millions[DGL] / millions[BGNN],
            ratio(_rows_fetched(stored, graph, 1), _rows_fetched(stored, graph, 0)),
        )
        for (graph, ranks), millions in published.FETCHED.items()
    ]
    return [
        Panel("an epoch of SAGE on 2 ranks", "times as fast as DistDGL", faster),
        Panel("feature vectors of an epoch", "times fewer with B = all", fewer),
        Panel("the aggregation cache, B = all", "times as fast with it", cache),
    ]


#: Of the paper's section 4 and appendix F.
TABLES = (_breakdown, _epochs, _scaling, _fetched, _sweep, _settings, _cache, _imbalance)
BATCHGNN = Source("batchgnn", "BatchGNN (Hoang et al. 2023)", TABLES, panels)
