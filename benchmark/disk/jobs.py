"""The jobs of the benchmark of rows on disk, each in a process of its own."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmark.disk.meters import PeakMemory, cached_pages, empty_page_cache, folded_memory, let_go
from benchmark.networks.recipe import Trainer
from benchmark.support.meters import in_turns
from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.data import PapersSpec, convert_folder, generate_papers_folder, load_dataset, open_folder
from pyg_batchgnn.data.files import EdgeAppender
from pyg_batchgnn.disk import DiskReader, DiskTable
from pyg_batchgnn.loader import setup
from pyg_batchgnn.nn.models import SAGE

PAGE, FANOUTS, BATCH_SIZE, ROUNDS = 4096, [10, 10, 10], 1024, 5
PIECE = 1 << 22  # edges that are written together


@dataclass(frozen=True)
class Order:
    """A job's workload."""

    folder: str  # the papers-like folder
    rows: Literal["file", "mapping", "folded"] = "file"
    budget: int = 0  # bytes for everything in the process; 0: `loader_budget` holds
    reserve: int = 0  # bytes of the budget that are left to the model and to torch
    loader_budget: int = 0  # bytes for the loader
    epochs: int = 1  # epochs, one after the other
    epoch: int = 0  # minibatches of an epoch; 0: all training nodes
    steps: int = 0  # minibatches after which it ends; 0: those of the epoch
    seconds: float = 0.0  # after which it ends; 0: no end
    edges: Literal["memory", "mapping", "emptied", "file"] = "memory"
    macrobatch: int = 8  # minibatches that are sampled together, where edges are measured
    work: Literal["train", "load"] = "load"

    @property
    def features(self) -> Path:
        return Path(self.folder) / "nodes" / "x.npy"


def graph(folder: str) -> tuple[Any, Tensor]:
    """Reads the topology of a folder into memory; attributes stay mapped."""
    dataset = open_folder(folder)
    data = dataset.to_pyg()
    data.adj_t = data.adj_t.read()
    for name in ("train_mask", "val_mask", "test_mask"):
        del data[name]
    return data, dataset.split("train")


def table_of(x: Tensor) -> DiskTable:
    table = DiskTable.of(x)
    assert table is not None, "features are not mapped"
    return table


