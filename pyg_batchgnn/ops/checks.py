"""The checks of arguments before a kernel runs, and the passes over whole arrays for them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from pyg_batchgnn import machine
from pyg_batchgnn.ops.library import kernels, thread_count
from pyg_batchgnn.versions import private

_are_functorch_transforms_active = private(torch._C, "_are_functorch_transforms_active")
_is_wrapped = private(torch._C._functorch, "is_functorch_wrapped_tensor")
INTEGERS = (torch.int32, torch.int64)
#: The most nodes that a node type may have.
MOST_NODES = 1 << 40
#: The remedy for ids that are no positions of nodes, such as hashes.
MAP_IDS = (
    "ids are the positions 0 to N - 1: map yours by values, ids = torch.unique(ids, return_inverse=True), or "
    "numpy.unique likewise, over all ids of the type"
)
#: The dtypes that layers compute in. Sums of bfloat16 products are float32.
FLOATS = (torch.float32, torch.float64, torch.bfloat16)
#: The dtypes of stored rows.
TABLES = (*FLOATS, torch.float16)


def fits_int32(count: int) -> bool:
    """Returns whether the ids 0 to ``count`` - 1 fit int32."""
    return count <= 1 << 31


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which numbers are summed: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def id_dtype(count: int) -> torch.dtype:
    """The narrower of int32 and int64 that the ids 0 to ``count`` - 1 fit."""
    return torch.int32 if fits_int32(count) else torch.int64


def check_vector(name: str, tensor: Tensor, dtypes: Sequence[torch.dtype] = INTEGERS) -> None:
    """Raises TypeError or ValueError unless ``tensor`` is a contiguous CPU vector of ``dtypes``."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}; use torch.as_tensor")
    if tensor.dtype not in dtypes:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} must be {wanted}, got {tensor.dtype}; convert it with .to({dtypes[-1]})")
    if tensor.dim() != 1:
        raise ValueError(f"{name} must have one dimension, got shape {list(tensor.shape)}")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} is on {tensor.device}; the operators run on the CPU, move it with .cpu()")
    if not tensor.is_contiguous():
        how = f"{tensor.layout}, stride {tensor.stride(0)}"
        remedy = ".contiguous()" if tensor.layout is torch.strided else ".to_dense()"
        raise ValueError(f"{name} is not contiguous ({how}); use {remedy}")


