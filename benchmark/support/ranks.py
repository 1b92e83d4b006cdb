"""The benchmarks of several ranks: the workload, and what a rank does in jobs that they share."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from benchmark.support.cli import add_peer_option, merged, new_parser, read_json, write_part
from benchmark.support.graphs import GraphFolder, chosen_graph
from benchmark.support.machine import CACHE
from benchmark.support.mag import CLASSES, SEEDS, TypedFolder, is_typed
from benchmark.support.meters import cpu_seconds, lap
from benchmark.support.world import LOOPBACK, WORKER, World, summary
from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, Counts, Header, MessageKind, gradient_hook
from pyg_batchgnn.data import NODES, Dataset, EdgeSet, Group, NodeSet, load_dataset, write_folder
from pyg_batchgnn.nn import SAGE, to_hetero
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, load_partition, partition, save_partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology

Answer = dict[str, Any]
Job = Callable[[Communicator, Answer], Any]


@dataclass(frozen=True)
class RankWorkload:
    """The workload that the benchmarks of several ranks share."""

    graph: GraphFolder | TypedFolder  # the graph that is partitioned
    fanouts: list[int]  # neighbours per hop, from the seeds
    batch_size: int  # seed nodes per minibatch
    hidden: int = 0  # the width of hidden layers
    seeds: int = 0  # training nodes of an epoch; 0 takes all of them
    rounds: int = 1  # how often everything is measured
    worker: str = WORKER  # the module whose jobs ranks do
    network: str = LOOPBACK  # the rate of the links between hosts, or loopback
    dgl: str = ""  # the interpreter of an environment with DGL; empty where there is none

    @classmethod
    def parse(cls, options: argparse.Namespace, worker: str = WORKER) -> RankWorkload:
        """Makes the workload from the options of `workload_parser`."""
        typed = options.graph is not None and is_typed(options.graph)
        graph = TypedFolder.open(options.graph) if typed else chosen_graph(options.graph, options.nodes)
        sizes = (options.fanouts, options.batch_size, options.hidden, options.seeds, options.rounds)
        return cls(graph, *sizes, worker, options.network, dict(options.peer).get("dgl", ""))

    @property
    def name(self) -> str:
        return _name(self.graph)

    def partition(self, ranks: int, policy: str = "random") -> str:
        """Returns the folder of a partition for some ranks, made on first use."""
        folder = CACHE / "partitions" / f"{self.name}-{policy}-{ranks}"
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            options = {"dataset": str(as_dataset(self.graph)), "policy": policy, "out": str(folder)}
            World(ranks).run("make_partition", options)
        return str(folder)

    def world(self, ranks: int, network: str | None = None) -> AbstractContextManager[World]:
        self.partition(ranks)  # made before hosts stand
        return World(ranks, network or self.network, worker=self.worker).standing()

    def job(self, world: World, job: str, **options: Any) -> list[Any]:
        """Runs a job on a partition for the ranks of a world that stands."""
        common = {
            "partition": self.partition(world.ranks),
            "fanouts": self.fanouts,
            "batch_size": self.batch_size,
            "hidden": self.hidden,
            "seeds": self.seeds,
        }
        return world.run(job, {**common, **options})

    def entry(self, world: World, job: str, about: Answer, **options: Any) -> Answer:
        return told({**about, **summary(self.job(world, job, **options))})


def told(entry: Answer) -> Answer:
    names = ", ".join(f"{name} {one}" for name, one in entry.items() if isinstance(one, (str, bool, int)))
    print(f"  {names}: {entry['wall']:.2f} s, {entry.get('cpu', 0.0):.1f} CPU s", flush=True)
    return entry


#: Measures a part of a benchmark.
Measured = Callable[[RankWorkload], Iterable[Answer]]


def measure_parts(
    benchmark: str,
    parts: Mapping[str, Measured],
    networks: Mapping[str, str],
    bench: RankWorkload,
    options: argparse.Namespace,
) -> None:
    """Measures the parts that ``options`` name; stored results of others stay."""
    graph = bench.graph.describe()
    path = options.results / f"{benchmark}-{graph['name']}.json"
    for part in options.parts:
        print(part, flush=True)
        series = list(parts[part](bench))
        stored = read_json(path).get("parts", {}).get(part, {}).get("series", [])
        about = {name: getattr(bench, name) for name in ("fanouts", "batch_size", "seeds", "rounds")}
        about["network"] = networks.get(part, bench.network)
        write_part(path, part, merged(stored, series, setting_of), graph, about)


def as_dataset(graph: GraphFolder | TypedFolder) -> Path:
    """Returns the graph as a folder that `pyg_batchgnn.data.load_dataset` reads; writes it once."""
    folder = CACHE / "datasets" / _name(graph)
    if isinstance(graph, TypedFolder):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            write_folder(_typed_dataset(graph), folder)
        return folder
    if not (folder / "edge_index.npy").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("x", "y", "train_idx", "val_idx", "test_idx"):
            if (graph.path / f"{name}.npy").is_file():
                (folder / f"{name}.npy").unlink(missing_ok=True)
                (folder / f"{name}.npy").symlink_to((graph.path / f"{name}.npy").resolve())
        colptr, row = (np.load(graph.path / f"{name}.npy", mmap_mode="r") for name in ("colptr", "row"))
        dtype = np.int32 if len(colptr) <= 1 << 31 else np.int64
        edges = np.empty((2, len(row)), dtype=dtype)
        edges[0] = row
        edges[1] = np.repeat(np.arange(len(colptr) - 1, dtype=dtype), np.diff(colptr))
        np.save(folder / "edge_index.partial.npy", edges)
        (folder / "edge_index.partial.npy").rename(folder / "edge_index.npy")
    return folder


def _name(graph: GraphFolder | TypedFolder) -> str:
    return f"{graph.path.name}-features" if isinstance(graph, TypedFolder) else graph.path.name


def _typed_dataset(graph: TypedFolder) -> Dataset:
    """Returns a typed graph with features of all types, and labels and training nodes of papers."""
    splits = {"train": graph.read("train_idx")}
    nodes = [
        NodeSet(name, len(x), {"x": x, "y": graph.y}, splits, CLASSES)
        if name == SEEDS
        else NodeSet(name, len(x), {"x": x})
        for name, x in graph.features.items()
    ]
    edges = [EdgeSet(relation, edge_index) for relation, edge_index in graph.edges.items()]
    return Dataset(graph.path.name, tuple(nodes), tuple(edges))


def setting_of(entry: Answer) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in ("setting", "ranks", "model", "macrobatch", "cached"))


def workload_parser(description: str | None, parts: Iterable[str]) -> argparse.ArgumentParser:
    """Returns a parser with the options that benchmarks of several ranks share."""
    result = new_parser(description)
    add, names = result.add_argument, list(parts)
    add("--parts", nargs="+", choices=names, default=names, help="what to measure")
    add("--graph", type=Path, help="folder of a graph, or of a typed one (support/mag.py)")
    add("--nodes", type=int, default=1_000_000, help="size of the generated graph if no folder is given")
    add("--network", default="1gbit", help="rate of the links between hosts, which needs root; or loopback")
    add("--rounds", type=int, default=3, help="rounds of the parts that are timed")
    add("--hidden", type=int, default=256, help="width of hidden layers")
    add_sampling_options(result)
    add_peer_option(result)
    return result


def add_sampling_options(result: argparse.ArgumentParser) -> None:
    """Adds the options that say which minibatches an epoch has."""
    add = result.add_argument
    add("--batch-size", type=int, default=1024, help="seed nodes per minibatch")
    add("--fanouts", type=int, nargs="+", default=[15, 10, 5], help="neighbours per hop")
    add("--seeds", type=int, default=0, help="training nodes of an epoch; 0: all")


class RankGraph:
    """A partition in memory, with stores for both kinds of topology."""

    def __init__(self, comm: Communicator, options: Answer) -> None:
        self.comm, self.options = comm, options
        self.part: Part = _copied(load_partition(options["partition"], comm))  # in memory
        self.features = DistFeatureStore(self.part, comm)
        self.topology = replicate_topology(self.part, comm) if options.get("hybrid") else None

    @cached_property
    def seed_group(self) -> Group:
        splits = self.part.splits
        return next(one for one in self.part.schema.node_groups if "train" in splits.get(one, {}))

    @property
    def seed_type(self) -> str:
        return str(self.seed_group.name)

    def classes(self) -> int:
        return int(self.comm.max(int(self.part.attributes[self.seed_group]["y"].max()))) + 1

    def sage(self) -> torch.nn.Module:
        """Returns SAGE with a layer per fanout, and per relation where there are several types."""
        part, options = self.part, self.options
        torch.manual_seed(0)
        columns, layers = part.attributes[self.seed_group]["x"].shape[1], len(options["fanouts"])
        model = SAGE(columns, options["hidden"], layers, self.classes(), dropout=0.5)
        schema = part.schema
        if not schema.has_names:
            return model
        return LogitsOfType(to_hetero(model, (schema.node_types, schema.relations)), self.seed_type)

    def seeds(self) -> Tensor:
        """Returns the training nodes of all ranks, every n-th where fewer are asked for."""
        part, group = self.part, self.seed_group
        own = part.original_ids(part.schema.type_number(self.seed_type))[part.splits[group]["train"]]
        rows = self.comm.all_gather(own).rows.sort().values
        wanted = min(self.options.get("seeds") or rows.numel(), rows.numel())
        return rows[torch.arange(wanted) * rows.numel() // wanted]

    def loader(self, macrobatch: int, **arguments: Any) -> MacrobatchNeighborLoader:
        """Returns a loader of native minibatches, ``macrobatch`` of them made together (0: all)."""
        options = self.options
        size = macrobatch or 1 << 20
        seeds = self.seeds()
        return MacrobatchNeighborLoader(
            (self.features, DistGraphStore(self.part, self.comm, self.topology)),
            options["fanouts"],
            (self.seed_type, seeds) if self.part.schema.has_names else seeds,
            batch_size=options["batch_size"],
            shuffle=True,
            seed=0,
            threads=1,
            export="native",
            macrobatch_size=size,
            schedule="local",
            **{"fetch_size": size, **arguments},
        )

    def aggregates(self, kind: str, memory_budget: int | None = None) -> AggregationCache:
        stores = self.features, DistGraphStore(self.part, self.comm)
        return AggregationCache.build(stores, kind, memory_budget=memory_budget, threads=1)


class LogitsOfType(torch.nn.Module):
    """A typed model's logits of one type, as DistributedDataParallel needs its module's output."""

    def __init__(self, model: torch.nn.Module, node_type: str) -> None:
        super().__init__()
        self.model, self.node_type = model, node_type

    def forward(self, minibatch: Any) -> Tensor:
        logits: Tensor = self.model(minibatch)[self.node_type]
        return logits


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    if isinstance(value, (Part, InEdges)):
        fields = {one.name: _copied(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


class Meter:
    """The wall and CPU seconds and the bytes on the wire since all ranks were ready."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        comm.barrier()
        self.counts, self.wall, self.cpu = comm.counters.snapshot(), time.perf_counter(), cpu_seconds()

    def stop(self) -> Answer:
        wall, cpu = time.perf_counter() - self.wall, cpu_seconds() - self.cpu
        return {"wall": wall, "cpu": cpu, **traffic(self.comm.counters.snapshot() - self.counts)}


