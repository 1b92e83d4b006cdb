"""Parcels: all tensors of a batch in one block of pinned memory and one copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.device.lane import CpuLane
from pyg_batchgnn.device.pinned import PinnedPool
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.sample import Placement, put_entry
from pyg_batchgnn.types import ByNumber, SampledEdges, SampledMinibatch, SampledNodes

#: Tensors begin at multiples of this number of bytes.
_ALIGN = 16
_INT32 = 1 << 31


@dataclass
class _Piece:
    tensor: Tensor
    wire: torch.dtype  # of its bytes on the way
    begin: int = 0  # the first of its bytes

    @property
    def nbytes(self) -> int:
        return self.tensor.numel() * self.wire.itemsize


class Parcel:
    """Host tensors that are copied to a device together, through one pinned block."""

    def __init__(self, lane: CpuLane, pool: PinnedPool) -> None:
        self._lane, self._pool = lane, pool
        self._pieces: dict[int, _Piece] = {}
        self._alone: dict[int, Tensor] = {}
        self._there: dict[int, Tensor] = {}
        self.nbytes = 0

    def add(self, tensor: Tensor, bound: int | None = None) -> Tensor:
        """Adds a tensor, once if it is given again; returns it."""
        if id(tensor) in self._pieces or id(tensor) in self._alone:
            return tensor
        if not _is_plain(tensor):
            self._alone[id(tensor)] = tensor
            return tensor
        fits = bound is not None and bound <= _INT32 and tensor.dtype is torch.int64
        self._pieces[id(tensor)] = _Piece(tensor, torch.int32 if fits else tensor.dtype)
        return tensor

    def send(self) -> None:
        end = 0
        for piece in self._pieces.values():
            piece.begin, end = end, -(-(end + piece.nbytes) // _ALIGN) * _ALIGN
        device = self._lane.device
        if end:
            there = torch.empty(end, dtype=torch.uint8, device=device)
            block = self._pool.take(end)
            try:
                for piece in self._pieces.values():
                    _view(block.bytes, piece).copy_(piece.tensor)
                there.copy_(block.bytes[:end], non_blocking=True)
            finally:
                self._pool.give(block, self._lane.mark())
            self.nbytes += end
        for key, piece in self._pieces.items():
            if piece.nbytes:
                self._there[key] = _view(there, piece).to(piece.tensor.dtype)
            else:
                self._there[key] = torch.empty(piece.tensor.shape, dtype=piece.tensor.dtype, device=device)
        for key, tensor in self._alone.items():
            # Others than plain ones: sparse, narrow or with a gradient that must flow back.
            self._there[key] = tensor if tensor.device == device else tensor.to(device)
            self.nbytes += 0 if tensor.layout is not torch.strided else tensor.nbytes

    def __getitem__(self, tensor: Tensor) -> Tensor:
        return self._there[id(tensor)]


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) is Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
    )


def _view(block: Tensor, piece: _Piece) -> Tensor:
    return block[piece.begin : piece.begin + piece.nbytes].view(piece.wire).view(piece.tensor.shape)


#: Returns a tensor in the place of another; also takes a number above its values if it has ids.
MapTensor = Callable[[Tensor, int | None], Tensor]
_Minibatch = TypeVar("_Minibatch", bound=SampledMinibatch)


def map_minibatch(minibatch: _Minibatch, change: MapTensor, num_nodes: int, num_edges: int) -> _Minibatch:
    """Returns a minibatch with ``change(tensor, bound)`` in the place of its tensors, attributes
    aside. ``num_nodes, num_edges``: bounds above ids of the whole graph, given to ``change``."""

    def nodes(one: SampledNodes) -> SampledNodes:
        example = None if one.example is None else change(one.example, _INT32)
        return dataclasses.replace(one, node=change(one.node, num_nodes), example=example)

    def edges(one: SampledEdges) -> SampledEdges:
        return dataclasses.replace(
            one,
            indptr=change(one.indptr, one.num_edges + 1),
            indices=change(one.indices, None),
            edge=None if one.edge is None else change(one.edge, num_edges),
            coo=None if one.coo is None else change(one.coo, num_nodes),
        )

    return dataclasses.replace(
        minibatch,
        nodes=ByNumber.of(minibatch.nodes).map(nodes),
        edges=ByNumber.of(minibatch.edges).map(edges),
        input_id=None if minibatch.input_id is None else change(minibatch.input_id, None),
        seed_time=None if minibatch.seed_time is None else change(minibatch.seed_time, None),
        links=tuple(_mapped(one, change) for one in minibatch.links),
        tokens=_tree(minibatch.tokens, lambda one: change(one, None)),
    )


def _mapped(links: Any, change: MapTensor) -> Any:
    held = {field.name: getattr(links, field.name) for field in dataclasses.fields(links)}
    return dataclasses.replace(
        links, **{name: change(one, None) for name, one in held.items() if isinstance(one, Tensor)}
    )


def map_batch(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Applies ``change`` to a ``Data``'s or ``HeteroData``'s values in place; returns the batch."""
    for store in batch.stores:
        for name, value in list(store._mapping.items()):
            changed = _tree(value, change)
            if changed is not value:
                put_entry(store, name, changed)
    return batch


def _tree(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Tensor) or hasattr(value, "to"):
        return change(value)
    if isinstance(value, Mapping):
        new = {key: _tree(one, change) for key, one in value.items()}
        return value if all(new[key] is one for key, one in value.items()) else new
    if isinstance(value, (list, tuple)) and not (value and isinstance(value[0], (int, float, str))):
        made = [_tree(one, change) for one in value]
        is_same = all(one is other for one, other in zip(made, value, strict=True))
        return value if is_same else getattr(type(value), "_make", type(value))(made)
    return value


def tensors_of(batch: Any, shared: bool = True) -> Iterator[Tensor]:
    """Yields the tensors of a batch or a minibatch, one for each storage."""
    found: dict[int, Tensor] = {}

    def note(value: Any, _: int | None = None) -> Any:
        for one in _parts(value):
            if isinstance(one, Tensor):
                found[one.untyped_storage().data_ptr()] = one
        return value

    if isinstance(batch, SampledMinibatch):
        map_minibatch(batch, note, 0, 0)
        for rows in getattr(batch, "attributes", {}).values():
            is_taken = shared or rows.placement is Placement.MINIBATCH
            for one in (*(rows.tables.values() if is_taken else ()), rows.row):
                note(one)
    elif hasattr(batch, "stores"):
        map_batch(batch, note)
    yield from found.values()


def _parts(value: Any) -> tuple[Any, ...]:
    """Returns the dense tensors of which a value consists."""
    if isinstance(value, QuantizedTensor):
        return value.codes, value.decoding
    if not isinstance(value, Tensor):
        return tuple(value.coo()) if hasattr(value, "coo") else ()  # a SparseTensor of torch-sparse
    if value.layout is torch.sparse_coo:
        return value._indices(), value._values()
    if value.layout is torch.sparse_csr:
        return value.crow_indices(), value.col_indices(), value.values()
    return (value,)
