"""One rank of the partitioning benchmark, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmark.ranks.rank_graph import Answer
from benchmark.ranks.worker import answer_with, cpu_seconds
from benchmark.support.meters import peak_bytes, release_free_memory, reset_peak, resident_bytes
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, load_dataset
from pyg_batchgnn.ops import empty_cache
from pyg_batchgnn.partition import (
    Given,
    Metis,
    Multilevel,
    Part,
    PolicyLike,
    partition_parts,
    report_partition,
)
from pyg_batchgnn.partition.multilevel.rank_graph import symmetric_graph
from pyg_batchgnn.partition.reading import read_slice


def cut(comm: Communicator, options: Answer) -> list[Answer]:
    """Cuts a graph for each case; its attributes are left where they are."""
    dataset = load_dataset(options["dataset"]).without_attributes()
    share = _share(comm, dataset)
    return [
        {"share": share, **_cut(comm, dataset, _policy(options["policy"], case["balance"]), case["parts"])}
        for case in options["cases"]
    ]


def _cut(comm: Communicator, dataset: Dataset, policy: PolicyLike, count: int) -> Answer:
    empty_cache()
    release_free_memory()
    before = resident_bytes()
    reset_peak()
    comm.barrier()
    begin, used = time.perf_counter(), cpu_seconds()
    parts = partition_parts(dataset, policy, count, comm=comm)
    wall, cpu, peak = time.perf_counter() - begin, cpu_seconds() - used, peak_bytes() - before
    return {"wall": wall, "cpu": cpu, "peak": peak, **_quality(comm, dataset, parts)}


def kaminpar(comm: Communicator, options: Answer) -> list[Answer]:
    """Cuts a graph with KaMinPar, which balances nodes alone, whatever is wanted."""
    import kaminpar as library

    dataset = load_dataset(options["dataset"]).without_attributes()
    answers = {}
    with tempfile.TemporaryDirectory() as folder:
        _write_graph(comm, dataset, Path(folder) / "graph.metis")
        graph = library.load_graph(str(Path(folder) / "graph.metis"), library.GraphFileFormat.METIS)
        for count in {case["parts"] for case in options["cases"]}:
            solver = library.KaMinPar(num_threads=2, ctx=library.default_context())
            begin, used = time.perf_counter(), cpu_seconds()
            owner = solver.compute_partition(graph, k=count, eps=0.05)
            wall, cpu = time.perf_counter() - begin, cpu_seconds() - used
            np.save(Path(folder) / "owner.npy", np.asarray(owner, dtype=np.int64))
            parts = partition_parts(dataset, Given(Path(folder) / "owner.npy"), count, comm=comm)
            answers[count] = {"wall": wall, "cpu": cpu, "peak": 0, **_quality(comm, dataset, parts)}
    return [answers[case["parts"]] for case in options["cases"]]


def _write_graph(comm: Communicator, dataset: Dataset, path: Path) -> None:
    """Writes the undirected graph that the other sides cut, as a text that KaMinPar reads."""
    part = read_slice(dataset, comm)
    whole = symmetric_graph(comm, part, torch.ones(part.num_nodes, 1, dtype=torch.int32)).lists
    weight = torch.ones_like(whole.indices) if whole.edge_weight is None else whole.edge_weight
    pairs = torch.stack([whole.indices + 1, weight.to(whole.indices.dtype)], dim=1)
    with path.open("w") as file:
        file.write(f"{dataset.num_nodes} {len(pairs) // 2} 001\n")
        for own in pairs.split(whole.indptr.diff().tolist()):
            file.write(" ".join(map(str, own.flatten().tolist())) + "\n")


def _quality(comm: Communicator, dataset: Dataset, parts: list[Part]) -> Answer:
    """Returns the sizes of the graph, the edge cut, and the balance of each load's worst type."""
    report, worst = report_partition(parts, comm), dict[str, float]()
    for load in report.loads:
        worst[load.name] = max(worst.get(load.name, 1.0), 1.0 if load.is_even else load.balance)
    return {
        "edges": dataset.num_edges,
        "nodes": dataset.num_nodes,
        "types": dataset.schema.num_types,
        "edge_cut": report.edge_cut,
        "balance": worst,
    }


def _share(comm: Communicator, dataset: Dataset) -> int:
    """Returns the bytes of this rank's share of the edges as stored and as an undirected graph."""
    part = read_slice(dataset, comm)
    graph = symmetric_graph(comm, part, torch.ones(part.num_nodes, 1, dtype=torch.int32)).lists
    arrays = [graph.indptr, graph.indices, graph.node_weight]
    for edges in part.relations:
        arrays += [edges.indptr, edges.indices, edges.explicit_edge_ids()]
    return sum(array.nbytes for array in arrays)


def _policy(name: str, balance: dict[str, float]) -> PolicyLike:
    return {"multilevel": Multilevel(balance), "metis": Metis(balance)}.get(name, name)


JOBS: dict[str, Any] = {"cut": cut, "kaminpar": kaminpar}


if __name__ == "__main__":
    answer_with(JOBS, *sys.argv[1:])
