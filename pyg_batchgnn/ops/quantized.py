"""Rows of bytes: int8 codes with a scale and an offset for each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_batchgnn.ops.checks import INTEGERS, check_dense, check_range, extent
from pyg_batchgnn.ops.library import fake, kernels, thread_count
from pyg_batchgnn.versions import private

_let_pointer_raise = private(torch._C, "_set_throw_on_mutable_data_ptr")
aten = torch.ops.aten
#: The dtypes into which codes are decoded.
DECODED = (torch.float32, torch.bfloat16)
_CONSTANT = (
    "{} would write to a QuantizedTensor, whose rows are constant codes; write to a decoded copy, "
    "table.dequantize(), and quantise it again"
)


class QuantizedTensor(Tensor):
    """A read-only table that is stored as int8 codes.

    The value of a column is ``code * scale + offset``, computed in float32 with one rounding (a
    fused multiply-add). To torch and PyG it is a constant of ``dtype`` with the shape of the
    decoded table. A selection of rows (``x[index]``, ``index_select``, ``F.embedding``) decodes
    only these. A range of rows (``x[a:b]``) or of columns and ``detach()`` are views with codes.
    Every other operation decodes the whole table first. Kernels of this package read the codes in
    place.

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
        return cls._of(codes, decoding.contiguous(), dtype)

    @classmethod
    def _of(cls, codes: Tensor, decoding: Tensor, dtype: torch.dtype) -> QuantizedTensor:
        made = Tensor._make_wrapper_subclass(
            cls, codes.shape, strides=codes.stride(), dtype=dtype, device=codes.device
        )
        made.codes, made.decoding = codes, decoding
        _let_pointer_raise(made)  # else `to_dlpack` hands out a null pointer
        return made

    def with_codes(self, codes: Tensor) -> QuantizedTensor:
        """Returns a table of other codes with the same scales and offsets."""
        if codes.dtype != torch.int8 or codes.shape[1:] != self.codes.shape[1:]:
            raise TypeError(
                f"codes must be int8 {['N', *self.codes.shape[1:]]}, got {codes.dtype} {list(codes.shape)}"
            )
        return self._of(codes, self.decoding, self.dtype)

    def dequantize(self) -> Tensor:
        """Returns a decoded copy of ``dtype``."""
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

    def numpy(self, *, force: bool = False) -> Any:
        """Returns the decoded table as an array."""
        return self.dequantize().numpy(force=force)

    def data_ptr(self) -> int:
        """Returns 0: there are no floats in memory. Codes have ``codes.data_ptr()``."""
        return 0

    def storage(self) -> Any:  # safetensors asks for it
        raise TypeError(
            "a QuantizedTensor has no memory of floats that could be saved or shared; give its decoded "
            "table.dequantize(), or table.codes and table.decoding, two ordinary tensors"
        )

    def tolist(self) -> list[Any]:
        """Returns the decoded numbers in lists."""
        return self.dequantize().tolist()

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.dequantize().__dlpack__(**kwargs)

    def __setitem__(self, *_: Any) -> None:
        raise TypeError(_CONSTANT.format("assignment"))

    def fill_diagonal_(self, *_: Any, **__: Any) -> Tensor:
        raise TypeError(_CONSTANT.format("fill_diagonal_"))

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
        if func.is_view and torch.is_inference_mode_enabled():  # a view of an ordinary tensor is one
            with torch.inference_mode(False), torch.no_grad():
                return cls.__torch_dispatch__(func, types, args, kwargs)
        own = _OPERATIONS.get(func)
        if own is not None:
            done = own(*args, **kwargs)
            if done is not NotImplemented:
                return done
        if (func._schema.is_mutable or func.namespace == "c10d") and _written(func, args, kwargs):
            raise TypeError(_CONSTANT.format(func))
        args, kwargs = pytree.tree_map_only(QuantizedTensor, QuantizedTensor.dequantize, (args, kwargs))
        return func(*args, **kwargs)


