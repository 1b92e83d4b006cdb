"""Checks of a data set's labels. They are read in pieces, since they may be mapped from a file."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.data import SPLITS
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.task.node_task import NodeTask
from pyg_batchgnn.train.task.predicted import PredictedNodes

_ROWS_AT_A_TIME = 1 << 16
_NAMES = {"train": "training", "val": "validation", "test": "test"}


def check_labelled(nodes: PredictedNodes, y: Tensor, task: NodeTask) -> None:
    """Checks that every node of a split has a label.

    Raises:
        TrainError: a node has none. The message has the counts of each split.
    """
    found = []
    for name in SPLITS:
        split = nodes.split(name)
        pieces = split.split(_ROWS_AT_A_TIME)
        missing = len(split) - sum(int(task.labelled(y[piece]).sum()) for piece in pieces)
        if missing:
            found.append(f"{missing:,} of {len(split):,} {_NAMES[name]} nodes")
    if found:
        absent = "NaN" if y.is_floating_point() else "-1"
        raise TrainError(
            f"{nodes.dataset}: {' and '.join(found)} have no label ('y' is {absent}); take them out of the "
            "splits, or label them"
        )


def check_binary(nodes: PredictedNodes, y: Tensor) -> None:
    """Checks that all labels are 0 or 1, or missing: -1 or NaN.

    Raises:
        TrainError: there is another value.
    """
    if y.dtype is torch.bool:
        return
    for piece in y.split(_ROWS_AT_A_TIME):
        other = piece[(piece != 0) & (piece != 1) & (piece != -1) & ~piece.isnan()]
        if len(other):
            raise TrainError(
                f"{nodes.dataset}: the node labels 'y' hold {other[0].item()}, but a task that predicts "
                "labels needs 0 or 1 for each; choose another --task"
            )
