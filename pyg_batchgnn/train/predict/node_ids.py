"""The nodes that are predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.task import PredictedNodes


def node_ids(nodes: str, predicted: PredictedNodes) -> Tensor:
    """Returns [m] int64, m > 0, the node ids that a text stands for.

    Args:
        nodes: "all", "train", "val", "test" or the path of a .npy file of node ids.
        predicted: the nodes that the model predicts.

    Raises:
        TrainError: there is no such file, or it holds no ids of nodes.
    """
    named = {
        "all": lambda: torch.arange(predicted.num_nodes),
        "train": lambda: predicted.split("train"),
        "val": lambda: predicted.split("val"),
        "test": lambda: predicted.split("test"),
    }
    if nodes in named:
        ids = named[nodes]()
    else:
        path = Path(nodes)
        if not path.is_file():
            raise TrainError(f"--nodes {nodes}: no such file; give a .npy file, or {', '.join(named)}")
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise TrainError(f"{path}: not a .npy file: {error}") from None
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
            raise TrainError(f"{path}: must hold a one-dimensional array of integers, the node ids")
        ids = torch.from_numpy(array.astype(np.int64))
        outside = (ids < 0) | (ids >= predicted.num_nodes)
        if bool(outside.any()):
            raise TrainError(f"{path}: node {int(ids[outside][0])} is not in 0..{predicted.num_nodes - 1}")
    if len(ids) == 0:
        raise TrainError(f"--nodes {nodes}: no nodes to predict")
    return ids.to(torch.int64)
