"""The loads that parts have too much of, and why."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition.add_rows import add_rows
from pyg_batchgnn.partition.limits import Limits
from pyg_batchgnn.partition.loads import unmet_reason


def warn_of_unmet(comm: Communicator, limits: Limits, owner: Tensor) -> None:
    """Warns on rank 0 of every load that is not balanced as it should be. Collective.

    Args:
        comm: the communicator of all ranks.
        limits: the weights of this rank's nodes and the limits of the parts.
        owner: [n] int32, the parts of this rank's nodes.
    """
    parts = limits.goal.parts
    load = torch.zeros(parts, len(limits.names), dtype=torch.int64)
    add_rows(load, owner, limits.weight.to(torch.int64))
    comm.all_reduce(load, MessageKind.PARTITION)
    fullest, part = load.max(0)
    for at in (fullest > limits.goal.limit).nonzero().flatten().tolist():
        mean = int(limits.goal.total[at]) / parts
        why = unmet_reason(int(limits.heaviest[at]) / mean, float(limits.slack[at]))
        if comm.rank == 0:
            warnings.warn(
                f"part {int(part[at])} has {int(fullest[at]) / mean:.3f} times the mean of "
                f"{limits.names[at]}, more than {float(limits.slack[at]):g}: {why}",
                stacklevel=2,
            )