#: The kinds of messages that results tell apart.
KINDS = (MessageKind.TOPOLOGY, MessageKind.FEATURES, MessageKind.GRADIENTS)


def traffic(counts: Counts) -> Answer:
    """Rounds, rows and bytes of some kinds, of what this rank received, and the bytes sent."""
    return {
        kind.name.lower(): {
            "rounds": one.rounds,
            "rows": one.rows_received,
            "bytes": one.bytes_received,
            "sent": one.bytes_sent,
        }
        for kind, one in counts.items()
        if kind in KINDS
    }


def make_partition(comm: Communicator, options: Answer) -> None:
    part = partition(load_dataset(options["dataset"]), options["policy"], comm=comm)
    save_partition([part], options["out"], comm)


def preparation(comm: Communicator, options: Answer) -> Answer:
    """Prepares an epoch's minibatches, features and all."""
    graph = RankGraph(comm, options)
    loader, figures = graph.loader(options["macrobatch"]), Answer()
    for epoch in range(options.get("epochs", 1)):  # the first one fills memory that is kept
        figures = prepared_epoch(graph, loader, epoch)
    part, row_bytes = graph.part, None
    if part.schema.num_types == 1:
        row_bytes = sum(table[:1].nbytes for table in part.attributes[NODES].values())
    return {**figures, "row_bytes": row_bytes}


