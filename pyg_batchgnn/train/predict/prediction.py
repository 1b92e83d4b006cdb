"""Predictions and embeddings of nodes from a run's best weights: what ``batchgnn predict`` does."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import WholeGraph, evaluation_loader, fingerprint_dataset
from pyg_batchgnn.train.loop import count_correct, infer
from pyg_batchgnn.train.malloc import configure_malloc
from pyg_batchgnn.train.model import apply_product, build_network
from pyg_batchgnn.train.predict.arrays import PredictionArrays
from pyg_batchgnn.train.run import open_dataset
from pyg_batchgnn.train.run_folder import Checkpoint, RunFolder, write_json

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class PredictRequest:
    """What to predict.

    Attributes:
        run: folder of a run.
        out: folder to write; must not exist.
        nodes: "all", "train", "val", "test" or the path of a .npy file of node ids.
        embeddings: whether to write the last hidden layer as well.
        dataset: name or path to use instead of the run's, for data that has moved.
        threads: instead of the run's number.
        layers: "native" or "pyg", instead of the run's; either reads the other's weights.
    """

    run: Path
    out: Path
    nodes: str = "all"
    embeddings: bool = False
    dataset: str | None = None
    threads: int | None = None
    layers: str | None = None


@dataclass(frozen=True)
class PredictSummary:
    """What was predicted: number of nodes, epoch of the weights, accuracy on labelled nodes (None: none)."""

    nodes: int
    epoch: int
    accuracy: float | None


def predict_nodes(request: PredictRequest) -> PredictSummary:
    """Write predictions to a new folder, which appears when it is complete.

    Raises:
        TrainError, DatasetError: something the user can mend.
    """
    folder = RunFolder.open(request.run)
    checkpoint = Checkpoint.load(folder.checkpoint)
    if not checkpoint.best:
        raise TrainError(f"{request.run}: no epoch is finished, so there is no model to predict with yet")
    if request.out.exists():
        raise TrainError(f"{request.out} exists; give a new folder with --out")
    config = _config(checkpoint.config, request)
    run = config.run
    configure_malloc(run.malloc)
    torch.set_num_threads(run.threads or 1)
    apply_product(config)
    dataset = open_dataset(request.dataset or run.dataset)
    checkpoint.check_dataset(folder.checkpoint, fingerprint_dataset(dataset))
    ids = _node_ids(request.nodes, dataset)
    network = build_network(config, dataset.num_features, dataset.num_classes)
    checkpoint.restore_model(folder.checkpoint, network.model, checkpoint.best)
    graph = WholeGraph.of(dataset, config)
    loader = evaluation_loader(config, graph, ids)

    correct = labelled = 0
    with _appearing_whole(request.out) as temporary:
        arrays: PredictionArrays | None = None
        for batch, output in infer(network, loader):
            if arrays is None:
                hidden = output.hidden.size(1) if request.embeddings else None
                arrays = PredictionArrays(temporary, ids, dataset.num_classes, hidden)
            arrays.add(output.logits, output.hidden)
            labels = graph.labels(network, batch)
            known = labels >= 0
            correct += count_correct(output.logits[known], labels[known])
            labelled += int(known.sum())
        assert arrays is not None, "there is at least one node"
        arrays.flush()
        accuracy = correct / labelled if labelled else None
        summary = PredictSummary(len(ids), checkpoint.progress.best_epoch, accuracy)
        meta = {
            "format": _FORMAT_VERSION,
            "run": str(request.run.resolve()),
            "epoch": summary.epoch,
            "dataset": {"name": dataset.name, **checkpoint.dataset},
            "nodes": request.nodes,
            "fanout": list(config.test_fanout),
            "seed": run.seed,
            "accuracy": accuracy,
            "arrays": arrays.described(),
        }
        write_json(temporary / "META.json", meta)
    return summary


def _config(config: TrainConfig, request: PredictRequest) -> TrainConfig:
    """The run's configuration with what the request changes."""
    changes = {"run.threads": request.threads, "model.layers": request.layers}
    if not config.evaluates_with_cache:  # nor is there need of one to predict
        none = {
            "sampling.cache": "off",
            "sampling.cache_folder": "none",
            "sampling.evaluate_with_cache": "none",
        }
        changes |= none
    return assign(config, [f"{name}={value}" for name, value in changes.items() if value is not None])


def _node_ids(nodes: str, dataset: Dataset) -> Tensor:
    """The int64 ids that `nodes` stands for."""
    named = {
        "all": lambda: torch.arange(dataset.num_nodes),
        "train": lambda: dataset.split("train"),
        "val": lambda: dataset.split("val"),
        "test": lambda: dataset.split("test"),
    }
    if nodes in named:
        ids = named[nodes]()
    else:
        path = Path(nodes)
        if not path.is_file():
            raise TrainError(f"--nodes {nodes}: no such file; give a .npy file, or {', '.join(named)}")
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise TrainError(f"{path}: not a .npy file: {error}") from None
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
            raise TrainError(f"{path}: must hold one row of whole numbers, the node ids")
        ids = torch.from_numpy(array.astype(np.int64))
        outside = (ids < 0) | (ids >= dataset.num_nodes)
        if bool(outside.any()):
            raise TrainError(f"{path}: node {int(ids[outside][0])} is not in 0..{dataset.num_nodes - 1}")
    if len(ids) == 0:
        raise TrainError(f"--nodes {nodes}: no nodes to predict")
    return ids.to(torch.int64)


@contextlib.contextmanager
def _appearing_whole(out: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `out` when the block ends without an error."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
