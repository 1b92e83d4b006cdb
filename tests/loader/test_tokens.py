"""Tokens: a breadth-first search from each seed, the same however batches are made."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.sample import Minibatch, Tokens
from tests.support.hetero_cases import BOTH, make_loader, make_timed
from tests.support.loader_cases import assert_same, equal
from tests.support.tiers import ALL

TIMES = {"author": torch.arange(14) % 9 + 2, "paper": torch.arange(30) % 10}
#: Rules of sampling, with the seeds.
RULES: dict[str, dict[str, Any]] = {
    "times of nodes": {"input_nodes": "paper", "time_attr": "time"},
    "frozen": {"input_nodes": "paper", "time_attr": "time", "freeze": 4},
    "times of edges": {"input_nodes": BOTH, "input_time": TIMES, "time_attr": "stamp"},
    "three hops": {"input_nodes": BOTH, "disjoint": True, "fanouts": (3, 2, 2)},
    "parallel edges": {"input_nodes": "author", "disjoint": True, "replace": True},
}


def searched(data: HeteroData, batch: Minibatch, count: int, name: str | None) -> list[Any]:
    """Returns (type, node, hop, relation, edge, parent, time) of the tokens of each seed."""
    schema, into, seeds, times = batch.schema, defaultdict(list), {}, dict[Any, int]()
    for number, (relation, edges) in enumerate(zip(data.edge_types, batch.edges, strict=True)):
        for row, (source, target) in enumerate(edges.edge_index.t().tolist()):
            step = number, row, (schema.source_types[number], source)
            into[schema.target_types[number], target].append(step)
            if name in data[relation]:
                times["edge", number, row] = int(data[relation][name][edges.edge[row]])
    for number, (kind, nodes) in enumerate(zip(data.node_types, batch.nodes, strict=True)):
        own = range(nodes.nodes_per_hop[0])
        seeds |= {int(nodes.example[row]): (number, row) for row in own}  # type: ignore[index]
        for row, node in enumerate(nodes.node if name in data[kind] else ()):
            times["node", number, row] = int(data[kind][name][node])
    found = []
    for example, seed in sorted(seeds.items()):
        tokens, known = [(*seed, 0, -1, -1, -1)], {seed}
        for at, (kind, node, hop, *_) in enumerate(tokens):
            for relation, row, other in into[kind, node]:
                if other not in known:
                    known.add(other)
                    tokens.append((*other, hop + 1, relation, row, at))
        seed_time = times.get(("node", *seed)) if batch.seed_time is None else int(batch.seed_time[example])
        found.append([])
        for kind, node, hop, relation, row, parent in tokens[:count]:
            ends = ("node", kind, node), ("edge", relation, row)
            later = max((times[end] for end in ends if end in times), default=seed_time)
            found[-1].append((kind, node, hop, relation, row, parent, (seed_time or 0) - (later or 0)))
    return found


@pytest.mark.parametrize("count", [1, 7, 60])
@pytest.mark.parametrize("rule", RULES)
def test_tokens_are_those_of_a_breadth_first_search(rule: str, count: int) -> None:
    data, name, longest = make_timed(), RULES[rule].get("time_attr"), 0
    for batch in make_loader(data, tokens=count, export="native", **RULES[rule]):
        tokens, right = batch.tokens, searched(data, batch, count, name)
        assert tokens.mask.shape == (len(right), count)
        table = torch.stack(tokens[1:], dim=2)
        for row, mask, own in zip(table, tokens.mask, right, strict=True):
            assert mask.tolist() == [True] * len(own) + [False] * (count - len(own))
            assert list(map(tuple, row[: len(own)].tolist())) == own
            assert (row[len(own) :, :6] == -1).all() and (row[len(own) :, 6:] == 0).all()
            longest = max(longest, len(own))
    assert longest == count or (count == 60 and longest > 15)


#: Ways in which the same batches are made.
WAYS: dict[str, dict[str, Any]] = {
    "prefetched": {"prefetch": 2, "threads": 1},
    "sampled by workers": {"num_workers": 2, "filter_per_worker": False},
    "made by workers": {"num_workers": 1, "filter_per_worker": True},
    "native": {"export": "native"},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_however_batches_are_made(way: str) -> None:
    data = make_timed()
    for rules in (RULES["times of edges"], RULES["three hops"]):
        plain = list(make_loader(data, tokens=9, **rules))
        for one, other in zip(plain, make_loader(data, tokens=9, **rules, **WAYS[way]), strict=True):
            other = other.to_data() if "export" in WAYS[way] else other
            assert isinstance(one.tokens, Tokens) and equal(one.tokens, other.tokens)
            assert equal(one.tokens, pickle.loads(pickle.dumps(other)).to("cpu").tokens)
            assert (one.node_types, one.edge_types) == (data.node_types, data.edge_types)


def timed_data(count: int, edges: int) -> Data:
    generator = torch.Generator().manual_seed(1)
    data = Data(edge_index=torch.randint(count, (2, edges), generator=generator), num_nodes=count)
    data.time = torch.randint(1000, (count,), generator=generator)
    return data


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_nothing_is_later_than_its_seed_or_freeze(strategy: str) -> None:
    data, freeze, count, last = timed_data(5000, 100_000), 600, 0, None
    rules: dict[str, Any] = {"fanouts": (12, 8), "time_attr": "time", "tokens": 60, "batch_size": 512}
    rules |= {"temporal_strategy": strategy, "time_window": 500}
    loader = make_loader(data, freeze=freeze, **rules, input_time=data.time)
    clamped = make_loader(data, **rules, input_time=data.time.clamp(max=freeze))
    for epoch in range(10 if ALL else 1):
        for batch, right in zip(loader, clamped, strict=True):
            found, moment, late = batch.tokens, batch.seed_time, batch.time[batch.batch_size :]
            assert torch.equal(moment, data.time[batch.input_id])
            assert late.max() <= freeze and (late <= moment[batch.batch[batch.batch_size :]]).all()
            assert torch.equal(batch.n_id[found.node[:, 0]], batch.input_id)
            time = moment[:, None] - batch.time[found.node]
            assert torch.equal(found.time[found.mask], time[found.mask]) and found.time.min() >= 0
            assert equal(found[:7], right.tokens[:7])
            right.seed_time, right.tokens = moment, found
            assert_same([batch], [right])
            count += int(found.mask.sum())
        assert strategy == "last" or last is None or not equal(last, found)
        assert loader.stats().total.frozen_seeds == (epoch + 1) * int((data.time > freeze).sum())
        last = found
    assert count > (1_000_000 if ALL else 100_000)
    with pytest.raises(ValueError, match="freeze=600"):
        make_loader(data, **rules, input_time=data.time).load_state_dict(loader.state_dict())


def test_a_minibatch_without_seeds_and_an_attribute_of_this_name() -> None:
    data = timed_data(50, 200)
    empty = make_loader(data, tokens=3, time_attr="time", export="native")([]).tokens
    assert [one.shape for one in empty] == [(0, 3)] * 8
    with pytest.raises(MemoryError, match=f"{2**58} tokens"):  # in bytes beyond 64 bits
        next(iter(make_loader(data, tokens=2**58, time_attr="time")))
    data.tokens = torch.zeros(50)
    with pytest.raises(ValueError, match=r"'tokens'.*rename it"):
        next(iter(make_loader(data, tokens=3, time_attr="time")))