def prepared_epoch(graph: RankGraph, loader: MacrobatchNeighborLoader, epoch: int) -> Answer:
    """Returns the figures of an epoch whose minibatches are prepared and let go."""
    loader.set_epoch(epoch)
    before = loader.stats().total.rows_fetched
    types = range(graph.part.schema.num_types)
    seen = [torch.zeros(graph.part.book.num_nodes_of(at), dtype=torch.bool) for at in types]
    meter, nodes, batches = Meter(graph.comm), 0, 0
    for minibatch in loader:
        nodes += minibatch.num_nodes
        batches += 1
        if graph.options.get("count_distinct"):
            for at, reached in minibatch.reached_nodes.items():
                seen[at][reached.node] = True
    figures = meter.stop()
    for at in types:
        seen[at][graph.part.original_ids(at)] = False
    return {
        **figures,
        "minibatches": batches,
        "nodes": nodes,
        "rows_fetched": loader.stats().total.rows_fetched - before,
        # Remote ones of the epoch: the least that can be fetched.
        "distinct": sum(int(of_type.sum()) for of_type in seen),
    }


def training(comm: Communicator, options: Answer) -> Answer:
    graph = RankGraph(comm, options)
    loader = graph.loader(options["macrobatch"], replace=options.get("replace", False))
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
        stats = loader.stats().total  # of all epochs
        found["stats"] = {name: getattr(stats, name) for name in STATS}
        found["gradients"] = traffic(gradients.counters.reset())["gradients"]
    gradients.close()
    return found


#: What results keep of a loader's statistics.
STATS = ("sample_seconds", "fetch_seconds", "rows_fetched")

JOBS: dict[str, Job] = {"make_partition": make_partition, "preparation": preparation, "training": training}


def answer(order: Answer) -> Any:
    """Does a job of a module, as one of the ranks; returns its answer."""
    torch.set_num_threads(1)
    with Communicator.create("benchmark", timeout=900) as comm:
        found = import_module(order["module"]).JOBS[order["job"]](comm, order["options"])
        comm.barrier()
    return found
