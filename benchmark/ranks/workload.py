"""The workload and the options that the benchmarks of several ranks share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.support.cli import RESULTS
from benchmark.support.graphs import GraphFolder
from benchmark.support.mag import CLASSES, SEEDS, TypedFolder, is_typed
from benchmark.support.native import CACHE
from benchmark.support.prepare import chosen_graph
from benchmark.support.world import World
from pyg_batchgnn.data import Dataset, EdgeSet, NodeSet, write_folder


@dataclass(frozen=True)
class RankWorkload:
    """The workload that the benchmarks of several ranks share.

    Attributes:
        graph: the graph that is partitioned.
        fanouts: neighbours per hop, from the seeds.
        batch_size: seed nodes per minibatch.
        hidden: the width of hidden layers.
        seeds: training nodes of an epoch; 0 takes all of them.
        rounds: how often everything is measured.
        dgl: the interpreter of an environment with DGL; empty where there is none.
    """

    graph: GraphFolder | TypedFolder
    fanouts: list[int]
    batch_size: int
    hidden: int
    seeds: int
    rounds: int
    dgl: str = ""

    @classmethod
    def parse(cls, options: argparse.Namespace) -> RankWorkload:
        """Makes the workload from the options of `add_workload_options`."""
        typed = options.graph is not None and is_typed(options.graph)
        graph = TypedFolder.open(options.graph) if typed else chosen_graph(options.graph, options.nodes)
        sizes = (options.fanouts, options.batch_size, options.hidden, options.seeds, options.rounds)
        return cls(graph, *sizes)

    @property
    def name(self) -> str:
        """The name of the graph in the names of folders that are made of it."""
        return _name(self.graph)

    def partition(self, ranks: int, policy: str = "random") -> str:
        """Returns the folder of a partition for some ranks, made on first use."""
        folder = CACHE / "partitions" / f"{self.name}-{policy}-{ranks}"
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            options = {"dataset": str(as_dataset(self.graph)), "policy": policy, "out": str(folder)}
            World(ranks).run("partitioning", options)
        return str(folder)

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
    """Returns a graph's name; that of a typed one says that all types have features."""
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


def add_workload_options(add: Callable[..., Any]) -> None:
    """Adds the options that benchmarks of several ranks share; ``add``: add_argument."""
    add("--graph", type=Path, help="folder of a graph, or of a typed one (support/mag.py)")
    add("--nodes", type=int, default=1_000_000, help="size of the generated graph if no folder is given")
    add("--network", default="1gbit", help="rate of the links between hosts, or loopback (default: 1gbit)")
    add("--rounds", type=int, default=3, help="rounds of the parts that are timed (default: 3)")
    add("--hidden", type=int, default=256, help="width of hidden layers (default: 256)")
    add_sampling_options(add)


def add_sampling_options(add: Callable[..., Any]) -> None:
    """Adds the options that say which minibatches an epoch has."""
    add("--batch-size", type=int, default=1024, help="seed nodes per minibatch (default: 1024)")
    add("--fanouts", type=int, nargs="+", default=[15, 10, 5], help="neighbours per hop (default: 15 10 5)")
    add("--seeds", type=int, default=0, help="training nodes of an epoch; 0: all (default)")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON files")
