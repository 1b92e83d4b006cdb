"""The network as every rank trains it: a replica with gradients summed over all ranks'
minibatches."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pyg_batchgnn.comm import Header, MessageKind, gradient_hook
from pyg_batchgnn.train.model.network import GraphNetwork
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
    """The values that the hook of gradients reads: the weight of this rank in a step, and the step.

    The hook must not reach the replica. DistributedDataParallel holds the hook where Python's
    garbage collector does not look, so neither it nor its process group would ever be freed.
    """

    weight: float = 0.0
    header: Header = field(default_factory=lambda: Header(MessageKind.GRADIENTS))


class Replica:
    """Computes logits. Their backward pass gives the gradient of the mean over all ranks' seed
    nodes.

    Each rank's loss is the mean over its own minibatch. The communicator weighs it by the weight of
    its seed nodes, which is their number unless classes have weights. With one rank nothing is
    added to the network.

    Args:
        network: its parameters are set to those of rank 0; collective.
        ranks: of the run.
    """

    def __init__(self, network: GraphNetwork, ranks: Ranks) -> None:
        self._network = network
        self._step = _Step()
        self._comm = ranks.training
        self._forward: nn.Module = _Logits(network)
        if not ranks.is_alone:
            self._forward = self._distributed(self._forward)

    def logits(self, batch: Any, weight: float, epoch: int, step: int) -> Tensor:
        """Returns [S, classes] float32, the logits of the minibatch's seed nodes.

        An empty minibatch gives [0, 1]. Its sum has a zero gradient for every parameter.

        Args:
            batch: of this rank.
            weight: of its seed nodes together.
            epoch: of the step.
            step: of the epoch.
        """
        self._step.weight = weight
        self._step.header = Header(MessageKind.GRADIENTS, epoch, step)
        result: Tensor = self._forward(batch)
        return result

    def waited(self) -> float:
        """Returns the seconds spent in exchanges of gradients so far."""
        return self._comm.counters.snapshot()[MessageKind.GRADIENTS].seconds

    def _distributed(self, module: nn.Module) -> DistributedDataParallel:
        with self._comm.guard(MessageKind.CONTROL):
            wrapped = DistributedDataParallel(module, process_group=self._comm.group, **_SYNC_NOTHING)
        now = self._step
        hook = gradient_hook(self._comm, lambda: now.weight, lambda: now.header)
        wrapped.register_comm_hook(None, hook)
        return wrapped


class _Logits(nn.Module):
    """The logits alone, as DistributedDataParallel needs its module to return them."""

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
