"""A fingerprint that recognises the data set of a checkpoint or partition."""

from __future__ import annotations

import zlib
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
    checksum = 0
    tables, splits = dataset.nodes.tables, map(dataset.split, SPLITS)
    labels = tables.get(LABELS, torch.tensor(-1).expand(dataset.num_nodes))
    for array in (dataset.edge_index[0], dataset.edge_index[1], tables.get(FEATURES), labels, *splits):
        if array is not None:
            checksum = zlib.crc32(_evenly_spaced(array).numpy().tobytes(), checksum)
    return DatasetFingerprint(
        dataset.num_nodes, dataset.num_edges, dataset.num_features, dataset.num_classes, checksum
    )


def _evenly_spaced(array: Tensor) -> Tensor:
    flat = array.reshape(-1)
    taken = flat[:: max(1, -(-flat.numel() // _SAMPLES))]
    return taken.to(torch.float32 if taken.is_floating_point() else torch.int64).contiguous()
