"""Makes a graph in the shape of papers100M, in memory or in a folder, in blocks of nodes.

`PapersSpec` has the laws. A block's random numbers depend on the seed and the number of the block
alone, so threads make blocks in any order.
"""

from __future__ import annotations

import functools
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.csc import INDICES, INDPTR
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.data.files import ArrayPromise, PromisedWriter, new_file, write_tensor
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.generator.progress import Advance, ProgressBar, StartPhase, progress_bar
from pyg_batchgnn.data.generator.spec import PapersSpec, RandomStream
from pyg_batchgnn.data.meta import Meta, attribute_array, csc_array, split_array, write_meta
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.types import EDGES, FEATURES, HOMOGENEOUS, LABELS, NODES

# The arrangement of random numbers: folders made by another one are not taken for this one's.
PAPERS_VERSION = 1
#: The nodes of a block, which one thread makes at a time. About half a million edges.
BLOCK_NODES = 1 << 15
_THREADS = 2
#: Steps of the bisection for the scale of in-degrees. Each halves the error.
_STEPS = 64

_Made = TypeVar("_Made")


def generate_papers(spec: PapersSpec) -> Dataset:
    """Makes the graph in memory, of the same bytes as `generate_papers_folder` writes."""
    ranks, degrees = _Ranks(spec), _all_degrees(spec)
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    blocks = range(num_blocks(spec))
    indices = np.concatenate([_sources(spec, ranks, degrees, block) for block in blocks])
    x = np.concatenate([_features(spec, ranks.labels, class_means(spec), block) for block in blocks])
    dataset = Dataset.homogeneous(
        spec.name,
        spec.nodes,
        InEdges(torch.from_numpy(indptr), torch.from_numpy(indices)),
        nodes={
            FEATURES: torch.from_numpy(x.view(np.int16)).view(torch.bfloat16),
            LABELS: torch.from_numpy(ranks.labels),
        },
        splits=draw_splits(spec),
        num_classes=spec.classes,
        source=spec.source,
    )
    return check_dataset(dataset)


def generate_papers_folder(
    spec: PapersSpec, path: str | Path, *, progress: ProgressBar = ProgressBar.AUTO
) -> Path:
    """Makes the graph in a new folder that `read_folder` maps; returns the folder, which appears
    only when it is complete. Two threads make blocks while this one writes them. Memory peaks at 10
    bytes per node and about 200 MiB, so at 1.3 GiB for as many nodes as papers100M has."""
    path = Path(path).expanduser()
    with new_folder(path) as folder, progress_bar(spec.nodes, progress) as start_phase:
        _check_room(spec, folder)
        promises = _write(spec, folder, start_phase)
        origin = {"papers_generator": asdict(spec), "generator_version": PAPERS_VERSION}
        counts, classes = {"node": spec.nodes}, {"node": spec.classes}
        write_meta(folder, Meta(spec.name, spec.source, HOMOGENEOUS, counts, classes, promises, origin))
    return path


