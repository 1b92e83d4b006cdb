"""Times, weights and subgraphs of typed graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

from tests.support.hetero_cases import (
    BOTH,
    CITES,
    REV_WRITES,
    WRITES,
    make_hetero,
    make_loader,
    make_timed,
)


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(("attr", "has_input_time"), [("time", False), ("time", True), ("stamp", True)])
def test_no_neighbour_is_younger_than_its_seed(
    strategy: str, window: int | None, attr: str, has_input_time: bool
) -> None:
    data, nodes = make_timed(), torch.arange(30)
    input_time = nodes % 5 + 3 if has_input_time else None
    seed_times = data["paper"].time[nodes] if input_time is None else input_time
    loader = make_loader(
        data,
        input_nodes=("paper", nodes),
        input_time=input_time,
        time_attr=attr,
        temporal_strategy=strategy,
        time_window=window,
    )
    relations = (CITES, WRITES) if attr == "stamp" else (CITES, REV_WRITES)
    for batch in loader:
        seed_time = seed_times[batch["paper"].input_id]
        assert ("seed_time" in batch["paper"]) == has_input_time
        assert not has_input_time or torch.equal(batch["paper"].seed_time, seed_time)
        for relation in relations:
            row, col = batch[relation].edge_index
            limit = seed_time[batch[relation[2]].batch[col]]
            time = batch[relation].stamp if attr == "stamp" else batch["paper"].time[row]
            assert (time <= limit).all() and (window is None or (time >= limit - window).all())


def test_types_without_time_need_input_time() -> None:
    with pytest.raises(ValueError, match=r"'author' have no 'time'.*input_time"):
        make_loader(make_timed(), input_nodes="author", time_attr="time")
    with pytest.raises(ValueError, match=r"edges have 'stamp'.*input_time"):
        make_loader(make_timed(), input_nodes="paper", time_attr="stamp")


def test_times_of_several_types() -> None:
    times = {"author": torch.arange(14), "paper": torch.arange(30)}
    loader = make_loader(make_timed(), input_nodes=BOTH, input_time=times, time_attr="stamp", batch_size=10)
    batch = list(loader)[1]
    assert batch["author"].seed_time.tolist() == [10, 11, 12, 13]
    assert batch["paper"].seed_time.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kwargs", [{}, {"replace": True}, {"disjoint": True}, {"time_attr": "time"}])
def test_edges_of_weight_zero_are_not_picked(kwargs: dict[str, Any]) -> None:
    for batch in make_loader(make_timed(), (3, 3), input_nodes="paper", weight_attr="weight", **kwargs):
        assert batch[CITES].num_edges > 0 and batch[WRITES].num_edges > 0
        assert (batch[CITES].weight > 0).all() and (batch[WRITES].weight > 0).all()


def pairs(batch: HeteroData, relation: tuple[str, str, str]) -> set[tuple[int, int]]:
    return set(map(tuple, batch[relation].edge_index.t().tolist()))


def test_bidirectional() -> None:
    """PyG's cases: within a type, with a `rev_` partner, with the only type back, and without."""
    plain = make_loader(make_hetero(), input_nodes="paper", seed=3)
    with pytest.warns(UserWarning, match="reverse edge type"):
        both = list(make_loader(make_hetero(), input_nodes="paper", seed=3, subgraph_type="bidirectional"))
    for one, batch in zip(plain, both, strict=True):
        sampled = pairs(one, CITES)
        assert pairs(batch, CITES) == sampled | {(col, row) for row, col in sampled}
        writes = pairs(one, WRITES) | {(col, row) for row, col in pairs(one, REV_WRITES)}
        assert pairs(batch, WRITES) == writes == {(col, row) for row, col in pairs(batch, REV_WRITES)}
        assert "e_id" not in batch[CITES] and "edge_attr" not in batch[CITES]
        assert "num_sampled_nodes" not in batch["paper"] and "num_sampled_edges" not in batch[CITES]
        likes = ("lonely", "likes", "paper")
        assert pairs(batch, likes) == pairs(one, likes) and "e_id" in batch[likes]


@pytest.mark.parametrize("disjoint", [False, True])
def test_induced(disjoint: bool) -> None:
    data = make_hetero()
    loader = make_loader(data, (2, 2), input_nodes="paper", subgraph_type="induced", disjoint=disjoint)
    for batch in loader:
        for relation in data.edge_types:
            source, _, target = relation
            sides = []
            for name in (source, target):
                store = batch[name]
                example = store.batch.tolist() if disjoint else [0] * store.n_id.numel()
                sides.append(list(zip(store.n_id.tolist(), example, strict=True)))
            every = data[relation].edge_index.t().tolist()
            wanted = sorted(
                edge
                for edge, (one, other) in enumerate(every)
                for node, example in sides[1]
                if node == other and (one, example) in sides[0]
            )
            assert sorted(batch[relation].e_id.tolist()) == wanted
        assert "num_sampled_nodes" not in batch["paper"] and "num_sampled_edges" not in batch[CITES]
