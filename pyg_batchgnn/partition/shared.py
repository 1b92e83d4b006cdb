"""Arrays that the ranks of a host have once, in memory without a name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Field, share_on_host
from pyg_batchgnn.data import attribute_array
from pyg_batchgnn.partition.part import Part
from pyg_batchgnn.types import Group

#: Arrays begin at multiples of a cache line.
_ALIGN = 64


def allocate_on_host(comm: Communicator, arrays: Mapping[str, Field]) -> dict[int, dict[str, Tensor]]:
    """Allocates arrays for every rank of this host in shared memory, all zeros. Collective. A rank
    fills its own and then calls ``comm.barrier()``, after which the others may read, but not write.
    The memory is freed however the ranks end. ``arrays``: this rank's, by name, maybe none. Returns
    the arrays by rank and name. Raises CommError on every rank if one of them cannot allocate."""
    size = sum(_padded(spec.bytes) for spec in arrays.values())
    said = [[name, str(spec.dtype).removeprefix("torch."), list(spec.shape)] for name, spec in arrays.items()]
    wanted = comm.all_gather_json(said)
    blocks = share_on_host(comm, size)
    return {
        rank: _cut(
            block,
            {name: Field(getattr(torch, dtype), tuple(shape)) for name, dtype, shape in wanted[rank]},
        )
        for rank, block in blocks.items()
    }


def share_arrays(comm: Communicator, arrays: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Copies this rank's arrays to shared memory, which all ranks of the host read; the caller
    should drop the originals. Collective. Returns the arrays by rank of this host and name."""
    specs = {name: Field(array.dtype, tuple(array.shape)) for name, array in arrays.items()}
    found = allocate_on_host(comm, specs)
    for name, array in arrays.items():
        found[comm.rank][name].copy_(array)
    comm.barrier()
    return found


def share_attributes(part: Part, comm: Communicator) -> dict[int, dict[Group, dict[str, Tensor]]]:
    """Copies the attributes of every rank of this host to shared memory. Collective. To keep one
    copy, go on with ``dataclasses.replace(part, attributes=shared[comm.rank])``. Returns the
    attributes by rank, group and name, [n_rank, ...] each."""
    arrays = {
        attribute_array(group, name): ops.as_stored(table)
        for group, tables in part.attributes.items()
        for name, table in tables.items()
    }
    return {
        rank: {
            group: {
                name: ops.rows_like(table, shared[attribute_array(group, name)])
                for name, table in tables.items()
            }
            for group, tables in part.attributes.items()
        }
        for rank, shared in share_arrays(comm, arrays).items()
    }


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _cut(block: Tensor, specs: Mapping[str, Field]) -> dict[str, Tensor]:
    found, at = {}, 0
    for name, spec in specs.items():
        found[name] = block[at : at + spec.bytes].view(spec.dtype).view(spec.shape)
        at += _padded(spec.bytes)
    return found
