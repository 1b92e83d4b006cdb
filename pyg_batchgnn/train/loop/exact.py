"""The outputs of all nodes, each from all its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.store import OwnRows, SortedNodes
from pyg_batchgnn.train.graph import RunGraph
from pyg_batchgnn.train.model import GraphNetwork, NetworkOutput
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import Evaluation, NodeTask, Scoring


@dataclass(frozen=True, eq=False)
class NodeOutputs:
    """The outputs of the nodes that a rank owns.

    Attributes:
        node: [n] int64, original ids.
        logits: [n, columns] float32.
        hidden: [n, hidden], the input of the last layer.
    """

    node: Tensor
    logits: Tensor
    hidden: Tensor

    def find(self, ids: Tensor) -> OwnRows:
        """Finds the nodes of a list, [m] int64 original ids, that the rank owns."""
        return SortedNodes.of(self.node).find(ids)


def evaluate_exactly(
    network: GraphNetwork,
    graph: RunGraph,
    nodes: Tensor,
    task: NodeTask,
    ranks: Ranks,
    stop: Callable[[], bool] = lambda: False,
) -> Evaluation | None:
    """Returns loss and metrics of some nodes, each computed from all its neighbours; collective.

    Args:
        network: evaluated.
        graph: of the run.
        nodes: [m] int64 original ids, the same on every rank.
        task: of the network.
        ranks: of the run.
        stop: called before the metrics. If it returns True, on every rank, evaluation ends early.

    Returns:
        The evaluation, or None if there are no nodes or evaluation ended early.
    """
    outputs = infer_all(network, graph) if len(nodes) else None
    if outputs is None or stop():
        return None
    return score_nodes(outputs, graph, nodes, task, ranks)


def score_nodes(
    outputs: NodeOutputs, graph: RunGraph, nodes: Tensor, task: NodeTask, ranks: Ranks
) -> Evaluation | None:
    """Returns loss and metrics of some nodes; collective. The arguments are those of
    `evaluate_exactly`."""
    scoring, rows = Scoring(task), outputs.find(nodes).row
    scoring.add(outputs.logits[rows], graph.owned_labels()[rows])
    return scoring.result(ranks)


def infer_all(network: GraphNetwork, graph: RunGraph) -> NodeOutputs:
    """Computes all nodes with the model in evaluation mode; collective."""
    nodes = graph.all_nodes()
    output: NetworkOutput = network.infer(nodes)
    return NodeOutputs(nodes.node_of(graph.inputs.node_type), output.logits, output.hidden)
