"""Dense layers with random inputs, their reference, and how far results are from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops

#: The arguments of `make_case`.
SHAPES = st.fixed_dictionaries(
    {
        "rows": st.sampled_from([0, 1, 2, 5, 6, 7, 63, 64, 65, 100, 193, 600]),
        "outputs": st.sampled_from([1, 2, 3, 8, 9, 16, 17, 47, 64, 65, 130]),
        "columns": st.lists(st.sampled_from([0, 1, 2, 5, 16, 33, 100]), min_size=1, max_size=3).map(tuple),
        "groups": st.sampled_from([1, 1, 2, 3]),
        "bias": st.booleans(),
        "seed": st.integers(0, 99),
    }
)

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 1.5e-2}


@dataclass(frozen=True)
class View:
    table: Tensor
    row: Tensor


@dataclass(frozen=True)
class Case:
    """Arguments of a dense layer: the first input is a tensor, the others are rows of tables."""

    inputs: list[Any]
    weights: list[Tensor]
    bias: Tensor | None
    rows: int
    groups: int

    def leaves(self) -> list[Tensor]:
        return [*(t for t in (self.inputs[0], *self.weights, self.bias) if t is not None)]

    def run(self, **options: Any) -> Tensor:
        return ops.linear(
            self.inputs, self.weights, self.bias, num_rows=self.rows, groups=self.groups, **options
        )

    def reference(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Returns the output before ReLU and dropout, from operands rounded as the layer does."""
        total = torch.zeros(self.rows, self.weights[0].size(0), dtype=dtype)
        for x, weight in zip(self.inputs, self.weights, strict=True):
            rows = (x if isinstance(x, Tensor) else x.table[x.row.long()])[: self.rows].to(dtype)
            pairs = zip(rows.chunk(self.groups, 1), weight.to(dtype).chunk(self.groups), strict=True)
            total = total + torch.cat([part @ block.t() for part, block in pairs], 1)
        return total if self.bias is None else total + self.bias.to(dtype)


def make_case(
    rows: int,
    outputs: int,
    columns: tuple[int, ...],
    groups: int = 1,
    dtype: torch.dtype = torch.float32,
    table_dtype: torch.dtype | None = None,
    bias: bool = True,
    seed: int = 0,
) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    inputs: list[Any] = [normal(rows + 3, columns[0] * groups).requires_grad_()]
    for count in columns[1:]:
        table = normal(37, count * groups).to(table_dtype or dtype)
        row = torch.randint(37, (rows + 2,), generator=generator)
        inputs.append(View(table, row.int() if count % 2 else row))
    weights = [normal(outputs * groups, count).requires_grad_() for count in columns]
    return Case(inputs, weights, normal(outputs * groups).requires_grad_() if bias else None, rows, groups)


def gradients(y: Tensor, leaves: list[Tensor], seed: int = 1) -> list[Tensor]:
    # Not around zero: sums that cancel have no digits left to compare.
    grad = 1 + torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return list(torch.autograd.grad(y, leaves, grad.to(y.dtype), retain_graph=True))
