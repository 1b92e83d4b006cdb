"""The steps of embedding tables beside a loader's macrobatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.embed import Embedding, Step
from pyg_batchgnn.loader.arguments import is_partitioned, partitioned_stores
from pyg_batchgnn.loader.options import LoaderOptions
from pyg_batchgnn.loader.work import WorkItem
from pyg_batchgnn.sample import SampledMinibatch


@dataclass(frozen=True, eq=False)
class EmbeddingSteps:
    """Plans the steps of a loader's macrobatches, and notes the step of each batch.

    Attributes:
        embedding: the tables.
        comm: the communicator that samples; None in one process.
        internal: returns the internal ids of a minibatch's nodes of a type, given by number.
    """

    embedding: Embedding
    comm: Communicator | None
    internal: Callable[[int, Tensor], Tensor]

    @classmethod
    def of(cls, data: Any, options: LoaderOptions, num_workers: int) -> EmbeddingSteps | None:
        """Returns what plans the steps of a loader; None if it has no tables.

        Args:
            data: the graph of the loader.
            options: of the loader.
            num_workers: its worker processes.

        Raises:
            ValueError: the tables are of another graph, or worker processes make the batches.
        """
        embedding = options.embedding
        if embedding is None:
            return None
        if num_workers:
            raise ValueError(
                f"embedding is for the loader's own thread; with num_workers={num_workers} the steps of the "
                f"tables would be planned in other processes: use prefetch=1 and threads"
            )
        embedding.check_graph(data)
        if not is_partitioned(data):
            return cls(embedding, None, embedding.owners.internal_ids)
        graph = partitioned_stores(data)[1]
        if graph.topology is None:
            return cls(embedding, graph.comm, lambda _, node: node)
        return cls(embedding, graph.comm, lambda number, node: graph.internal_ids(node, number))

    def plan(self, minibatches: Sequence[SampledMinibatch], item: WorkItem) -> list[Step]:
        """Tells the owners which rows the steps of a macrobatch need; collective."""
        wanted = [
            [self.internal(number, one.node) for number, one in enumerate(minibatch.nodes)]
            for minibatch in minibatches
        ]
        return self.embedding.plan(wanted, self.comm, item.epoch, item.number)

    def noted(self, batch: Any, step: Step) -> Any:
        """Notes the step of a batch, and returns the batch."""
        self.embedding.attach(batch, step)
        return batch
