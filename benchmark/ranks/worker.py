"""One rank of a distributed benchmark, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from benchmark.ranks.rank_graph import Answer, RankGraph
from benchmark.support.meters import peak_bytes, release_free_memory, reset_peak, resident_bytes
from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, Counts, Header, MessageKind, gradient_hook
from pyg_batchgnn.data import NODES, load_dataset
from pyg_batchgnn.partition import Part, partition, report_partition, save_partition


class Meter:
    """The wall and CPU seconds and the bytes on the wire since all ranks were ready."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        comm.barrier()
        self.counts, self.wall, self.cpu = comm.counters.snapshot(), time.perf_counter(), cpu_seconds()

    def stop(self) -> Answer:
        """The figures of this rank."""
        wall, cpu = time.perf_counter() - self.wall, cpu_seconds() - self.cpu
        return {"wall": wall, "cpu": cpu, **traffic(self.comm.counters.snapshot() - self.counts)}


def cpu_seconds() -> float:
    """Returns the CPU seconds of all threads of this process, user and system time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def traffic(counts: Counts) -> Answer:
    """Rounds, rows and bytes by kind, of what this rank received."""
    return {
        kind.name.lower(): {
            "rounds": one.rounds,
            "rows": one.rows_received,
            "bytes": one.bytes_received,
            "sent": one.bytes_sent,
            "waited": one.seconds,
        }
        for kind, one in counts.items()
    }


# Partitioning #####################################################################################


def partitioning(comm: Communicator, options: Answer) -> Answer:
    """Partitions a data set; saves the parts where ``out`` says."""
    dataset = load_dataset(options["dataset"])
    release_free_memory()
    before = resident_bytes()
    reset_peak()
    meter = Meter(comm)
    part = partition(dataset, options["policy"], comm=comm)
    found = meter.stop()
    peak = peak_bytes() - before
    report = report_partition(part, comm)
    if options.get("out"):
        save_partition([part], options["out"], comm)
    return {
        **found,
        "edges": dataset.num_edges,
        "peak": peak,
        "share": sum(tensor.nbytes for tensor in tensors_of(part)),
        "edge_cut": report.edge_cut,
        "balance": {name: report.balance(name) for name in ("nodes", "edges", "train")},
    }


def tensors_of(part: Part) -> list[Tensor]:
    """All arrays of a part."""
    return list(_tensors(part))


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in a value of dataclasses and dicts."""
    if isinstance(value, Tensor):
        yield value
        return
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else ()
    if dataclasses.is_dataclass(value):
        inner = [getattr(value, one.name) for one in dataclasses.fields(value)]
    for one in inner:
        yield from _tensors(one)


# Minibatches ######################################################################################


def preparation(comm: Communicator, options: Answer) -> list[Answer]:
    """Prepares an epoch's minibatches, features and all, for every macrobatch size.

    The figures are those of the last one of ``options["epochs"]``, by default of the only one.
    """
    graph = RankGraph(comm, options)
    found = []
    for macrobatch in options["macrobatches"]:
        loader = graph.loader(macrobatch)
        for epoch in range(options.get("epochs", 1)):  # the first one fills memory that is kept
            figures = prepared_epoch(graph, loader, epoch)
        found.append({**figures, "macrobatch": macrobatch, "row_bytes": row_bytes(graph.part)})
        del loader
    return found


def prepared_epoch(graph: RankGraph, loader: MacrobatchNeighborLoader, epoch: int) -> Answer:
    """Returns the figures of an epoch whose minibatches are prepared and let go."""
    loader.set_epoch(epoch)
    before = loader.stats().total.rows_fetched
    types = range(graph.part.schema.num_types)
    seen = [torch.zeros(graph.part.book.num_nodes_of(at), dtype=torch.bool) for at in types]
    meter, edges, batches = Meter(graph.comm), 0, 0
    for minibatch in loader:
        edges += minibatch.num_edges
        batches += 1
        if graph.options.get("count_distinct"):
            for at, nodes in minibatch.reached_nodes.items():
                seen[at][nodes.node] = True
    figures = meter.stop()
    for at in types:
        seen[at][graph.part.original_ids(at)] = False
    return {
        **figures,
        "minibatches": batches,
        "edges": edges,
        "rows_fetched": loader.stats().total.rows_fetched - before,
        # Remote ones of the epoch: the least that can be fetched.
        "distinct": sum(int(of_type.sum()) for of_type in seen),
        "phases": dataclasses.asdict(loader.stats().total),
    }


def row_bytes(part: Part) -> int | None:
    """Returns the bytes of a node's attributes; None if there are several types of rows."""
    if part.schema.num_types > 1:
        return None
    return sum(table[:1].nbytes for table in part.attributes[NODES].values())


def training(comm: Communicator, options: Answer) -> Answer:
    """Trains an epoch of SAGE on native layers: preparing, forward, backward, exchange, Adam."""
    graph = RankGraph(comm, options)
    loader = graph.loader(options["macrobatch"], prefetch=options.get("prefetch", 0))
    return train_epochs(graph, options, loader, graph.sage())


def train_epochs(
    graph: RankGraph, options: Answer, loader: MacrobatchNeighborLoader, model: torch.nn.Module
) -> Answer:
    """The figures of the last of some epochs."""
    comm = graph.comm
    gradients = Communicator.create("gradients")
    state = {"seeds": 0, "step": 0}
    with gradients.guard(MessageKind.CONTROL):
        wrapped = DistributedDataParallel(
            model,
            process_group=gradients.group,
            broadcast_buffers=False,
            # The last layer has relations that lead to no seed node.
            find_unused_parameters=graph.part.schema.has_names,
        )
    wrapped.register_comm_hook(
        None,
        gradient_hook(
            gradients, lambda: state["seeds"], lambda: Header(MessageKind.GRADIENTS, 0, state["step"])
        ),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    found = {}
    for epoch in range(options.get("epochs", 2)):  # the first one fills memory that is kept
        loader.set_epoch(epoch)
        meter, phases = Meter(comm), dict.fromkeys(("prepare", "forward", "backward"), 0.0)
        last, ready = time.perf_counter(), []  # seconds of preparing and forward, by step
        for step, minibatch in enumerate(loader):
            begun, last = last, lap(phases, "prepare", last)
            state.update(seeds=minibatch.batch_size, step=step)
            y = minibatch.attributes_of(graph.seed_type).gather("y", minibatch.batch_size)
            loss = F.cross_entropy(wrapped(minibatch), y.long())
            last = lap(phases, "forward", last)
            ready.append(last - begun)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            last = lap(phases, "backward", last)
        found = {**meter.stop(), "phases": phases, "ready": ready, "minibatches": len(loader)}
        found["stats"] = dataclasses.asdict(loader.stats().total)
        found["gradients"] = traffic(gradients.counters.reset())["gradients"]
    gradients.close()
    return found


def lap(phases: dict[str, float], name: str, last: float) -> float:
    """Charges the time since ``last``; returns now."""
    now = time.perf_counter()
    phases[name] += now - last
    return now


JOBS: dict[str, Callable[[Communicator, Answer], Any]] = {
    "partitioning": partitioning,
    "preparation": preparation,
    "training": training,
}


def answer_with(
    jobs: Mapping[str, Callable[[Communicator, Answer], Any]], job: str, options: str, answer: str
) -> None:
    """Does the job and writes what it returns to the file ``answer``."""
    torch.set_num_threads(1)
    with Communicator.create("benchmark", timeout=900) as comm:
        found = jobs[job](comm, json.loads(options))
        comm.barrier()
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    answer_with(JOBS, *sys.argv[1:])
