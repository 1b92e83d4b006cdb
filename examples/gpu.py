"""A training script of PyG's for a GPU: four lines differ, marked by numbers.

    python examples/gpu.py

Without a GPU it takes the CPU for a device, which goes the same way.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

from pyg_batchgnn import MacrobatchNeighborLoader as NeighborLoader  # 1: instead of PyG's
from pyg_batchgnn.data import default_dataset

EPOCHS = 5


def main() -> None:
    """Trains GraphSAGE and prints a line per epoch, and where rows were read from."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = default_dataset()
    data = dataset.to_pyg()
    loader = NeighborLoader(
        data,
        [15, 10],
        input_nodes=data.train_mask,
        batch_size=512,
        shuffle=True,
        device=device,  # 2: instead of num_workers and pin_memory
        feature_placement="host",  # 3: the GPU reads rows over the bus; "auto" puts them there if they fit
        device_cache="16MiB",  # 4: those that are needed most stay on it
    )
    model = GraphSAGE(dataset.num_features, 64, num_layers=2, out_channels=dataset.num_classes).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(1, EPOCHS + 1):
        total = torch.zeros((), device=device)  # looked at once an epoch: nothing waits for the GPU
        for batch in loader:
            optimiser.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimiser.step()
            total += loss.detach()
        print(f"epoch {epoch}  loss {float(total) / len(loader):.4f}")
    counts = loader.stats().total
    print(f"rows over the bus {counts.rows_over_bus}, from the cache {counts.rows_from_device_cache}")


if __name__ == "__main__":
    main()
