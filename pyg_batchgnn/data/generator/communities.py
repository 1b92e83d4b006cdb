"""Draws power-law graphs with communities, of one node type or of several, block by block.

Every node draws a number of neighbours from a power law (Chung and Lu's model, seen from one end).
Half of them lie in its leaf community, three in ten in its group, the rest anywhere. In the group
and anywhere, rank r is drawn with probability proportional to r^(-1 / (exponent - 1)), which gives
the other end of the edges a power law with the same exponent. Closed forms throughout: no table
over all nodes is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.dataset import SPLITS
from pyg_batchgnn.data.files.durable import write_bytes, writing
from pyg_batchgnn.data.generator.pieces import DrawnPiece, StartPhase
from pyg_batchgnn.data.generator.spec import (
    DRAWN,
    REVERSED,
    TYPED_SCHEMA,
    GeneratorSpec,
    RandomStream,
    TypedGeneratorSpec,
)
from pyg_batchgnn.data.meta import attribute_array, edge_array, split_array
from pyg_batchgnn.types import EDGES, FEATURES, LABELS, NODES, Relation


@dataclass(frozen=True)
class Communities:
    """The communities as ranges of places: positions of nodes before ids are scattered."""

    leaf_start: np.ndarray  # [leaves + 1] int64, the first place of each leaf, then N
    #: [groups + 1] int64, the first place of each group, then N; a subset of `leaf_start`
    group_start: np.ndarray
    group_class: np.ndarray  # [groups] int64, the class of each group; every class has at least one
    #: [groups] int64, coprime to the group's size: rank r is the place r * stride mod size of the
    #: group, so that hubs are not all in its first leaf
    group_stride: np.ndarray

    def group_of(self, place: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.group_start, place, side="right") - 1


def make_communities(spec: GeneratorSpec) -> Communities:
    """Draws communities with lognormal sizes, about 2,048 nodes per group and 96 per leaf. They
    take N / 10 bytes of memory."""
    random = spec.random(RandomStream.COMMUNITIES)
    groups = max(spec.classes, spec.nodes // 2048)
    leaves = max(groups, spec.nodes // 96)
    leaf_start = _starts(random, leaves, spec.nodes)
    group_start = leaf_start[_starts(random, groups, leaves)]
    popularity = 1.0 / np.sqrt(1.0 + np.arange(spec.classes))
    group_class = np.concatenate(
        [
            np.arange(spec.classes),
            random.choice(spec.classes, size=groups - spec.classes, p=popularity / popularity.sum()),
        ]
    )
    return Communities(
        leaf_start, group_start, random.permutation(group_class), coprime_strides(np.diff(group_start))
    )


def coprime_strides(sizes: np.ndarray) -> np.ndarray:
    """Returns numbers coprime to ``sizes``, near 0.618 of each, which scatter ranks widely."""
    strides = np.maximum((sizes * 0.6180339887498949).astype(np.int64), 1)
    shared = np.gcd(strides, sizes) > 1
    while shared.any():
        strides[shared] += 1
        shared = np.gcd(strides, sizes) > 1
    return strides


def _starts(random: np.random.Generator, parts: int, total: int) -> np.ndarray:
    weight = random.lognormal(0.0, 0.6, parts)
    sizes = 1 + random.multinomial(total - parts, weight / weight.sum())
    return np.concatenate([[0], np.cumsum(sizes)])


_ROUNDS = 4  # enough for a random-looking permutation when the round functions are random (Luby and Rackoff)


class IdPermutation:
    """A pseudorandom permutation of range(n), place -> id and back, without a table of n entries:
    an unbalanced Feistel network on pairs (left, right) in Z_a x Z_b with a * b >= n, whose round
    functions are tables of random numbers. Results of n or more go through again, which is rare."""

    def __init__(self, spec: GeneratorSpec) -> None:
        self._size = spec.nodes
        self._b = math.isqrt(self._size - 1) + 1
        self._a = -(-self._size // self._b)
        random = spec.random(RandomStream.PERMUTATION)
        self._left_tables = [random.integers(0, self._a, self._b, np.int32) for _ in range(_ROUNDS // 2)]
        self._right_tables = [random.integers(0, self._b, self._a, np.int32) for _ in range(_ROUNDS // 2)]

    def to_id(self, place: np.ndarray) -> np.ndarray:
        return self._walk(place, inverse=False)

    def to_place(self, ids: np.ndarray) -> np.ndarray:
        return self._walk(ids, inverse=True)

    def _walk(self, value: np.ndarray, *, inverse: bool) -> np.ndarray:
        step = self._backward if inverse else self._forward
        value = step(np.asarray(value, np.int64))
        while len(outside := np.flatnonzero(value >= self._size)):
            value[outside] = step(value[outside])
        return value

    def _forward(self, value: np.ndarray) -> np.ndarray:
        left, right = self._split(value)
        for left_table, right_table in zip(self._left_tables, self._right_tables, strict=True):
            left += left_table[right]
            np.subtract(left, self._a, out=left, where=left >= self._a)
            right += right_table[left]
            np.subtract(right, self._b, out=right, where=right >= self._b)
        return left.astype(np.int64) * self._b + right

    def _backward(self, value: np.ndarray) -> np.ndarray:
        left, right = self._split(value)
        for left_table, right_table in zip(self._left_tables[::-1], self._right_tables[::-1], strict=True):
            right -= right_table[left]
            np.add(right, self._b, out=right, where=right < 0)
            left -= left_table[right]
            np.add(left, self._a, out=left, where=left < 0)
        return left.astype(np.int64) * self._b + right

    def _split(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = value // self._b
        right = value - left * self._b
        return left.astype(np.int32), right.astype(np.int32)


# The unit of randomness: fixed, so that how the work is cut into pieces does not change the graph.
BLOCK_NODES = 1 << 16
_IN_LEAF = 0.5
_IN_GROUP = 0.3

ID_BITS = 32  # an edge is a key (source << 32) | destination


def _edge_keys(
    spec: GeneratorSpec, communities: Communities, permutation: IdPermutation, block: int
) -> Iterator[np.ndarray]:
    """Draws the edges that one block's nodes ask for. Yields two sorted uint64 arrays of keys
    (source << 32) | destination: the edges drawn, then their reverses. There are no self loops, but
    repeats, inside a block and between blocks."""
    random = spec.random(RandomStream.EDGES, block)
    place = np.arange(block * BLOCK_NODES, min((block + 1) * BLOCK_NODES, spec.nodes))
    draws = _draws(spec, random, len(place))
    other = _neighbours(spec, communities, random, place, draws)
    source = np.repeat(permutation.to_id(place).astype(np.uint64), draws)
    destination = permutation.to_id(other).astype(np.uint64)
    proper = source != destination
    source, destination = source[proper], destination[proper]
    for first, second in ((source, destination), (destination, source)):
        keys = (first << np.uint64(ID_BITS)) | second
        keys.sort()
        yield keys


def _edges_of(keys: np.ndarray) -> np.ndarray:
    if len(keys):
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
    source = (keys >> np.uint64(ID_BITS)).astype(np.int32)
    return np.stack([source, keys.astype(np.uint32).astype(np.int32)])


def _draws(spec: GeneratorSpec, random: np.random.Generator, count: int) -> np.ndarray:
    """Returns [count] int64, how many neighbours each node draws: a power law with mean degree / 2,
    rounded at random so that the mean stays."""
    alpha = 1.0 / (spec.exponent - 1.0)
    mean = spec.degree / 2.0
    wanted = mean * (1.0 - alpha) * (1.0 - random.random(count)) ** -alpha
    np.minimum(wanted, mean * math.sqrt(spec.nodes), out=wanted)
    return np.floor(wanted + random.random(count)).astype(np.int64)


def _neighbours(
    spec: GeneratorSpec,
    communities: Communities,
    random: np.random.Generator,
    place: np.ndarray,
    draws: np.ndarray,
) -> np.ndarray:
    leaf = np.searchsorted(communities.leaf_start, place, side="right") - 1
    group = communities.group_of(place)
    node = np.repeat(np.arange(len(place)), draws)
    chance = random.random(len(node))
    other = np.empty(len(node), np.int64)

    near = np.flatnonzero(chance < _IN_LEAF)
    start, size = _range(communities.leaf_start, leaf)
    mine = node[near]
    other[near] = start[mine] + (chance[near] / _IN_LEAF * size[mine]).astype(np.int64)

    # floor(size * u^power) has the density of ranks wanted.
    power = (spec.exponent - 1.0) / (spec.exponent - 2.0)
    middle = np.flatnonzero((chance >= _IN_LEAF) & (chance < _IN_LEAF + _IN_GROUP))
    start, size = _range(communities.group_start, group)
    mine = node[middle]
    rank = ((chance[middle] - _IN_LEAF) / _IN_GROUP) ** power * size[mine]
    other[middle] = start[mine] + _scatter(rank, communities.group_stride[group][mine], size[mine])

    far = np.flatnonzero(chance >= _IN_LEAF + _IN_GROUP)
    everywhere = 1.0 - _IN_LEAF - _IN_GROUP
    rank = ((chance[far] - _IN_LEAF - _IN_GROUP) / everywhere) ** power * spec.nodes
    other[far] = _scatter(rank, coprime_strides(np.array([spec.nodes])), np.int64(spec.nodes))
    return other


def _range(starts: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return starts[part], starts[part + 1] - starts[part]


def _scatter(rank: np.ndarray, stride: np.ndarray, size: np.ndarray | np.int64) -> np.ndarray:
    whole = np.minimum(rank.astype(np.int64), size - 1)  # the product above may round up to size
    return np.asarray(whole * stride % size)


_MOST_FILES = 256  # all are open at once, and a process may often open only 1,024


def _sorted_in_folder(
    pieces: Iterable[np.ndarray], folder: Path, num_nodes: int, piece_nodes: int, start_phase: StartPhase
) -> Iterator[np.ndarray]:
    """Yields all keys, sorted, in arrays for ``piece_nodes`` sources each, or more if those were
    too many files. Each range of sources has a file, which is sorted alone."""
    piece_nodes = max(piece_nodes, -(-num_nodes // _MOST_FILES))
    first_keys = np.arange(0, num_nodes, piece_nodes, dtype=np.uint64) << np.uint64(ID_BITS)
    paths = [folder / f"edges-{number:04d}.keys" for number in range(len(first_keys))]
    with ExitStack() as stack:
        files = []
        for path in paths:
            stack.enter_context(writing(path))  # closing may fail, too
            files.append(stack.enter_context(path.open("wb")))
        for keys in pieces:
            cuts = np.append(np.searchsorted(keys, first_keys), len(keys))
            for file, path, (start, end) in zip(files, paths, pairwise(cuts), strict=True):
                if end > start:
                    write_bytes(file, path, keys[start:end])
    advance = start_phase("sorting edges", len(paths))
    for path in paths:
        keys = np.fromfile(path, np.uint64)
        path.unlink()
        keys.sort()
        yield keys
        advance()


def class_means(spec: GeneratorSpec) -> np.ndarray:
    """Returns [C, F] float32, the mean features of each class: vectors of length `signal`, random,
    and orthogonal if C <= F."""
    means = spec.random(RandomStream.CLASS_MEANS).standard_normal((spec.classes, spec.features))
    if spec.classes <= spec.features:
        means = np.linalg.qr(means.T)[0].T
    else:
        means /= np.linalg.norm(means, axis=1, keepdims=True)
    return (spec.signal * means).astype(np.float32)


def _make_nodes(
    spec: GeneratorSpec, communities: Communities, permutation: IdPermutation, means: np.ndarray, block: int
) -> Iterator[DrawnPiece]:
    """Yields features [n, F], labels [n] and ascending ids of each split of one block. Features are
    the class's mean plus normal noise of variance 1 a column: too much for one node's features to
    tell the class. The mean over its neighbours, mostly of its class, does."""
    random = spec.random(RandomStream.NODES, block)
    ids = np.arange(block * BLOCK_NODES, min((block + 1) * BLOCK_NODES, spec.nodes))
    community_class = communities.group_class[communities.group_of(permutation.to_place(ids))]
    replaced = random.random(len(ids)) < spec.label_noise
    labels = np.where(replaced, random.integers(0, spec.classes, len(ids)), community_class)
    part = random.random(len(ids))
    ends = np.cumsum([0.0, spec.train, spec.val, spec.test])
    x = random.standard_normal((len(ids), spec.features), dtype=np.float32)
    x += means[community_class]
    yield DrawnPiece(attribute_array(NODES, FEATURES), x.astype(spec.feature_dtype, copy=False))
    yield DrawnPiece(attribute_array(NODES, LABELS), labels)
    for name, (low, high) in zip(SPLITS, pairwise(ends), strict=True):
        yield DrawnPiece(split_array(NODES, name), ids[(part >= low) & (part < high)])


def community_pieces(
    spec: GeneratorSpec, start_phase: StartPhase, folder: Path | None, piece_nodes: int
) -> Iterator[DrawnPiece]:
    """Yields the arrays of a graph, in parts. ``folder``: where edges are sorted; None: memory."""
    communities, permutation = make_communities(spec), IdPermutation(spec)
    blocks = range(-(-spec.nodes // BLOCK_NODES))

    def drawn() -> Iterator[np.ndarray]:
        advance = start_phase("drawing edges", len(blocks))
        for block in blocks:
            yield from _edge_keys(spec, communities, permutation, block)
            advance()

    if folder is None:
        keys = np.concatenate(list(drawn()))
        keys.sort()
        ordered: Iterable[np.ndarray] = [keys]
        del keys
    else:
        ordered = _sorted_in_folder(drawn(), folder, spec.nodes, piece_nodes, start_phase)
    for keys in ordered:
        yield DrawnPiece(edge_array("edge_index", EDGES), _edges_of(keys))
    advance, means = start_phase("drawing features", len(blocks)), class_means(spec)
    for block in blocks:
        yield from _make_nodes(spec, communities, permutation, means, block)
        advance()


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
