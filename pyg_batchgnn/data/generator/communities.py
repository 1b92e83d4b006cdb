"""The nested communities of a generated graph: leaves inside groups, one class per group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyg_batchgnn.data.generator.spec import GeneratorSpec, RandomStream

_NODES_PER_GROUP = 2048
_NODES_PER_LEAF = 96


@dataclass(frozen=True)
class Communities:
    """The communities as consecutive ranges of places.

    A place is a node's number before ids are scattered.

    Attributes:
        leaf_start: [leaves + 1] int64, first place of each leaf, ending with N.
        group_start: [groups + 1] int64, first place of each group; a subset of `leaf_start`.
        group_class: [groups] int64 class of each group; every class has at least one.
        group_stride: [groups] int64, coprime to the group's size: rank r of the group is its place
            r * stride mod size, so that hubs are not all in the group's first leaf.
    """

    leaf_start: np.ndarray
    group_start: np.ndarray
    group_class: np.ndarray
    group_stride: np.ndarray

    def leaf_of(self, place: np.ndarray) -> np.ndarray:
        """Returns the leaf of each place."""
        return np.searchsorted(self.leaf_start, place, side="right") - 1

    def group_of(self, place: np.ndarray) -> np.ndarray:
        """Returns the group of each place."""
        return np.searchsorted(self.group_start, place, side="right") - 1


def make_communities(spec: GeneratorSpec) -> Communities:
    """Draws communities of about 2,048 nodes per group and 96 per leaf, with lognormal sizes.

    They take N / 10 bytes of memory.
    """
    random = spec.random(RandomStream.COMMUNITIES)
    groups = max(spec.classes, spec.nodes // _NODES_PER_GROUP)
    leaves = max(groups, spec.nodes // _NODES_PER_LEAF)
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
    """Returns for each size a number coprime to it, near 0.618 times it.

    Such a stride scatters successive ranks widely.
    """
    strides = np.maximum((sizes * 0.6180339887498949).astype(np.int64), 1)
    shared = np.gcd(strides, sizes) > 1
    while shared.any():
        strides[shared] += 1
        shared = np.gcd(strides, sizes) > 1
    return strides


def _starts(random: np.random.Generator, parts: int, total: int) -> np.ndarray:
    """Returns [parts + 1] boundaries that cut `total` into parts of lognormal sizes, each at
    least 1."""
    weight = random.lognormal(0.0, 0.6, parts)
    sizes = 1 + random.multinomial(total - parts, weight / weight.sum())
    return np.concatenate([[0], np.cumsum(sizes)])
