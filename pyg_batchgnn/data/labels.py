"""Class numbers among the attributes of nodes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn.data.groups import LABELS


def class_numbers(tables: Mapping[str, Tensor]) -> Tensor | None:
    """Returns the labels "y" as [N] int64 if they are class numbers, otherwise None.

    Integers of shape [N] or [N, 1] are class numbers. Floating-point targets, booleans and several
    labels per node are not.
    """
    y = tables.get(LABELS)
    if y is None or y.dtype is torch.bool or y.is_floating_point() or y.is_complex():
        return None
    if y.dim() == 2 and y.shape[1] == 1:
        y = y[:, 0]
    return y.to(torch.int64) if y.dim() == 1 else None


def count_classes(tables: Mapping[str, Tensor]) -> int:
    """Returns the largest class number + 1; 0 where the labels "y" are no class numbers, or are
    absent."""
    labels = class_numbers(tables)
    return 0 if labels is None or not labels.numel() else max(int(labels.max()) + 1, 0)
