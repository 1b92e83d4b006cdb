"""The table of features that a run reads, in memory where it fits."""

from __future__ import annotations

import psutil
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.fetch import is_mapped
from pyg_batchgnn.train.config import LayerSource, Precision, TrainConfig

#: Share of the free memory that a copy of the features may take.
_SHARE = 0.5
#: Rows converted at a time, so that a file's pages can be dropped behind.
_CHUNK = 1 << 16


def feature_table(x: Tensor, config: TrainConfig) -> Tensor:
    """`x` as the run's layers read it, on huge pages where it is in memory.

    Native layers read float16 and float32 as they are; in bfloat16 the table is converted once. A table that
    is mapped from a file is read into memory where it takes at most half of what is free; otherwise it stays
    where it is, in its own type, and the loader copies the rows that each fetch group needs.

    Args:
        x: [N, F] floating-point numbers, which are never changed.
        config: of the run.

    Returns:
        [N, F]: `x` itself where nothing has to change.
    """
    dtype = _wanted_dtype(x, config)
    if dtype is x.dtype and not is_mapped(x):
        table = x.contiguous()
        ops.advise_huge_pages(table)
        return table
    fits = x.numel() * dtype.itemsize <= _SHARE * psutil.virtual_memory().available
    if fits:
        return _copy(x, dtype)
    return x if config.model.layers is LayerSource.NATIVE else x.to(dtype)


def _wanted_dtype(x: Tensor, config: TrainConfig) -> torch.dtype:
    if config.run.precision is Precision.BFLOAT16:
        return torch.bfloat16
    native = config.model.layers is LayerSource.NATIVE and x.dtype is not torch.float64
    return x.dtype if native else torch.float32


def _copy(x: Tensor, dtype: torch.dtype) -> Tensor:
    table = torch.empty(x.shape, dtype=dtype)
    ops.advise_huge_pages(table)
    for target, source in zip(table.split(_CHUNK), x.split(_CHUNK), strict=True):
        target.copy_(source)
    return table
