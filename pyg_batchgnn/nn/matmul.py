"""The choice of the matrix products: the package's own, or torch's.

The two round differently. So the default follows from the processor alone, and a probe, which
takes those that were faster just now, is for whoever asks for it.
"""

from __future__ import annotations

import timeit
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import ProductsName, set_products

#: The products of torch are chosen if they are faster by this factor.
MARGIN = 1.1

_MOST_ROWS = 16384  # of a timed product, so that reading its weights takes no share of the time
_KEY = 1


@dataclass(frozen=True)
class ProductChoice:
    """The result of `probe_products`: the faster matrix products, and the measured rates."""

    name: ProductsName  # "native" or "torch"
    # Rates: 10^9 floating-point operations per second, dense, with bias, ReLU and dropout.
    native_rate: float
    torch_rate: float
    threads: int  # of the measurement
    torch_same_bits: bool  # whether torch's results had the same bits on one and all threads

    def __str__(self) -> str:
        rates = {"native": f"{self.native_rate:.3g} GF/s", "torch": f"{self.torch_rate:.3g} GF/s"}
        chosen, ((name, rate),) = rates.pop(self.name), rates.items()
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        depends = "" if self.torch_same_bits else "; torch's bits depend on the number of threads"
        return f"matrix products: {self.name}, {chosen} ({name} {rate}), {threads}{depends}"


class use_products:  # noqa: N801 (called like a function)
    """Sets the matrix products of `ops.linear`, "native" or "torch".

    >>> with use_products("torch"):  # without ``with``, for good
    ...     rows = Linear(8, 3)(data.x)
    """

    def __init__(self, choice: ProductsName | ProductChoice) -> None:
        self._before = set_products(choice.name if isinstance(choice, ProductChoice) else choice)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        set_products(self._before)


def default_products() -> ProductsName:
    """Returns the products for this processor: "native" with AVX2 or AVX-512, else "torch"."""
    return "native" if ops.simd_level() else "torch"


def probe_products(
    shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype = torch.float32, threads: int | None = None
) -> ProductChoice:
    """Times both kinds of matrix products on the shapes of a model's layers, for about a second.
    The products in use do not change: see `use_products`.

    torch's are chosen if they are faster by `MARGIN`, and if results and gradients have the same
    bits on one thread and on ``threads``. On a busy machine two calls may choose differently.

    Args:
        shapes: (rows, columns of the input, columns of the output) of each product.
        dtype: the dtype to compute in.
        threads: the number of threads; None for torch's.
    """
    if not shapes:
        raise ValueError("there is no shape to probe; give (rows, columns, outputs) of the model's layers")
    threads = threads or torch.get_num_threads()
    cases = [_Case(rows, columns, outputs, dtype) for rows, columns, outputs in shapes]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        native_rate, torch_rate = _rate(cases, "native"), _rate(cases, "torch")
        same = _same_bits(cases, threads)
    finally:
        torch.set_num_threads(before)
    name: ProductsName = "torch" if torch_rate > MARGIN * native_rate and same else "native"
    return ProductChoice(name, native_rate, torch_rate, threads, same)


class _Case:
    def __init__(self, rows: int, columns: int, outputs: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        rows = max(1, min(rows, _MOST_ROWS))
        weights = torch.float64 if dtype is torch.float64 else torch.float32
        self.x = torch.randn(rows, columns, generator=generator).to(dtype)
        self.weight = torch.randn(outputs, columns, generator=generator).to(weights).requires_grad_()
        self.bias = torch.zeros(outputs, dtype=weights)
        self.operations = 2 * rows * columns * outputs

    def run(self) -> Tensor:
        return ops.linear(
            [self.x], [self.weight], self.bias, relu=True, drop=0.5, key=_KEY, out_dtype=self.x.dtype
        )


def _rate(cases: Sequence[_Case], name: ProductsName) -> float:
    with use_products(name), torch.no_grad():
        for case in cases:
            case.run()
        seconds = sum(max(1e-9, min(timeit.repeat(case.run, repeat=3, number=1))) for case in cases)
    return sum(case.operations for case in cases) / seconds / 1e9


def _same_bits(cases: Sequence[_Case], threads: int) -> bool:
    def answers(count: int) -> list[Tensor]:
        torch.set_num_threads(count)
        found = []
        for case in cases:
            y = case.run()
            found += [y.detach(), *torch.autograd.grad(y.float().sum(), [case.weight])]
        return found

    with use_products("torch"), torch.enable_grad():
        return all(torch.equal(one, other) for one, other in zip(answers(1), answers(threads), strict=True))
