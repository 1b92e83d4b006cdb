"""Makes tables of int8 codes from floating-point tables, some rows at a time.

One pass over all rows finds the range of each column, another one writes the codes. Neither holds
more of a table than `_PIECE` elements.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.disk import DiskReader, DiskTable, read_span
from pyg_batchgnn.ops import QuantizedTensor, advise_huge_pages
from pyg_batchgnn.types import FEATURES

if TYPE_CHECKING:
    from rich.table import Table

_PIECE = 1 << 20  # the elements of a table that are processed at a time
#: The least and the largest code.
_FIRST, _LAST = -128, 127
#: Told a phase, such as an attribute's name, the work that is done, and all work of the phase.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class QuantizedTable:
    """What quantising did to one table, and what it cost."""

    name: str  # the attribute, with its type or relation if the graph names them
    rows: int
    columns: int
    constant: int  # columns with one value, which are exact
    bytes_before: int  # of the values
    bytes_after: int  # of codes, scales and offsets
    clamped: int  # values outside the ranges; 0 without a percentile
    error: float  # the largest difference between a value and its decoded code
    #: the largest difference within the ranges, in scales of the columns: at most 1/2, but for
    #: rounding in float32 or bfloat16
    error_in_scales: float

    @property
    def clamped_share(self) -> float:
        """The share of the values that were clamped."""
        return self.clamped / max(1, self.rows * self.columns)


@dataclass(frozen=True)
class QuantizationReport:
    """What quantising did to each table."""

    tables: tuple[QuantizedTable, ...]

    def table(self) -> Table:
        from rich.table import Table

        found = Table(title="Quantised attributes", title_justify="left")
        found.add_column("attribute", overflow="fold")
        for title in ("columns", "constant", "bytes before", "bytes after", "largest error", "clamped"):
            found.add_column(title, justify="right")
        for one in self.tables:
            sizes = (f"{one.columns:,}", f"{one.constant:,}", f"{one.bytes_before:,}", f"{one.bytes_after:,}")
            found.add_row(one.name, *sizes, f"{one.error:.3g}", f"{100 * one.clamped_share:.4f} %")
        return found

    def __str__(self) -> str:
        lines = (
            f"{one.name}: {one.columns:,} columns, {one.bytes_before:,} bytes to {one.bytes_after:,}, "
            f"largest error {one.error:.3g}, {100 * one.clamped_share:.4f} % clamped"
            for one in self.tables
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class Quantization:
    """How tables are quantised. Raises `ValueError` or `TypeError` for other values."""

    #: None: a column's range is from its least value to its largest. A number p in [50, 100]: it
    #: leaves out up to (100 - p) / 2 percent of the values at either end, which are clamped, unless
    #: one value alone would be left.
    percentile: float | None = None
    dtype: torch.dtype = torch.float32  # what codes are decoded into: float32 or bfloat16

    def __post_init__(self) -> None:
        p = self.percentile
        if p is not None and (isinstance(p, bool) or not isinstance(p, (int, float)) or not 50 <= p <= 100):
            raise ValueError(
                f"percentile must lie in [50, 100], got {p!r}: 99.9 leaves out at most 0.05 % of the values "
                f"at either end; None takes the least and the largest value"
            )
        if self.dtype not in (torch.float32, torch.bfloat16):
            raise TypeError(f"codes are decoded into float32 or bfloat16, not {self.dtype!r}")


def check_bits(bits: int) -> None:
    if bits != 8 or isinstance(bits, bool):
        raise ValueError(f"bits must be 8, got {bits!r}: codes are int8, and narrower ones are not supported")


def attribute_names(attributes: str | Sequence[str]) -> list[str]:
    return list(dict.fromkeys([attributes] if isinstance(attributes, str) else attributes))


def check_table(name: str, table: Tensor) -> None:
    """Raises `TypeError` or `ValueError` unless the table can be quantised."""
    if isinstance(table, QuantizedTensor):
        raise ValueError(f"{name} is quantised already; leave it out of attributes")
    if not table.is_floating_point():
        raise TypeError(f"{name} is {table.dtype}; only floating-point attributes are quantised")
    if table.requires_grad or isinstance(table, torch.nn.Parameter):
        raise ValueError(f"{name} requires a gradient: rows that are learned stay floating-point numbers")
    if table.dim() not in (1, 2) or table.layout is not torch.strided:
        raise ValueError(
            f"{name} has shape {list(table.shape)} and layout {table.layout}; codes need a dense table of "
            f"one or two dimensions: use reshape(len(x), -1) or to_dense()"
        )


@dataclass(frozen=True, eq=False)
class WideRows:
    """A table to quantise, or a part of one, in memory or mapped. Wide rows are not yet codes."""

    name: str  # the attribute or file, for errors
    table: Tensor  # [N, F] or [N], floating-point

    @property
    def columns(self) -> int:
        """The number of columns F; 1 for [N]."""
        return 1 if self.table.dim() == 1 else self.table.size(1)

    def pieces(self, elements: int = _PIECE) -> Iterator[tuple[int, Tensor]]:
        """Yields (first row, rows [n, F]) for successive rows of about ``elements`` elements. Rows
        in a mapped file are read past the page cache, and ahead."""
        size = max(1, elements // max(1, self.columns))
        ranges = [range(at, min(at + size, len(self.table))) for at in range(0, len(self.table), size)]
        place = DiskTable.of(self.table) if self.table.device.type == "cpu" else None
        if place is None:
            for rows in ranges:
                yield rows.start, self._shaped(self.table[rows.start : rows.stop])
            return
        reader = DiskReader(place)
        try:
            with ThreadPoolExecutor(1) as ahead:
                coming = ahead.submit(read_span, self.table, ranges[0], reader)
                for rows, following in zip(ranges, [*ranges[1:], range(0)], strict=True):
                    found = coming.result()
                    coming = ahead.submit(read_span, self.table, following, reader)
                    yield rows.start, self._shaped(found)
        finally:
            reader.close()

    def _shaped(self, rows: Tensor) -> Tensor:
        return rows.detach().reshape(len(rows), -1)


#: The least and the largest value of each column: [F] float64 twice.
_Ranges = tuple[Tensor, Tensor]


def _extremes(sources: Sequence[WideRows], tell: Callable[[int], None]) -> _Ranges:
    """Returns the least and the largest value of each column. ``tell``: told the elements read.
    Raises `ValueError` if a value is NaN or infinite, or beyond float32."""
    columns = sources[0].columns
    low = torch.full((columns,), torch.inf, dtype=torch.float64)
    high = -low
    most = torch.finfo(torch.float32).max
    for source in sources:
        for first, rows in source.pieces():
            comparable = rows.dtype in (torch.float32, torch.float64)  # of the types that torch compares
            least, largest = (rows if comparable else rows.float()).aminmax(dim=0)
            if not bool(((least >= -most) & (largest <= most)).all()):
                raise _not_finite(source.name, first, rows)
            torch.minimum(low, least.double(), out=low)
            torch.maximum(high, largest.double(), out=high)
            tell(rows.numel())
    if not any(len(one.table) for one in sources):
        low, high = torch.zeros_like(low), torch.zeros_like(high)
    return low, high


def _not_finite(name: str, first: int, rows: Tensor) -> ValueError:
    values = rows.double()
    row, column = (~(values.abs() <= torch.finfo(torch.float32).max)).nonzero()[0].tolist()
    value = float(values[row, column])
    fact = "does not fit float32" if np.isfinite(value) else "is not finite"
    return ValueError(
        f"{name}: the value {value} in row {first + row}, column {column} {fact}; replace such values, for "
        f"example by 0"
    )


_DIGITS = (11, 11, 10)  # how many bits of a value each pass counts, the highest first
_BITS = sum(_DIGITS)
_COLUMNS = 1 << 10  # the columns that are counted together: 32 MB of counts


def _within_percentile(
    sources: Sequence[WideRows], whole: _Ranges, percentile: float, tell: Callable[[int], None]
) -> _Ranges:
    """Returns the range of each column without the values that the percentile leaves out.
    ``whole``: the ranges with all values. The bits of a float32, taken as an integer, ascend with
    its value. Passes find the bits of both ends, some at a time, by counting, in bounded memory."""
    rows = sum(len(one.table) for one in sources)
    left_out = int(rows * (100 - Fraction(str(percentile))) / 200)
    low, high = (end.clone() for end in whole)
    for begin in range(0, len(low), _COLUMNS):
        own = slice(begin, begin + _COLUMNS)
        places = [torch.full((len(low[own]),), at) for at in (left_out, rows - 1 - left_out)]
        found = [torch.zeros_like(place) for place in places]
        left = _BITS
        for digits in _DIGITS:
            counted = _counts(sources, own, found, left, digits, tell)
            left -= digits
            for at, counts in enumerate(counted):
                upto = counts.cumsum(1)
                digit = (upto <= places[at][:, None]).sum(1)  # the bin of the value at the place
                before = (upto - counts).gather(1, digit[:, None]).squeeze(1)
                found[at], places[at] = (found[at] << digits) | digit, places[at] - before
        ends = [_value(one).double() for one in found]
        spread = ends[0] < ends[1]
        low[own] = torch.where(spread, torch.maximum(ends[0], low[own]), low[own])
        high[own] = torch.where(spread, torch.minimum(ends[1], high[own]), high[own])
    return low, high


def _counts(
    sources: Sequence[WideRows],
    own: slice,
    known: Sequence[Tensor],
    left: int,
    digits: int,
    tell: Callable[[int], None],
) -> list[Tensor]:
    """Counts the values of some columns by their next ``digits`` bits: [columns, 2 ** digits] int64
    for each of ``known``. ``own``: the columns. ``known``: [columns] each, the leading bits of the
    values to count. ``left``: how many bits follow these."""
    columns, bins = len(known[0]), 1 << digits
    found = [torch.zeros(columns * bins, dtype=torch.int64) for _ in known]
    column = torch.arange(columns, dtype=torch.int32) * bins
    for source in sources:
        for _, rows in source.pieces(max(_PIECE, source.columns * bins)):
            bits = _bits(rows[:, own].float())
            place = ((bits >> (left - digits)) & (bins - 1)) + column
            if left == _BITS:  # all values are counted, for both ends
                counts = torch.bincount(place.view(-1), minlength=len(found[0]))
                for one in found:
                    one += counts
            else:
                first = (bits >> left) & ((1 << (_BITS - left)) - 1)
                for one, wanted in zip(found, known, strict=True):
                    one += torch.bincount(place[first == wanted], minlength=len(one))
            tell(bits.numel())
    return [one.view(columns, bins) for one in found]


def _bits(values: Tensor) -> Tensor:
    """Returns int32 that, read as unsigned, ascend with the float32 values."""
    bits = values.contiguous().view(torch.int32)
    return bits ^ ((bits >> 31) | torch.iinfo(torch.int32).min)


def _value(bits: Tensor) -> Tensor:
    """Returns the float32 values of `_bits`, given as int64 without a sign."""
    is_positive = bits >> 31 == 1
    plain = torch.where(is_positive, bits ^ (1 << 31), bits ^ 0xFFFFFFFF)
    return torch.where(plain >= 1 << 31, plain - (1 << 32), plain).to(torch.int32).view(torch.float32)


def find_decoding(ranges: _Ranges) -> Tensor:
    """Returns [2, F] float32, scales above 0 and offsets, so that codes from -128 to 127 cover the
    ranges. A column of one value has it as its offset."""
    low, high = ranges
    tiny = torch.finfo(torch.float32).tiny
    offset = (low + 128 * ((high - low) / 255)).float()
    wide = offset.double()
    wanted = torch.maximum((high - wide) / _LAST, (low - wide) / _FIRST).clamp(min=tiny)
    scale = wanted.float()
    scale = torch.where(scale < wanted, torch.nextafter(scale, torch.tensor(torch.inf)), scale)
    most = torch.finfo(torch.float32).max
    for _ in range(4):  # rounding may have carried an end beyond the numbers of float32
        ends = torch.stack([wide + code * scale.double() for code in (_FIRST, _LAST)]).abs().amax(0)
        scale = torch.where(ends > most, torch.nextafter(scale, torch.tensor(0.0)), scale)
    constant = low == high
    scale, offset = torch.where(constant, 1.0, scale), torch.where(constant, low.float(), offset)
    return torch.stack([scale, offset])


class RowCoder:
    """Codes the rows of tables with the same columns. ``decoding``: [2, F] float32, scales and
    offsets. ``tell``: told the elements that are done, after each step. Raises `ValueError` if a
    value is NaN or infinite, or beyond float32."""

    def __init__(
        self, name: str, sources: Sequence[WideRows], how: Quantization, tell: Callable[[int], None]
    ) -> None:
        self._name, self._sources, self._tell, self._dtype = name, sources, tell, how.dtype
        ranges = _extremes(sources, tell)
        if how.percentile is not None and any(len(one.table) for one in sources):
            ranges = _within_percentile(sources, ranges, how.percentile, tell)
        self._constant = int((ranges[0] == ranges[1]).sum())
        self.decoding = find_decoding(ranges)
        self._error = torch.zeros(sources[0].columns, dtype=torch.float64)
        self._inside = torch.zeros_like(self._error)
        self._clamped = 0

    @staticmethod
    def passes(how: Quantization) -> int:
        return 2 if how.percentile is None else 2 + len(_DIGITS)

    def codes(self, source: WideRows) -> Iterator[Tensor]:
        """Yields the codes of a table, successive rows [n, F] int8."""
        scale, offset = self.decoding.double()
        for _, rows in source.pieces():
            values = rows.double()
            steps = (values - offset).div_(scale).round_()
            outside = (steps < _FIRST) | (steps > _LAST)
            codes = steps.clamp_(_FIRST, _LAST).to(torch.int8)
            found = QuantizedTensor(codes, self.decoding, self._dtype).dequantize()
            error = (found.double() - values).abs_()
            if len(error):
                torch.maximum(self._error, error.amax(0), out=self._error)
                torch.maximum(self._inside, error.masked_fill_(outside, 0).amax(0), out=self._inside)
            self._clamped += int(outside.sum())
            yield codes
            self._tell(rows.numel())

    def report(self) -> QuantizedTable:
        elements = sum(one.table.numel() for one in self._sources)
        return QuantizedTable(
            self._name,
            rows=sum(len(one.table) for one in self._sources),
            columns=self._sources[0].columns,
            constant=self._constant,
            bytes_before=sum(one.table.nbytes for one in self._sources),
            bytes_after=elements + self.decoding.nbytes,
            clamped=self._clamped,
            error=float(self._error.max()) if len(self._error) else 0.0,
            error_in_scales=float((self._inside / self.decoding[0]).max()) if len(self._error) else 0.0,
        )


def quantize(
    data: Any,
    bits: int = 8,
    *,
    attributes: str | Sequence[str] = (FEATURES,),
    percentile: float | None = None,
    dtype: torch.dtype = torch.float32,
    report: Callable[[QuantizationReport], object] | None = None,
) -> Any:
    """Returns a graph, or a table, whose features are int8-quantised with a scale and an offset.

    Each column has its own, found by a pass over all rows. A value within the range of its column
    is decoded to within half a scale of itself, and rounded once more in bfloat16. A column of one
    value is exact. Codes take a quarter of float32's bytes. No float copy of a table is made.

    The tables are `QuantizedTensor`s: PyG and torch see constants of ``dtype``. Loaders decode the
    rows of a batch while they gather them, and native layers read codes in place.

    >>> narrow = quantize(data)
    >>> narrow.x.codes.dtype, narrow.x[:2].dtype  # rows are decoded where they are read
    (torch.int8, torch.float32)

    Args:
        data: a ``Data``, a ``HeteroData`` or one floating-point tensor [N, F] or [N]. It stays as
            it is.
        bits: bits of a code; 8.
        attributes: names of attributes of nodes and edges to quantise, in every type that has them.
        percentile: None codes each column from its least to its largest value. 99.9 leaves out at
            most 0.05 % of its values at either end; they are clamped. See `Quantization`.
        dtype: what codes are decoded into, float32 or bfloat16.
        report: called with a `QuantizationReport`: bytes, errors and clamped values.

    Raises:
        TypeError, ValueError: an argument, or an attribute, cannot be used; a value is NaN or
            infinite. The message names its row and column.
    """
    check_bits(bits)
    how, found = Quantization(percentile, dtype), list[QuantizedTable]()

    def coded(name: str, value: Any) -> QuantizedTensor:
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is a {type(value).__name__}; only tensors of numbers are quantised")
        check_table(name, value)
        source = WideRows(name, value)
        encoder = RowCoder(name, [source], how, lambda _: None)
        codes = torch.empty(value.shape, dtype=torch.int8)
        advise_huge_pages(codes)  # rows are read at random
        flat, first = codes.view(len(codes), -1) if codes.numel() else codes, 0
        for piece in encoder.codes(source):
            flat[first : first + len(piece)] = piece
            first += len(piece)
        found.append(encoder.report())
        return QuantizedTensor(codes, encoder.decoding, how.dtype)

    if isinstance(data, (Tensor, np.ndarray)):
        made: Any = coded("the table", data)
    else:
        made = _quantized_data(data, attribute_names(attributes), coded)
    if report is not None:
        report(QuantizationReport(tuple(found)))
    return made


def _quantized_data(data: Any, names: Sequence[str], coded: Callable[[str, Any], QuantizedTensor]) -> Any:
    from torch_geometric.data import Data, HeteroData

    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(f"data must be a Data, a HeteroData or a tensor, got {type(data).__name__}")
    made = copy.copy(data)
    stores = made.stores if isinstance(made, Data) else [*made.node_stores, *made.edge_stores]
    for name in names:
        holders = [store for store in stores if name in store]
        if not holders:
            held = sorted({key for store in stores for key in store})
            raise ValueError(f"data has no attribute {name!r} (it has: {', '.join(held) or 'none'})")
        for store in holders:
            key = getattr(store, "_key", None)
            whose = "" if key is None else f"{key if isinstance(key, str) else '-'.join(key)}/"
            store[name] = coded(f"{whose}{name}", store[name])
    return made
