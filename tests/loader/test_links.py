"""Loading around links: the batches that PyG's `LinkNeighborLoader` makes, and keyed negatives."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import MacrobatchLinkNeighborLoader
from pyg_batchgnn.data import HOMOGENEOUS
from pyg_batchgnn.sample import Links, links_key
from tests.support.loader_cases import EDGES, NODES, assert_same, equal, make_data
from tests.support.memory_stores import stores_of
from tests.support.reference_negatives import ReferenceNegatives, ReferencePool, reference_negative_key

NAME = HOMOGENEOUS.relations[0]
LINKS = torch.randint(NODES, (2, 203), generator=torch.Generator().manual_seed(9))
LABELS = torch.arange(203) % 3


def make_links(data: Any = None, **kwargs: Any) -> MacrobatchLinkNeighborLoader:
    chosen = {"batch_size": 20, "seed": 7, "macrobatch_size": 3, "fetch_size": 2, **kwargs}
    chosen.setdefault("edge_label_index", LINKS)
    return MacrobatchLinkNeighborLoader(make_data() if data is None else data, [4, 3], **chosen)


def pairs(index: Tensor) -> list[tuple[int, int]]:
    return [(int(source), int(target)) for source, target in index.t()]


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("amount", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("avoid", [False, True])
def test_links_and_negatives_equal_the_reference(mode: str, amount: int, weighted: bool, avoid: bool) -> None:
    data = make_data(30, 300)
    links = LINKS % 30
    weights = (torch.rand(30), torch.rand(30)) if weighted else (None, None)
    negatives = NegativeSampling(mode, amount, *weights)
    loader = make_links(
        data, edge_label_index=links, neg_sampling=negatives, exclude_existing=avoid, shuffle=True
    )
    pools = [ReferencePool(30, None, None if one is None else one.double().tolist()) for one in weights]
    reference = ReferenceNegatives(amount, *pools, set(pairs(data.edge_index)) if avoid else None)
    for epoch in range(2):
        for batch in loader:
            given = links[:, batch.input_id]
            count = given.size(1)
            one = Links(NAME, given[0], given[1], batch.input_id)
            key = reference_negative_key(7, epoch, links_key(HOMOGENEOUS, [one]), None)
            if mode == "binary":
                expected = pairs(given) + reference.binary(pairs(given), None, key)
                assert pairs(batch.n_id[batch.edge_label_index]) == expected
                assert batch.edge_label.tolist() == [1.0] * count + [0.0] * (amount * count)
            else:
                assert torch.equal(batch.n_id[torch.stack([batch.src_index, batch.dst_pos_index])], given)
                found = batch.n_id[batch.dst_neg_index].view(count, -1).tolist()
                assert found == reference.triplet(pairs(given), None, key)
            seeds = batch.n_id[: batch.num_sampled_nodes[0]]
            assert torch.equal(seeds, seeds.unique())
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
            assert torch.equal(batch.x, data.x[batch.n_id])


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("rules", [{}, {"disjoint": True, "exclude_seed_edges": "reverse"}])
def test_negatives_that_are_given_are_triplets(export: str, rules: dict[str, Any]) -> None:
    """Drawn ones that are given back make the same minibatches, in any order of the links."""
    table = torch.empty(203, 3, dtype=torch.int64)
    for batch in make_links(neg_sampling=("triplet", 3)):
        table[batch.input_id] = batch.n_id[batch.dst_neg_index]
    drawn = make_links(neg_sampling=("triplet", 3), export=export, **rules)
    given = make_links(neg_sampling=table.int(), export=export, **rules)
    assert given.neg_sampling.is_triplet() and given.neg_sampling.amount == 3
    for one, other in zip(drawn, given, strict=True):
        if export == "native":
            assert torch.equal(one.links[0].negative, other.links[0].negative)
            assert torch.equal(one.node, other.node) and torch.equal(one.x, other.x)
        else:
            assert_same([one], [other])
    for batch in make_links(neg_sampling=table, input_id=torch.arange(203) + 5, shuffle=True, **rules):
        assert torch.equal(batch.n_id[batch.dst_neg_index], table[batch.input_id - 5])
    state = make_links(neg_sampling=table, shuffle=True).state_dict()
    with pytest.raises(ValueError, match="negatives"):
        make_links(neg_sampling=table.flip(0), shuffle=True).load_state_dict(state)


@pytest.mark.parametrize("rules", [{}, {"disjoint": True, "export": "native"}, {"num_workers": 1}])
def test_in_batch_negatives_come_with_what_their_loss_needs(rules: dict[str, Any]) -> None:
    index = torch.cat([LINKS[:, :90] % torch.tensor([[9], [30]]), LINKS[:, 90:]], dim=1)
    options = {"edge_label_index": index, "shuffle": True, **rules}
    both = make_links(neg_sampling="in-batch", **options), make_links(**options)
    for batch, plain in zip(*both, strict=True):
        assert torch.equal(batch.n_id, plain.n_id), "no negative is sampled"
        if "export" in rules:
            one = batch.links[0]
            ends, log_q, hits = one.index, one.log_q, one.hits
        else:
            assert torch.equal(batch.e_id, plain.e_id) and "edge_label" not in batch
            ends, log_q, hits = batch.edge_label_index, batch.edge_label_log_q, batch.edge_label_hits
        links = pairs(batch.n_id[ends])
        share = [sum(target == other for other in index[1].tolist()) / 203 for _, target in links]
        torch.testing.assert_close(log_q, torch.tensor(share).log())
        every = [(i, j) for i in range(len(links)) for j in range(len(links)) if i != j]
        assert sorted(pairs(hits)) == [(i, j) for i, j in every if (links[i][0], links[j][1]) in links]


def test_labels_move_up_if_the_lowest_is_zero() -> None:
    with pytest.warns(UserWarning, match="all labels of links move up by 1, as in PyG"):
        make_links(edge_label=LABELS, neg_sampling="binary")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_links(edge_label=LABELS + 1, neg_sampling="binary")
    half = LABELS * 0.5
    for labels, expected in ((LABELS, LABELS + 1), (LABELS + 1, LABELS + 1), (half, half + 1)):
        for batch in make_links(edge_label=labels, neg_sampling="binary"):
            count = batch.input_id.numel()
            wanted = torch.cat([expected[batch.input_id], torch.zeros(count, dtype=labels.dtype)])
            assert equal(batch.edge_label, wanted)
    for batch in make_links(edge_label=LABELS):
        assert equal(batch.edge_label, LABELS[batch.input_id])
    wide = torch.stack([LABELS, LABELS + 5], dim=1)
    batch = next(iter(make_links(edge_label=wide, neg_sampling=("binary", 0.25))))
    assert batch.edge_label.shape == (25, 2) and batch.edge_label[20:].eq(0).all()


def test_it_is_a_link_neighbor_loader() -> None:
    loader = make_links(neg_sampling_ratio=2.0, batch_size=50, drop_last=True)
    assert isinstance(loader, LinkNeighborLoader)
    assert (
        str(loader) == f"MacrobatchLinkNeighborLoader({LINKS.size(1)} seeds, fanouts=[4, 3], batch_size=50)"
    )
    assert len(loader) == len(list(loader)) == 4
    assert loader.neg_sampling == NegativeSampling("binary", 2.0)
    assert loader.edge_label_index is LINKS and loader.edge_label is None
    batch = loader([3, 1, 3])
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :3]], LINKS[:, [3, 1, 3]])
    assert batch.edge_label_index.shape == (2, 9) and batch.input_id.tolist() == [3, 1, 3]


def test_all_edges_are_links_by_default() -> None:
    data = make_data()
    loader = make_links(data, edge_label_index=None, batch_size=700)
    found = torch.cat([batch.n_id[batch.edge_label_index] for batch in loader], dim=1)
    assert torch.equal(found, data.edge_index) and found.size(1) == EDGES


def test_links_of_stores() -> None:
    data = make_data()
    stores = stores_of(data, "coo")
    for index in (LINKS, (None, LINKS)):
        theirs = make_links(stores, edge_label_index=index, neg_sampling="binary")
        assert_same(theirs, make_links(data, neg_sampling="binary"), ignore=["num_nodes"])
    found = next(iter(make_links(stores, edge_label_index=None)))
    assert torch.equal(found.n_id[found.edge_label_index], data.edge_index[:, :20])


def test_odd_inputs() -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    assert list(make_links(edge_label_index=none, neg_sampling="binary")) == []
    edgeless = Data(x=torch.rand(5, 2), edge_index=none)
    batch = next(iter(make_links(edgeless, edge_label_index=LINKS % 5, neg_sampling="binary")))
    assert batch.edge_index.shape == (2, 0) and batch.edge_label_index.shape == (2, 40)
    loops = torch.tensor([[3, 3, 3], [3, 3, 3]])
    batch = next(iter(make_links(edge_label_index=loops)))
    assert batch.num_sampled_nodes[0] == 1 and batch.edge_label_index.tolist() == [[0, 0, 0], [0, 0, 0]]
    narrow = make_links(edge_label_index=LINKS.int(), neg_sampling="binary")
    assert_same(narrow, make_links(neg_sampling="binary"))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"edge_label_index": LINKS.flip(1)}, "links_digest"),
        ({"neg_sampling": ("binary", 2)}, "negatives"),
        ({"exclude_existing": True}, "negatives"),
        ({"neg_sampling": NegativeSampling("binary", 1, torch.ones(NODES))}, "negatives"),
        ({"neg_sampling": None}, "negatives"),
        ({"neg_sampling": "in-batch"}, "negatives"),
    ],
)
def test_a_state_of_other_links_is_refused(change: dict[str, Any], word: str) -> None:
    state = make_links(neg_sampling="binary").state_dict()
    with pytest.raises(ValueError, match=word):
        make_links(**{"neg_sampling": "binary", **change}).load_state_dict(state)


GIVEN = {"neg_sampling": torch.zeros(203, 1).long()}


def weighted(*weights: Tensor | None) -> dict[str, Any]:
    return {"neg_sampling": NegativeSampling("binary", 1, *weights)}


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"edge_label_index": ("a", "to", "b")}, ValueError, "the graph is homogeneous"),
        ({"edge_label_index": {("a", "to", "b"): None}}, ValueError, "the graph is homogeneous"),
        ({"edge_label_index": LINKS.float()}, TypeError, "integer node ids, got torch.float32"),
        ({"edge_label_index": LINKS.t()}, ValueError, r"shape \[2, n\].*got \[203, 2\]"),
        ({"edge_label_index": LINKS + 200}, IndexError, "go from 0 to 299"),
        ({"edge_label_index": LINKS - 5}, IndexError, "go from 0 to 299"),
        ({"edge_label": LABELS[:-1]}, ValueError, "edge_label has 202 entries for 203 links"),
        ({"input_id": LABELS[:-1]}, ValueError, "input_id has 202 entries for 203 links"),
        ({"edge_label_time": LABELS}, ValueError, "'time_attr' is not set"),
        ({"edge_label": LABELS, "neg_sampling": "triplet"}, ValueError, "leave edge_label out"),
        ({"exclude_existing": True}, ValueError, "neg_sampling draws none"),
        ({"neg_sampling": "in-batch", "exclude_existing": True}, ValueError, "neg_sampling draws none"),
        ({"neg_sampling": ("in-batch", 2)}, ValueError, r"or 'in-batch', got \('in-batch', 2\)"),
        ({"neg_sampling": {("a", "b"): "binary"}}, ValueError, "which edge_label_index does not"),
        (weighted(torch.ones(5)), ValueError, r"has shape \[5\]"),
        (weighted(None, torch.ones(NODES).long()), TypeError, "floating point numbers, got torch.int64"),
        (weighted(None, torch.arange(NODES) - 1.0), ValueError, "dst_weight of node 0 is -1.0"),
        (weighted(torch.full((NODES,), torch.nan)), ValueError, "src_weight of node 0 is nan"),
        ({"neg_sampling": torch.zeros(7, 2).long()}, ValueError, r"has shape \[7, 2\] for 203 links; give"),
        ({"neg_sampling": torch.zeros(203, 2)}, TypeError, "must hold integer node ids, got torch.float32"),
        ({"neg_sampling": torch.full((203, 1), NODES)}, IndexError, f"{NODES}"),
        ({**GIVEN, "exclude_existing": True}, ValueError, "draws none: give for instance"),
        ({**GIVEN, "edge_label": LABELS}, ValueError, "do not go together: triplets"),
    ],
)
def test_bad_inputs(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_links(**kwargs)


def test_negatives_that_cannot_be_drawn_name_their_link() -> None:
    complete = torch.cartesian_prod(torch.arange(4), torch.arange(4)).t()
    data = Data(edge_index=complete.contiguous(), num_nodes=4)
    options = {"neg_sampling": "triplet", "exclude_existing": True}
    loader = make_links(data, edge_label_index=complete[:, 6:7], **options)
    with pytest.raises(ValueError, match=r"link \(1, 2\) has no negative"):
        next(iter(loader))
