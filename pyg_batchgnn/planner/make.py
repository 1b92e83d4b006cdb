"""Making a plan from a graph and a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import FEATURES, LABELS, Dataset
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.measure import measure_machine
from pyg_batchgnn.planner.owners import owners_of
from pyg_batchgnn.planner.probe import SAMPLES, probe_graph
from pyg_batchgnn.planner.report import Plan
from pyg_batchgnn.planner.search import Choices, search
from pyg_batchgnn.planner.training_step import network_of
from pyg_batchgnn.planner.workload import PlannerProbe, Workload
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import CscGraph

#: Called with a few words as each stage begins.
ProgressCallback = Callable[[str], object]


def plan(
    dataset: Dataset,
    *,
    ranks: int,
    network: PlannerNetwork,
    ranks_per_host: int = 1,
    cores: float = 1.0,
    memory: float = 0.0,
    machine: PlannerMachine | None = None,
    fanouts: Sequence[int] = (15, 10, 5),
    batch_size: int = 1024,
    replacement: Replacement = Replacement.WITH,
    drop_last: bool = True,
    own_seeds: bool = True,
    hidden: int = 256,
    policies: Sequence[str] = ("random",),
    choices: Choices | None = None,
    samples: int = SAMPLES,
    progress: ProgressCallback | None = None,
) -> Plan:
    """Predicts an epoch of training for many settings.

    The predictions come from some sampled minibatches and from short measurements of this machine.

    Args:
        dataset: the whole graph.
        ranks: the number of ranks that will train.
        network: the network between hosts.
        ranks_per_host: the number of ranks that share a host's memory.
        cores: cores per rank, 0.5 where two ranks share a core.
        memory: bytes that a rank may take, 0 for no limit.
        machine: the speeds of another machine's cores. By default this machine is measured.
        fanouts: neighbours per hop, nearest to the seeds first.
        batch_size: seed nodes per minibatch of a rank.
        replacement: whether sampling is with replacement.
        drop_last: whether a last, smaller minibatch is left out. As in training, smaller ones are
            kept where the training nodes do not fill one minibatch per rank.
        own_seeds: whether ranks train the nodes that they own (the local schedule).
        hidden: the width of the layers whose training is timed. 0 predicts only the preparation of
            minibatches.
        policies: the partitioning policies, or folders of saved partitions, that are tried.
        choices: what else is tried, by default everything. Its aggregation cache says which layers
            are timed, GraphSAGE's by default.
        samples: the number of minibatches that are sampled for each policy.
        progress: called with a few words as each stage begins.

    Raises:
        ValueError: a number is impossible, the data set has no training nodes, or a saved partition
            has another number of parts.
    """
    tell = progress or (lambda _: None)
    _check(ranks, ranks_per_host, cores, batch_size, dataset)
    if not fanouts:
        raise ValueError("there is nothing to plan without hops: give a fanout for each, such as (15, 10, 5)")
    choices = choices or Choices()
    kind = next((one for one in choices.aggregation if one is not None), Aggregation.MEAN)
    tell("sorting edges by destination")
    graph = CscGraph.from_edge_index(dataset.edge_index, dataset.num_nodes)
    workload = workload_of(
        *(dataset, tuple(fanouts), batch_size, hidden),
        ranks=ranks,
        drop_last=drop_last,
        own_seeds=own_seeds,
        kind=kind,
    )
    training, probes = dataset.split("train"), dict[str, PlannerProbe]()
    with Communicator.create("plan") as comm:
        for policy in policies:
            tell(f"sampling minibatches, partition {policy}")
            owner = owners_of(dataset, policy, ranks, comm)
            probes[policy] = probe_graph(
                *(workload, graph, training, owner),
                policy=policy,
                ranks=ranks,
                ranks_per_host=ranks_per_host,
                replacement=replacement,
                samples=samples,
            )
        if machine is None:
            tell("measuring this machine")
            machine = measure_machine(
                *(workload, graph, training, comm),
                replacement=replacement,
                hidden=hidden,
                classes=dataset.num_classes,
                kind=kind,
            )
    machine = machine.on(cores, memory)
    found = search(workload, probes, machine, network, choices)
    return Plan(workload, ranks, machine, network, probes, found)


def workload_of(
    dataset: Dataset,
    fanouts: tuple[int, ...],
    batch_size: int,
    hidden: int = 0,
    *,
    ranks: int = 1,
    drop_last: bool = True,
    own_seeds: bool = True,
    kind: Aggregation = Aggregation.MEAN,
) -> Workload:
    """Returns the numbers that describe a data set. ``kind`` says which network is trained."""
    columns, training = dataset.num_features, len(dataset.split("train"))
    tables = dataset.nodes.tables
    itemsize = tables[FEATURES].dtype.itemsize if FEATURES in tables else 4
    shape = (columns, hidden, dataset.num_classes, len(fanouts))
    parameters = sum(one.numel() for one in network_of(kind, *shape).parameters()) if hidden else 0
    return Workload(
        name=dataset.name,
        nodes=dataset.num_nodes,
        edges=dataset.num_edges,
        features=columns * itemsize,
        attributes=_row_bytes(tables[LABELS]) if LABELS in tables else 0,
        training=training,
        fanouts=fanouts,
        batch_size=batch_size,
        drop_last=drop_last and training >= batch_size * ranks,
        own_seeds=own_seeds,
        parameters=parameters,
    )


def _row_bytes(table: Tensor) -> int:
    return math.prod(table.shape[1:]) * table.dtype.itemsize


def _check(ranks: int, ranks_per_host: int, cores: float, batch_size: int, dataset: Dataset) -> None:
    given = {"ranks": ranks, "ranks_per_host": ranks_per_host, "cores": cores, "batch_size": batch_size}
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    if not len(dataset.split("train")):
        raise ValueError(f"{dataset.name} has no training nodes, so there is nothing to plan")
