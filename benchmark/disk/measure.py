"""Rows on disk: a papers-like graph that is larger than the memory that it gets.

    python -m benchmark disk --folder FOLDER --tenth FOLDER           all parts but `sort`
    python -m benchmark disk --folder FOLDER --parts budgets pages    some of them

The folders are those that `batchgnn generate FOLDER --papers-like` makes, of all nodes and of a
tenth. They are only read. Each part is stored beside the others when it is done. Parts, with
minutes on the whole graph and two cores, about:

    epoch   30   epochs read from the file, and the same steps with rows held
    budgets  6   an epoch without a model, by the loader's memory budget
    pages    1   bytes if each minibatch read its rows alone, in pages
    mapped   5   the first steps over the mapping
    peer     3   PyG's first minibatches over the mapping (`--peer pyg=PYTHON --peer-folder FOLDER`)
    topology 2   sampling with edges in memory, over the mapping, and read from their file
    limited  1   edges read from their file, without memory for them: run it within a limit, as
                 that of `systemd-run --scope -p MemoryMax=4G`
    fits     2   a graph that fits: features in memory, against mapped ones that the loader holds
    sort     -   edges in no order to CSC in 4 GiB; writes 30 bytes for each edge below --scratch
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmark.disk.meters import empty_page_cache, sequential_rate
from benchmark.support.cli import Series, add_peer_option, merged, new_parser, read_json, write_part
from benchmark.support.harness import ProcessSetting
from benchmark.support.start import in_process
from pyg_batchgnn.machine import memory

GIB, PAPERS, THREADS = 1 << 30, 111_059_956, 2
Chosen = argparse.Namespace


def _run(job: str, python: str = sys.executable, **order: Any) -> dict[str, Any]:
    """Returns what a job found in a process of its own."""
    module = "pyg_loading" if job == "pyg" else "jobs"
    environment = ProcessSetting(threads=THREADS).environment()
    found: dict[str, Any] = in_process(
        *(f"benchmark.disk.{module}", "run", {"job": job, **order}), python=python, environment=environment
    )
    shown = ("seconds", "steps", "waiting", "first_batch", "peak", "forecast")
    for one in found.get("runs", [found]):
        told = {**found, **one}
        print(f"  {job}: { ({key: told[key] for key in shown if key in told}) }", flush=True)
    return found


def _epochs(chosen: Chosen, loader_gib: float = 0.0, **order: Any) -> list[dict[str, Any]]:
    """Goes through epochs in one process; without ``loader_gib`` the loader gets what others
    leave."""
    whole = {"budget": int(chosen.memory_budget * GIB), "reserve": int(chosen.reserve * GIB)}
    memory = {"loader_budget": int(loader_gib * GIB)} if loader_gib else whole
    found = _run("iterate", **{"folder": str(chosen.folder), **memory, **order})
    return [{**found, **one} for one in found.pop("runs")]


def _iterate(chosen: Chosen, loader_gib: float = 0.0, **order: Any) -> dict[str, Any]:
    return _epochs(chosen, loader_gib, **order)[0]


#: Epochs with rows held. Those that follow are taken to be as long as the last of them.
_HELD = 3


def _epoch(chosen: Chosen) -> list[Series]:
    features = chosen.folder / "nodes" / "x.npy"
    same: dict[str, Any] = {"work": "train", "steps": chosen.steps}
    held = _epochs(chosen, rows="folded", epochs=min(_HELD, chosen.epochs), **same)
    rates = [sequential_rate(features, 4 * GIB)]
    reads = _epochs(chosen, epochs=chosen.epochs, **same)
    rates.append(sequential_rate(features, 4 * GIB))
    return [
        {"held": held[min(number, len(held) - 1)], "read": one, "rates": rates}
        for number, one in enumerate(reads)
    ]


def _mapped(chosen: Chosen) -> list[Series]:
    first: dict[str, Any] = {"epoch": chosen.few_steps, "work": "train"}
    mapped = {**first, "seconds": chosen.limit, "rows": "mapping"}
    one = {"read": _iterate(chosen, **first), "mapping": _iterate(chosen, **mapped)}
    return [one]


def _peer(chosen: Chosen) -> list[Series]:
    python = dict(chosen.peer).get("pyg")
    if python is None or chosen.peer_folder is None:
        raise SystemExit("the part peer needs --peer pyg=PYTHON and --peer-folder FOLDER")
    share = _nodes(chosen.peer_folder) / _nodes(chosen.folder)
    folder, features = {"folder": str(chosen.peer_folder)}, chosen.peer_folder / "nodes" / "x.npy"
    read = _iterate(chosen, chosen.memory_budget * share, **folder, epoch=chosen.few_steps, work="train")
    empty_page_cache(features)
    pyg = _run("pyg", python, **folder, steps=chosen.few_steps, seconds=chosen.limit)
    empty_page_cache(features)
    return [{"read": read, "pyg": pyg, "share": share}]


def _edges(chosen: Chosen, *sides: str) -> list[Series]:
    small, large = int(chosen.edge_budget * GIB), 1 << 40  # below and above the bytes of edges
    common = {"folder": str(chosen.folder), "steps": chosen.edge_steps}
    return [
        _run(
            "edges", **common, edges=edges, macrobatch=size, loader_budget=small if edges == "file" else large
        )
        for edges in sides
        for size in (8, 32)
    ]


def _fits(chosen: Chosen) -> list[Series]:
    if chosen.tenth is None:
        raise SystemExit("the part fits needs a graph whose features fit: give --tenth FOLDER")
    said = {"epoch": chosen.few_steps, "budget": int(chosen.memory_budget * GIB)}
    return [_run("alternate", folder=str(chosen.tenth), **said)]


def _sort(chosen: Chosen) -> list[Series]:
    if chosen.scratch is None:
        raise SystemExit("the part sort writes 30 bytes for each edge: give --scratch FOLDER")
    with tempfile.TemporaryDirectory(dir=chosen.scratch) as work:
        return [_run("sort", folder=f"{work}/sort", nodes=_nodes(chosen.folder) // 4, memory_budget="4GiB")]


def _nodes(folder: Path) -> int:
    nodes: int = json.loads((folder / "META.json").read_text())["num_nodes"]
    return nodes


PARTS: dict[str, Callable[[Chosen], list[Series]]] = {
    "epoch": _epoch,
    "budgets": lambda said: [_iterate(said, one, steps=said.budget_steps) for one in said.budgets],
    "pages": lambda said: [_run("count_pages", folder=str(said.folder), steps=said.units)],
    "mapped": _mapped,
    "peer": _peer,
    "topology": lambda said: _edges(said, "memory", "mapping", "emptied", "file"),
    "limited": lambda said: _edges(said, "file"),
    "fits": _fits,
    "sort": _sort,
}


def _parser() -> argparse.ArgumentParser:
    result = new_parser(__doc__)
    add_peer_option(result)
    add = result.add_argument
    add("--folder", type=Path, required=True, help="papers-like graph that is larger than memory")
    add("--tenth", type=Path, help="papers-like graph of a tenth of the nodes")
    add("--peer-folder", type=Path, help="papers-like graph that PyG's loader can hold, a quarter say")
    usual = [name for name in PARTS if name not in ("sort", "limited", "peer")]
    add("--parts", nargs="+", choices=PARTS, default=usual, help="what is measured")
    add("--memory-budget", type=float, default=20.0, help="GiB for everything in a process")
    add("--reserve", type=float, default=1.3, help="GiB of it for the model and torch")
    add("--epochs", type=int, default=5, help="epochs of the part epoch, one after the other")
    add("--steps", type=int, default=0, help="steps after which an epoch ends; 0: all")
    add("--budgets", type=float, nargs="+", default=[6.0, 9.0, 12.0], help="GiB for the loader")
    add("--budget-steps", type=int, default=0, help="minibatches for each budget; 0: an epoch")
    add("--units", type=int, default=20, help="minibatches whose pages are counted")
    add("--few-steps", type=int, default=30, help="steps over the mapping, and where features fit")
    add("--edge-steps", type=int, default=64, help="minibatches for the part topology")
    add("--edge-budget", type=float, default=1.0, help="GiB for a loader that reads edges from files")
    add("--limit", type=float, default=120.0, help="seconds after which steps over the mapping end")
    add("--scratch", type=Path, help="place for what the part sort writes")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen parts in turn."""
    chosen = _parser().parse_args(arguments)
    nodes = _nodes(chosen.folder)
    about = {"name": f"papers-like, {nodes:,} nodes", "nodes": nodes}
    path = chosen.results / ("disk.json" if nodes == PAPERS else f"disk-{nodes}.json")
    left_out = ("folder", "tenth", "peer_folder", "scratch", "results", "peer", "parts")
    settings = {name: value for name, value in vars(chosen).items() if name not in left_out}
    settings["memory"] = memory().total / GIB
    for part in chosen.parts:
        print(part, flush=True)
        series = PARTS[part](chosen)
        if part == "budgets":  # others stay
            stored = read_json(path).get("parts", {}).get(part, {}).get("series", [])
            series = merged(stored, series, lambda one: one["loader_budget"])
            series.sort(key=lambda one: int(one["loader_budget"]))
        write_part(path, part, series, about, {"settings": settings})
