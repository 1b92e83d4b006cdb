"""Stops a loader in the middle of an epoch and hands out exactly the minibatches that were left.

    python examples/resume_mid_epoch.py

``batchgnn train --resume`` does the same, with model and optimizer.
"""

from __future__ import annotations

import json

import torch
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.data import load_dataset

STOP_AFTER = 5


def make_loader(data: Data) -> MacrobatchNeighborLoader:
    """Returns a new loader. The same arguments give the same minibatches."""
    return MacrobatchNeighborLoader(
        data, [10, 5], input_nodes=data.train_mask, batch_size=512, shuffle=True, seed=1
    )


def main() -> None:
    """Runs one epoch in two halves and in one go, and compares every minibatch."""
    data = load_dataset("generated:nodes=10000,seed=1").to_pyg()
    whole = [batch.n_id for batch in make_loader(data)]

    first = make_loader(data)
    seen = []
    for batch in first:
        seen.append(batch.n_id)
        if len(seen) == STOP_AFTER:
            break
    saved = json.dumps(first.state_dict())  # plain JSON: keep it with your checkpoint
    print(f"stopped after {len(seen)} of {len(first)} minibatches, state of {len(saved)} bytes")

    second = make_loader(data)  # as a new process would
    second.load_state_dict(json.loads(saved))
    seen += [batch.n_id for batch in second]

    same = all(torch.equal(a, b) for a, b in zip(whole, seen, strict=True))
    print(f"{len(seen)} minibatches in two halves, {len(whole)} in one go, equal to the last id: {same}")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
