"""Links and options of typed graphs that are refused."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch_geometric.loader import LinkLoader

from pyg_batchgnn.sample import PygLinkSampler
from tests.support.typed_link_cases import (
    BACK,
    BUYS,
    DATA,
    ITEMS,
    KNOWS,
    SHOPS,
    make_links,
    times_of,
)


def test_an_edge_type_that_the_graph_lacks() -> None:
    likes = ("user", "likes", "shop")
    index = torch.stack([torch.arange(20), torch.arange(20) % SHOPS])
    batch = next(iter(make_links(index=(likes, index), neg_sampling="binary")))
    assert batch[likes].edge_label_index.shape == (2, 40) and "edge_index" not in batch[likes]


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_links_before_every_node_get_the_earliest_node_and_one_warning(export: str) -> None:
    data = DATA.clone()
    data["item"].time += 50
    options = {"neg_sampling": ("triplet", 2), "edge_label_time": times_of(160), "time_attr": "time"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = make_links(data, **options, batch_size=32, export=export)
        batches = [*loader, *loader]
    (warning,) = caught
    assert re.search(r"160 of 160 links .* link 0 of .*buys.*, at time 3\)", str(warning.message))
    assert warning.filename == make_links.__code__.co_filename
    earliest = int(data["item"].time.argmin())
    for batch in batches:
        if export == "pyg":
            drawn = batch["item"].n_id[batch["item"].dst_neg_index]
        else:
            drawn = batch.nodes[batch.schema.type_number("item")].node[batch.links[0].negative]
        assert bool((drawn == earliest).all())
    assert loader.stats().total.late_negatives == 2 * 2 * 160
    with pytest.raises(ValueError, match=r"160 of 160 links .*late_negatives='raise'; leave these links"):
        make_links(data, **options, late_negatives="raise")
    with pytest.raises(ValueError, match="late_negatives must be 'warn' or 'raise', got 'no'"):
        make_links(data, **options, late_negatives="no")


def test_links_that_are_not_early_need_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = make_links(
            neg_sampling="triplet", edge_label_time=times_of(160), time_attr="time", late_negatives="raise"
        )
        list(loader)
    assert loader.stats().total.late_negatives == 0


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_script_whose_links_come_one_before_their_edges(mode: str) -> None:
    """``edge_label_time = time - 1`` with times of edges, as PyG's recommender_system.py has it."""
    data = DATA.clone()
    stamp = data[BUYS].stamp.clone()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        loader = make_links(data, neg_sampling=mode, edge_label_time=stamp - 1, time_attr="stamp")
        assert sum(1 for _ in loader) == len(loader)


def test_a_sampler_in_pygs_loader_warns_once() -> None:
    data = DATA.clone()
    data["item"].time += 50
    index = data[BUYS].edge_index
    given = {"edge_label_index": (BUYS, index), "edge_label_time": times_of(160), "batch_size": 40}
    for late in ("warn", "raise"):
        sampler = PygLinkSampler(data, [2], time_attr="time", late_negatives=late)
        loader = LinkLoader(data, sampler, neg_sampling="triplet", **given)
        if late == "raise":
            with pytest.raises(ValueError, match="40 of 40 links"):
                next(iter(loader))
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(loader)) == 4
        assert len(caught) == 1


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"index": None}, ValueError, "must name an edge type of the graph"),
        ({"index": "buys"}, ValueError, "must name an edge type of the graph"),
        ({"index": DATA[BUYS].edge_index}, ValueError, "must name an edge type of the graph"),
        ({"index": {}}, ValueError, "names no edge type"),
        ({"index": ("user", "likes", "shop")}, ValueError, "which the graph has not"),
        (
            {"index": (("user", "likes", "film"), torch.zeros(2, 1).long())},
            ValueError,
            "the node type 'film'",
        ),
        ({"index": (BUYS, torch.full((2, 1), ITEMS))}, IndexError, "ends of type 'item' holds 30"),
        ({"index": {BUYS: None}, "edge_label": torch.zeros(160)}, TypeError, "edge_label must be a dict"),
        ({"index": {BUYS: None}, "edge_label": {KNOWS: None}}, ValueError, "which edge_label_index does not"),
        (
            {
                "index": {BUYS: None, KNOWS: None},
                "edge_label_time": {BUYS: times_of(160)},
                "time_attr": "time",
            },
            ValueError,
            "edge_label_time lacks",
        ),
        ({"time_attr": "time"}, ValueError, "'edge_label_time' is not set"),
        ({"neg_sampling": "zz"}, ValueError, "must be 'binary' or 'triplet', got 'zz'"),
        ({"exclude_existing": "yes", "neg_sampling": "binary"}, TypeError, "True or False, got 'yes'"),
        ({"exclude_seed_edges": {BUYS: BACK, ("x", "y", "z"): BACK}}, ValueError, "names .'x', 'y', 'z'."),
        (
            {"time_attr": "time", "edge_label_time": times_of(160).float()},
            TypeError,
            "edge_label_time must be torch.int64",
        ),
        (
            {
                "index": (("user", "likes", "shop"), torch.zeros(2, 1).long()),
                "neg_sampling": "binary",
                "exclude_existing": True,
            },
            ValueError,
            "which the graph does not have",
        ),
    ],
)
def test_bad_inputs(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_links(**kwargs)
