"""Making a plan from a graph and a cluster."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

from torch import Tensor

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import FEATURES, LABELS, Dataset, NodeSet
from pyg_batchgnn.history import HistoricalSettings
from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner.historical import predict_historical
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.measure import measure_machine
from pyg_batchgnn.planner.owners import owners_of
from pyg_batchgnn.planner.probe import SAMPLES, probe_graph
from pyg_batchgnn.planner.report import Plan
from pyg_batchgnn.planner.search import Choices, search
from pyg_batchgnn.planner.training_step import network_of
from pyg_batchgnn.planner.workload import PlannerProbe, TypeRows, Workload
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import TypedGraph

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
    schedule: Literal["local", "balanced", "global"] = "local",
    node_type: str | None = None,
    hidden: int = 256,
    policies: Sequence[str] = ("random",),
    choices: Choices | None = None,
    samples: int = SAMPLES,
    progress: ProgressCallback | None = None,
) -> Plan:
    """Predicts an epoch of training for many settings.

    The predictions come from some sampled minibatches and from short measurements of this machine.

    Args:
        dataset: the whole graph. Of a graph with named node types or without features, only the
            preparation of minibatches is predicted, without aggregation caches and historical
            embeddings, which are for homogeneous graphs with features. Every relation has the same
            fanouts, and each type's ``x`` and ``y`` are fetched.
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
        schedule: the rule by which ranks share the training nodes, as the loader has it. Historical
            embeddings are predicted with the schedule "local" only.
        node_type: the type of the training nodes; not needed if one type has some.
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
    _check(ranks, ranks_per_host, cores, batch_size)
    rule = ScheduleName.of(schedule) or ScheduleName.LOCAL
    seed_type_of(dataset, node_type)
    if not fanouts:
        raise ValueError("there is nothing to plan without hops: give a fanout for each, such as (15, 10, 5)")
    choices = choices or Choices()
    if dataset.has_names or FEATURES not in dataset.nodes.tables:
        hidden, choices = 0, dataclasses.replace(choices, aggregation=(None,))
    kind = next((one for one in choices.aggregation if one is not None), Aggregation.MEAN)
    tell("sorting edges by destination")
    counts = {nodes.name: nodes.num_nodes for nodes in dataset.node_sets}
    edges = {one.relation: one.edge_index for one in dataset.edge_sets}
    graph = TypedGraph.from_edge_indices(dataset.schema, counts, edges)
    workload = workload_of(
        *(dataset, tuple(fanouts), batch_size, hidden),
        ranks=ranks,
        drop_last=drop_last,
        schedule=rule,
        kind=kind,
        node_type=node_type,
    )
    seeds = dataset.node_sets[workload.seed_type]
    training, probes = seeds.splits["train"], dict[str, PlannerProbe]()
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
                classes=seeds.num_classes,
                kind=kind,
            )
    machine = machine.on(cores, memory)
    found = search(workload, probes, machine, network, choices)
    historical = {}
    if hidden and rule is ScheduleName.LOCAL and ranks > 1 and kind is not Aggregation.SYMMETRIC:
        settings = HistoricalSettings()
        historical = {
            policy: predict_historical(workload, probe, machine, network, settings, hidden)
            for policy, probe in probes.items()
        }
    return Plan(workload, ranks, machine, network, probes, found, historical)


def workload_of(
    dataset: Dataset,
    fanouts: tuple[int, ...],
    batch_size: int,
    hidden: int = 0,
    *,
    ranks: int = 1,
    drop_last: bool = True,
    schedule: ScheduleName = ScheduleName.LOCAL,
    kind: Aggregation = Aggregation.MEAN,
    node_type: str | None = None,
) -> Workload:
    """Returns the numbers that describe a data set. ``kind`` says which network is trained."""
    seed_type = seed_type_of(dataset, node_type)
    seeds = dataset.node_sets[seed_type]
    training = len(seeds.splits["train"])
    parameters = 0
    if hidden:
        shape = (dataset.num_features, hidden, dataset.num_classes, len(fanouts))
        parameters = sum(one.numel() for one in network_of(kind, *shape).parameters())
    return Workload(
        name=dataset.name,
        types=tuple(map(_rows_of, dataset.node_sets)),
        edges=dataset.num_edges,
        training=training,
        fanouts=fanouts,
        batch_size=batch_size,
        drop_last=drop_last and training >= batch_size * ranks,
        schedule=schedule,
        parameters=parameters,
        seed_type=seed_type,
        has_names=dataset.schema.has_names,
    )


def _rows_of(nodes: NodeSet) -> TypeRows:
    """Returns the rows of a type, of its features and labels."""
    tables = {name: table for name, table in nodes.tables.items() if name in (FEATURES, LABELS)}
    widths = {name: _row_bytes(table) for name, table in tables.items()}
    widest = max((table.dtype.itemsize for table in tables.values()), default=1)
    return TypeRows(nodes.name, nodes.num_nodes, widths.get(FEATURES, 0), widths.get(LABELS, 0), widest)


def seed_type_of(dataset: Dataset, node_type: str | None) -> int:
    """Returns the number of the type of the training nodes.

    Args:
        dataset: the whole graph.
        node_type: the name of the type; not needed if one type has training nodes.

    Raises:
        ValueError: there are none, or of several types.
    """
    found = [nodes.name for nodes in dataset.node_sets if len(nodes.splits.get("train", ()))]
    wanted = found if node_type is None else [name for name in found if name == node_type]
    if len(wanted) > 1:
        raise ValueError(f"{dataset.name} has training nodes of the types {found}; name one as node_type")
    if not wanted:
        of = "" if node_type is None else f" of type {node_type!r}"
        raise ValueError(f"{dataset.name} has no training nodes{of}, so there is nothing to plan")
    return dataset.schema.type_number(wanted[0])


def _row_bytes(table: Tensor) -> int:
    return math.prod(table.shape[1:]) * table.dtype.itemsize


def _check(ranks: int, ranks_per_host: int, cores: float, batch_size: int) -> None:
    given = {"ranks": ranks, "ranks_per_host": ranks_per_host, "cores": cores, "batch_size": batch_size}
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