def folded(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns features [n, C] and labels [n] of which row i is row i modulo a tenth, about."""
    table = table_of(x)
    rows = -(-table.rows // 10 // PAGE) * PAGE  # so that they are whole pages
    memory = torch.from_numpy(folded_memory(rows * table.row_bytes, 10))
    out, reader = memory.view(x.dtype).view(-1, x.size(1)), DiskReader(table)
    reader.read_range(0, min(rows, table.rows), out)
    return out[: table.rows], y[:rows].repeat(10)[: table.rows].contiguous()


def new_loader(data: Any, nodes: Tensor, order: Order, budget: int) -> MacrobatchNeighborLoader:
    nodes = nodes[: order.epoch * BATCH_SIZE] if order.epoch else nodes
    features: Any = "in_place" if order.rows == "mapping" else "auto"
    sampling: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 1, "prefetch": 1}
    return MacrobatchNeighborLoader(
        data, FANOUTS, nodes, export="native", memory_budget=budget, features=features, **sampling
    )


def new_trainer(data: Any) -> Trainer:
    torch.manual_seed(0)
    return Trainer(SAGE(data.x.size(1), 256, len(FANOUTS), 1 + int(data.y.max())))


def step(trainer: Trainer, batch: Any) -> float:
    """Does a step. Returns its loss."""
    logits, labels = trainer.model(batch), batch.attribute("y", batch.batch_size).long()
    loss = torch.nn.functional.cross_entropy(logits[: batch.batch_size].float(), labels)
    trainer.update(loss)
    return loss.item()


def iterate(order: Order) -> dict[str, Any]:
    """Goes through epochs, or a part of each."""
    peak, path = PeakMemory(), order.features
    data, nodes = graph(order.folder)
    left = order.budget - peak.sample() - order.reserve
    if order.rows == "folded":  # every time that memory is seen counts as resident
        left -= data.x.nbytes // 10
        data.x, data.y = folded(data.x, data.y)
    empty_page_cache(path)
    trainer = new_trainer(data) if order.work == "train" else None
    budget = max(1, left) if order.budget else order.loader_budget
    loader = new_loader(data, nodes, order, budget)
    sizes = loader.sizes
    found = {"loader_budget": budget, "epoch": len(loader), **asdict(sizes)}
    found["cached_before"] = cached_pages(path)
    loader.epochs = order.epochs
    runs = [_timed(loader, order, trainer) for _ in range(order.epochs)]
    found["cached_after"] = cached_pages(path)
    empty_page_cache(path)
    peak.close()
    predicted = loader.disk_forecast()
    found["forecast"] = None if predicted is None else {**asdict(predicted), "seconds": predicted.seconds}
    return found | {"runs": runs, "peak": peak.bytes, "kinds": peak.by_kind}


def _timed(loader: Any, order: Order, trainer: Trainer | None) -> dict[str, Any]:
    before = asdict(loader.stats().total)
    losses, steps, waiting, first = list[float](), 0, 0.0, 0.0
    begin = asked = time.perf_counter()
    for batch in loader:
        got = time.perf_counter()
        waiting, first, steps = waiting + got - asked, first or got - begin, steps + 1
        if trainer is not None:
            losses.append(step(trainer, batch))
        asked = time.perf_counter()
        is_late = order.seconds and asked - begin > order.seconds
        if is_late or steps == order.steps:
            break
    stats = {name: value - before[name] for name, value in asdict(loader.stats().total).items()}
    took = {"seconds": asked - begin, "steps": steps, "waiting": waiting, "first_batch": first}
    return {**took, "loss": losses[:1] + losses[-1:], "stats": stats}


def sample_edges(order: Order) -> dict[str, Any]:
    """Samples some macrobatches of a graph without features, from where its edges lie."""
    peak, path = PeakMemory(), Path(order.folder) / "csc" / "indices.npy"
    dataset = load_dataset(order.folder)  # checks the file without the mapping
    data = dataset.to_pyg()
    if order.edges == "memory":
        data.adj_t = data.adj_t.read()
    for name in [name for name in data.keys() if name != "adj_t"]:  # noqa: SIM118 (a Data is no dict)
        del data[name]
    data.num_nodes = dataset.num_nodes
    nodes = dataset.split("train")
    nodes = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0))]
    before, size = peak.sample(), min(order.macrobatch, order.steps)
    # Given sizes: nothing is sampled to choose them.
    sizes: dict[str, Any] = {"macrobatch_size": size, "fetch_size": size}
    sizes["memory_budget"] = order.loader_budget
    held = {"return_value": False} if order.edges == "file" else {"wraps": setup.cache_holds}
    with mock.patch.object(setup, "cache_holds", **held):  # read, even if the cache would hold them
        loader = MacrobatchNeighborLoader(
            data, FANOUTS, nodes, batch_size=BATCH_SIZE, seed=1, export="native", **sizes
        )
    empty_page_cache(path)
    cached, known = cached_pages(path), loader.stats().total
    each, batches = list[float](), iter(loader)
    for _ in range(order.steps // size):
        begin = time.perf_counter()
        for _ in itertools.islice(batches, size):
            pass
        each.append(time.perf_counter() - begin)
        peak.sample()
        if order.edges == "emptied":
            let_go(data.adj_t.indices.numpy(), path)
    total = loader.stats().total
    counts = ("edges", "topology_edges", "topology_bytes", "topology_operations")
    stats = {name: getattr(total, name) - getattr(known, name) for name in counts}
    pages = {"cached_before": cached, "cached_after": cached_pages(path)}
    empty_page_cache(path)
    peak.close()
    shown = {"edges": order.edges, "macrobatch": size, "steps": order.steps, "seconds": sum(each)}
    return {**shown, **pages, "each": each, "stats": stats, "peak": peak.bytes - before}


def count_pages(order: Order) -> dict[str, Any]:
    """Counts the distinct pages of the file that each of some minibatches has rows in."""
    data, nodes = graph(order.folder)
    table, pages, rows = table_of(data.x), list[int](), list[int]()
    del data.x, data.y
    loader = new_loader(data, nodes, order, 1 << 30)
    for batch in itertools.islice(loader, order.steps):
        first = table.offset + batch.node * table.row_bytes
        pages.append(torch.cat([first // PAGE, (first + table.row_bytes - 1) // PAGE]).unique().numel())
        rows.append(batch.node.numel())
    return {"sample": len(pages), "pages": fmean(pages), "rows": fmean(rows), "epoch": len(loader)}


def alternate(order: Order) -> dict[str, Any]:
    """Trains with features in memory and with mapped ones that the loader holds, in turns."""
    mapped, nodes = graph(order.folder)
    held = mapped.clone()
    held.x, held.y = mapped.x.clone(), mapped.y.clone()
    empty_page_cache(order.features)
    sides = {"tensor": held, "mapped": mapped}
    loaders = {name: new_loader(data, nodes, order, order.budget) for name, data in sides.items()}
    if loaders["mapped"].disk_forecast() is not None:
        raise ValueError("features do not fit --memory-budget; give a larger one, or a smaller --tenth")
    trainer = new_trainer(held)

    def epoch(name: str) -> None:
        for batch in loaders[name]:
            step(trainer, batch)

    seconds = in_turns({name: partial(epoch, name) for name in sides}, ROUNDS)
    return {"seconds": seconds, "steps": len(loaders["tensor"])}


def sort_edges(told: dict[str, Any]) -> dict[str, Any]:
    """Makes a list of edges in no order in a new folder, sorts it, and removes the folder."""
    folder, nodes, memory_budget = Path(told["folder"]), told["nodes"], told["memory_budget"]
    graph = generate_papers_folder(PapersSpec(nodes=nodes, features=1), folder / "graph")
    edges = open_folder(graph).edges
    (folder / "list").mkdir()
    with EdgeAppender(folder / "list" / "edge_index.npy", np.int32) as out:
        for begin in range(0, edges.num_edges, PIECE):
            piece = edges.some(range(begin, min(begin + PIECE, edges.num_edges)))
            out.append(piece.target.numpy(), piece.source.numpy())
    (folder / "list" / "META.json").write_text(json.dumps({"num_nodes": nodes}))
    del edges
    shutil.rmtree(graph)
    begun = time.perf_counter()
    shutil.copyfile(folder / "list" / "edge_index.npy", folder / "copy.npy")
    copied = time.perf_counter() - begun
    (folder / "copy.npy").unlink()
    peak = PeakMemory(every=0.05)
    before, begun = peak.sample(), time.perf_counter()
    made = convert_folder(folder / "list", folder / "csc", memory_budget=memory_budget)
    seconds = time.perf_counter() - begun
    peak.close()
    sorted_edges = made.edges["edges"]
    shutil.rmtree(folder)
    return {
        "nodes": nodes,
        "edges": sorted_edges.edges,
        "buckets": sorted_edges.buckets,
        "seconds": seconds,
        "seconds by phase": dict(made.seconds),
        "edges per second": sorted_edges.edges / seconds,
        "seconds of a plain copy": copied,
        "memory budget": memory_budget,
        "memory beside the program": peak.bytes - before,
    }


def run(told: dict[str, Any]) -> dict[str, Any]:
    """Does the job that is told."""
    name = told.pop("job")
    if name == "sort":
        return sort_edges(told)
    jobs = {"iterate": iterate, "edges": sample_edges, "count_pages": count_pages, "alternate": alternate}
    return jobs[name](Order(**told))
