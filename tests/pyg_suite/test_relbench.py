"""RelBench's own model, in an environment with relbench and pytorch-frame: as PyG computes it.

``RELBENCH_PYTHON`` names the interpreter of that environment, which needs ``pip install relbench
pytorch-frame pandas`` beside what this package needs. It runs this file.
"""

from __future__ import annotations

import copy
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.tiers import all_only

ROOT, PYTHON = Path(__file__).parents[2], os.environ.get("RELBENCH_PYTHON")


def train() -> None:
    """Trains RelBench's model of `examples/relational_step.py` beside an accelerated copy for 20
    steps, and prints how far losses and gradients are apart, in parts of the largest. One table's
    frame comes from a Parquet file."""
    import pandas as pd
    import relational_step as example
    import torch
    from torch_frame import stype
    from torch_frame.data import Dataset

    from pyg_batchgnn import MacrobatchNeighborLoader, accelerate
    from pyg_batchgnn.port import encoded_rows

    tables = {name: one._replace(rows=max(40, one.rows // 40)) for name, one in example.F1.items()}
    graph, statistics = example.make_graph(tables)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drivers.parquet"
        rows = tables["drivers"].rows
        columns = {"points": torch.randn(rows).tolist(), "team": [f"t{one % 7}" for one in range(rows)]}
        pd.DataFrame(columns).to_parquet(path)
        kinds = {"points": stype.numerical, "team": stype.categorical}
        read = Dataset(pd.read_parquet(path), kinds).materialize()
    graph["drivers"].tf, statistics["drivers"] = read.tensor_frame, read.col_stats
    for store in graph.node_stores:
        for kind, values in store.tf.feat_dict.items():
            store.tf.feat_dict[kind] = values.double() if values.is_floating_point() else values
    seeds = torch.randint(rows, (20 * 64,))
    loader = MacrobatchNeighborLoader(
        graph, [16, 8], ("drivers", seeds), input_time=torch.full((len(seeds),), 3000 * example.DAY),
        time_attr="time", batch_size=64, seed=0,
    )  # fmt: skip
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    plain = example.Model(graph, statistics, dropout=0.0).double()
    ours = accelerate(copy.deepcopy(plain))
    both = [(one, torch.optim.SGD(one.parameters(), lr=1e-2)) for one in (plain, ours)]
    far = 0.0
    for batch in loader:
        losses = [example.step(*one, batch, "drivers")[1] for one in both]
        grads = [
            torch.cat([p.grad.flatten() for p in one.parameters() if p.grad is not None]) for one, _ in both
        ]
        for wanted, found in (losses, grads):
            wanted, found = map(torch.as_tensor, (wanted, found))
            far = max(far, float((wanted - found).abs().max() / wanted.abs().max()))
        rows = encoded_rows(ours)
        assert all(rows[name][1] == batch[name].n_id.unique().numel() for name in rows), rows
    print(far)


@all_only
@pytest.mark.skipif(not PYTHON, reason="RELBENCH_PYTHON names no interpreter with relbench")
def test_losses_and_gradients_of_relbenchs_model() -> None:
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "examples")))}
    run = subprocess.run(
        [str(PYTHON), __file__], env=os.environ | paths, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 1e-10


if __name__ == "__main__":
    train()
