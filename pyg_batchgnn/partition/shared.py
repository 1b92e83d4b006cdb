"""Arrays that the ranks of a host share, in memory without a name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Field, share_on_host
from pyg_batchgnn.data import attribute_array
from pyg_batchgnn.partition.part import Part
from pyg_batchgnn.types import Group

_ALIGN = 64  # Arrays begin at multiples of a cache line.


def allocate_on_host(comm: Communicator, arrays: Mapping[str, Field]) -> dict[int, dict[str, Tensor]]:
    """Allocates arrays of every rank of this host in shared memory, all zeros. Collective.

    ``arrays``: dtype and shape of this rank's arrays, by name; ranks may have others, or none.
    Returns the arrays of each rank, by rank and name. A rank fills its own, then calls
    ``comm.barrier()``; after that all may read them, but not write. Nothing is left behind, however
    ranks end. Raises `CommError` on every rank if one of them cannot take the memory.
    """
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
    """Copies this rank's arrays to shared memory, where all ranks of the host read them.
    Collective. Returns the arrays of each rank of the host, by rank and name. The caller drops the
    originals, and uses its own shared ones instead."""
    specs = {name: Field(array.dtype, tuple(array.shape)) for name, array in arrays.items()}
    found = allocate_on_host(comm, specs)
    for name, array in arrays.items():
        found[comm.rank][name].copy_(array)
    comm.barrier()
    return found


def share_attributes(part: Part, comm: Communicator) -> dict[int, dict[Group, dict[str, Tensor]]]:
    """Copies the attributes of all ranks of this host to memory that they share. Collective.
    Returns them by rank, group and name, [n_rank, ...] each. To keep one copy, go on with
    ``dataclasses.replace(part, attributes=shared[comm.rank])``."""
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
