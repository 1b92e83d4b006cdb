"""Makes graphs of papers, authors, fields and institutions, with power-law relations.

Nodes lie in communities, which most edges stay within. A paper has the class of its
community, and an author its labels. Every number is drawn in blocks, so that a graph may
be larger than memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pyg_batchgnn.data.dataset import SPLITS
from pyg_batchgnn.data.generator.communities import coprime_strides
from pyg_batchgnn.data.generator.pieces import DrawnPiece
from pyg_batchgnn.data.generator.spec import DRAWN, REVERSED, TYPED_SCHEMA, TypedGeneratorSpec
from pyg_batchgnn.data.meta import attribute_array, edge_array, split_array
from pyg_batchgnn.types import Relation

_BLOCK = 1 << 16
_GROUP_NODES, _LABELS, _TIMES = 512, 3, 1_000_003
_NEAR, _LABEL_NOISE, _EXPONENT = 0.8, 0.05, 2.5


def typed_pieces(spec: TypedGeneratorSpec) -> Iterator[DrawnPiece]:
    groups = dict(zip(TYPED_SCHEMA.relations, TYPED_SCHEMA.edge_groups, strict=True))
    reverse_of = {drawn: reverse for reverse, drawn in REVERSED.items()}
    for number, (relation, mean) in enumerate(DRAWN.items()):
        for block in _blocks(spec.num_nodes[relation[0]]):
            random = np.random.default_rng([spec.seed, 1 + number, block.start])
            edges = _edges(spec, random, relation, block, spec.degree if mean is None else mean)
            yield DrawnPiece(edge_array("edge_index", groups[relation]), edges)
            if mean is None:
                yield DrawnPiece(attribute_array(groups[relation], "time"), _time(edges[0]))
            if relation in reverse_of:
                yield DrawnPiece(edge_array("edge_index", groups[reverse_of[relation]]), edges[::-1])
    for name in ("paper", "author"):
        yield from _nodes(spec, name)


def _blocks(count: int) -> Iterator[range]:
    return (range(begin, min(begin + _BLOCK, count)) for begin in range(0, count, _BLOCK))


def _edges(
    spec: TypedGeneratorSpec, random: np.random.Generator, relation: Relation, block: range, mean: float
) -> np.ndarray:
    sources, targets = spec.num_nodes[relation[0]], spec.num_nodes[relation[2]]
    alpha, ids = 1.0 / (_EXPONENT - 1.0), np.arange(block.start, block.stop)
    wanted = mean * (1.0 - alpha) * (1.0 - random.random(len(ids))) ** -alpha
    np.minimum(wanted, mean * math.sqrt(targets), out=wanted)
    source = np.repeat(ids, np.floor(wanted + random.random(len(ids))).astype(np.int64))
    group, groups = _group(spec, source, sources), _groups(spec)
    starts = np.arange(groups + 1) * targets // groups
    near = random.random(len(source)) < _NEAR
    near &= starts[group + 1] > starts[group]
    begin = np.where(near, starts[group], 0)
    size = np.where(near, starts[group + 1] - starts[group], targets)
    # floor(size * u^power) has a power law of the wanted exponent among ranks
    rank = (random.random(len(source)) ** ((_EXPONENT - 1.0) / (_EXPONENT - 2.0)) * size).astype(np.int64)
    place = begin + np.minimum(rank, size - 1)
    return np.stack([source, place * _stride(targets) % targets]).astype(np.int32)


def _nodes(spec: TypedGeneratorSpec, name: str) -> Iterator[DrawnPiece]:
    count, number = spec.num_nodes[name], TYPED_SCHEMA.type_number(name)
    group = TYPED_SCHEMA.node_groups[number]
    means = np.random.default_rng([spec.seed, 100]).standard_normal((spec.classes, spec.features))
    for block in _blocks(count):
        random = np.random.default_rng([spec.seed, 101 + number, block.start])
        ids = np.arange(block.start, block.stop)
        community = _group(spec, ids, count)
        if name == "paper":
            known = community % spec.classes
            noisy = random.random(len(ids)) < _LABEL_NOISE
            labels = np.where(noisy, random.integers(0, spec.classes, len(ids)), known)
            yield DrawnPiece(attribute_array(group, "y"), labels)
            x = random.standard_normal((len(ids), spec.features), dtype=np.float32)
            yield DrawnPiece(attribute_array(group, "x"), x + means[known].astype(np.float32))
            yield DrawnPiece(attribute_array(group, "time"), _time(ids))
        else:
            bits = community[:, None] >> np.arange(_LABELS) & 1
            noisy = random.random(bits.shape) < _LABEL_NOISE
            yield DrawnPiece(attribute_array(group, "y"), np.where(noisy, 1 - bits, bits))
        part = random.random(len(ids))
        for split, (low, high) in zip(SPLITS, ((0.0, 0.6), (0.6, 0.8), (0.8, 1.0)), strict=True):
            yield DrawnPiece(split_array(group, split), ids[(part >= low) & (part < high)])


def _time(ids: np.ndarray) -> np.ndarray:
    return ids.astype(np.int64) * 2_654_435_761 % _TIMES


def _groups(spec: TypedGeneratorSpec) -> int:
    return max(spec.papers // _GROUP_NODES, spec.classes)


def _group(spec: TypedGeneratorSpec, ids: np.ndarray, count: int) -> np.ndarray:
    place = ids * pow(_stride(count), -1, count) % count
    starts = np.arange(_groups(spec) + 1) * count // _groups(spec)
    return np.searchsorted(starts, place, side="right") - 1


def _stride(count: int) -> int:
    return int(coprime_strides(np.array([count]))[0])
