"""The compiled operators, with their arguments checked before a kernel runs.

Kernels trust what they are given: every shape, dtype, stride and range that could make one read or write out
of bounds is checked here or, for what is checked once and used often (a graph's arrays), by the class that
holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

INTEGERS = (torch.int32, torch.int64)
_MASK64 = (1 << 64) - 1


def _load() -> None:
    folder = Path(__file__).parent
    libraries = sorted(folder.glob("_C*.so"))
    if not libraries:
        raise ImportError(
            f"pyg_batchgnn's compiled operators are missing from {folder}. Likely causes: the package is "
            f"imported from its source tree without having been built (run `pip install -e .` there), or the "
            f"build was interrupted (install it again)."
        )
    try:
        torch.ops.load_library(str(libraries[0]))
    except OSError as error:
        raise ImportError(
            f"{libraries[0]} does not load beside torch {torch.__version__}: {error}. Likely causes: torch "
            f"is older than 2.13, or the library was built on another kind of processor or system (install "
            f"the package again)."
        ) from error


_load()
_ops = torch.ops.pyg_batchgnn


def to_signed(value: int) -> int:
    """The 64-bit signed integer with the same bits as ``value`` modulo 2**64, as operators take seeds and
    epochs."""
    value &= _MASK64
    return value - (1 << 64) if value >> 63 else value


def check_vector(name: str, tensor: Tensor, dtypes: Sequence[torch.dtype] = INTEGERS) -> None:
    """Raises unless ``tensor`` is a contiguous one-dimensional CPU tensor of one of ``dtypes``."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}; use torch.as_tensor")
    if tensor.dtype not in dtypes:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} must be {wanted}, got {tensor.dtype}; convert it with .to({dtypes[-1]})")
    if tensor.dim() != 1:
        raise ValueError(f"{name} must have one dimension, got shape {list(tensor.shape)}")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} is on {tensor.device}; sampling runs on the CPU, move it with .cpu()")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is not contiguous (stride {tensor.stride(0)}); call .contiguous()")


def check_range(name: str, values: Tensor, size: int, what: str = "node ids") -> None:
    """Raises IndexError unless every entry of the checked vector ``values`` is in [0, size)."""
    low, high = extent(values)
    if values.numel() and (low < 0 or high >= size):
        bad = low if low < 0 else high
        raise IndexError(f"{name} holds {bad}, but {what} go from 0 to {size - 1} here")


def extent(values: Tensor, threads: int | None = None) -> tuple[int, int]:
    """Smallest and largest entry of an int32 or int64 vector; (0, -1) of an empty one."""
    check_vector("values", values)
    return _ops.extent(values, threads or torch.get_num_threads())


def is_ascending(values: Tensor) -> bool:
    """Whether no entry of an int32 or int64 vector is smaller than the one before it."""
    check_vector("values", values)
    return _ops.is_ascending(values)


def build_csc(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sorts edges by destination, stably, by counting.

    Args:
        edge_index: [2, E] int32 or int64, sources above destinations, ids checked against ``num_nodes`` here.
        num_nodes: number of nodes N.

    Returns:
        indptr [N + 1] int64; indices [E], int32 where N < 2**31, else int64; edge_ids [E] int32 or int64, or
        None where the edges were sorted by destination already, so that an edge's position is its id.
    """
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}")
    if edge_index.stride(1) != 1 and edge_index.size(1) > 1:
        edge_index = edge_index.contiguous()
    for name, row in (("edge_index[0]", edge_index[0]), ("edge_index[1]", edge_index[1])):
        check_vector(name, row)
        check_range(name, row, num_nodes)
    indptr, indices, edge_ids = _ops.build_csc(edge_index, num_nodes)
    return indptr, indices, edge_ids if edge_ids.numel() else None


def gather_rows(table: Tensor, index: Tensor, threads: int | None = None) -> Tensor:
    """``table[index]`` for a vector of row numbers, into memory that is used again.

    Args:
        table: [N, ...] any dtype, on the CPU; rows must be contiguous, the table need not be.
        index: [M] int32 or int64 in [0, N); trusted, because it comes from a sampler (see `check_range`).
        threads: at most so many threads; torch's own number where None.

    Returns:
        [M, ...] of the table's dtype, which does not require a gradient.
    """
    if table.dim() == 0 or table.device.type != "cpu":
        raise ValueError(f"table must have rows on the CPU, got shape {list(table.shape)} on {table.device}")
    table = table.detach()
    if table.size(0) == 0:
        return table.new_empty((index.numel(), *table.shape[1:]))
    if not table[0].is_contiguous():
        table = table.contiguous()
    return _ops.gather_rows(table, index, threads or torch.get_num_threads())


def unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> tuple[Tensor, list[Tensor]]:
    """Distinct entries of several int64 vectors of node ids, ascending, and where each vector's entries lie
    in them."""
    for node in nodes:
        check_vector("nodes", node, (torch.int64,))
    return _ops.unique_nodes(list(nodes), num_nodes)


def count_unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> int:
    """How many distinct entries several int64 vectors of node ids have together."""
    return _ops.count_unique_nodes(list(nodes), num_nodes)


def keyed_permutation(n: int, seed: int, epoch: int) -> Tensor:
    """A permutation of range(n) that depends on ``(seed, epoch)`` alone, computed entry by entry. [n]
    int64."""
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    return _ops.keyed_permutation(n, to_signed(seed), to_signed(epoch))


def minibatch_key(seeds: Tensor) -> int:
    """The digest of a minibatch's seed nodes, order included, in [0, 2**64). ``seeds``: [S] int64."""
    check_vector("seeds", seeds, (torch.int64,))
    return _ops.minibatch_key(seeds) & _MASK64


def advise_huge_pages(tensor: Tensor) -> None:
    """Asks the system to back a CPU tensor's memory by huge pages. Contents and address stay as they are."""
    _ops.advise_huge_pages(tensor.detach())


@dataclass(frozen=True)
class MemoryStats:
    """The package's own memory, in bytes: blocks in use, blocks kept for reuse, the peak of both since
    `reset_peak`, and how often the system was asked for a block since the process began."""

    live: int
    cached: int
    peak: int
    system_calls: int


def memory_stats() -> MemoryStats:
    """What the package's operators hold (tensors they returned and scratch memory), not what torch holds."""
    return MemoryStats(*_ops.memory_stats())


def reset_peak() -> None:
    """Lets `MemoryStats.peak` start anew from what is held now."""
    _ops.reset_memory_peak()


def empty_cache() -> None:
    """Gives kept blocks and scratch memory back to the system. Tensors that somebody holds stay valid."""
    _ops.empty_cache()


def simd_level() -> int:
    """Bits of the widest vector instructions in use: 512, 256, or 0. PYG_BATCHGNN_SIMD=avx2|baseline lowers
    it."""
    return _ops.simd_level()
