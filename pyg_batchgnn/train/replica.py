"""The network as every rank trains it: summed gradients, and averaged statistics of BatchNorm."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from pyg_batchgnn.comm import Header, MessageKind, gradient_hook
from pyg_batchgnn.train.network import GraphNetwork
from pyg_batchgnn.train.ranks import Ranks

#: A forward pass does not synchronise buffers. Torch before 2.13 has the second name.
_SYNC_NOTHING: dict[str, Any] = {
    next(
        name
        for name in ("forward_sync_buffers", "broadcast_buffers")
        if name in inspect.signature(DistributedDataParallel.__init__).parameters
    ): False
}


@dataclass
class _Step:
    """What the gradient hook reads: this rank's weight in a step, and the message header. The hook
    must not refer to the replica: DistributedDataParallel holds it out of reach of the garbage
    collector, so neither would be freed."""

    weight: float = 0.0
    header: Header = field(default_factory=lambda: Header(MessageKind.GRADIENTS))


class Replica:
    """Computes logits. Their backward pass gives the gradient of the mean loss over all ranks' seed
    nodes: each rank's loss is the mean over its minibatch, and is weighted by the weights of its
    seed nodes (their number, without class weights)."""

    def __init__(self, network: GraphNetwork, ranks: Ranks) -> None:
        self._network = network
        self._step = _Step()
        self._comm = ranks.training
        self._forward: nn.Module = _Logits(network)
        if ranks.is_alone:
            return
        now, group = self._step, self._comm.group
        with self._comm.guard(MessageKind.CONTROL):
            wrapped = DistributedDataParallel(self._forward, process_group=group, **_SYNC_NOTHING)
        wrapped.register_comm_hook(None, gradient_hook(self._comm, lambda: now.weight, lambda: now.header))
        self._forward = wrapped

    def logits(self, batch: Any, weight: float, epoch: int, step: int) -> Tensor:
        self._step.weight = weight
        self._step.header = Header(MessageKind.GRADIENTS, epoch, step)
        result: Tensor = self._forward(batch)
        return result

    def waited(self) -> float:
        return self._comm.counters.snapshot()[MessageKind.GRADIENTS].seconds


class _Logits(nn.Module):
    """Returns logits only, as DistributedDataParallel needs."""

    def __init__(self, network: GraphNetwork) -> None:
        super().__init__()
        self.model = network.model
        self._network = network

    def forward(self, batch: Any) -> Tensor:
        if len(self._network.seeds(batch)):
            return self._network.outputs(batch).logits
        self._network.leave_out(batch)
        nothing = [one.flatten()[:0].sum() for one in self.parameters() if one.requires_grad]
        return torch.stack(nothing).sum().expand(0, 1)


# The running statistics of BatchNorm, which each rank keeps of its own minibatches.
#
# The ranks average them before evaluation and in checkpoints.


_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


class BatchNormStatistics:
    """Running statistics of BatchNorm on this rank, and the rows seen since they were last averaged
    over ranks. A single rank counts no rows."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self._ranks = ranks
        layers = {} if ranks.is_alone else dict(model.named_modules())
        found = {name: layer for name, layer in layers.items() if isinstance(layer, _BatchNorm)}
        self._rows = dict.fromkeys(found, 0)
        self._buffers = {
            name: [layer.get_buffer(buffer) for buffer in _BUFFERS] for name, layer in found.items()
        }
        for name, layer in found.items():
            layer.register_forward_pre_hook(lambda layer, inputs, name=name: self._count(name, layer, inputs))

    def table(self) -> Tensor:
        """Returns [R, n] float64, each rank's statistics and row counts; collective. n is 0 for one
        rank or a model without BatchNorm."""
        pieces = [torch.empty(0, dtype=torch.float64)]
        for name, buffers in self._buffers.items():
            pieces += [buffer.double().view(-1) for buffer in buffers]
            pieces.append(torch.tensor([self._rows[name]], dtype=torch.float64))
        mine = torch.cat(pieces).unsqueeze(0)
        if not self._buffers:
            return mine.expand(self._ranks.size, 0)
        return self._ranks.training.all_gather(mine).rows

    def averaged(self, table: Tensor) -> dict[str, Tensor]:
        """Returns the statistics averaged over ranks, by name in ``state_dict``."""
        result: dict[str, Tensor] = {}
        parts = table.split(self._widths(), dim=1) if self._buffers else ()
        for (name, buffers), part in zip(self._buffers.items(), parts, strict=True):
            mean, var = _average(part[:, :-2], part[:, -1]).chunk(2)
            values = (mean, var, part[:, -2].max())
            for buffer, into, value in zip(_BUFFERS, buffers, values, strict=True):
                result[f"{name}.{buffer}"] = value.to(into.dtype)
        return result

    def average(self) -> None:
        """Sets the statistics of all ranks to their average, and row counts to 0; collective."""
        averaged = self.averaged(self.table())
        for name, buffers in self._buffers.items():
            for buffer, into in zip(_BUFFERS, buffers, strict=True):
                into.copy_(averaged[f"{name}.{buffer}"])
            self._rows[name] = 0

    def restore(self, row: Tensor) -> None:
        if not row.numel():
            return
        for (name, buffers), part in zip(self._buffers.items(), row.split(self._widths()), strict=True):
            sizes = [buffer.numel() for buffer in buffers]
            for into, values in zip(buffers, part[:-1].split(sizes), strict=True):
                into.copy_(values.view(into.shape))
            self._rows[name] = int(part[-1])

    def _count(self, name: str, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if layer.training and len(inputs[0]) > 1:
            self._rows[name] += len(inputs[0])

    def _widths(self) -> list[int]:
        return [sum(buffer.numel() for buffer in buffers) + 1 for buffers in self._buffers.values()]


def _average(values: Tensor, weights: Tensor) -> Tensor:
    """Returns [C], the mean of the rows of `values` [R, C], weighted by `weights` [R]."""
    if not bool(weights.any()):
        return values[0]
    total = torch.zeros_like(values[0])
    for row, weight in zip(values, weights / weights.sum(), strict=True):
        total += weight * row
    return total
