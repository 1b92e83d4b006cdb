"""Rows of bytes: int8 codes with a scale and an offset for each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten
#: The dtypes into which codes are decoded.
DECODED = (torch.float32, torch.bfloat16)
_CONSTANT = (
    "{} would write to a QuantizedTensor, whose rows are constant codes; write to a decoded copy, "
    "table.dequantize(), and quantise it again"
)


class QuantizedTensor(Tensor):
    """A table whose rows lie in memory as int8 codes.

    The value of a column is ``code * scale + offset``, computed in float32 with one rounding (a
    fused multiply-add). To torch and to PyG it is a constant of ``dtype``: shapes and
    ``data.num_features`` are those of the decoded table. A selection of rows (``x[index]``,
    ``index_select``, ``F.embedding``) decodes these rows alone. A range of rows (``x[a:b]``) and
    ``detach()`` are views that stay narrow. Every other operation decodes the whole table first.
    Kernels of this package read the codes in place.

    It cannot be written to and gets no gradient.

    Attributes:
        codes: [N, F] or [N] int8.
        decoding: [2, F] float32, the scales and the offsets of the columns; [2, 1] for [N] codes.
    """

    codes: Tensor
    decoding: Tensor

    @staticmethod
    def __new__(cls, codes: Tensor, decoding: Tensor, dtype: torch.dtype = torch.float32) -> QuantizedTensor:
        check_decoding(codes, decoding)
        if dtype not in DECODED:
            raise TypeError(f"codes are decoded into float32 or bfloat16, not {dtype}")
        made = Tensor._make_wrapper_subclass(
            cls, codes.shape, strides=codes.stride(), dtype=dtype, device=codes.device
        )
        made.codes, made.decoding = codes, decoding
        return made

    def with_codes(self, codes: Tensor) -> QuantizedTensor:
        """Returns other rows of the same columns."""
        return QuantizedTensor(codes, self.decoding, self.dtype)

    def dequantize(self) -> Tensor:
        """Returns the decoded table, a copy of ``dtype``."""
        return decode(self.codes, self.decoding, self.dtype)

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """The bytes of the codes."""
        return self.codes.nbytes

    def share_memory_(self) -> QuantizedTensor:
        """Moves the codes to memory that processes share."""
        self.codes.share_memory_()
        self.decoding.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Returns whether the codes lie in memory that processes share."""
        return self.codes.is_shared()

    def __setitem__(self, *_: Any) -> None:
        raise TypeError(_CONSTANT.format("assignment"))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"QuantizedTensor(shape={list(self.shape)}, dtype={self.dtype}, codes={self.codes.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        own = _OPERATIONS.get(func)
        if own is not None:
            done = own(*args, **kwargs)
            if done is not NotImplemented:
                return done
        if func._schema.is_mutable and _written(func, args, kwargs):
            raise TypeError(_CONSTANT.format(func))
        args, kwargs = pytree.tree_map_only(QuantizedTensor, QuantizedTensor.dequantize, (args, kwargs))
        return func(*args, **kwargs)


def stored(table: Any) -> Any:
    """Returns the codes of a `QuantizedTensor`, and anything else as it is."""
    return table.codes if isinstance(table, QuantizedTensor) else table


def rows_like(table: Any, rows: Tensor) -> Tensor:
    """Returns rows, as `stored` gives them, as rows of a table: with its scales and offsets."""
    return table.with_codes(rows) if isinstance(table, QuantizedTensor) else rows


def decoded(table: Any) -> Any:
    """Returns a `QuantizedTensor` as the floats that it stands for, and anything else as it is."""
    return table.dequantize() if isinstance(table, QuantizedTensor) else table


def check_decoding(codes: Tensor, decoding: Tensor) -> None:
    """Raises unless ``codes`` are int8 rows and ``decoding`` are their scales and offsets."""
    if codes.dtype != torch.int8 or codes.dim() not in (1, 2):
        raise TypeError(f"codes must be int8 [N, F] or [N], got {codes.dtype} {list(codes.shape)}")
    columns = 1 if codes.dim() == 1 else codes.size(1)
    if decoding.dtype != torch.float32 or list(decoding.shape) != [2, columns]:
        raise TypeError(
            f"decoding must be float32 [2, {columns}] for codes {list(codes.shape)}: a scale and an offset "
            f"for each column; got {decoding.dtype} {list(decoding.shape)}"
        )


def decode(codes: Tensor, decoding: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns ``codes * scale + offset``, rounded once to float32, then to ``dtype``."""
    scale, offset = decoding.double()
    wide = torch.addcmul(offset, codes.double(), scale)  # the product of 8 and 24 bits is exact
    return wide.float().to(dtype)


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    named = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | dict(kwargs)
    return any(
        isinstance(named.get(one.name), QuantizedTensor)
        for one in func._schema.arguments
        if one.alias_info is not None and one.alias_info.is_write
    )


# What does not need the whole table ###############################################################


def _view(table: Any, *_: Any, **__: Any) -> Any:
    return table.with_codes(table.codes) if isinstance(table, QuantizedTensor) else NotImplemented


def _slice(table: Any, dim: int = 0, *rest: Any, **kwargs: Any) -> Any:
    if not isinstance(table, QuantizedTensor) or dim != 0:
        return NotImplemented
    return table.with_codes(aten.slice.Tensor(table.codes, dim, *rest, **kwargs))


def _rows(table: Any, index: Tensor) -> Tensor:
    return table.with_codes(table.codes[index]).dequantize()


def _index_select(table: Any, dim: int, index: Any) -> Any:
    if not isinstance(table, QuantizedTensor) or dim not in (0, -table.dim()):
        return NotImplemented
    return _rows(table, index)


def _index(table: Any, indices: Sequence[Any]) -> Any:
    if not isinstance(table, QuantizedTensor) or len(indices) != 1 or indices[0] is None:
        return NotImplemented
    return _rows(table, indices[0])


def _embedding(table: Any, index: Any, *_: Any, **__: Any) -> Any:
    return _rows(table, index) if isinstance(table, QuantizedTensor) else NotImplemented


def _clone(table: Any, **_: Any) -> Any:
    return table.with_codes(table.codes.clone())


def _to_copy(table: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    dtype = table.dtype if dtype is None else dtype
    # bfloat16 is rounded from float32, so a table of it stands for the same values.
    if dtype not in (table.dtype, torch.bfloat16) or kwargs.get("layout") not in (None, torch.strided):
        return NotImplemented
    there = table.codes.to(device) if device is not None else table.codes.clone()
    return QuantizedTensor(there, table.decoding.to(there.device), dtype)


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    aten.detach.default: _view,
    aten.alias.default: _view,
    aten.slice.Tensor: _slice,
    aten.index_select.default: _index_select,
    aten.index.Tensor: _index,
    aten.embedding.default: _embedding,
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
}

# `torch.load` reads such tables without running what a file says.
torch.serialization.add_safe_globals([QuantizedTensor])
