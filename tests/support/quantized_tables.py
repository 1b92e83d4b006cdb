"""Tables of codes, and their rows decoded by exact arithmetic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.ops import QuantizedTensor, library, quantized


def drawn_table(
    rows: int, columns: int | None, seed: int, dtype: torch.dtype = torch.float32, *, extreme: bool = True
) -> QuantizedTensor:
    """Returns random codes, [rows, columns] or [rows], of which every fifth column is constant."""
    generator = torch.Generator().manual_seed(seed)
    count = 1 if columns is None else columns
    codes = torch.randint(-128, 128, (rows, count), dtype=torch.int8, generator=generator)
    powers = torch.randint(-12, 13, (2, count), generator=generator) if extreme else torch.zeros(2, count)
    decoding = (torch.randn(2, count, generator=generator) + 0.01) * 10.0**powers
    decoding[0] = decoding[0].abs() + 1e-20
    codes[:, 4::5], decoding[0, 4::5] = 0, 1
    return QuantizedTensor(codes if columns is not None else codes[:, 0], decoding, dtype)


def exactly_decoded(table: QuantizedTensor) -> Tensor:
    scale, offset = ([Fraction(one) for one in row] for row in table.decoding.tolist())
    codes = table.codes.view(len(table), -1)
    rows = [
        [_to_float32(code * scale[c] + offset[c]) for c, code in enumerate(row)] for row in codes.tolist()
    ]
    return torch.tensor(np.array(rows, dtype=np.float32)).view(table.shape).to(table.dtype)


def _to_float32(exact: Fraction) -> np.float32:
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    even = [int(one.view(np.uint32)) & 1 for one in around]
    return min(
        zip(around, even, strict=True), key=lambda one: (abs(Fraction(float(one[0])) - exact), one[1])
    )[0]


@contextlib.contextmanager
def decoded_rows() -> Iterator[list[int]]:
    """Yields a list that grows by the number of rows of every tensor of codes that is decoded to a
    copy, not inside an operator."""
    found: list[int] = []
    gather, put = library.kernels.gather_decoded, library.kernels.put_decoded

    def gathered(codes: Tensor, decoding: Tensor, index: Tensor | None, *rest: Any) -> Tensor:
        found.append(len(codes) if index is None else len(index))
        return gather(codes, decoding, index, *rest)

    def filled(codes: Tensor, decoding: Tensor, index: Tensor | None, out: Tensor, threads: int) -> None:
        found.append(len(out))
        put(codes, decoding, index, out, threads)

    counted = mock.Mock(wraps=quantized.kernels, gather_decoded=gathered, put_decoded=filled)
    with mock.patch.object(quantized, "kernels", counted):
        yield found
