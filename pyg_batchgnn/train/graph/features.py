"""The table of features that a run reads. It is held in memory if it fits."""

from __future__ import annotations

import psutil
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.fetch import is_mapped
from pyg_batchgnn.train.config import Precision, TrainConfig
from pyg_batchgnn.train.errors import TrainError

#: The share of the free memory that a copy of the features may take.
_SHARE = 0.5
#: The rows that are converted at a time, so that the pages of a mapped file can be dropped again.
_CHUNK = 1 << 16
#: The types that native layers read as they are.
_NATIVE_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def feature_table(x: Tensor, config: TrainConfig) -> Tensor:
    """Returns the features as the run's layers read them, on huge pages if in memory.

    A table that is mapped from a file is read into memory if it takes at most half of the free
    memory. Otherwise it stays on disk in its own type, and the loader copies the rows that each
    fetch group needs. Where the type has to change, results differ in their last bits between the
    two. So half of the host's memory decides then, however much of it is free.

    Args:
        x: [N, F] of a floating-point type. It is never changed.
        config: of the run.

    Returns:
        [N, F]; `x` itself if nothing has to change.

    Raises:
        TrainError: the type has to change, and the memory for it is taken by others.
    """
    dtype = feature_type(x, config)
    if dtype is x.dtype and not is_mapped(x):
        table = x.contiguous()
        ops.advise_huge_pages(table)
        return table
    memory, size = psutil.virtual_memory(), x.numel() * dtype.itemsize
    changes = dtype is not x.dtype
    if size <= _SHARE * (memory.total if changes else memory.available):
        if changes and size > memory.available:
            name = str(dtype).removeprefix("torch.")
            raise TrainError(
                f"the features as {name} take {size:,} bytes of memory, of which {memory.available:,} are "
                f"free; free some, or store the features as {name}"
            )
        return _copy(x, dtype)
    return x


def feature_type(x: Tensor, config: TrainConfig) -> torch.dtype:
    """Returns the type in which features are held and travel.

    It is bfloat16 in a bfloat16 run. Otherwise native layers read features of at most 32 bits as
    they are, and all other features are converted to float32.
    """
    if config.run.precision is Precision.BFLOAT16:
        return torch.bfloat16
    return x.dtype if x.dtype in _NATIVE_TYPES else torch.float32


def _copy(x: Tensor, dtype: torch.dtype) -> Tensor:
    table = torch.empty(x.shape, dtype=dtype)
    ops.advise_huge_pages(table)
    for target, source in zip(table.split(_CHUNK), x.split(_CHUNK), strict=True):
        target.copy_(source)
    return table
