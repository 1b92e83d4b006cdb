"""Draws features, labels and splits of a generated graph, block by block.

A node's features are its class's mean plus normal noise of variance 1 a column, too much noise for
one node's features to tell the class, while the mean over its neighbours, most of them of its
class, does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyg_batchgnn.data.generator.communities import Communities
from pyg_batchgnn.data.generator.edges import BLOCK_NODES
from pyg_batchgnn.data.generator.permutation import IdPermutation
from pyg_batchgnn.data.generator.spec import GeneratorSpec, RandomStream


@dataclass(frozen=True)
class NodeBlock:
    """The features, labels and splits of a block of consecutive node ids.

    Attributes:
        x: [n, F] features.
        y: [n] int64 labels.
        splits: ids, ascending int64, of the train, val and test nodes among them.
    """

    x: np.ndarray
    y: np.ndarray
    splits: tuple[np.ndarray, np.ndarray, np.ndarray]


def class_means(spec: GeneratorSpec) -> np.ndarray:
    """Returns [C, F] float32 mean features of length `signal`.

    Their directions are random, and orthogonal where C <= F.
    """
    means = spec.random(RandomStream.CLASS_MEANS).standard_normal((spec.classes, spec.features))
    if spec.classes <= spec.features:
        means = np.linalg.qr(means.T)[0].T
    else:
        means /= np.linalg.norm(means, axis=1, keepdims=True)
    return (spec.signal * means).astype(np.float32)


def make_nodes(
    spec: GeneratorSpec, communities: Communities, permutation: IdPermutation, means: np.ndarray, block: int
) -> NodeBlock:
    """Draws one block of nodes."""
    random = spec.random(RandomStream.NODES, block)
    ids = np.arange(block * BLOCK_NODES, min((block + 1) * BLOCK_NODES, spec.nodes))
    community_class = communities.group_class[communities.group_of(permutation.to_place(ids))]
    replaced = random.random(len(ids)) < spec.label_noise
    labels = np.where(replaced, random.integers(0, spec.classes, len(ids)), community_class)
    part = random.random(len(ids))
    ends = np.cumsum([spec.train, spec.val, spec.test])
    x = random.standard_normal((len(ids), spec.features), dtype=np.float32)
    x += means[community_class]
    return NodeBlock(
        x=x.astype(spec.feature_dtype, copy=False),
        y=labels,
        splits=(
            ids[part < ends[0]],
            ids[(part >= ends[0]) & (part < ends[1])],
            ids[(part >= ends[1]) & (part < ends[2])],
        ),
    )