def check_dense(name: str, tensor: Tensor) -> None:
    """Raises TypeError or ValueError unless ``tensor`` is dense, on the CPU and not transformed."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}; use torch.as_tensor")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(
            f"{name} is {tensor.layout} on {tensor.device}; the operators take dense CPU tensors"
        )
    refuse_transformed(name, tensor)


def check_on_cpu(name: str, tensor: Tensor) -> None:
    """As `check_dense`, but a tensor may also be on "meta", for its shape alone."""
    if not isinstance(tensor, Tensor) or tensor.device.type != "meta":
        check_dense(name, tensor)


def check_float(name: str, tensor: Tensor) -> None:
    """As `check_dense`, for a tensor of a dtype in `FLOATS`."""
    check_dense(name, tensor)
    if tensor.dtype not in FLOATS:
        raise TypeError(
            f"{name} must be float32, float64 or bfloat16, got {tensor.dtype}; convert it with .float()"
        )


def check_matrix(name: str, tensor: Tensor) -> None:
    """As `check_float`, for a tensor of two dimensions."""
    check_float(name, tensor)
    if tensor.dim() != 2:
        raise ValueError(f"{name} must have two dimensions, got shape {list(tensor.shape)}")


def check_range(name: str, values: Tensor, size: int, what: str = "node ids") -> None:
    """Raises IndexError unless all entries of an integer vector are in [0, size)."""
    low, high = extent(values)
    if values.numel() and (low < 0 or high >= size):
        bad = low if low < 0 else high
        remedy = f"; {MAP_IDS}" if what == "node ids" and bad >= 1 << 32 else ""
        raise IndexError(f"{name} holds {bad}, but {what} go from 0 to {size - 1} here{remedy}")


def too_many_nodes(count: int, processes: int = 1) -> str:
    """Returns why a node type cannot have this many nodes over ``processes``; empty if it can."""
    if 0 <= count < 1 << 24:  # no machine has so little memory
        return ""
    if count < 0:
        return "it must not be negative"
    if count > MOST_NODES:
        return "a node type has at most 2**40 nodes"
    need, have = 8 * (count + 1) / processes / 2**30, machine.memory().total / 2**30
    if need <= have:
        return ""
    return f"8 bytes for each of them are {need:,.0f} GiB, and this machine has {have:,.0f} GiB of memory"


def check_node_count(name: str, count: int) -> None:
    """Raises ValueError if a graph in this process cannot have this many nodes."""
    if why := too_many_nodes(count):
        raise ValueError(
            f"{name} is {count}, but {why}; give the number of nodes{f', not an id: {MAP_IDS}' * (count > 0)}"
        )


def check_ids(
    name: str, values: Tensor, size: int, what: str = "node ids", *, of_graph: bool = False
) -> None:
    """Raises TypeError, ValueError or IndexError unless ``values`` is an integer vector with
    entries in [0, size). They are read on every call, unless a kernel made the tensor and torch has
    not written to it. ``of_graph``: the tensor belongs to a sampled graph, and is read once."""
    record = _record(values, of_graph)
    if record is not None and record.bound <= size:
        return
    check_vector(name, values)
    check_range(name, values, size, what)
    if of_graph:
        remember(values, size, of_graph=True)


def check_indptr(name: str, indptr: Tensor, entries: int, *, of_graph: bool = False) -> None:
    """Raises unless an int64 vector ascends from 0 to ``entries``. It is read as by `check_ids`."""
    if is_known_indptr(indptr, entries, of_graph):
        return
    check_vector(name, indptr, (torch.int64,))
    if indptr.numel() == 0 or int(indptr[0]) != 0 or int(indptr[-1]) != entries:
        ends = f"{int(indptr[0])} to {int(indptr[-1])}" if indptr.numel() else "nowhere"
        raise ValueError(f"{name} must go from 0 to the number of indices ({entries}), but goes from {ends}")
    if not is_ascending(indptr):
        at = int((indptr[1:] < indptr[:-1]).nonzero()[0])
        raise ValueError(
            f"{name} must ascend, but entry {at + 1} ({int(indptr[at + 1])}) is below {int(indptr[at])}"
        )
    if of_graph:
        remember(indptr, entries + 1, ascends=True, of_graph=True)


def extent(values: Tensor) -> tuple[int, int]:
    """Returns the smallest and the largest entry of an integer vector, (0, -1) if it is empty."""
    check_vector("values", values)
    return kernels.extent(values, thread_count())


def is_ascending(values: Tensor) -> bool:
    """Returns whether no entry of an int32 or int64 vector is smaller than the one before it."""
    check_vector("values", values)
    return kernels.is_ascending(values)


#: Probabilities of dropout are rounded to multiples of 1 / LEVELS.
LEVELS = 2**16


def check_drop(drop: float) -> None:
    """Raises ValueError unless ``drop`` is in [0, 1)."""
    if not 0.0 <= drop < 1.0 or _kept_levels(drop) == 0:
        raise ValueError(f"the probability of dropping must be at least 0 and below 1, got {drop}")


def dropout_scale(drop: float) -> float:
    """Returns the factor of kept elements: 1 / the rounded probability of keeping one."""
    return LEVELS / _kept_levels(drop)


def _kept_levels(drop: float) -> int:
    """Returns the number of levels kept, halves rounded up as in csrc/kernels/dropout.h."""
    return int((1.0 - drop) * LEVELS + 0.5)


def check_nodes(node: Tensor | None, rows: int) -> None:
    if node is None:
        return
    check_vector("node", node, (torch.int64,))
    if node.numel() < rows:
        raise ValueError(f"node has {node.numel()} entries for {rows} rows; give one entry per row")


def check_type(name: str, value: object, wanted: type | tuple[type, ...], remedy: str) -> None:
    """Raises TypeError unless ``value`` is of the wanted type, or of one of them."""
    if isinstance(value, wanted):
        return
    types = wanted if isinstance(wanted, tuple) else (wanted,)
    names = " or ".join(map(with_article, types))
    raise TypeError(f"{name} must be {names}, got {type(value).__name__}; {remedy}")


def with_article(kind: type) -> str:
    """Returns the name of a type with its article: an InEdges, a SamplingPlan."""
    name = kind.__name__
    is_spelled = name[:2].isupper()  # letter by letter
    return f"{'an' if name[0].upper() in ('AEFHILMNORSX' if is_spelled else 'AEIOU') else 'a'} {name}"


# What is known of entries #########################################################################

# The vectors whose entries are known to be in range: those that kernels made, and those that a
# graph holds for its sampler. A write through torch voids what is known. One through ``.data`` or
# NumPy is not seen, so an operator reads the vectors of a user on every call. `content_sums` sees
# such writes, too.


class _Record(NamedTuple):
    """What is known about the entries of a tensor."""

    tensor: weakref.ref[Tensor]
    version: int  # its version counter when its entries were known
    bound: int  # its entries are at least 0 and below this
    # True if no entry is below the one before it, the first is 0 and the last is ``bound`` - 1.
    ascends: bool
    of_graph: bool  # True if the user's tensor was read for a graph, which alone trusts it


#: By the tensor's id. An entry goes with its tensor.
_records: dict[int, _Record] = {}


def remember(values: Tensor, bound: int, *, ascends: bool = False, of_graph: bool = False) -> None:
    """Records that a vector's entries are in [0, bound), and whether they ascend from 0 to it."""
    if values.is_inference():  # has no version counter
        return
    key = id(values)
    held = weakref.ref(values, lambda _, records=_records: records.pop(key, None))  # type: ignore[misc]
    _records[key] = _Record(held, values._version, bound, ascends, of_graph)


