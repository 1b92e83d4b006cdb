"""The dtype in which layers compute."""

from __future__ import annotations

import torch
from torch import Tensor

#: The dtypes of products and their results. Sums of bfloat16 products are float32.
COMPUTE_DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def compute_dtype(weight: Tensor) -> torch.dtype:
    """Returns bfloat16 under ``torch.autocast("cpu", torch.bfloat16)``, else the dtype of the
    weight.

    Raises:
        TypeError: autocast is to float16, or layers do not compute in the dtype of the weight.
    """
    # as torch's own autocast leaves float64 alone
    if torch.is_autocast_enabled("cpu") and weight.dtype is not torch.float64:
        dtype = torch.get_autocast_dtype("cpu")
        if dtype is not torch.bfloat16:
            raise TypeError(
                f"under autocast layers compute in bfloat16, not {dtype}; use "
                f"torch.autocast('cpu', torch.bfloat16)"
            )
        return dtype
    if weight.dtype not in COMPUTE_DTYPES:
        raise TypeError(
            f"weights are {weight.dtype}; layers compute in float32, bfloat16 or float64, convert them"
        )
    return weight.dtype
