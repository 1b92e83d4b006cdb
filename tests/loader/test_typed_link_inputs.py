"""Links and options of typed graphs that are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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


def test_a_time_before_all_nodes_names_the_link() -> None:
    data = DATA.clone()
    data["item"].time += 50
    loader = make_links(data, neg_sampling="triplet", edge_label_time=times_of(160), time_attr="time")
    source, target = DATA[BUYS].edge_index[:, 0].tolist()
    with pytest.raises(ValueError, match=rf"link \({source}, {target}\) has no negative target at time 3"):
        next(iter(loader))


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