def known_bound(values: Tensor) -> int | None:
    """Returns a bound that all entries, from 0 on, are known to be below; None if unknown."""
    record = _record(values)
    return None if record is None else record.bound


def is_known_indptr(values: Tensor, entries: int, of_graph: bool = False) -> bool:
    """Returns whether a vector is known to ascend from 0 to ``entries``."""
    record = _record(values, of_graph)
    return record is not None and record.ascends and record.bound == entries + 1


def prefix(values: Tensor, length: int) -> Tensor:
    """Returns the first ``length`` entries of a vector, with what is recorded about it."""
    if length == values.numel():
        return values
    first, record = values[:length], _record(values, True)
    if record is not None:
        bound = int(first[-1]) + 1 if record.ascends and length else record.bound
        remember(first, bound, ascends=record.ascends and length > 0, of_graph=record.of_graph)
    return first


#: The columns of the table in which `content_sums` folds a tensor.
_COLUMNS = 1024


def content_sums(values: Tensor) -> Tensor:
    """Returns [sums] int64, which change if an integer tensor does, however it was written to.

    The entries (of 32 bits: pairs of them) are folded into a table, whose rows and columns are
    summed. A change of one, two or three entries always changes a sum; others only escape if they
    cancel out in every row and column.
    """
    flat = values.reshape(-1)
    odd = flat.new_empty(0)
    if flat.dtype == torch.int32 and not flat.storage_offset() % 2:  # torch adds 64-bit numbers faster
        even = flat.numel() // 2 * 2
        flat, odd = flat[:even].view(torch.int64), flat[even:]
    rows = flat.numel() // _COLUMNS
    table, rest = flat[: rows * _COLUMNS].view(rows, _COLUMNS), flat[rows * _COLUMNS :]
    return torch.cat([table.sum(0), table.sum(1), rest.to(torch.int64), odd.to(torch.int64)])


def _record(values: Tensor, of_graph: bool = False) -> _Record | None:
    record = _records.get(id(values))
    if record is None or record.tensor() is not values or record.version != values._version:
        return None
    return record if of_graph or not record.of_graph else None


# Transforms of torch.func #########################################################################


def is_transforming() -> bool:
    """Returns whether a transform or forward-mode differentiation is active. False while torch
    compiles, which follows transforms itself."""
    if is_compiling():
        return False
    return _are_functorch_transforms_active() or forward_ad._current_level >= 0


def refuse_transformed(name: str, tensor: Tensor) -> None:
    """Raises RuntimeError for a tensor in a transform: torch would take it for a constant."""
    if not is_transforming():
        return
    if _is_wrapped(tensor) or forward_ad.unpack_dual(tensor).tangent is not None:
        raise RuntimeError(
            f"{name} is transformed by torch.func or differentiated in forward mode, which native layers do "
            f"not support; use PyG's layers there, or torch.autograd for first derivatives"
        )