def as_stored(table: Any) -> Any:
    """Returns the codes of a `QuantizedTensor`; anything else unchanged."""
    return table.codes if isinstance(table, QuantizedTensor) else table


def rows_like(table: Any, rows: Tensor) -> Tensor:
    """Returns rows as they are stored (`as_stored`) with the scales and offsets of a table."""
    return table.with_codes(rows) if isinstance(table, QuantizedTensor) else rows


def decoded(table: Any) -> Any:
    """Returns a `QuantizedTensor` as floats; anything else unchanged."""
    return table.dequantize() if isinstance(table, QuantizedTensor) else table


def stored(rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns rows as kernels read them, and the decoding of codes or None."""
    if isinstance(rows, QuantizedTensor):
        return _dense_rows(rows.codes), rows.decoding
    return rows, None


def check_decoding(codes: Tensor, decoding: Tensor) -> None:
    """Raises TypeError or ValueError unless ``codes`` are int8 rows with a valid ``decoding``."""
    if codes.dtype != torch.int8 or codes.dim() not in (1, 2):
        raise TypeError(f"codes must be int8 [N, F] or [N], got {codes.dtype} {list(codes.shape)}")
    columns = 1 if codes.dim() == 1 else codes.size(1)
    if decoding.dtype != torch.float32 or list(decoding.shape) != [2, columns]:
        raise TypeError(
            f"decoding must be float32 [2, {columns}] for codes {list(codes.shape)}: a scale and an offset "
            f"for each column; got {decoding.dtype} {list(decoding.shape)}"
        )
    if decoding.is_meta:
        return
    bad = ~(decoding.isfinite().all(0) & (decoding[0] > 0))
    if bad.any():
        column = int(bad.nonzero()[0])
        raise ValueError(
            f"a scale must be positive and an offset finite, but column {column} has the scale "
            f"{float(decoding[0, column])} and the offset {float(decoding[1, column])}; constant "
            "columns have the scale 1 and codes of 0"
        )


def decode(codes: Tensor, decoding: Tensor, dtype: torch.dtype, index: Tensor | None = None) -> Tensor:
    """Returns ``codes[index] * scale + offset``, rounded once to float32, then to ``dtype``."""
    if codes.device.type == "cpu":
        return kernels.gather_decoded(_dense_rows(codes), decoding, index, dtype, thread_count())
    return _decode_by_torch(codes if index is None else codes[index], decoding).to(dtype)


def decode_into(out: Tensor, codes: Tensor, decoding: Tensor, index: Tensor | None = None) -> None:
    """Writes decoded rows, given as in `decode`, to ``out`` on the CPU."""
    kernels.put_decoded(_dense_rows(codes), decoding, index, out, thread_count())


def _dense_rows(codes: Tensor) -> Tensor:
    return codes if codes.dim() == 1 or codes.stride(1) == 1 else codes.contiguous()


def _decode_by_torch(codes: Tensor, decoding: Tensor) -> Tensor:
    """Returns decoded codes as float32, with the rounding of a fused multiply-add. The product of 8
    and 24 bits is exact in float64. The sum is rounded to odd, so that rounding it to float32
    rounds the exact sum (Boldo and Melquiond 2008)."""
    scale, offset = decoding.double()
    product = codes.double() * scale
    total = product + offset
    rest = total - product
    error = (product - (total - rest)) + (offset - rest)
    even = (total.view(torch.int64) & 1) == 0
    towards = error * torch.inf  # which way to round; a device need not wait for it
    return torch.where((error != 0) & even, torch.nextafter(total, towards), total).float()


@fake("gather_decoded")
def _fake_gather(
    codes: Tensor, _decoding: Tensor, index: Tensor | None, out_dtype: torch.dtype, _threads: int
) -> Tensor:
    rows = codes.size(0) if index is None else index.numel()
    return codes.new_empty((rows, *codes.shape[1:]), dtype=out_dtype)


@fake("put_decoded")
def _fake_put(_codes: Tensor, _decoding: Tensor, _index: Tensor | None, _out: Tensor, _threads: int) -> None:
    return None


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    named = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | dict(kwargs)
    written = [named.get(one.name) for one in func._schema.arguments if one.is_write]
    if func.namespace == "c10d" and func._schema.name.endswith("_"):  # the schema does not say so
        written = [*args[:1]]
    return any(isinstance(leaf, QuantizedTensor) for leaf in pytree.tree_leaves(written))


# What does not need the whole table ###############################################################


def _view(table: Any, *_: Any, **__: Any) -> Any:
    return table.with_codes(table.codes) if isinstance(table, QuantizedTensor) else NotImplemented


def _slice(table: Any, dim: int = 0, *rest: Any, **kwargs: Any) -> Any:
    if not isinstance(table, QuantizedTensor):
        return NotImplemented
    codes = aten.slice.Tensor(table.codes, dim, *rest, **kwargs)
    if dim % table.dim() == 0:
        return table.with_codes(codes)
    decoding = aten.slice.Tensor(table.decoding, dim, *rest, **kwargs)
    return QuantizedTensor._of(codes, decoding.contiguous(), table.dtype)


def _select(table: Any, dim: int, at: int) -> Any:
    if not isinstance(table, QuantizedTensor) or dim % table.dim() != 0:
        return NotImplemented
    row = aten.select.int(table.codes, 0, at)
    return decode(row.view(1, *row.shape), table.decoding, table.dtype)[0]


def _rows(table: QuantizedTensor, index: Tensor, shape: Sequence[int]) -> Tensor:
    """Decodes the rows of a non-negative index of any shape."""
    if table.device.type == "cpu":
        check_dense("index", index)
        check_range("index", index.reshape(-1), table.size(0), "rows of the table")
    rows = decode(table.codes, table.decoding, table.dtype, index.reshape(-1))
    return rows.view(*shape, *table.shape[1:])


def _index_select(table: Any, dim: int, index: Any) -> Any:
    if not isinstance(table, QuantizedTensor) or dim % table.dim() != 0 or index.dtype not in INTEGERS:
        return NotImplemented
    return _rows(table, index, (index.numel(),)) if index.dim() < 2 else NotImplemented


def _index(table: Any, indices: Sequence[Any]) -> Any:
    if not isinstance(table, QuantizedTensor) or len(indices) != 1 or indices[0] is None:
        return NotImplemented
    index: Tensor = indices[0]
    if index.dtype in (torch.bool, torch.uint8):
        if index.shape != table.shape[:1]:
            return NotImplemented  # a choice of elements
        index = index.nonzero().squeeze(1)
    elif index.dtype not in INTEGERS:
        return NotImplemented
    elif index.device.type == "cpu" and not index.is_sparse and extent(index.reshape(-1))[0] < 0:
        index = torch.where(index < 0, index + table.size(0), index)  # from the end
    return _rows(table, index, index.shape)


def _embedding(table: Any, index: Any, *_: Any, **__: Any) -> Any:
    if not isinstance(table, QuantizedTensor) or index.dtype not in INTEGERS:
        return NotImplemented
    return _rows(table, index, index.shape)


def _to_copy(table: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    dtype = table.dtype if dtype is None else dtype
    # bfloat16 is rounded from float32, so a table of it stands for the same values.
    if dtype not in (table.dtype, torch.bfloat16) or kwargs.get("layout") not in (None, torch.strided):
        return NotImplemented
    there = table.codes.to(device) if device is not None else table.codes.clone()
    return QuantizedTensor._of(there, table.decoding.to(there.device), dtype)


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    aten.detach.default: _view,
    aten.alias.default: _view,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.index_select.default: _index_select,
    aten.index.Tensor: _index,
    aten.embedding.default: _embedding,
    aten.clone.default: lambda table, **kwargs: table.with_codes(table.codes.clone(**kwargs)),
    aten._to_copy.default: _to_copy,
}

# `torch.load` reads such tables without running what a file says.
torch.serialization.add_safe_globals([QuantizedTensor])
