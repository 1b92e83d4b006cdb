"""Draws a graph in the shape of papers100M, in blocks of nodes.

`PapersSpec` has the laws. A block's random numbers depend only on the seed and the block's index,
so threads make blocks in any order.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from pyg_batchgnn.data.csc import INDICES, INDPTR
from pyg_batchgnn.data.generator.pieces import Advance, DrawnPiece, StartPhase
from pyg_batchgnn.data.generator.spec import PapersSpec, RandomStream
from pyg_batchgnn.data.meta import attribute_array, csc_array, split_array
from pyg_batchgnn.types import EDGES, FEATURES, LABELS, NODES

BLOCK_NODES = 1 << 15  # The nodes that one thread makes at a time, with about half a million edges.
_THREADS = 2
_STEPS = 64  # steps of the bisection for the scale of in-degrees; each halves the error

_Made = TypeVar("_Made")


def papers_pieces(spec: PapersSpec, start_phase: StartPhase) -> Iterator[DrawnPiece]:
    """Yields the arrays of a graph, in parts. Two threads make the next blocks meanwhile."""
    drawn = spec.random(RandomStream.SPLITS).choice(spec.nodes, sum(spec.splits.values()), replace=False)
    parts = np.split(drawn, np.cumsum(list(spec.splits.values()))[:-1])
    for name, part in zip(spec.splits, parts, strict=True):
        yield DrawnPiece(split_array(NODES, name), np.sort(part))
    ranks = _Ranks(spec)
    yield DrawnPiece(attribute_array(NODES, LABELS), ranks.labels)
    degrees = _all_degrees(spec)
    rows, edges = spec.nodes + 1, int(degrees.sum(dtype=np.int64))
    advance = start_phase("drawing edges", num_blocks(spec))
    yield DrawnPiece(csc_array(EDGES, INDPTR), np.zeros(1, np.int64), rows=rows)
    begin = 0
    draw = functools.partial(_sources, spec, ranks, degrees)
    for block, sources in enumerate(_in_order(draw, spec, advance)):
        ends = begin + np.cumsum(degrees[_nodes(spec, block)], dtype=np.int64)
        begin = int(ends[-1])
        yield DrawnPiece(csc_array(EDGES, INDPTR), ends, rows=rows)
        yield DrawnPiece(csc_array(EDGES, INDICES), sources, rows=edges)
    labels, means = ranks.labels, class_means(spec)
    del ranks, degrees, draw
    advance = start_phase("drawing features", num_blocks(spec))
    for x in _in_order(functools.partial(_features, spec, labels, means), spec, advance):
        yield DrawnPiece(attribute_array(NODES, FEATURES), x, torch.bfloat16, spec.nodes)


def _in_order(make: Callable[[int], _Made], spec: PapersSpec, advance: Advance) -> Iterator[_Made]:
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[_Made]] = deque()
        try:
            for block in range(num_blocks(spec)):
                waiting.append(pool.submit(make, block))
                if len(waiting) > 2 * _THREADS:
                    yield waiting.popleft().result()
                    advance()
            while waiting:
                yield waiting.popleft().result()
                advance()
        finally:
            for one in waiting:
                one.cancel()


def num_blocks(spec: PapersSpec) -> int:
    return -(-spec.nodes // BLOCK_NODES)


def _nodes(spec: PapersSpec, block: int) -> slice:
    return slice(block * BLOCK_NODES, min((block + 1) * BLOCK_NODES, spec.nodes))


class _Ranks:
    """The nodes by rank. ``node``: [N] int32, the node at each rank. ``labels``: [N], by node."""

    def __init__(self, spec: PapersSpec) -> None:
        self.node = np.arange(spec.nodes, dtype=np.int32)
        spec.random(RandomStream.PERMUTATION).shuffle(self.node)
        self.labels: np.ndarray = np.empty(spec.nodes, np.uint8 if spec.classes <= 256 else np.int16)
        for block in range(num_blocks(spec)):
            at = _nodes(spec, block)
            self.labels[self.node[at]] = np.arange(at.start, at.stop) % spec.classes


def scale_of_degrees(spec: PapersSpec) -> float:
    """Returns s of the law of in-degrees, so that their mean is `degree`: the sum over k of the
    probability of at least k in-edges."""
    k = np.arange(1, spec.most_in_edges + 1, dtype=np.float64)
    low, high = 1e-9, 1e9
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        too_small = float(((1.0 + k / middle) ** -spec.tail).sum()) < spec.degree
        low, high = (middle, high) if too_small else (low, middle)
    return float(high)


def _all_degrees(spec: PapersSpec) -> np.ndarray:
    scale, found = scale_of_degrees(spec), np.empty(spec.nodes, np.int32)
    for block in range(num_blocks(spec)):
        at = _nodes(spec, block)
        chance = 1.0 - spec.random(RandomStream.DEGREES, block).random(at.stop - at.start)
        wanted = scale * (chance ** (-1.0 / spec.tail) - 1.0)
        found[at] = np.minimum(wanted, spec.most_in_edges)
    return found


def _sources(spec: PapersSpec, ranks: _Ranks, degrees: np.ndarray, block: int) -> np.ndarray:
    at = _nodes(spec, block)
    count = int(degrees[at].sum(dtype=np.int64))
    # The first `homophily` of the chances choose the class too; both parts are uniform again.
    chance = spec.random(RandomStream.SOURCES, block).random(count)
    is_near = chance < spec.homophily
    chance -= np.where(is_near, 0.0, spec.homophily)
    chance *= np.where(is_near, 1.0 / max(spec.homophily, 1e-300), 1.0 / max(1.0 - spec.homophily, 1e-300))
    part = chance.copy()
    for _ in range(spec.skew - 1):
        part *= chance
    part *= spec.nodes
    rank = part.astype(np.int64 if spec.nodes > 1 << 30 else np.int32)
    own = np.repeat(ranks.labels[at], degrees[at])
    nearest = rank // spec.classes * spec.classes + own
    nearest = np.where(nearest < spec.nodes, nearest, nearest - spec.classes)
    rank = np.minimum(np.where(is_near, nearest, rank), spec.nodes - 1)  # a product may round up to N
    return ranks.node[rank]


def class_means(spec: PapersSpec) -> np.ndarray:
    means = spec.random(RandomStream.CLASS_MEANS).standard_normal((spec.classes, spec.features))
    means *= spec.signal / np.linalg.norm(means, axis=1, keepdims=True)
    return means.astype(np.float32)


def _features(spec: PapersSpec, labels: np.ndarray, means: np.ndarray, block: int) -> np.ndarray:
    """Returns [n, F] int16, the bits of a block's bfloat16 features. The noise has 256 equally
    likely values: a byte, times a factor that makes the variance 1."""
    at = _nodes(spec, block)
    rows = at.stop - at.start
    size = rows * spec.features
    words = spec.random(RandomStream.NODES, block).integers(0, 1 << 64, -(-size // 8), np.uint64)
    noise = words.astype("<u8", copy=False).view(np.uint8)[:size].reshape(rows, spec.features)
    x = noise.astype(np.float32)
    x -= 127.5
    x *= np.float32(np.sqrt(12.0 / (256.0**2 - 1.0)))
    x += means[labels[at]]
    return torch.from_numpy(x).bfloat16().view(torch.int16).numpy()
