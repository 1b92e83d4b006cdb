"""The vectors whose entries are known to be in range, so that operators check each of them once.

What a check found is remembered for the very tensor and its version counter. A write through torch
voids it, and the next operator checks again. A write through another view of the memory, such as a
NumPy array, is not seen; `content_sums` sees it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor


class _Record(NamedTuple):
    """The result of a check of a tensor.

    Attributes:
        tensor: the tensor, held weakly.
        version: its version counter when it was checked.
        bound: its entries are at least 0 and below this.
        ascends: True if no entry is below the one before it, the first is 0 and the last is
            ``bound`` - 1.
    """

    tensor: weakref.ref[Tensor]
    version: int
    bound: int
    ascends: bool


#: By the tensor's id. An entry goes with its tensor.
_records: dict[int, _Record] = {}


def remember(values: Tensor, bound: int, *, ascends: bool = False) -> None:
    """Remembers that the entries of a vector are in [0, bound), and whether they ascend to the
    end of it."""
    if values.is_inference():  # has no version counter
        return
    key = id(values)
    held = weakref.ref(values, lambda _, records=_records: records.pop(key, None))  # type: ignore[misc]
    _records[key] = _Record(held, values._version, bound, ascends)


def known_bound(values: Tensor) -> int | None:
    """Returns a number that all entries are known to be below, none being negative; None if
    nothing is known."""
    record = _record(values)
    return None if record is None else record.bound


def is_known_indptr(values: Tensor, entries: int) -> bool:
    """Returns whether a vector is known to ascend from 0 to ``entries``."""
    record = _record(values)
    return record is not None and record.ascends and record.bound == entries + 1


def prefix(values: Tensor, length: int) -> Tensor:
    """Returns the first ``length`` entries of a vector, of which is known what is known of it."""
    if length == values.numel():
        return values
    first, record = values[:length], _record(values)
    if record is not None:
        bound = int(first[-1]) + 1 if record.ascends and length else record.bound
        remember(first, bound, ascends=record.ascends and length > 0)
    return first


def writes(arrays: Sequence[Tensor]) -> int | None:
    """Returns how often torch has written to some tensors; None if one of them has no counter."""
    try:
        return sum(map(_version, arrays))
    except (RuntimeError, AttributeError):  # made in inference mode, or no tensor
        return None


_version = attrgetter("_version")

#: The columns of the table in which `content_sums` folds a tensor.
_COLUMNS = 1024


def content_sums(values: Tensor) -> Tensor:
    """Returns sums by which a change of the contents of an integer tensor is noticed, however it
    was made.

    The entries (of 32 bits: pairs of them) are folded into a table, of which the sums of rows and
    of columns are returned. A change of one, two or three entries changes one of them for certain.
    Others escape only if they cancel out in every row and column.

    Args:
        values: integers of any shape.

    Returns:
        [sums] int64.
    """
    flat = values.reshape(-1)
    odd = flat.new_empty(0)
    if flat.dtype == torch.int32 and not flat.storage_offset() % 2:  # torch adds 64-bit numbers faster
        even = flat.numel() // 2 * 2
        flat, odd = flat[:even].view(torch.int64), flat[even:]
    rows = flat.numel() // _COLUMNS
    table, rest = flat[: rows * _COLUMNS].view(rows, _COLUMNS), flat[rows * _COLUMNS :]
    return torch.cat([table.sum(0), table.sum(1), rest.to(torch.int64), odd.to(torch.int64)])


def _record(values: Tensor) -> _Record | None:
    record = _records.get(id(values))
    if record is None or record.tensor() is not values or record.version != values._version:
        return None
    return record
