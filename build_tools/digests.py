"""Prints digests of minibatches, outputs, gradients and weights on the shared graphs.

    python build_tools/digests.py --out before.json
    python build_tools/digests.py --against before.json

A change of the code that should change no result has equal digests before and after. Minibatches
have the same digests on every processor. Outputs, gradients and weights depend on the vector level.
Ranks run under torchrun, with gloo and with ccl where it is built.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from pyg_batchgnn import (
    Communicator,
    DistFeatureStore,
    DistGraphStore,
    MacrobatchHGTLoader,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    accelerate,
    nn,
)
from pyg_batchgnn.comm.ccl import why_unavailable
from pyg_batchgnn.data import Dataset, load_dataset
from pyg_batchgnn.partition import partition

KINDS = ("node", "link", "typed", "typed link", "hgt", "disjoint", "with replacement", "native")
BATCHES = 6


class Digest:
    """A hash of tensors with their names, dtypes and shapes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, name: str, value: Any) -> None:
        """Adds a tensor, or anything else by its text."""
        if isinstance(value, Tensor):
            value = value.detach().contiguous()
            self._hash.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            self._hash.update(value.flatten().view(torch.uint8).numpy().tobytes())
        else:
            self._hash.update(f"{name} {value!r}".encode())

    def text(self) -> str:
        return self._hash.hexdigest()[:16]


def add_batch(digest: Digest, batch: Any) -> None:
    """Adds every attribute of a PyG batch, or what a native one exports."""
    batch = batch if hasattr(batch, "to_dict") else batch.to_data()
    for path, value in sorted(flat(batch.to_dict())):
        if not path.endswith(("/adj_t", "/native", "/minibatch")):
            digest.add(path, value)


