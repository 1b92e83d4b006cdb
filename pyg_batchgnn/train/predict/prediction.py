"""Predictions and embeddings of nodes from a run's best weights, as ``batchgnn predict`` makes
them."""

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
from pyg_batchgnn.train.config import RanksConfig, TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import WholeGraph, evaluation_loader, fingerprint_dataset
from pyg_batchgnn.train.loop import infer
from pyg_batchgnn.train.malloc import configure_malloc
from pyg_batchgnn.train.model import apply_product, build_network
from pyg_batchgnn.train.predict.arrays import PredictionArrays
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run import open_dataset
from pyg_batchgnn.train.run_folder import Checkpoint, RunFolder, write_json
from pyg_batchgnn.train.task import Scoring, task_of

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class PredictRequest:
    """A request for predictions.

    Attributes:
        run: the folder of a run.
        out: the folder to write, which must not exist.
        nodes: "all", "train", "val", "test" or the path of a .npy file of node ids.
        embeddings: True to write the last hidden layer as well.
        dataset: the name or path of the data set if it has moved since the run.
        threads: number of threads; None means that of the run.
        layers: "native" or "pyg"; None means those of the run. Both read the same weights.
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
    """A summary of predictions.

    Attributes:
        nodes: the number of nodes.
        epoch: of the weights, counted from 1.
        scores: the loss and the metrics on nodes with a label; None if there are none.
    """

    nodes: int
    epoch: int
    scores: dict[str, float] | None


def predict_nodes(request: PredictRequest) -> PredictSummary:
    """Writes predictions to a new folder, which appears when it is complete.

    Raises:
        TrainError: the run folder, the request or the data set cannot be used.
        DatasetError: the data set cannot be read.
    """
    folder = RunFolder.open(request.run)
    checkpoint = Checkpoint.load(folder.checkpoint)
    if not checkpoint.best:
        raise TrainError(
            f"{request.run}: no epoch is finished, so there is no model yet; train at least one epoch"
        )
    if request.out.exists():
        raise TrainError(f"{request.out} exists; give a new folder with --out")
    config = _config(checkpoint.config, request)
    run = config.run
    configure_malloc(run.malloc)
    torch.set_num_threads(run.threads or 1)
    apply_product(config)
    dataset = open_dataset(request.dataset or run.dataset)
    checkpoint.check_dataset(folder.checkpoint, fingerprint_dataset(dataset))
    ids, task = _node_ids(request.nodes, dataset), task_of(dataset, config.task)
    network = build_network(config, dataset.num_features, task.columns)
    checkpoint.restore_model(folder.checkpoint, network.model, checkpoint.best)
    graph = WholeGraph.of(dataset, config)
    loader = evaluation_loader(config, graph, ids)

    score = Scoring(task)
    with _appearing_whole(request.out) as temporary:
        arrays = PredictionArrays(temporary, ids)
        for batch, output in infer(network, loader):
            embeddings = {"embeddings": output.hidden.float()} if request.embeddings else {}
            arrays.add({**task.predictions(output.logits), **embeddings})
            score.add(output.logits, graph.labels(network, batch))
        arrays.flush()
        with Ranks.join(RanksConfig()) as ranks:
            result = score.result(ranks)
        scores = None if result is None else result.to_dict()
        summary = PredictSummary(len(ids), checkpoint.progress.best_epoch, scores)
        meta = {
            "format": _FORMAT_VERSION,
            "run": str(request.run.resolve()),
            "epoch": summary.epoch,
            "dataset": {"name": dataset.name, **checkpoint.dataset},
            "nodes": request.nodes,
            "fanout": list(config.test_fanout),
            "seed": run.seed,
            "scores": scores,
            "arrays": arrays.described(),
        }
        write_json(temporary / "META.json", meta)
    return summary


def _config(config: TrainConfig, request: PredictRequest) -> TrainConfig:
    """Returns the run's configuration with the changes of the request."""
    changes = {"run.threads": request.threads, "model.layers": request.layers}
    if not config.evaluates_with_cache:  # then prediction needs no cache either
        none = {
            "sampling.cache": "off",
            "sampling.cache_folder": "none",
            "sampling.evaluate_with_cache": "none",
        }
        changes |= none
    return assign(config, [f"{name}={value}" for name, value in changes.items() if value is not None])


def _node_ids(nodes: str, dataset: Dataset) -> Tensor:
    """Returns the int64 node ids that `nodes` stands for."""
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
            raise TrainError(f"{path}: must hold a one-dimensional array of integers, the node ids")
        ids = torch.from_numpy(array.astype(np.int64))
        outside = (ids < 0) | (ids >= dataset.num_nodes)
        if bool(outside.any()):
            raise TrainError(f"{path}: node {int(ids[outside][0])} is not in 0..{dataset.num_nodes - 1}")
    if len(ids) == 0:
        raise TrainError(f"--nodes {nodes}: no nodes to predict")
    return ids.to(torch.int64)


@contextlib.contextmanager
def _appearing_whole(out: Path) -> Iterator[Path]:
    """Gives a temporary folder, which becomes `out` if the block ends without an error."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
