"""The pairs that are scored, and the nodes whose partners are wanted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.task import PredictedLinks


def read_pairs(path: Path, links: PredictedLinks) -> Tensor:
    """Returns [P, 2] int64, P > 0, the pairs of source and target in a .npy file.

    Raises:
        TrainError: there is no such file, or it holds no pairs of the relation's nodes.
    """
    pairs = _read(path, "pairs of ids [P, 2]", 2)
    if pairs.size(1) != 2:
        raise TrainError(f"{path}: has the shape {list(pairs.shape)}, but pairs of ids are [P, 2]")
    source, _, target = links.relation
    _check_range(path, pairs[:, 0], source, links.num_sources)
    _check_range(path, pairs[:, 1], target, links.num_targets)
    return pairs


def read_sources(path: Path, top: int, links: PredictedLinks) -> Tensor:
    """Returns [n] int64, n > 0, the nodes of the source type in a .npy file.

    Args:
        path: of the file.
        top: the number of partners that each of them is to get.
        links: the links that the model predicts.

    Raises:
        TrainError: there is no such file, it holds no nodes of the source type, or there are fewer
            partners.
    """
    nodes = _read(path, "ids of nodes [n]", 1)
    source, _, target = links.relation
    _check_range(path, nodes, source, links.num_sources)
    others = links.num_targets - (source == target)
    if not 1 <= top <= others:
        raise TrainError(f"--top {top}: a node has {others} possible partners; give 1..{others}")
    return nodes


def _read(path: Path, what: str, dimensions: int) -> Tensor:
    """Returns the integers of a file as int64."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise TrainError(f"{path}: cannot be read; give a .npy file of {what}: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in "iu":
        raise TrainError(f"{path}: must hold integers, {what}")
    if not len(array):
        raise TrainError(f"{path}: is empty; give {what}")
    return torch.from_numpy(array.astype(np.int64))


def _check_range(path: Path, ids: Tensor, node_type: str, count: int) -> None:
    outside = (ids < 0) | (ids >= count)
    if bool(outside.any()):
        raise TrainError(f"{path}: {node_type} {int(ids[outside][0])} is not in 0..{count - 1}")
