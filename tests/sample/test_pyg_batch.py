"""Native minibatches as PyG batches: `to_data` gives what the loader exports itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader
from pyg_batchgnn.data import NODES
from pyg_batchgnn.sample import AttributeRows, MacrobatchSampler, Minibatch, Placement, SamplingPlan
from pyg_batchgnn.store import graph_from_pyg
from tests.support import hetero_cases, loader_cases
from tests.support.hetero_cases import BOTH, CITES, WRITES, make_hetero, make_timed
from tests.support.loader_cases import assert_same, contents

#: Attributes that native minibatches do not carry.
UNCARRIED = [(None, "about"), ("lonely", "name")]
PAPERS = ("paper", torch.arange(0, 60, 2))


@pytest.mark.parametrize(
    "kwargs",
    [
        {"input_nodes": PAPERS},
        {"input_nodes": "author"},
        {"input_nodes": BOTH},
        {"input_nodes": BOTH, "disjoint": True},
        {"input_nodes": PAPERS, "time_attr": "time"},
        {"input_nodes": PAPERS, "time_attr": "stamp", "input_time": torch.arange(30) % 7},
        {"input_nodes": BOTH, "subgraph_type": "induced"},
        {"input_nodes": PAPERS, "subgraph_type": "induced", "time_attr": "time"},
    ],
)
def test_a_typed_minibatch(kwargs: dict[str, Any]) -> None:
    data = make_timed() if "time_attr" in kwargs else make_hetero()
    wanted = hetero_cases.make_loader(data, **kwargs)
    found = [one.to_data() for one in hetero_cases.make_loader(data, export="native", **kwargs)]
    assert type(found[0]) is HeteroData
    assert_same(found, wanted, ignore_keys(data))


def ignore_keys(data: Any) -> list[str]:
    return [name[1] for name in contents(data) if name in UNCARRIED]


NEGATIVES = [None, "binary", ("binary", 0.5), ("triplet", 1), ("triplet", 3)]


@pytest.mark.filterwarnings("ignore:edge_label of")
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize("typed", [False, True])
def test_a_minibatch_of_links(typed: bool, negatives: Any, disjoint: bool) -> None:
    data: Any = make_hetero() if typed else loader_cases.make_data()
    links = data[WRITES].edge_index if typed else data.edge_index
    index = links[:, ::5]
    labels = None if negatives and negatives[0] == "triplet" else torch.arange(index.size(1)) % 3
    kwargs = {"edge_label": labels, "neg_sampling": negatives, "disjoint": disjoint}
    check_links(data, (WRITES, index) if typed else index, **kwargs)


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_links_with_times(negatives: Any) -> None:
    data = make_timed()
    del data[CITES].stamp, data[WRITES].stamp
    index = data[CITES].edge_index[:, ::9]
    times = torch.full((index.size(1),), 9)
    check_links(data, (CITES, index), neg_sampling=negatives, time_attr="time", edge_label_time=times)


def test_links_of_several_relations() -> None:
    index: dict[Any, Any] = {WRITES: None, CITES: torch.randint(60, (2, 40))}
    check_links(make_hetero(), index, neg_sampling={WRITES: "binary", CITES: ("triplet", 2)})


def check_links(data: Any, index: Any, **kwargs: Any) -> None:
    def loader(export: Any) -> MacrobatchLinkNeighborLoader:
        return MacrobatchLinkNeighborLoader(
            data, [3, 2], index, batch_size=16, seed=3, export=export, shuffle=True, **kwargs
        )

    found = [minibatch.to_data() for minibatch in loader("native")]
    assert_same(found, loader("pyg"), ignore_keys(data))


def sampled(plan: SamplingPlan) -> tuple[Data, Minibatch]:
    data = loader_cases.make_data()
    (minibatch,) = MacrobatchSampler(graph_from_pyg(data), plan).sample([torch.arange(5)], epoch=0)
    return data, Minibatch.in_place(minibatch, {"x": data.x})


def test_a_minibatch_that_no_loader_made() -> None:
    data, minibatch = sampled(SamplingPlan([3, 2]))
    batch = minibatch.to_data()
    assert batch.batch_size == 5 and "input_id" not in batch
    assert torch.equal(batch.x, data.x[batch.n_id])


def test_an_attribute_with_a_wrong_number_of_rows() -> None:
    _, minibatch = sampled(SamplingPlan([3, 2]))
    rows = AttributeRows({"x": torch.ones(3, 1)}, None, Placement.MINIBATCH)
    with pytest.raises(ValueError, match=f"'x' has 3 rows, but the minibatch has {minibatch.num_nodes}"):
        Minibatch.of(minibatch, {NODES: rows}).to_data()
