"""The time of a training step on one core, with cached aggregates and without."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.nn import Aggregated
from pyg_batchgnn.nn.models import GCN, GIN, SAGE, NativeModel
from pyg_batchgnn.sample import SampledMinibatch

#: The number of times that a step is run. The fastest counts.
_TIMES = 3
_NETWORKS: dict[Aggregation, Callable[..., NativeModel]] = {
    Aggregation.MEAN: SAGE,
    Aggregation.SYMMETRIC: GCN,
    Aggregation.SUM: functools.partial(GIN, norm="batch_norm"),
}


def network_of(kind: Aggregation, columns: int, hidden: int, classes: int, layers: int) -> NativeModel:
    """Returns a network whose layers aggregate by ``kind``.

    Args:
        kind: mean for SAGE, sum for GIN, symmetric for GCN.
        columns: columns of the features.
        hidden: columns between layers.
        classes: the number of classes.
        layers: the number of layers.
    """
    return _NETWORKS[kind](columns, hidden, layers, classes)


class TrainingStepTimer:
    """Times a training step on one core.

    Args:
        kind, columns, hidden, classes, layers: as in `network_of`.
    """

    def __init__(self, kind: Aggregation, columns: int, hidden: int, classes: int, layers: int) -> None:
        self._kind, self._columns, self._layers = kind, columns, layers
        self._model = network_of(kind, columns, hidden, classes, layers)
        self._optimiser = torch.optim.Adam(self._model.parameters())

    def seconds(self, minibatch: SampledMinibatch) -> tuple[float, float]:
        """Returns the seconds of the forward pass, and of the backward pass with the update.

        If the minibatch has one hop fewer than there are layers, the step begins with aggregates.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return min((self._once(minibatch) for _ in range(_TIMES)), key=sum)
        finally:
            torch.set_num_threads(threads)

    def _once(self, minibatch: SampledMinibatch) -> tuple[float, float]:
        table = torch.ones(minibatch.num_nodes, self._columns)
        x: Tensor | Aggregated = table
        if len(minibatch.edges_per_hop) < self._layers:
            x = Aggregated(self._kind.value, table, None if self._kind.holds_own_row else table)
        target = torch.zeros(minibatch.batch_size, dtype=torch.int64)
        begin = time.perf_counter()
        loss = F.cross_entropy(self._model(minibatch, x=x), target)
        middle = time.perf_counter()
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return middle - begin, time.perf_counter() - middle
