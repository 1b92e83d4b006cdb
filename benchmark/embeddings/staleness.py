"""The effect of stale rows on accuracy: GraphSAGE on learned rows alone."""

from __future__ import annotations

import statistics
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.embed import Embedding, EmbeddingOptimizer, SparseAdam
from pyg_batchgnn.nn import SAGE

COLUMNS, HIDDEN, BATCH = 32, 64, 128
DATASET = "generated:nodes=5000,seed=0"


def accuracies(stale_steps: list[int], seeds: int, epochs: int) -> dict[str, Any]:
    """Returns the test accuracy of each seed, by the number of steps that rows may be stale."""
    data = load_dataset(DATASET).to_pyg()
    by_steps = {
        str(steps): [trained(data, steps, seed, epochs) for seed in range(seeds)] for steps in stale_steps
    }
    return {"dataset": DATASET, "epochs": epochs, "accuracy": by_steps}


def trained(data: Data, stale_steps: int, seed: int, epochs: int) -> float:
    """Trains, and returns the share of the test nodes that are classified correctly."""
    torch.manual_seed(seed)
    embedding = Embedding(data, COLUMNS, seed=seed, stale_steps=stale_steps)
    model = SAGE(COLUMNS, HIDDEN, 2, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rows_optimizer = EmbeddingOptimizer(embedding, SparseAdam(lr=0.02))
    options: dict[str, Any] = {"batch_size": BATCH, "seed": seed, "export": "native", "embedding": embedding}
    loader = MacrobatchNeighborLoader(data, [10, 5], data.train_mask, shuffle=True, **options)
    for _ in range(epochs):
        for batch in loader:
            loss = F.cross_entropy(model(batch, x=embedding(batch)["node"]), batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            rows_optimizer.step()
            optimizer.step()
    correct = total = 0
    with torch.no_grad():
        for batch in MacrobatchNeighborLoader(data, [10, 5], data.test_mask, **options):
            y = batch.y[: batch.batch_size]
            correct += int((model(batch, x=embedding(batch)["node"]).argmax(dim=1) == y).sum())
            total += len(y)
    return correct / total


def table(result: dict[str, Any]) -> str:
    """Returns the mean accuracy and its spread for each number of steps."""
    lines = [
        f"`{result['dataset']}`, features left out, {result['epochs']} epochs:",
        "",
        "| `stale_steps` | test accuracy, mean of the seeds | standard deviation |",
        "| ---: | ---: | ---: |",
    ]
    for steps, found in result["accuracy"].items():
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        lines.append(f"| {steps} | {statistics.mean(found):.4f} | {spread:.4f} |")
    return "\n".join(lines)
