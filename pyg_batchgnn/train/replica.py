"""The network as all ranks train it: summed gradients, averaged BatchNorm statistics."""

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
    """The weight and the header of this rank's step, which the gradient hook reads. The hook must
    not reach the replica: DistributedDataParallel holds it where Python's garbage collector does
    not look, so neither would ever be freed."""

    weight: float = 0.0
    header: Header = field(default_factory=lambda: Header(MessageKind.GRADIENTS))


class Replica:
    """Computes logits whose backward pass gives the gradient of the mean loss over all ranks'
    seeds. Each rank's loss is the mean over its own minibatch. The communicator weighs it by the
    rank's seeds: by their number, or by the sum of their class weights."""

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


class _Logits(nn.Module):  # for DistributedDataParallel, whose module returns tensors
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


_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


class BatchNormStatistics:
    """The running statistics of a model's BatchNorm layers. Each rank keeps them of its own
    minibatches, and the rows of each layer; they are averaged before evaluation and in checkpoints.
    With one rank this does nothing."""

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
        """Returns [R, n] float64, each rank's running statistics and counts of rows; collective. n
        is 0 with one rank, or without BatchNorm layers."""
        pieces = [torch.empty(0, dtype=torch.float64)]
        for name, buffers in self._buffers.items():
            pieces += [buffer.double().view(-1) for buffer in buffers]
            pieces.append(torch.tensor([self._rows[name]], dtype=torch.float64))
        mine = torch.cat(pieces).unsqueeze(0)
        if not self._buffers:
            return mine.expand(self._ranks.size, 0)
        return self._ranks.training.all_gather(mine).rows

    def averaged(self, table: Tensor) -> dict[str, Tensor]:
        """Returns the statistics averaged over ranks, weighted by rows seen, by their
        ``state_dict`` names. ``table``: of `table`."""
        result: dict[str, Tensor] = {}
        parts = table.split(self._widths(), dim=1) if self._buffers else ()
        for (name, buffers), part in zip(self._buffers.items(), parts, strict=True):
            mean, var = _average(part[:, :-2], part[:, -1]).chunk(2)
            values = (mean, var, part[:, -2].max())
            for buffer, into, value in zip(_BUFFERS, buffers, values, strict=True):
                result[f"{name}.{buffer}"] = value.to(into.dtype)
        return result

    def average(self) -> None:
        """Sets all ranks' statistics to the average, and the counts of rows to 0; collective."""
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
    """Returns [C], the mean of the rows of ``values`` [R, C] with ``weights`` [R], added in rank
    order; the first row if all weights are 0."""
    if not bool(weights.any()):
        return values[0]
    total = torch.zeros_like(values[0])
    for row, weight in zip(values, weights / weights.sum(), strict=True):
        total += weight * row
    return total
