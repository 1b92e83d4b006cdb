"""The planner's model on the cluster and the graphs of BatchGNN's paper, with its published times.

All speeds come from the paper's figures for ogbn-products (table A1: one rank, and what fetching on
2 to 8 ranks moves a second); nothing of papers100M but its size, and in one forecast how many rows
table 5 says were fetched, goes in. Prints Markdown tables; needs nothing but this package.

    python -m benchmark.papers.forecasts
"""

from __future__ import annotations

import dataclasses
import itertools

from benchmark.papers.published import BGNN, BGNN_CACHE, DGL, DGL_METIS, EPOCHS, FETCHED
from benchmark.support.tables import markdown
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.planner import (
    Degrees,
    MinibatchMeans,
    Overlaps,
    PlannerMachine,
    PlannerNetwork,
    PlannerProbe,
    PlannerSetting,
    PowerOverlap,
    Prediction,
    TypeRows,
    Workload,
    predict,
    predict_historical,
    probe_degrees,
)

#: Spread of the logarithm of degrees: mean 50.5 and median 26 of ogbn-products; taken for
#: papers100M, too.
SPREAD = 1.15


def _workload(name: str, nodes: int, row_bytes: int, edges: int, training: int) -> Workload:
    rows = (TypeRows("node", nodes, row_bytes, 8),)
    return Workload(name, rows, edges, training, (15, 10, 5), 1024, drop_last=True)


PRODUCTS = _workload("products", 2_449_029, 400, 123_718_280, 196_615)
PAPERS = _workload("papers100M", 111_059_956, 512, 3_231_371_744, 1_207_179)
#: Table 5: rows fetched on 32 ranks with B = 1 (DistDGL), on METIS's parts, and with B = all, 36
#: minibatches per rank; with aggregates kept own rows and aggregates are counted apart.
_ROWS = {name: 1e6 * millions for name, millions in FETCHED["papers", 32].items()}
FETCHED_ONE, FETCHED_METIS, FETCHED_ALL = _ROWS[DGL], _ROWS[DGL_METIS], _ROWS[BGNN]
FETCHED_KEPT = _ROWS[BGNN_CACHE] / 2
#: The workload of DistGNN-MB, section 4: SAGE of 3 layers and 256 columns with 172 classes.
DISTGNN = dataclasses.replace(
    PAPERS, batch_size=1000, drop_last=False, parameters=2 * (128 * 256 + 256 * 256 + 256 * 172) + 684
)
#: DistGNN-MB, section 4.4: seconds per epoch on 64 ranks, and the speedup over 4.
DISTGNN_RANKS, DISTGNN_EPOCH, DISTGNN_SPEEDUP = (4, 8, 16, 32, 64), 2.0, 10.0


def degrees(workload: Workload) -> Degrees:
    return Degrees.lognormal(workload.nodes, workload.edges, SPREAD)


def calibrated() -> tuple[PlannerMachine, PlannerNetwork]:
    """The speeds of a host of 72 cores as one core, from ogbn-products."""
    alone = probe_degrees(PRODUCTS, degrees(PRODUCTS), 1).full
    minibatches = PRODUCTS.minibatches([PRODUCTS.training])
    nodes, edges = minibatches * alone.nodes, minibatches * alone.edges
    topology, features, export, forward, backward = 0.64, 1.18, 1.46, 5.52, 4.88
    machine = PlannerMachine(
        relay_edge=topology / edges,
        local_edge=topology / edges,
        node=features / nodes,
        gather=0.0,
        copy=0.0,
        export=export / (nodes * PRODUCTS.features),
        wire=0.0,
        exchange=1e-4,
        forward=forward / minibatches,
        backward=backward / minibatches,
    )
    # Fetching on 2, 4 and 8 ranks took 1.00, 0.87 and 0.73 s, of which finding distinct nodes is
    # the first rank's share; the rest moves the rows of table 5's kind: 1.15 GB per second, of
    # links of 12.5.
    return machine, PlannerNetwork(12.5e9, 1e-5, efficiency=1.15 / 12.5)


def scaled(machine: PlannerMachine, probe: PlannerProbe) -> PlannerMachine:
    ratio = probe.full.edges / probe_degrees(PRODUCTS, degrees(PRODUCTS), 1).full.edges
    return dataclasses.replace(machine, forward=machine.forward * ratio, backward=machine.backward * ratio)


