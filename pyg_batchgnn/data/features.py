"""Makes dense features of bags of words kept as sparse rows, whole or projected at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class SparseRows:
    """A [num_rows, num_columns] matrix in compressed sparse rows (CSR).

    Attributes:
        indptr: [num_rows + 1] integer, where each row starts.
        indices: [nnz] integer columns.
        data: [nnz] values, or None: all ones.
        num_columns: number of columns.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray | None
    num_columns: int

    def flaw(self) -> tuple[str, str] | None:
        """Returns (array, what is wrong with it) of the first inconsistency, or None."""
        if len(self.indptr) == 0 or int(self.indptr[0]) != 0:
            return "x_indptr", "does not start with 0"
        if (np.diff(self.indptr.astype(np.int64)) < 0).any():
            return "x_indptr", "decreases"
        if int(self.indptr[-1]) != len(self.indices):
            return "x_indptr", f"ends with {self.indptr[-1]} but x_indices has {len(self.indices)} entries"
        if len(self.indices):
            low, high = int(self.indices.min()), int(self.indices.max())
            if low < 0 or high >= self.num_columns:
                worst = low if low < 0 else high
                return "x_indices", f"column {worst} is outside [0, {self.num_columns})"
        if self.data is not None and len(self.data) != len(self.indices):
            return "x_data", f"has {len(self.data)} entries but x_indices has {len(self.indices)}"
        return None


def densify(rows: SparseRows) -> Tensor:
    """Returns the matrix as float32 [num_rows, num_columns]."""
    dense = np.zeros((len(rows.indptr) - 1, rows.num_columns), np.float32)
    row = np.repeat(np.arange(len(dense)), np.diff(rows.indptr))
    dense[row, rows.indices] = 1.0 if rows.data is None else rows.data
    return torch.from_numpy(dense)


def project(rows: SparseRows, dim: int, seed: int) -> Tensor:
    """Projects the rows at random to `dim` columns: float32 [num_rows, dim].

    The projection matrix is normal with variance 1 / dim, so that squared norms, and with them
    distances between rows, are kept on average (Johnson and Lindenstrauss). The same seed gives the
    same matrix.
    """
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((rows.num_columns, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    weights = None if rows.data is None else torch.from_numpy(rows.data.astype(np.float32))
    return torch.nn.functional.embedding_bag(
        torch.from_numpy(rows.indices.astype(np.int64)),
        torch.from_numpy(matrix),
        torch.from_numpy(rows.indptr[:-1].astype(np.int64)),
        mode="sum",
        per_sample_weights=weights,
    )