def flat(value: dict[Any, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries, with their paths."""
    for name, inner in value.items():
        below = f"{path}/{name}"
        if isinstance(inner, dict):
            yield from flat(inner, below)
        elif inner is None or isinstance(inner, Tensor | int | float | str | list | tuple):
            yield below, inner


def load(name: str) -> Dataset:
    """Loads a graph, of the features the first 64 columns."""
    data = load_dataset(name)
    for nodes in data.node_sets:
        nodes.tables["x"] = nodes.tables["x"][:, :64].clone()
    return data


# Minibatches ######################################################################################


def loader_of(kind: str, graph: Any, data: Any, ranks: bool) -> Any:
    """Makes a loader of one kind over PyG's form of a graph, or over the stores of a rank."""
    common = {"batch_size": 64, "shuffle": True, "seed": 3, "macrobatch_size": 3, "fetch_size": 2}
    if ranks:
        common["schedule"] = "global"
    if kind == "hgt":
        return MacrobatchHGTLoader(data, num_samples=[64, 64], input_nodes="noun", **common)
    if kind == "typed":
        return MacrobatchNeighborLoader(data, num_neighbors=[5, 3], input_nodes="noun", **common)
    if kind == "typed link":
        relation = ("noun", "hypernym", "noun")
        ends = graph[relation].edge_index[:, :2000]
        return MacrobatchLinkNeighborLoader(data, [4, 2], (relation, ends), neg_sampling="binary", **common)
    if kind == "link":
        ends = graph.edge_index[:, :2000]
        return MacrobatchLinkNeighborLoader(data, [6, 3], ends, neg_sampling="triplet", **common)
    extra: dict[str, Any] = {
        "disjoint": {"disjoint": True},
        "with replacement": {"replace": True},
        "native": {"export": "native"},
    }.get(kind, {})
    return MacrobatchNeighborLoader(data, num_neighbors=[10, 5, 3], **extra, **common)


def graphs_of(kind: str) -> list[str]:
    return ["oewn_hetero"] if kind in {"typed", "typed link", "hgt"} else ["cora", "amazon_photo"]


def minibatches(loader: Any) -> str:
    """The digest of the first minibatches of two epochs."""
    digest = Digest()
    for _ in range(2):
        for batch in itertools.islice(loader, BATCHES):
            add_batch(digest, batch)
    return digest.text()


def of_one_process() -> dict[str, str]:
    """The digests of minibatches in one process."""
    found = {}
    for kind in KINDS:
        for graph in graphs_of(kind):
            data = load(graph).to_pyg()
            found[f"minibatches, {kind}, {graph}"] = minibatches(loader_of(kind, data, data, ranks=False))
    return found


def rank_main(backend: str, out: Path) -> None:
    """Runs in each rank: writes the digests of its minibatches."""
    found = {}
    for kind in KINDS:
        if kind == "hgt":  # for one process
            continue
        for graph in graphs_of(kind):
            with Communicator.create("graph", backend=backend) as comm:
                data = load(graph)
                part = partition(data, "ldg", comm=comm, seed=0)
                stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
                found[f"{kind}, {graph}"] = minibatches(loader_of(kind, data.to_pyg(), stores, ranks=True))
                rank = comm.rank
    out.with_suffix(f".{rank}").write_text(json.dumps(found))


def of_ranks(ranks: int, backend: str) -> dict[str, str]:
    """The digests of minibatches over ranks, those of each rank after one another."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "digests"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        subprocess.run(
            [*launch, __file__, "--rank", backend, "--out", str(out)],
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        written = [json.loads(out.with_suffix(f".{rank}").read_text()) for rank in range(ranks)]
    return {
        f"minibatches, {name}, {ranks} ranks, {backend}": "-".join(one[name] for one in written)
        for name in written[0]
    }


# Models ###########################################################################################


class Own(torch.nn.Module):
    """A user's module, with PyG's layers."""

    def __init__(self, columns: int, classes: int) -> None:
        from torch_geometric.nn import BatchNorm, GATConv, SAGEConv

        super().__init__()
        self.first, self.second = SAGEConv(columns, 32), GATConv(32, classes, heads=2, concat=False)
        self.norm = BatchNorm(32)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[n, columns] float and [2, e] int64 to [n, classes]."""
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


def models(columns: int, classes: int) -> dict[str, tuple[torch.nn.Module, str]]:
    """Models with the export of their minibatches."""
    import torch_geometric.nn as pyg

    native = {"in_channels": columns, "hidden_channels": 32, "out_channels": classes, "num_layers": 2}
    made: dict[str, tuple[torch.nn.Module, str]] = {}
    for model in (nn.SAGE, nn.GCN, nn.GIN, nn.GAT):
        torch.manual_seed(0)
        made[f"native {model.__name__}"] = model(**native), "native"
    for name, more in {
        "GraphSAGE": {"norm": "batch", "dropout": 0.5},
        "GCN": {"norm": "layer"},
        "GIN": {"dropout": 0.3},
        "GAT": {"jk": "cat", "act": "elu"},
    }.items():
        torch.manual_seed(0)
        made[f"accelerated {name}"] = accelerate(getattr(pyg, name)(**native, **more)), "native"
    torch.manual_seed(0)
    made["accelerated own module"] = accelerate(Own(columns, classes)), "pyg"
    return made


def train(model: torch.nn.Module, export: str, data: Any, dtype: torch.dtype) -> dict[str, str]:
    """Trains for a few steps; returns the digests of outputs, gradients and weights."""
    data.x = data.x.to(dtype)
    loader = MacrobatchNeighborLoader(data, [10, 5], batch_size=64, seed=5, shuffle=True, export=export)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs, gradients, weights = Digest(), Digest(), Digest()
    torch.manual_seed(1)
    for batch in itertools.islice(loader, BATCHES):
        x = batch.x.float() if export == "pyg" else None
        out = model(batch) if x is None else model(x, batch.edge_index)[: batch.batch_size]
        loss = torch.nn.functional.cross_entropy(out.float(), batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        outputs.add("out", out)
        for name, parameter in model.named_parameters():
            gradients.add(name, parameter.grad)
        optimizer.step()
    for name, value in model.state_dict().items():
        weights.add(name, value)
    return {"outputs": outputs.text(), "gradients": gradients.text(), "weights": weights.text()}


def of_models() -> dict[str, str]:
    """The digests of outputs, gradients and weights."""
    found = {}
    data = load("amazon_photo").to_pyg()
    for dtype in (torch.float32, torch.bfloat16):
        for name, (model, export) in models(data.x.size(1), int(data.y.max()) + 1).items():
            if dtype != torch.float32 and "native" not in name:  # PyG's layers want one dtype
                continue
            for part, text in train(model, export, data.clone(), dtype).items():
                found[f"{part}, {name}, {str(dtype).removeprefix('torch.')}"] = text
    return found


def of_runs() -> dict[str, str]:
    """The digests of the checkpoints of `batchgnn train`, in one process and on two ranks."""
    found = {}
    graph = "oewn_hetero:hold_out=0.1,links=noun__hypernym__noun"
    link = [graph, "--task", "link", "--edge-type", "noun,hypernym,noun", "--batch-size", "4096"]
    for name, arguments in {
        "sage": ["cora", "--fanout", "5,5"],
        "gat": ["cora", "--model", "gat", "--fanout", "5,5"],
        "typed links": [*link, "--fanout", "4,4"],
    }.items():
        for ranks in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
                start = [sys.executable] if ranks == 1 else [*launch, f"--nproc-per-node={ranks}"]
                fixed = ["--epochs", "2", "--hidden", "16", "--threads", "1", "--run-folder", str(run)]
                subprocess.run(
                    [*start, "-m", "pyg_batchgnn", "train", *arguments, *fixed],
                    check=True,
                    capture_output=True,
                    cwd=folder,
                    env=os.environ | {"PYTHONPATH": str(Path.cwd())},
                )
                digest = Digest()
                for key, value in sorted(load_file(run / "checkpoint.safetensors").items()):
                    digest.add(key, value)
                found[f"checkpoint, {name}, {ranks} ranks"] = digest.text()
    return found


def main() -> None:
    """Prints, writes or compares the digests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--against", type=Path, help="JSON file of an earlier state to compare with")
    parser.add_argument("--rank", metavar="BACKEND", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank_main(given.rank, given.out)
        return
    torch.set_num_threads(2)
    found = of_one_process() | of_models() | of_runs()
    backends = ["gloo"] if why_unavailable() else ["gloo", "ccl"]
    for ranks, backend in itertools.product((1, 2, 3, 4), backends):
        found |= of_ranks(ranks, backend)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    if given.against:
        before = json.loads(given.against.read_text())
        other = [name for name in {**before, **found} if before.get(name) != found.get(name)]
        print(f"{len(found)} digests, {len(other)} differ", *other, sep="\n  ")
        sys.exit(bool(other))
    print(f"{len(found)} digests")


if __name__ == "__main__":
    main()
