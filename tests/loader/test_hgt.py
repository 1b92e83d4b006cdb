"""Loading by budgets: the batches that PyG's `HGTLoader` makes, and our promises."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import HGTLoader, NodeLoader

from pyg_batchgnn import MacrobatchHGTLoader, PygHGTSampler, nn
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support.hetero_cases import BOTH, COUNTS, as_hetero, make_hetero
from tests.support.layer_cases import gradients
from tests.support.loader_cases import assert_same, make_data


def make_hgt(data: Any = None, samples: Any = (6, 5), **kwargs: Any) -> MacrobatchHGTLoader:
    chosen = {"batch_size": 8, "seed": 7, "macrobatch_size": 3, **kwargs}
    data = make_hetero() if data is None else data
    if not isinstance(data, Data):
        chosen.setdefault("input_nodes", "paper")
    return MacrobatchHGTLoader(data, samples, **chosen)


def test_it_is_one_of_pygs_loaders() -> None:
    samples = {name: [6, 5] for name in COUNTS}
    assert isinstance(make_hgt(), HGTLoader)
    assert str(make_hgt()) == f"MacrobatchHGTLoader(60 seeds, num_samples={samples}, batch_size=8)"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_homogeneous_graph_is_one_type(dtype: torch.dtype) -> None:
    data = make_data()
    data.edge_index = data.edge_index.to(dtype)
    batches = list(make_hgt(data))
    typed = make_hgt(as_hetero(data), input_nodes="thing")
    for one, other in zip(batches, typed, strict=True):
        assert "num_sampled_nodes" not in one and "batch" not in one and one.edge_index.dtype is dtype
        assert torch.equal(one.n_id, other["thing"].n_id)
        assert torch.equal(one.e_id, other["thing", "knows", "thing"].e_id)
        assert torch.equal(one.x, data.x[one.n_id]) and one.batch_size == one.input_id.numel()


#: Attributes that native minibatches do not carry.
UNCARRIED = ("about", "name")


def with_features(data: HeteroData, width: int = 5) -> HeteroData:
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, width, generator=torch.Generator().manual_seed(count))
    data["paper", "liked by", "lonely"].edge_index = data["lonely", "likes", "paper"].edge_index.flip(0)
    return data


@pytest.mark.parametrize("input_nodes", ["paper", BOTH, ("paper", torch.tensor([5, 9, 5, 5]))])
def test_a_native_minibatch_is_the_batch_of_pyg(input_nodes: Any) -> None:
    native = make_hgt(export="native", input_nodes=input_nodes, fetch_size=2)
    assert_same([one.to_data() for one in native], make_hgt(input_nodes=input_nodes), UNCARRIED)
    plain = make_data()
    assert_same([one.to_data() for one in make_hgt(plain, export="native")], make_hgt(plain))


def assert_near(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (nn.SAGE, pyg.GraphSAGE, {"norm": "batch_norm"}),
        (nn.GAT, pyg.GAT, {"heads": 2, "add_self_loops": False}),
        (nn.GIN, pyg.GIN, {}),
    ],
)
def test_typed_models_compute_what_pygs_do(ours: Any, theirs: Any, options: Any, layers: int) -> None:
    data = with_features(make_hetero())
    metadata = data.metadata()
    torch.manual_seed(0)
    native = nn.to_hetero(ours(5, 8, layers, 4, **options), metadata)
    reference = pyg.to_hetero(theirs(5, 8, layers, 4, **options), metadata)
    reference.load_state_dict(native.state_dict())
    minibatch, batch = next(iter(make_hgt(data, export="native"))), next(iter(make_hgt(data)))
    found = native(minibatch)["paper"]
    wanted = reference(batch.x_dict, batch.edge_index_dict)["paper"][: batch["paper"].batch_size]
    assert_near([found], [wanted])
    assert_near(gradients(native, found), gradients(reference, wanted))


def test_sizes_threads_prefetching_and_workers_do_not_matter() -> None:
    expected = list(make_hgt(shuffle=True))
    assert len(expected) == 8
    for chosen in (
        {"macrobatch_size": 1, "threads": 1},
        {"macrobatch_size": "all", "threads": 3, "prefetch": 2},
        {"macrobatch_size": "auto", "memory_budget": "64MiB"},
        {"num_workers": 2, "macrobatch_size": 2},
        {"num_workers": 2, "filter_per_worker": True},
    ):
        assert_same(make_hgt(shuffle=True, **chosen), expected)
    for chosen in (
        {"macrobatch_size": 2, "threads": 3, "features": "in_place"},
        {"macrobatch_size": "all", "fetch_size": 2, "features": "copy", "prefetch": 2},
        {"num_workers": 2, "fetch_size": 1},
    ):
        native = make_hgt(shuffle=True, export="native", **chosen)
        assert_same([one.to_data() for one in native], expected, UNCARRIED)
    calls = make_hgt(shuffle=True)
    assert_same([calls(batch["paper"].input_id) for batch in expected], expected)


def test_epochs_differ_and_a_loader_resumes_inside_one() -> None:
    loader = make_hgt(shuffle=True)
    first, second = list(loader), list(loader)
    assert not torch.equal(first[0]["paper"].n_id, second[0]["paper"].n_id)
    list(itertools.islice(stopped := make_hgt(shuffle=True), 3))
    state = json.loads(json.dumps(stopped.state_dict()))
    other = make_hgt(shuffle=True, seed=99, threads=2)
    other.load_state_dict(state)
    assert_same(other, first[3:])
    native = make_hgt(shuffle=True, export="native", prefetch=1)
    native.load_state_dict(state)
    assert_same([one.to_data() for one in native], first[3:], UNCARRIED)
    for changed in ({"samples": (6, 6)}, {"neighbor_cap": 3}):
        with pytest.raises(ValueError, match=r"num_samples|neighbor_cap"):
            make_hgt(shuffle=True, **changed).load_state_dict(state)


def test_a_sampler_serves_pygs_own_loader() -> None:
    data = make_hetero()
    sampler = PygHGTSampler(data, [6, 5], seed=7)
    theirs = NodeLoader(data, sampler, input_nodes="paper", batch_size=8)
    assert_same(theirs, make_hgt(data))
    sampler.epoch = 1
    assert not torch.equal(next(iter(theirs))["paper"].n_id, next(iter(make_hgt(data)))["paper"].n_id)
    plain = make_data()
    ours = NodeLoader(plain, PygHGTSampler(plain, [6, 5], seed=7), input_nodes=None, batch_size=8)
    assert_same(ours, make_hgt(plain))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"samples": {"paper": [3]}}, ValueError, "num_samples lacks the node type"),
        ({"samples": 5}, TypeError, "num_samples must be a list"),
        ({"input_nodes": "pape"}, ValueError, "names the node type 'pape'"),
        ({"input_nodes": ("paper", torch.tensor([60]))}, IndexError, "60"),
        ({"neighbor_cap": -1}, ValueError, "neighbor_cap must be from 1"),
        ({"prefetch": 1, "num_workers": 1}, ValueError, "prefetch_factor"),
    ],
)
def test_arguments_that_cannot_be(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make_hgt(**arguments)


def test_graphs_over_ranks_and_links_are_refused() -> None:
    stores = object.__new__(DistFeatureStore), object.__new__(DistGraphStore)
    with pytest.raises(NotImplementedError, match="HGT sampling over ranks is not supported yet"):
        MacrobatchHGTLoader(stores, [3])
    with pytest.raises(NotImplementedError, match="not with links"):
        PygHGTSampler(make_hetero(), [3]).sample_from_edges()
