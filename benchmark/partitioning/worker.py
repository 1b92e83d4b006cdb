"""One rank of the partitioning benchmark, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import torch

from benchmark.ranks.rank_graph import Answer
from benchmark.ranks.worker import answer_with, cpu_seconds
from benchmark.support.meters import peak_bytes, release_free_memory, reset_peak, resident_bytes
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, load_dataset
from pyg_batchgnn.ops import empty_cache
from pyg_batchgnn.partition import Metis, Multilevel, PolicyLike, partition_parts, report_partition
from pyg_batchgnn.partition.multilevel.symmetrise import symmetric_graph
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
    report = report_partition(parts, comm)
    return {
        "edges": dataset.num_edges,
        "nodes": dataset.num_nodes,
        "wall": wall,
        "cpu": cpu,
        "peak": peak,
        "edge_cut": report.edge_cut,
        "balance": {name: report.balance(name) for name in ("nodes", "edges", "train")},
    }


def kaminpar(comm: Communicator, options: Answer) -> list[Answer]:  # noqa: ARG001
    """Cuts a graph with KaMinPar, which balances nodes alone, whatever is wanted."""
    import kaminpar as library

    dataset = load_dataset(options["dataset"])
    source, target = (ends.to(torch.int64) for ends in dataset.edge_index)
    key = torch.cat([source * dataset.num_nodes + target, target * dataset.num_nodes + source])
    key = key[torch.cat([source != target] * 2)].unique()
    degree = torch.bincount(key // dataset.num_nodes, minlength=dataset.num_nodes)
    lists = (key % dataset.num_nodes + 1).split(degree.tolist())
    with tempfile.NamedTemporaryFile("w", suffix=".metis") as file:
        file.write(f"{dataset.num_nodes} {key.numel() // 2}\n")
        file.writelines(" ".join(map(str, others.tolist())) + "\n" for others in lists)
        file.flush()
        graph = library.load_graph(file.name, library.GraphFileFormat.METIS)
    answers = {
        count: _cut_by_kaminpar(library, graph, dataset, count)
        for count in {case["parts"] for case in options["cases"]}
    }
    return [answers[case["parts"]] for case in options["cases"]]


def _cut_by_kaminpar(library: Any, graph: Any, dataset: Dataset, count: int) -> Answer:
    source, target = (ends.to(torch.int64) for ends in dataset.edge_index)
    solver = library.KaMinPar(num_threads=2, ctx=library.default_context())
    begin, used = time.perf_counter(), cpu_seconds()
    owner = torch.tensor(solver.compute_partition(graph, k=count, eps=0.05))
    wall, cpu = time.perf_counter() - begin, cpu_seconds() - used
    weights = {
        "nodes": torch.ones(dataset.num_nodes),
        "edges": torch.bincount(target, minlength=dataset.num_nodes),
        "train": torch.zeros(dataset.num_nodes).index_fill(0, dataset.split("train"), 1),
    }
    loads = {name: torch.bincount(owner, weight.double()) for name, weight in weights.items()}
    return {
        "edges": dataset.num_edges,
        "nodes": dataset.num_nodes,
        "wall": wall,
        "cpu": cpu,
        "peak": 0,
        "edge_cut": float((owner[source] != owner[target]).double().mean()),
        "balance": {name: float(load.max() / load.mean()) for name, load in loads.items()},
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