def _check_room(spec: PapersSpec, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < spec.estimated_bytes:
        raise DatasetError(
            f"{folder.parent}: {spec.name} takes about {spec.estimated_bytes:,} bytes, and the disk has "
            f"{free:,} free; free some, choose another folder, or fewer nodes"
        )


def _write(spec: PapersSpec, folder: Path, start_phase: StartPhase) -> dict[str, ArrayPromise]:
    promises = dict[str, ArrayPromise]()

    def write(array: str, tensor: Tensor) -> None:
        promises[array] = write_tensor(new_file(folder, array), tensor)

    for name, ids in draw_splits(spec).items():
        write(split_array(NODES, name), ids)
    ranks = _Ranks(spec)
    write(attribute_array(NODES, LABELS), torch.from_numpy(ranks.labels))
    degrees = _all_degrees(spec)
    edges = int(degrees.sum(dtype=np.int64))
    arrays = {
        csc_array(EDGES, INDPTR): (torch.int64, (spec.nodes + 1,)),
        csc_array(EDGES, INDICES): (torch.int32, (edges,)),
        attribute_array(NODES, FEATURES): (torch.bfloat16, (spec.nodes, spec.features)),
    }
    with ExitStack() as stack:
        indptr_out, indices_out, x_out = (
            stack.enter_context(PromisedWriter(new_file(folder, array), *what))
            for array, what in arrays.items()
        )
        advance = start_phase("drawing edges", num_blocks(spec))
        indptr_out.append(np.zeros(1, np.int64))
        begin = 0
        for block, sources in enumerate(
            _in_order(functools.partial(_sources, spec, ranks, degrees), spec, advance)
        ):
            ends = begin + np.cumsum(degrees[_nodes(spec, block)], dtype=np.int64)
            begin = int(ends[-1])
            indptr_out.append(ends)
            indices_out.append(sources)
        labels, means = ranks.labels, class_means(spec)
        del ranks, degrees
        advance = start_phase("drawing features", num_blocks(spec))
        for x in _in_order(functools.partial(_features, spec, labels, means), spec, advance):
            x_out.append(x.view(np.int16))
    return promises | dict(
        zip(arrays, (out.promise for out in (indptr_out, indices_out, x_out)), strict=True)
    )


def _in_order(make: Callable[[int], _Made], spec: PapersSpec, advance: Advance) -> Iterator[_Made]:
    """Yields what is made of every block, in order, while threads make the next ones."""
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
    """The nodes by rank. ``node``: [N] int32, the node of each rank. ``labels``: [N], the class of
    each node."""

    def __init__(self, spec: PapersSpec) -> None:
        self.node = np.arange(spec.nodes, dtype=np.int32)
        spec.random(RandomStream.PERMUTATION).shuffle(self.node)
        self.labels: np.ndarray = np.empty(spec.nodes, spec.label_dtype)
        for block in range(num_blocks(spec)):
            at = _nodes(spec, block)
            self.labels[self.node[at]] = np.arange(at.start, at.stop) % spec.classes


def scale_of_degrees(spec: PapersSpec) -> float:
    """Returns s of the law of in-degrees: their mean, the sum of P(at least k), is `degree`."""
    k = np.arange(1, spec.most_in_edges + 1, dtype=np.float64)
    low, high = 1e-9, 1e9
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        too_small = float(((1.0 + k / middle) ** -spec.tail).sum()) < spec.degree
        low, high = (middle, high) if too_small else (low, middle)
    return float(high)


def _all_degrees(spec: PapersSpec) -> np.ndarray:
    """Returns [N] int32, the number of in-edges of each node."""
    scale, found = scale_of_degrees(spec), np.empty(spec.nodes, np.int32)
    for block in range(num_blocks(spec)):
        at = _nodes(spec, block)
        chance = 1.0 - spec.random(RandomStream.DEGREES, block).random(at.stop - at.start)
        wanted = scale * (chance ** (-1.0 / spec.tail) - 1.0)
        found[at] = np.minimum(wanted, spec.most_in_edges)
    return found


def _sources(spec: PapersSpec, ranks: _Ranks, degrees: np.ndarray, block: int) -> np.ndarray:
    """Returns [e] int32, the sources of the in-edges of the nodes of a block."""
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
    """Returns [C, F] float32, the mean features of each class, of length `signal`."""
    means = spec.random(RandomStream.CLASS_MEANS).standard_normal((spec.classes, spec.features))
    means *= spec.signal / np.linalg.norm(means, axis=1, keepdims=True)
    return means.astype(np.float32)


def _features(spec: PapersSpec, labels: np.ndarray, means: np.ndarray, block: int) -> np.ndarray:
    """Returns [n, F] uint16, the features of a block as bfloat16. The noise takes one of 256 values
    with equal probability: a byte, times a factor that makes the variance 1."""
    at = _nodes(spec, block)
    rows = at.stop - at.start
    size = rows * spec.features
    words = spec.random(RandomStream.NODES, block).integers(0, 1 << 64, -(-size // 8), np.uint64)
    noise = words.astype("<u8", copy=False).view(np.uint8)[:size].reshape(rows, spec.features)
    x = noise.astype(np.float32)
    x -= 127.5
    x *= np.float32(np.sqrt(12.0 / (256.0**2 - 1.0)))
    x += means[labels[at]]
    return to_bfloat16(x)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Returns the nearest bfloat16 of finite float32, to even where two are, as uint16."""
    bits = x.view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    return rounded.astype(np.uint16)


def draw_splits(spec: PapersSpec) -> dict[str, Tensor]:
    """Draws the nodes of each split, ascending."""
    sizes = list(spec.splits.values())
    drawn = spec.random(RandomStream.SPLITS).choice(spec.nodes, sum(sizes), replace=False)
    parts = np.split(drawn, np.cumsum(sizes)[:-1])
    return {name: torch.from_numpy(np.sort(part)) for name, part in zip(spec.splits, parts, strict=True)}
