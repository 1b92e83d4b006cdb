"""Figures as they were published, with their places in the publications. Seconds are seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

DGL, DGL_METIS, BGNN, BGNN_CACHE = "DGL", "DGL, METIS", "BatchGNN", "BatchGNN, aggregation cache"

_SYSTEMS = {"DGL": DGL, "DGL-M": DGL_METIS, "BGNN": BGNN, "BGNNC": BGNN_CACHE}
_Key = tuple[str, str, int, str]


def _lines(table: str) -> Iterator[tuple[str, int, str, list[float | None]]]:
    graph, ranks = "", 0
    for line in Path(__file__).with_name(table).read_text().splitlines():
        first, *figures = line.split()
        if first not in _SYSTEMS:
            graph, ranks = first, int(figures[0])
            continue
        yield graph, ranks, _SYSTEMS[first], [None if one == "-" else float(one) for one in figures]


#: The parts of an epoch, and the whole: the columns of table A1 of BatchGNN, SAGE.
PARTS = ("topology", "features", "export", "preparation", "forward", "backward", "epoch")


def _epochs() -> Iterator[tuple[_Key, dict[str, float]]]:
    for graph, ranks, system, figures in _lines("table_a1.txt"):
        known = {part: one for part, one in zip(PARTS, figures, strict=True) if one is not None}
        yield ("sage", graph, ranks, system), known
    # Table A2: forward, backward and epoch of GCN, then of GIN.
    for graph, ranks, system, figures in _lines("table_a2.txt"):
        for model, at in (("gcn", 0), ("gin", 3)):
            forward, backward, epoch = (one or 0.0 for one in figures[at : at + 3])
            found = {"forward": forward, "backward": backward, "epoch": epoch}
            yield (model, graph, ranks, system), {**found, "preparation": epoch - forward - backward}


#: The mean seconds of an epoch and of its parts by model, graph, ranks and system.
EPOCHS: dict[_Key, dict[str, float]] = dict(_epochs())
#: Table 5 of BatchGNN: feature vectors that all machines fetch, in millions.
FETCHED: dict[tuple[str, int], dict[str, float]] = {
    ("arxiv", 4): {DGL: 3.9, BGNN: 0.5, BGNN_CACHE: 0.8},
    ("products", 8): {DGL: 68.0, BGNN: 12.2, BGNN_CACHE: 15.2},
    ("papers", 32): {DGL: 463.6, DGL_METIS: 249.2, BGNN: 183.6, BGNN_CACHE: 127.4},
}
#: Section 4.2: remote feature vectors of LDBC1000 on 48 ranks by macrobatch size, in millions.
SWEEP = {1: 596.0, 72: 464.0, 0: 363.0}
#: Tables 2 and 3 of BatchGNN: seconds per epoch, on 16 and 64 ranks.
P3_EPOCH, P3_BATCHGNN_EPOCH = 3.1, 2.8
DISTDGLV2_EPOCH, DISTDGLV2_BATCHGNN_EPOCH = 5.0, 4.5
#: Table A3 of BatchGNN: seconds to make the aggregation cache for SAGE, by graph and ranks.
CACHE_SECONDS = {
    "arxiv": {1: 0.44, 2: 0.24, 4: 0.15},
    "products": {1: 22.65, 2: 11.20, 4: 5.86, 8: 3.45},
    "papers": {2: 320.69, 4: 176.11, 8: 87.95, 16: 45.69, 32: 23.22},
}
#: Table A4 of BatchGNN, SAGE: seconds of preparation and forward pass per minibatch, and the mean
#: difference between the fastest and the slowest rank.
IMBALANCE: dict[tuple[str, int], dict[str, tuple[float, float]]] = {
    ("arxiv", 2): {DGL: (0.06, 0.01), BGNN: (0.03, 0.00)},
    ("arxiv", 4): {DGL: (0.06, 0.01), BGNN: (0.03, 0.01)},
    ("products", 2): {DGL: (0.26, 0.02), BGNN: (0.06, 0.00)},
    ("products", 4): {DGL: (0.24, 0.07), BGNN: (0.07, 0.01)},
    ("products", 8): {DGL: (0.36, 0.22), BGNN: (0.09, 0.01)},
    ("papers", 32): {DGL: (0.78, 0.63), DGL_METIS: (0.50, 0.75), BGNN: (0.13, 0.03)},
}

#: FastSample: "up to" this many times as fast as DGL's kernel in sampling (figure 5), and the range
#: of the gain of a whole step, as factors.
FUSED_SAMPLING, FUSED_TRAINING = 2.0, (1.10, 1.25)
#: FastSample: what hybrid partitioning alone gains at most (section 1), and with the fused kernel
#: on 8 machines (section 4.2: "almost").
HYBRID, HYBRID_FUSED = 1.5, 2.0

#: DistGNN-MB, section 4.3: times as fast as DGL on one socket, by model and graph.
ONE_SOCKET = {
    ("sage", "products"): 1.5,
    ("sage", "papers"): 2.0,
    ("gat", "products"): 1.4,
    ("gat", "papers"): 1.7,
}
#: Section 4.3: the gain of the fused UPDATE of SAGE over the baseline, by graph, as a share.
UPDATE_GAIN = {"products": 0.44, "papers": 0.48}
#: Section 4.4: speedup on papers100M from 4 to 64 ranks and on products from 2 ranks.
SCALING = {
    "SAGE, papers100M, 4 to 64 ranks": 10.0,
    "GAT, papers100M, 4 to 64 ranks": 17.2,
    "SAGE, products, 2 to 16 ranks": 7.5,
    "GAT, products, 2 to 32 ranks": 21.9,
}
#: Section 4.4: seconds per epoch of papers100M on 64 ranks.
PAPERS_EPOCH = {"SAGE": 2.0, "GAT": 4.9}
#: Section 4.4: hit rates of the caches of the three layers on 64 ranks.
HIT_RATES = (0.71, 0.47, 0.37)
#: Section 4.4: the largest load imbalance.
LOAD_IMBALANCE = {"SAGE": 0.12, "GAT": 0.087}
#: Table 3: target test accuracy, reached within one point.
TARGETS = {"SAGE, products": 78.2, "SAGE, papers100M": 65.0, "GAT, products": 78.5, "GAT, papers100M": 65.0}
ALLOWED_POINTS = 1.0
#: Section 4.6: times as fast as DistDGL on 64 ranks.
OVER_DISTDGL = 5.2

#: DistDGL (slides): times as fast as Euler in an epoch, in copying data and in sampling, and
#: "almost" this many times as fast as PyTorch's sparse embedding.
OVER_EULER, COPY_OVER_EULER, SAMPLE_OVER_EULER, EMBEDDING_OVER_TORCH = 2.2, 5.0, 2.0, 70.0

#: Katana's article: times as fast as DistDGL on 16 ranks, in an epoch and in preparation.
KATANA_EPOCH, KATANA_PREPARATION = 3.8, 4.7
