"""Figures as they were published, with their places in the publications. Seconds are seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """The mean seconds of an epoch (BatchGNN, tables A1 and A2; table 4 has some of them)."""

    forward: float
    backward: float
    epoch: float
    prepared: float | None = None  # the seconds of preparation, where they are published
    parts: tuple[float, float, float | None] | None = None

    @property
    def preparation(self) -> float:
        return self.epoch - self.forward - self.backward if self.prepared is None else self.prepared


DGL, DGL_METIS, BGNN, BGNN_CACHE = "DGL", "DGL, METIS", "BatchGNN", "BatchGNN, aggregation cache"

#: Table A1 of BatchGNN, SAGE: topology, features, export, all of preparation, forward, backward and
#: epoch.
_TABLE_A1 = """
arxiv 1
DGL 2.57 0.23 - 2.80 0.99 1.02 4.96
BGNN 0.08 0.13 0.13 0.39 1.58 1.35 3.45
BGNNC 0.07 0.11 0.06 0.29 1.70 1.43 3.53
arxiv 2
DGL 1.57 0.66 - 2.23 0.46 0.68 3.45
BGNN 0.12 0.10 0.07 0.30 0.83 0.87 2.06
BGNNC 0.09 0.06 0.04 0.21 0.59 0.75 1.61
arxiv 4
DGL 0.76 0.33 - 1.10 0.25 0.48 1.87
BGNN 0.11 0.10 0.04 0.26 0.32 0.58 1.19
BGNNC 0.11 0.07 0.03 0.22 0.34 0.44 1.03
products 1
DGL 16.93 2.29 - 19.22 5.00 4.71 29.22
BGNN 0.64 1.18 1.46 3.37 5.52 4.88 14.04
BGNNC 0.41 0.54 0.63 1.68 4.71 4.07 10.71
products 2
DGL 11.74 10.10 - 21.84 2.90 4.04 28.92
BGNN 0.83 1.00 0.91 2.79 2.86 2.33 8.11
BGNNC 0.71 0.52 0.36 1.64 2.38 2.34 6.49
products 4
DGL 5.89 4.24 - 10.13 1.60 3.67 15.47
BGNN 0.52 0.87 0.46 1.89 1.41 1.54 4.90
BGNNC 0.62 0.50 0.22 1.36 1.19 1.25 3.87
products 8
DGL 3.21 4.48 - 7.70 0.84 3.30 11.88
BGNN 0.45 0.73 0.31 1.52 0.71 0.86 3.12
BGNNC 0.65 0.44 0.14 1.25 0.61 0.86 2.74
papers 2
DGL 73.00 77.41 - 150.41 17.71 24.51 193.96
BGNN 3.98 18.74 6.10 29.13 16.27 17.51 63.86
BGNNC 5.33 4.41 2.28 12.33 13.28 15.51 42.16
papers 4
DGL 34.27 31.06 - 65.32 8.74 18.49 93.09
BGNN 2.35 7.20 3.78 13.64 8.69 10.75 33.61
BGNNC 4.06 2.73 1.19 8.14 6.49 8.46 23.62
papers 8
DGL 19.24 38.00 - 57.24 4.52 39.85 101.91
BGNN 1.37 5.64 1.61 8.73 3.96 6.77 19.70
BGNNC 3.28 2.26 0.56 6.18 3.21 4.14 13.77
papers 16
DGL 10.01 26.57 - 36.58 2.17 28.13 67.03
BGNN 0.76 4.38 0.88 6.09 1.96 3.34 11.50
BGNNC 2.02 1.48 0.31 3.86 1.71 2.69 8.39
papers 32
DGL 5.64 21.49 - 27.13 1.08 13.66 41.96
DGL-M 4.51 12.55 - 17.06 0.94 16.93 35.02
BGNN 0.55 2.76 0.45 3.79 0.99 1.81 6.64
BGNNC 1.41 1.06 0.15 2.65 0.86 2.17 5.73
"""
#: Table A2 of BatchGNN: forward, backward and epoch of GCN, then of GIN.
_TABLE_A2 = """
arxiv 1
DGL 1.16 0.73 4.95 1.11 1.42 5.78
BGNN 0.84 0.75 2.02 1.20 1.42 3.12
BGNNC 1.05 0.93 2.28 1.38 1.62 3.41
arxiv 2
DGL 0.52 0.61 3.35 0.76 0.80 4.27
BGNN 0.52 0.57 1.43 0.68 0.90 1.99
BGNNC 0.56 0.75 1.58 0.83 1.05 2.26
arxiv 4
DGL 0.30 0.46 1.93 0.40 0.51 2.06
BGNN 0.31 0.47 1.04 0.35 0.51 1.13
BGNNC 0.29 0.38 0.90 0.36 0.53 1.15
products 1
DGL 7.76 4.24 31.57 5.15 7.24 31.80
BGNN 5.00 3.25 12.11 7.08 8.31 19.05
BGNNC 4.66 4.39 11.00 6.77 8.68 17.51
products 2
DGL 3.74 2.72 27.23 3.48 4.27 28.67
BGNN 2.68 2.29 7.77 3.67 4.68 11.31
BGNNC 2.27 1.96 5.93 3.32 4.51 9.67
products 4
DGL 2.05 2.87 15.84 2.54 2.36 15.37
BGNN 1.32 1.46 4.72 1.87 2.51 6.59
BGNNC 1.05 1.04 3.54 1.72 2.45 5.63
products 8
DGL 1.05 6.30 16.07 5.31 1.51 15.15
BGNN 0.64 0.73 2.84 0.96 1.44 3.86
BGNNC 0.55 0.74 2.54 0.88 1.33 3.40
papers 2
DGL 22.29 21.63 190.62 21.54 23.86 188.11
BGNN 17.29 18.53 64.67 23.76 32.78 89.22
BGNNC 11.96 13.80 38.85 17.65 23.96 55.21
papers 4
DGL 11.07 15.73 93.61 18.17 13.33 99.93
BGNN 7.93 11.31 32.89 11.40 20.29 45.51
BGNNC 5.71 7.30 21.58 9.43 13.59 31.68
papers 8
DGL 5.65 39.09 100.61 37.85 7.28 100.68
BGNN 3.46 5.83 18.00 4.77 7.38 20.97
BGNNC 2.86 3.84 13.06 4.59 7.97 18.82
papers 16
DGL 2.84 29.73 71.52 29.44 4.27 71.89
BGNN 1.77 2.93 11.09 2.58 3.82 12.54
BGNNC 1.48 2.74 7.98 2.31 3.72 10.17
papers 32
DGL 1.43 14.87 42.96 13.67 2.29 43.33
DGL-M 1.18 17.08 33.88 16.88 2.13 35.52
BGNN 0.89 2.20 7.00 1.35 2.34 7.57
BGNNC 0.76 1.94 5.36 1.18 1.95 5.77
"""
_SYSTEMS = {"DGL": DGL, "DGL-M": DGL_METIS, "BGNN": BGNN, "BGNNC": BGNN_CACHE}
_Key = tuple[str, str, int, str]


def _lines(table: str) -> Iterator[tuple[str, int, str, list[float | None]]]:
    graph, ranks = "", 0
    for line in table.strip().splitlines():
        first, *figures = line.split()
        if first not in _SYSTEMS:
            graph, ranks = first, int(figures[0])
            continue
        yield graph, ranks, _SYSTEMS[first], [None if one == "-" else float(one) for one in figures]


def _numbers(figures: Sequence[float | None]) -> tuple[float, float, float]:
    forward, backward, epoch = (one or 0.0 for one in figures)
    return forward, backward, epoch


def _epochs() -> Iterator[tuple[_Key, Epoch]]:
    for graph, ranks, system, (topology, features, export, prepared, *rest) in _lines(_TABLE_A1):
        parts = (topology or 0.0, features or 0.0, export)
        yield ("sage", graph, ranks, system), Epoch(*_numbers(rest), prepared, parts)
    for graph, ranks, system, figures in _lines(_TABLE_A2):
        for model, at in (("gcn", 0), ("gin", 3)):
            yield (model, graph, ranks, system), Epoch(*_numbers(figures[at : at + 3]))


#: By model, graph, ranks and system.
EPOCHS: dict[_Key, Epoch] = dict(_epochs())
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
