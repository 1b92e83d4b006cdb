"""Selecting rows of the user's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.loader.utils import index_select

from pyg_batchgnn import ops


class Gatherer:
    """Selects rows and counts the bytes that it copied.

    Args:
        threads: at most this many threads copy; one in a worker process.
    """

    def __init__(self, threads: int | None) -> None:
        self.threads = threads if get_worker_info() is None else 1
        self.bytes_gathered = 0
        self._known: list[tuple[Tensor, int]] = []  # indices met so far, and the rows that each needs

    def __call__(self, value: Any, index: Tensor, dim: int = 0) -> Any:
        """Selects from ``value`` at ``index`` along ``dim``.

        ``value`` is a tensor, a NumPy array or anything else that PyG can select from.

        Raises:
            IndexError: ``value`` has fewer rows than the index asks for.
        """
        if _is_ours(value, dim) and _is_plain(index):
            if not index.numel():
                return value.new_empty((0, *value.shape[1:]))
            self._check(value, index)
            out = ops.gather_rows(value, index, self.threads)
        else:
            out = _select(value, index, dim)
        self.count(out)
        return out

    def count(self, out: Any) -> None:
        """Adds the bytes of what a feature store selected."""
        if isinstance(out, Tensor):
            self.bytes_gathered += out._values().nbytes if out.is_sparse else out.nbytes

    def _check(self, value: Tensor, index: Tensor) -> None:
        """Checks an index, which kernels trust.

        A script may have shrunk a table, or a user's hook may have made up ids.
        """
        needed = next((rows for known, rows in self._known if known is index), None)
        if needed is None:
            low, high = ops.extent(index, self.threads)
            if low < 0:
                raise IndexError(
                    f"a sample holds the id {low}, which is below 0: check what transform_sampler_output does"
                )
            needed = high + 1
            self._known.append((index, needed))
        if value.size(0) < needed:
            raise IndexError(
                f"an attribute of shape {list(value.shape)} has no row {needed - 1}, which a sample holds; "
                f"the graph is that of the loader's construction: make a new loader for another one"
            )


def _is_ours(value: Any, dim: int) -> bool:
    """Returns whether the package's own kernel may select from ``value``.

    It may not in a worker process, which writes into shared memory at once. It may not if a
    gradient must flow back, or if an element is more than its bytes.
    """
    return (
        type(value) is Tensor
        and dim == 0
        and value.dim() > 0
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.requires_grad or value.is_conj() or value.is_neg() or value.is_quantized)
        and get_worker_info() is None
    )


def _is_plain(index: Tensor) -> bool:
    return (
        index.dtype in ops.INTEGERS
        and index.dim() == 1
        and index.is_contiguous()
        and index.device.type == "cpu"
    )


def _select(value: Any, index: Tensor, dim: int) -> Any:
    if isinstance(value, Tensor) and value.requires_grad and get_worker_info() and torch.is_grad_enabled():
        raise RuntimeError(
            f"an attribute of shape {list(value.shape)} requires a gradient, which cannot flow back from a "
            f"worker process; use filter_per_worker=False or num_workers=0, or detach it"
        )
    device = value.device if hasattr(value, "device") and not isinstance(value, np.ndarray) else "cpu"
    return index_select(value, index.to(device), dim)
