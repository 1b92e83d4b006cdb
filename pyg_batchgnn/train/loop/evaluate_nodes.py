"""Evaluation of nodes in training, as the run is configured."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import EvaluationKind
from pyg_batchgnn.train.loop.evaluate import evaluate
from pyg_batchgnn.train.loop.exact import evaluate_exactly
from pyg_batchgnn.train.loop.job import TrainingJob
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import Evaluation


def evaluate_nodes(
    job: TrainingJob,
    nodes: Tensor,
    loader: MacrobatchNeighborLoader,
    ranks: Ranks,
    stop: Callable[[], bool],
) -> Evaluation | None:
    """Returns loss and metrics of some nodes; collective.

    Args:
        job: of the run, with the network that is evaluated.
        nodes: [m] int64 original ids, the same on every rank.
        loader: this rank's minibatches of them, for an evaluation by sampling.
        ranks: of the run.
        stop: see `evaluate`.

    Returns:
        The evaluation, or None if there are no nodes or evaluation ended early.
    """
    if job.config.sampling.evaluation is EvaluationKind.EXACT:
        return evaluate_exactly(job.network, job.graph, nodes, job.task, ranks, stop)
    return evaluate(job.network, loader, job.labels, job.task, ranks, stop)
