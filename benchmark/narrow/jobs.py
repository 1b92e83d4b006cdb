"""The jobs of the benchmark of rows of one byte, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmark.networks.recipe import DROPOUT, HEADS, StepTrainer
from benchmark.support.graphs import GraphFolder
from benchmark.support.meters import in_turns
from benchmark.support.ranks import Answer
from pyg_batchgnn import MacrobatchNeighborLoader, quantize
from pyg_batchgnn.nn import GAT, GCN, SAGE

#: The forms of a table by name. Those in bfloat16 are computed in bfloat16.
FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "float32": lambda x: x,
    "bfloat16": lambda x: x.to(torch.bfloat16),
    "int8": quantize,
    "int8, bfloat16": lambda x: quantize(x, dtype=torch.bfloat16),
}
#: The forms that PyG batches are measured in, by the type of their batches' features.
LOADED = {"float32": torch.float32, "int8": torch.float32, "int8, bfloat16": torch.bfloat16}
MODELS = ("sage", "gcn", "gat")


def network(model: str, columns: int, hidden: int, layers: int, classes: int) -> nn.Module:
    if model == "gat":
        return GAT(columns, hidden, layers, classes, heads=HEADS, dropout=DROPOUT)
    return {"sage": SAGE, "gcn": GCN}[model](columns, hidden, layers, classes, dropout=DROPOUT)


def _loader(data: Data, graph: GraphFolder, order: dict[str, Any], export: Any) -> MacrobatchNeighborLoader:
    seeds = graph.seeds(order["batches"] * order["batch_size"], 0)
    sizes = {"batch_size": order["batch_size"], "macrobatch_size": order["batches"]}
    return MacrobatchNeighborLoader(
        data, order["fanouts"], seeds, seed=0, threads=order["threads"], export=export, **sizes
    )


def _rounds(
    order: dict[str, Any], names: Iterable[str], work: Callable[[str], object]
) -> dict[str, list[float]]:
    found = in_turns({name: partial(work, name) for name in names}, order["rounds"])
    return {name: [one / order["batches"] for one in seconds] for name, seconds in found.items()}


def loading(order: dict[str, Any]) -> Answer:
    """Makes PyG batches of one sample with features of several forms."""
    torch.set_num_threads(order["threads"])
    graph = GraphFolder.open(order["graph"])
    tables = {name: FORMS[name](graph.x) for name in LOADED}
    data = Data(edge_index=graph.edge_index, y=graph.y, num_nodes=graph.num_nodes)
    loader, rows = _loader(data, graph, order, "pyg"), list[int]()
    written = {f"{name}, written": dtype for name, dtype in LOADED.items()}
    block = torch.empty(graph.x.numel(), dtype=torch.float32)

    def epoch(name: str) -> None:
        if name in written:
            for count in rows[: order["batches"]]:
                block.view(written[name])[: count * graph.num_features].fill_(1)
            return
        if name in tables:
            data.x = tables[name]
        elif "x" in data:
            del data.x
        loader.set_epoch(0)
        for batch in loader:
            rows.append(batch.n_id.numel())
            assert name not in tables or batch.x.shape[0] == batch.n_id.numel()

    seconds = _rounds(order, ["none", *tables, *written], epoch)
    return {"seconds": seconds, "bytes": _sizes(tables)}


def steps(order: dict[str, Any]) -> Answer:
    """Does native steps on the same minibatches with features of several forms."""
    torch.set_num_threads(order["threads"])
    graph = GraphFolder.open(order["graph"])
    tables = {name: form(graph.x) for name, form in FORMS.items()}
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    loader, batches = _loader(data, graph, order, "native"), dict[str, list[Any]]()
    for name, table in tables.items():
        data.x = table
        loader.set_epoch(0)
        batches[name] = list(loader)
    torch.manual_seed(0)
    shape = graph.num_features, order["hidden"], len(order["fanouts"]), graph.num_classes
    trainers = {name: StepTrainer(network(order["model"], *shape)) for name in FORMS}

    def epoch(name: str) -> None:
        trainer = trainers[name]
        for batch in batches[name]:
            with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in name):
                logits = trainer.model(batch)
            trainer.step(logits, batch.attribute("y", batch.batch_size).long())

    return {"seconds": _rounds(order, FORMS, epoch), "bytes": _sizes(tables)}


def _sizes(tables: dict[str, Tensor]) -> dict[str, int]:
    return {name: table.nbytes for name, table in tables.items()}
