"""Rows that are read where they lie: of a table, or of a product that is yet to be normalised."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops


@dataclass(frozen=True, eq=False)
class RowView:
    """A matrix that is not there: its row i is ``table[row[i]]``.

    The first layer takes one for its input, so that a minibatch's features are never copied. It gets no
    gradient: what is trained (an embedding, say) must be gathered first, ``table[row]``.

    Attributes:
        table: [M, F] float32, float64, float16 or bfloat16 on the CPU, columns contiguous; memory-mapped too.
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
        ops.check_vector("row", self.row)
        ops.check_range("row", self.row, self.table.size(0), "rows of the table")

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
        """The first ``rows`` rows; checked already."""
        view = object.__new__(RowView)
        object.__setattr__(view, "table", self.table)
        object.__setattr__(view, "row", self.row[:rows])
        return view

    def gather(self) -> Tensor:
        """The rows copied into a tensor [N, F] of the table's dtype."""
        return ops.gather_rows(self.table, self.row)


@dataclass(frozen=True, eq=False)
class NormedRows:
    """The rows ``relu(batch_norm(product))``, not written: whoever reads them computes them.

    Models hand it from one layer to the next. ``product`` must not be read as a tensor: it stands in for the
    values, the gradient it takes is theirs.

    Attributes:
        product: [N, F] float32.
        columns: [3, F] float32, what the columns are normalised by (`ops.aggregate_normed`).
        sums: where who writes the gradient may leave its sums.
    """

    product: Tensor
    columns: Tensor
    sums: ops.GradientSums | None = None

    def size(self, dim: int) -> int:
        return self.product.size(dim)

    def head(self, rows: int) -> NormedRows:
        """The first ``rows`` rows."""
        return NormedRows(self.product[:rows], self.columns)

    def gather(self) -> Tensor:
        """The values written out, [N, F] float32, with their gradient."""
        return ops.aggregate_normed(  # without an edge
            self.product,
            self.columns,
            torch.zeros(self.size(0) + 1, dtype=torch.int64),
            torch.empty(0, dtype=torch.int32),
            self_scale=torch.ones(1),
        )
