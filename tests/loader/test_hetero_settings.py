"""Settings change no bit of typed minibatches, and an epoch goes on where it stopped."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.support import loader_cases
from tests.support.hetero_cases import (
    BOTH,
    CITES,
    RELATIONS,
    assert_same,
    make_hetero,
    make_loader,
    make_timed,
)

PAPERS = ("paper", None)


SETTINGS: list[dict[str, Any]] = [
    {"threads": 2},
    {"macrobatch_size": 1, "fetch_size": 1},
    {"macrobatch_size": 7, "fetch_size": 5},
    {"macrobatch_size": "auto", "fetch_size": "auto"},
    {"prefetch": 2},
    {"num_workers": 2},
    {"num_workers": 1, "filter_per_worker": False},
]


@pytest.mark.parametrize("kwargs", SETTINGS)
def test_settings_change_no_bit(kwargs: dict[str, Any]) -> None:
    data = make_hetero()
    data["paper"].time = torch.arange(60) % 7
    common = {"input_nodes": PAPERS, "shuffle": True, "time_attr": "time"}
    assert_same(make_loader(data, **common, **kwargs), make_loader(data, **common))


def native_contents(batch: Any) -> list[Any]:
    held = [one.node for one in batch.nodes] + [one.edge_index for one in batch.edges]
    for group, rows in batch.attributes.items():
        tables = [table for _, table in sorted(rows.tables.items())]
        held += [table if rows.row is None else table[rows.row] for table in tables] + [str(group)]
    return [*held, batch.input_id, batch.seed_types, [one.nodes_per_hop for one in batch.nodes]]


@pytest.mark.parametrize("kwargs", [*SETTINGS[:6], {"features": "copy"}])
def test_settings_change_no_bit_of_native_minibatches(kwargs: dict[str, Any]) -> None:
    common: dict[str, Any] = {"input_nodes": BOTH, "shuffle": True, "export": "native"}
    some, others = make_loader(make_hetero(), **common, **kwargs), make_loader(make_hetero(), **common)
    for one, other in zip(some, others, strict=True):
        pairs = zip(native_contents(one), native_contents(other), strict=True)
        assert all(loader_cases.equal(left, right) for left, right in pairs)


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_resuming_in_an_epoch(taken: int) -> None:
    common: dict[str, Any] = {"input_nodes": BOTH, "shuffle": True, "disjoint": True}
    whole = list(make_loader(make_hetero(), **common))
    first = make_loader(make_hetero(), **common)
    head = list(itertools.islice(iter(first), taken))
    second = make_loader(make_hetero(), **common)
    second.load_state_dict(first.state_dict())
    assert_same([*head, *second], whole)


def test_a_state_of_other_fanouts_or_seeds_is_refused() -> None:
    data = make_hetero()
    fanouts = {relation: [2] for relation in RELATIONS}
    state = make_loader(data, fanouts, input_nodes=BOTH).state_dict()
    with pytest.raises(ValueError, match="fanouts"):
        make_loader(data, {**fanouts, CITES: [1]}, input_nodes=BOTH).load_state_dict(state)
    with pytest.raises(ValueError, match="seed"):
        make_loader(data, fanouts, input_nodes="paper").load_state_dict(state)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"weight_attr": "weight"}, "weight_attr"),
        ({"subgraph_type": "bidirectional"}, "subgraph_type"),
        ({"input_time": torch.full((60,), 50), "time_attr": "time"}, "times_digest|time_attr"),
    ],
)
def test_a_state_of_other_rules_is_refused(rules: dict[str, Any], words: str) -> None:
    data = make_timed()
    plain = make_loader(data, input_nodes="paper")
    other = make_loader(data, input_nodes="paper", **rules)
    for one, state in ((plain, other.state_dict()), (other, plain.state_dict())):
        with pytest.raises(ValueError, match=words):
            one.load_state_dict(state)
    other.load_state_dict(make_loader(data, input_nodes="paper", **rules).state_dict())


@pytest.mark.parametrize("nodes", [BOTH, "paper"])
def test_positions_that_there_are_not(nodes: Any) -> None:
    loader = make_loader(make_hetero(), input_nodes=nodes)
    for position in (-1, 1000):
        with pytest.raises(IndexError, match=f"{position}, but positions"):
            loader([position])