def with_table_5(probe: PlannerProbe) -> PlannerProbe:
    """The overlap that the paper counted, in place of that of edges at random."""
    share = 31 / 32
    away = 1 - 1 / probe.hosts
    one, every = FETCHED_ONE / (32 * 36) / share, FETCHED_ALL / 32 / share
    kept = FETCHED_KEPT / 32 / share
    inner_one = probe.inner.nodes * one / probe.full.nodes

    def changed(first: float, last: float, old: MinibatchMeans) -> MinibatchMeans:
        whole = PowerOverlap(first, last, 36, PAPERS.nodes)
        remote = PowerOverlap(first * away, last * away, 36, PAPERS.nodes * away)
        return dataclasses.replace(old, nodes=first, distinct=Overlaps((whole,)), remote=Overlaps((remote,)))

    return dataclasses.replace(
        probe, full=changed(one, every, probe.full), inner=changed(inner_one, kept, probe.inner)
    )


def forecasts(ranks: int, aggregation: bool) -> tuple[Prediction, Prediction]:
    """Predicts from degrees alone, and with the rows that table 5 counted."""
    machine, network = calibrated()
    probe = probe_degrees(PAPERS, degrees(PAPERS), ranks)
    machine = scaled(machine, probe)
    # Two macrobatches on two ranks, as the paper says; else all minibatches at once.
    half = -(-PAPERS.minibatches(probe.seeds) // 2)
    kept = Aggregation.MEAN if aggregation else None
    setting = PlannerSetting(half if ranks == 2 and not aggregation else 0, aggregation=kept)
    return (
        predict(PAPERS, probe, machine, network, setting),
        predict(PAPERS, with_table_5(probe), machine, network, setting),
    )


def compared() -> str:
    """The table of papers100M."""
    lines = []
    for aggregation, ranks in itertools.product((False, True), (2, 4, 8, 16, 32)):
        one = EPOCHS["sage", "papers", ranks, BGNN_CACHE if aggregation else BGNN]
        preparation, epoch = one["preparation"], one["epoch"]
        plain, told = forecasts(ranks, aggregation)
        lines.append(
            [
                f"{ranks} ranks" + (", aggregation cache" if aggregation else ""),
                f"{preparation:.2f}",
                f"{told.preparation:.2f}",
                f"{plain.preparation:.2f}",
                f"{epoch:.2f}",
                f"{told.epoch:.2f}",
                f"{100 * (told.epoch / epoch - 1):+.0f} %",
                f"{plain.epoch:.2f}",
                f"{100 * (plain.epoch / epoch - 1):+.0f} %",
            ]
        )
    header = ["papers100M, SAGE", "preparation: published, s", "with table 5's rows", "from degrees"]
    header += ["epoch: published, s", "with table 5's rows", "off by", "from degrees", "off by"]
    return markdown(header, lines)


def distgnn(ranks: int) -> tuple[float, float]:
    """Predicts an epoch of DistGNN-MB's cluster: with historical embeddings, and exact at B = 1."""
    machine, network = calibrated()[0], PlannerNetwork(12.5e9, 1e-5)
    probe = probe_degrees(DISTGNN, degrees(DISTGNN), ranks)
    machine = scaled(machine, probe).on(0.5, 0.0)
    share = FETCHED_METIS / FETCHED_ONE * (1 - 1 / ranks)
    away = PowerOverlap(
        share * (probe.full.nodes - DISTGNN.batch_size), share * FETCHED_ALL / 32, 36, DISTGNN.nodes * share
    )
    full = dataclasses.replace(probe.full, remote=Overlaps((away,)))
    cut = dataclasses.replace(probe, full=full)
    found = predict_historical(DISTGNN, cut, machine, network, HistoricalSettings(), hidden=256)
    exact = predict(DISTGNN, cut, machine, network, PlannerSetting(1))
    return found.epoch, exact.epoch


def historical() -> str:
    """The table of historical embeddings on up to 64 ranks."""
    first, lines = distgnn(DISTGNN_RANKS[0])[0], []
    for ranks in DISTGNN_RANKS:
        epoch, exact = distgnn(ranks)
        told = ["-", "-"]
        if ranks == DISTGNN_RANKS[0]:
            told = [f"{DISTGNN_EPOCH * DISTGNN_SPEEDUP:.0f} (from the speedup)", "1.0x"]
        if ranks == DISTGNN_RANKS[-1]:
            told = [f"{DISTGNN_EPOCH:.1f}", f"{DISTGNN_SPEEDUP:.1f}x"]
        lines.append([f"{ranks} ranks", *told, f"{epoch:.2f}", f"{first / epoch:.1f}x", f"{exact:.2f}"])
    header = ["papers100M, SAGE", "published, s", "speedup", "historical, s", "speedup"]
    return markdown([*header, "exact, B = 1, s"], lines)


if __name__ == "__main__":
    print(compared(), historical(), sep="\n\n")
