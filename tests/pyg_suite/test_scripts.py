"""PyG's benchmark scripts run with one changed import, and their output is read."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.transforms import ToUndirected

from benchmark.pyg_scripts import stand_ins
from benchmark.pyg_scripts.measure import (
    CASES,
    Case,
    Figure,
    Side,
    figures,
    missing,
    pyg_checkout,
    run,
    table,
)
from pyg_batchgnn import MacrobatchLinkNeighborLoader

#: The shortest run of each script, and the number of figures that it prints.
SHORT = {
    "loader": (("--datasets", "arxiv", "mag", "--runs", "1", "--hetero-neighbor_sizes", "[[3]]"), 5),
    "training, --trim": (("--datasets", "Reddit", "--models", "sage"), 1),
    "inference": (("--datasets", "ogbn-mag", "--models", "rgcn"), 1),
    "2 ranks, gloo, sage": ((), 1),
}


@pytest.mark.skipif(pyg_checkout() is None, reason=missing())
@pytest.mark.parametrize("name", SHORT)
def test_a_script(name: str) -> None:
    case: Case = next(one for one in CASES if one.name == name)
    arguments, count = SHORT[name]
    backend = ["--backend", case.backend] if case.backend else []
    script = [f"{pyg_checkout()}/{case.script}", *case.arguments, *arguments]
    printed = run(Side.OURS, ["--scale", "0.002", *backend, *script], ranks=2 if case.backend else 0)
    assert len(list(figures(printed))) == count, printed


def test_figures_of_the_loader_script() -> None:
    printed = """Dataset: mag
Training sampling with [10, 5] neighbors
batch size=8, iterations=3, runtimes=[0.2, 0.1, 0.1], average runtime=0.133
Evaluation sampling with all neighbors
batch size=16, iterations=3, runtimes=[1.0], average runtime=1.0
Dataset: arxiv
Training sampling with [5] neighbors
batch size=8, iterations=3, runtimes=[0.3], average runtime=0.3
"""
    assert list(figures(printed)) == [
        Figure("mag, fanout [10, 5], batch 8", 0.133, is_rate=False),
        Figure("mag, all neighbours, batch 16", 1.0, is_rate=False),
        Figure("arxiv, fanout [5], batch 8", 0.3, is_rate=False),
    ]


def test_figures_of_the_training_script() -> None:
    printed = """Dataset: Reddit
Training bench for gcn:
Batch size=512, Layers amount=2, Num_neighbors=[10, 10], Hidden features size=64
Throughput: 1000.5 samples/s
Training bench for gat:
Batch size=512, Layers amount=3, Num_neighbors=[10, 10, 10], Hidden features size=64
Throughput: 500 samples/s
"""
    assert list(figures(printed)) == [
        Figure("Reddit, gcn, batch 512, 2 layers", 1000.5, is_rate=True),
        Figure("Reddit, gat, batch 512, 3 layers", 500.0, is_rate=True),
    ]


def test_the_table() -> None:
    rows = [
        {"what": "slow", "is_rate": False, "pyg": 2.0, "ours": 0.5},
        {"what": "alone", "is_rate": False, "ours": 0.5},
    ]
    example = {"name": "reddit", "batches": 3, "losses": [3.0, 2.0, 1.0], "different": 0}
    result = {
        "options": {"scale": 0.01, "threads": 1, "rounds": 2},
        "absent": {"pyg": "PyG's loader"},
        "runs": {
            "loader": {"group": "loader", "rows": rows, "errors": {"pyg": "boom"}, "busy": True},
            "examples": {"group": "examples", "rows": [example, {"name": "x", "error": "boom"}]},
        },
    }
    text = table(result)
    assert "| slow | 2 | 0.5 | 4.0x |" in text and "| alone | - | 0.5 | - |" in text
    assert "Not measured: PyG's loader." in text and "pyg failed: boom" in text
    assert "**loader (while the machine did other work)**" in text and "**examples**" in text
    assert "| reddit | 3 | all | 3.000 to 1.000 |" in text and "| x | - | - | failed: boom |" in text


def test_links_one_before_their_edges_over_the_stand_in_of_movielens() -> None:
    """In PyG's ``examples/hetero/recommender_system.py`` first links are before all nodes."""
    data = stand_ins.movies(0.02)
    rates = data["user", "rates", "movie"]
    high = rates.edge_label > 3
    rates.edge_index, rates.time, rates.edge_label = (
        rates.edge_index[:, high],
        rates.time[high],
        rates.edge_label[high],
    )
    assert [end.unique().numel() for end in rates.edge_index] == list(rates.size())
    data["user"].x = torch.eye(data["user"].num_nodes)
    data = ToUndirected()(data)
    with pytest.warns(UserWarning, match="1 of .* links are earlier than every node"):
        loader = MacrobatchLinkNeighborLoader(
            data,
            [5, 5],
            edge_label_index=(("user", "rates", "movie"), rates.edge_index),
            neg_sampling={"mode": "binary", "amount": 2},
            edge_label_time=rates.time - 1,
            time_attr="time",
            temporal_strategy="last",
            batch_size=512,
            seed=0,
        )
    batches = list(loader)
    assert sum(batch["user", "movie"].input_id.numel() for batch in batches) == rates.time.numel()
    assert loader.stats().total.late_negatives == 2


def test_stand_ins_have_the_schema_of_the_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stand_ins.SCALE, "0.0005")
    reddit = stand_ins.Reddit("nowhere")
    assert reddit[0].x.shape == (len(reddit[0].y), 602) and reddit.num_classes == 41
    assert reddit[0].is_undirected() and int(reddit[0].train_mask.sum()) > 0
    products = stand_ins.PygNodePropPredDataset("ogbn-products")
    assert products[0].y.shape == (products[0].num_nodes, 1)
    splits = products.get_idx_split()
    assert sum(map(len, splits.values())) == products[0].num_nodes and set(splits) == {
        "train",
        "valid",
        "test",
    }
    mag, embedded = stand_ins.OgbMag("nowhere")[0], stand_ins.OgbMag("nowhere", "metapath2vec")[0]
    assert len(mag.edge_types) == 4 and "x" not in mag["author"] and mag["author"].num_nodes > 0
    assert all(embedded[name].x.size(1) == 128 for name in embedded.node_types)
    rates = stand_ins.MovieLens("nowhere")[0]["user", "rates", "movie"]
    assert rates.edge_label.dtype == rates.time.dtype == rates.edge_index.dtype
    assert len(stand_ins.PPI("nowhere")) == 3 and stand_ins.PPI("nowhere", "val")[0].y.size(1) == 121
    with pytest.raises(ValueError, match="no stand-in for 'ogbn-proteins'"):
        stand_ins.PygNodePropPredDataset("ogbn-proteins")
