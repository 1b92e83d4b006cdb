"""Rows that are read in place: of a table, or of a product that is not normalised yet."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops


@dataclass(frozen=True, eq=False)
class RowView:
    """A view of rows of a table: row i is ``table[row[i]]``.

    The first layer takes it as input, so that the features of a minibatch are never copied. It gets
    no gradient. Rows that are trained, such as those of an embedding, must be gathered first:
    ``table[row]``.

    Attributes:
        table: [M, F] float32, float64, float16 or bfloat16 on the CPU, columns contiguous;
            memory-mapped too.
        row: [N] int32 or int64 rows of ``table``, checked here.
    """

    table: Tensor
    row: Tensor

    def __post_init__(self) -> None:
        if self.table.dim() != 2:
            raise ValueError(f"table must be [rows, columns], got shape {list(self.table.shape)}")
        if self.table.requires_grad:
            raise ValueError("a RowView gets no gradient; gather the rows first: table[row]")
        if self.table.numel() and self.table.stride(1) != 1:
            raise ValueError("the table's columns are not contiguous; call table.contiguous()")
        ops.check_ids("row", self.row, self.table.size(0), "rows of the table")

    @property
    def shape(self) -> torch.Size:
        """[N, F]."""
        return torch.Size((self.row.numel(), self.table.size(1)))

    def size(self, dim: int) -> int:
        return self.shape[dim]

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    @property
    def requires_grad(self) -> bool:
        return False

    def head(self, rows: int) -> RowView:
        """Returns the first ``rows`` rows without checking them again."""
        view = object.__new__(RowView)
        object.__setattr__(view, "table", self.table)
        object.__setattr__(view, "row", ops.prefix(self.row, rows))
        return view

    def gather(self) -> Tensor:
        """Returns a copy of the rows, [N, F] of the dtype of the table."""
        return ops.gather_rows(self.table, self.row)


@dataclass(frozen=True, eq=False)
class NormedRows:
    """The rows ``relu(batch_norm(product))``, which their reader computes (docs/decisions/0022).

    Models pass it from one layer to the next. ``product`` must not be read as a tensor of values.
    It stands in for the values, and it takes their gradient.

    Attributes:
        product: [N, F] float32.
        columns: [3, F] float32, center, scale and shift of the columns (`ops.aggregate_normed`).
        sums: receives the sums of the gradient from its writer.
    """

    product: Tensor
    columns: Tensor
    sums: ops.GradientSums | None = None

    def size(self, dim: int) -> int:
        return self.product.size(dim)

    def head(self, rows: int) -> NormedRows:
        """Returns the first ``rows`` rows."""
        return NormedRows(self.product[:rows], self.columns)

    def gather(self) -> Tensor:
        """Returns the values, [N, F] float32, with their gradient."""
        return ops.aggregate_normed(  # without edges
            self.product,
            self.columns,
            torch.zeros(self.size(0) + 1, dtype=torch.int64),
            torch.empty(0, dtype=torch.int32),
            self_scale=torch.ones(1),
        )
