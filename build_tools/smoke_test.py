"""Trains for a moment with an installed wheel, on a machine without a compiler.

Run by ``make wheel`` in a fresh environment: ``python smoke_test.py``. The current folder must not
hold the package's source, or that would be imported instead.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

for compiler in ("cc", "c++", "gcc", "g++", "clang", "clang++"):
    if found := shutil.which(compiler):
        sys.exit(f"{found} is on the path: this test is for an environment without a compiler")

import torch  # noqa: E402
from torch_geometric.loader import NeighborLoader  # noqa: E402

import pyg_batchgnn  # noqa: E402
from pyg_batchgnn import MacrobatchNeighborLoader  # noqa: E402
from pyg_batchgnn.data import load_dataset  # noqa: E402
from pyg_batchgnn.nn import SAGE  # noqa: E402

package = Path(pyg_batchgnn.__file__).parent
if "site-packages" not in package.parts:
    sys.exit(f"{package} is not an installed package: run this outside the source tree")

data = load_dataset("generated:nodes=2000,seed=0").to_pyg()
loader = MacrobatchNeighborLoader(
    data, [10, 5], data.train_mask, batch_size=128, shuffle=True, seed=0, export="native"
)
assert isinstance(loader, NeighborLoader)
torch.manual_seed(0)
model = SAGE(data.num_features, 32, 2, int(data.y.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(3):
    for batch in loader:
        loss = torch.nn.functional.cross_entropy(model(batch), batch.attribute("y", batch.batch_size))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses

with tempfile.TemporaryDirectory() as folder:
    command = [Path(sys.executable).with_name("batchgnn"), "train", "generated:nodes=2000,seed=0"]
    command += ["--epochs", "1", "--run-folder", f"{folder}/run"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

print(f"{package}: torch {torch.__version__}, loss {losses[0]:.2f} -> {losses[-1]:.2f}: the wheel works")
