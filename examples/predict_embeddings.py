"""Trains, writes embeddings of all nodes, and finds the nodes that are most similar to one.

    python examples/predict_embeddings.py

The same from the command line: ``batchgnn train DATASET --run RUN``, then
``batchgnn predict RUN --embeddings --out OUT``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from pyg_batchgnn.data import default_dataset
from pyg_batchgnn.train import (
    PredictRequest,
    RestoreRequest,
    assign,
    predict_nodes,
    preset,
    start_run,
)

SETTINGS = [
    "model.num_layers=2",
    "model.hidden=64",
    "sampling.fanout=15,10",
    "sampling.batch_size=256",
    "run.epochs=5",
]


def most_similar(embeddings: np.ndarray, node: int, count: int) -> np.ndarray:
    """Returns the `count` nodes with the largest cosine of embeddings [N, F] to that of `node`."""
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    cosine = unit @ unit[node]
    cosine[node] = -np.inf
    return np.argsort(-cosine)[:count]


def main() -> None:
    """Trains on the default data set and prints how often similar nodes share a class."""
    labels = default_dataset().nodes.tables["y"].numpy()
    with tempfile.TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "predictions"
        start_run(assign(preset("batchgnn"), SETTINGS), run, Console())
        restore = RestoreRequest(run)
        with restore.join() as ranks:
            summary = predict_nodes(PredictRequest(restore, out, nodes="all", embeddings=True), ranks)
        embeddings = np.load(out / "embeddings.npy")
    scores = ", ".join(f"{name} {score:.4f}" for name, score in (summary.scores or {}).items())
    print(f"{summary.nodes:,} embeddings of {embeddings.shape[1]} columns, {scores}")
    print(f"most similar to node 0: {most_similar(embeddings, 0, 10).tolist()}")
    shared = [np.mean(labels[most_similar(embeddings, node, 10)] == labels[node]) for node in range(100)]
    print(f"of the 10 most similar nodes, {np.mean(shared):.0%} have the same class (first 100 nodes)")


if __name__ == "__main__":
    main()
