"""A fingerprint that recognises the data set of a checkpoint or partition."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.data import FEATURES, LABELS, SPLITS, Dataset

_SAMPLES = 1 << 20


@dataclass(frozen=True)
class DatasetFingerprint:
    """The counts of a data set, and a checksum of at most a million evenly spaced elements per
    array."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    checksum: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON values by their names."""
        return asdict(self)


def fingerprint_dataset(dataset: Dataset) -> DatasetFingerprint:
    """Returns the fingerprint of a data set. It does not depend on the integer types of its
    arrays."""
    checksum, columns = 0, 0
    for array in _arrays(dataset):
        checksum = zlib.crc32(_evenly_spaced(array).numpy().tobytes(), checksum)
    for nodes in dataset.node_sets:
        x = nodes.tables.get(FEATURES)
        columns += int(x.shape[1]) if x is not None and x.dim() == 2 else 0
    classes = sum(nodes.num_classes for nodes in dataset.node_sets)
    return DatasetFingerprint(dataset.num_nodes, dataset.num_edges, columns, classes, checksum)


def _arrays(dataset: Dataset) -> Iterator[Tensor]:
    """Yields the edges of every relation, features, labels and splits of every node type, and the
    links of every relation."""
    for edges in dataset.edge_sets:
        yield from edges.edge_index
    for nodes in dataset.node_sets:
        if FEATURES in nodes.tables:
            yield nodes.tables[FEATURES]
        yield nodes.tables.get(LABELS, torch.tensor(-1).expand(nodes.num_nodes))
        yield from (dataset.split(name, nodes.name) for name in SPLITS)
    for edges in dataset.edge_sets:
        for _, links in sorted(edges.links.items()):
            yield from (array for _, array in sorted(links.arrays().items()))


def _evenly_spaced(array: Tensor) -> Tensor:
    flat = array.reshape(-1)
    taken = flat[:: max(1, -(-flat.numel() // _SAMPLES))]
    return taken.to(torch.float32 if taken.is_floating_point() else torch.int64).contiguous()
