"""The inference of all nodes: layer by layer, against PyG's inference and against sampling.

Ours is ``model.inference(loader)`` of a native model, exact. PyG's is ``BasicGNN.inference`` with
batches of this package's loader, which are PyG's. "Sampled" is the native model on minibatches of
all nodes with 20 neighbours per hop, as evaluation in training does. All compute the output of
every node. They take turns in one process, and the first round is not measured.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.data import Data

from benchmark.support.cli import RESULTS, write_json
from benchmark.support.graphs import GraphFolder
from benchmark.support.machine import describe
from benchmark.support.prepare import chosen_graph
from benchmark.support.rounds import typical
from pyg_batchgnn import MacrobatchNeighborLoader, nn

MODELS = {
    "sage": (nn.SAGE, torch_geometric.nn.GraphSAGE),
    "gcn": (nn.GCN, torch_geometric.nn.GCN),
}
LAYERS = 3
FANOUT = 20
Contestants = dict[str, Callable[[], Tensor]]


def contestants(model: str, graph: GraphFolder, hidden: int, batch_size: int) -> Contestants:
    """Returns the three ways to compute all nodes, ours first."""
    data = Data(x=graph.x, edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    native, pyg = MODELS[model]
    columns, classes = graph.num_features, graph.num_classes
    ours = native(columns, hidden, LAYERS, classes).eval()
    theirs = pyg(columns, hidden, LAYERS, classes).eval()
    one_hop = MacrobatchNeighborLoader(data, [-1], batch_size=batch_size)
    sampled = MacrobatchNeighborLoader(data, [FANOUT] * LAYERS, batch_size=batch_size, export="native")
    return {
        "ours": lambda: ours.inference(one_hop),
        "PyG's inference": lambda: theirs.inference(one_hop),
        f"sampled, fanout {FANOUT}": lambda: torch.cat([ours(batch) for batch in sampled]),
    }


def cpu_seconds() -> float:
    """Returns the CPU seconds of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@torch.no_grad()
def measure(of_model: Contestants, rounds: int) -> dict[str, dict[str, float]]:
    """Returns the wall and CPU seconds of each contestant, after one unmeasured round of
    ours."""
    of_model["ours"]()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in of_model}
    for _ in range(rounds):
        for name, compute in of_model.items():
            wall, cpu = time.perf_counter(), cpu_seconds()
            compute()
            taken[name].append((time.perf_counter() - wall, cpu_seconds() - cpu))
            print(f"  {name}: {taken[name][-1][0]:.2f} s", flush=True)
    return {
        name: {"wall": typical(wall for wall, _ in times), "cpu": typical(cpu for _, cpu in times)}
        for name, times in taken.items()
    }


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("--graph", type=Path, help="folder with colptr.npy, row.npy, x.npy, y.npy, train_idx.npy")
    add("--nodes", type=int, default=50_000, help="size of the generated graph (default: 50000)")
    add("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    add("--hidden", type=int, default=256, help="width of hidden layers (default: 256)")
    add("--batch-size", type=int, default=1024, help="seed nodes per minibatch (default: 1024)")
    add("--rounds", type=int, default=9, help="rounds measured (default: 9)")
    add("--threads", type=int, default=torch.get_num_threads(), help="threads (default: torch's)")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    chosen = parser().parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    graph = chosen_graph(chosen.graph, chosen.nodes)
    models: dict[str, Any] = {}
    for name in chosen.models:
        print(name, flush=True)
        models[name] = measure(contestants(name, graph, chosen.hidden, chosen.batch_size), chosen.rounds)
    options = {"hidden": chosen.hidden, "batch_size": chosen.batch_size, "rounds": chosen.rounds}
    described = graph.describe()
    content = {
        "benchmark": "inference",
        "graph": described,
        "options": {**options, "threads": chosen.threads, "layers": LAYERS},
        "machine": describe(),
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "models": models,
    }
    write_json(chosen.results / f"inference-{described['name']}.json", content)


if __name__ == "__main__":
    main()
