"""Draws the edges of a generated graph, block by block.

Every node draws a number of neighbours from a power law (Chung and Lu's model, seen from one end).
Half of them lie in its leaf community, three in ten in its group, the rest anywhere. In the group
and anywhere, rank r is drawn with probability proportional to r^(-1 / (exponent - 1)), which gives
the other end of the edges a power law with the same exponent. Closed forms throughout: no table
over all nodes is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pyg_batchgnn.data.generator.communities import Communities, coprime_strides
from pyg_batchgnn.data.generator.permutation import IdPermutation
from pyg_batchgnn.data.generator.spec import GeneratorSpec, RandomStream

# The unit of randomness: fixed, so that how the work is cut into pieces does not change the graph.
BLOCK_NODES = 1 << 16
_IN_LEAF = 0.5
_IN_GROUP = 0.3

ID_BITS = 32  # an edge is a key (source << 32) | destination


def num_blocks(spec: GeneratorSpec) -> int:
    """Returns the number of blocks of nodes."""
    return -(-spec.nodes // BLOCK_NODES)


def edge_keys(
    spec: GeneratorSpec, communities: Communities, permutation: IdPermutation, block: int
) -> Iterator[np.ndarray]:
    """Draws the edges that one block's nodes ask for.

    Yields:
        Two arrays of sorted uint64 keys (source << 32) | destination, first the edges drawn, then
        their reverses. No self loops. Repeats occur, inside a block and between blocks.
    """
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


def split_keys(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (source, destination) of sorted keys, repeats dropped; int32."""
    if len(keys):
        fresh = np.empty(len(keys), np.bool_)
        fresh[0] = True
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        keys = keys[fresh]
    source = (keys >> np.uint64(ID_BITS)).astype(np.int32)
    return source, keys.astype(np.uint32).astype(np.int32)


def _draws(spec: GeneratorSpec, random: np.random.Generator, count: int) -> np.ndarray:
    """Returns how many neighbours each node draws.

    The numbers follow a power law with mean degree / 2, and are rounded at random to keep the mean.
    """
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
    """Returns the place at the other end of every draw."""
    leaf, group = communities.leaf_of(place), communities.group_of(place)
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
    """Returns the places of ranks inside ranges of the given sizes."""
    whole = np.minimum(rank.astype(np.int64), size - 1)  # the product above may round up to size
    return np.asarray(whole * stride % size)
