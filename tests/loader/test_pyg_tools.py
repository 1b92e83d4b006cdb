"""PyG's models, loaders and data classes work with our batches."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.utils import to_torch_csr_tensor, trim_to_layer

from pyg_batchgnn import MacrobatchNeighborLoader
from tests.support.hetero_cases import CITES, REV_WRITES, WRITES, edges_of
from tests.support.tiers import in_all

COUNTS = {"paper": 50, "author": 30}
NUMBERS = {CITES: 150, WRITES: 90, REV_WRITES: 90}


@pytest.fixture(scope="module")
def typed() -> HeteroData:
    data, draw = HeteroData(), torch.Generator().manual_seed(5)
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, 6, generator=draw, dtype=torch.float64)
    data["paper"].train_mask = torch.rand(COUNTS["paper"], generator=draw) < 0.1
    for place, (relation, number) in enumerate(NUMBERS.items()):
        data[relation].edge_index = edges_of(COUNTS, relation, number, place)
    return data


def papers(data: HeteroData, fanouts: list[int], **kwargs: Any) -> MacrobatchNeighborLoader:
    return MacrobatchNeighborLoader(data, fanouts, "paper", batch_size=16, seed=3, **kwargs)


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(
            HeteroConv({name: SAGEConv((6, 6), 6) for name in NUMBERS}) for _ in range(2)
        ).double()

    def forward(self, batch: HeteroData, trims: bool = False) -> Tensor:
        x, edges = batch.x_dict, batch.edge_index_dict
        for number, layer in enumerate(self.layers):
            if trims:
                sizes = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
                x, edges, _ = trim_to_layer(number, *sizes, x, edges)
            x = {name: rows.tanh() for name, rows in layer(x, edges).items()}
        return x["paper"]


def test_convolutions_by_relation_on_all_neighbours_are_the_whole_graph(typed: HeteroData) -> None:
    model = Convolutions()
    with torch.no_grad():
        whole = model(typed)
        for batch in papers(typed, [-1, -1]):
            out = model(batch)[: batch["paper"].batch_size]
            torch.testing.assert_close(out, whole[batch["paper"].input_id])


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}])
def test_trimming_by_type_keeps_the_outputs_of_seeds(typed: HeteroData, options: dict[str, Any]) -> None:
    model = Convolutions()
    with torch.no_grad():
        for batch in papers(typed, [3, 2], **options):
            seeds = batch["paper"].batch_size
            torch.testing.assert_close(model(batch, trims=True)[:seeds], model(batch)[:seeds])


def test_a_typed_adj_t_instead_of_edges(typed: HeteroData) -> None:
    data = HeteroData()
    for name in COUNTS:
        data[name].x = typed[name].x.float()  # torch's sparse product is for float32
    for relation in NUMBERS:
        source, _, target = relation
        edges = typed[relation].edge_index.unique(dim=1)
        data[relation].adj_t = to_torch_csr_tensor(edges.flip(0), size=(COUNTS[target], COUNTS[source]))
    model = Convolutions().float()
    with torch.no_grad():
        x, edges = data.x_dict, data.adj_t_dict
        whole = model.layers[0](x, edges)["paper"]
        for batch in papers(data, [-1]):
            out = model.layers[0](batch.x_dict, batch.adj_t_dict)["paper"][: batch["paper"].batch_size]
            torch.testing.assert_close(out, whole[batch["paper"].input_id])


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "score", "least"),
    [
        ("typed_graph.py", "test accuracy", 0.8),
        ("link_prediction.py", "test ROC-AUC", 0.75),
        *in_all(("tokens.py", "test accuracy", 0.8)),
    ],
)
def test_an_example(script: str, score: str, least: float, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    lines = [line for line in capsys.readouterr().out.splitlines() if ", 0 later than" not in line]
    form = rf"epoch \d  loss (\d\.\d{{4}})  {score} (\d\.\d{{4}})"
    losses, scores = zip(*(re.fullmatch(form, line).groups() for line in lines), strict=True)
    assert len(lines) == 4 and float(losses[-1]) < float(losses[0])
    assert float(scores[-1]) > max(least, float(scores[0]))
