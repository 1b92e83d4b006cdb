"""A fetch group asks for each distinct node once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import NODES, Group
from pyg_batchgnn.fetch import BlockFetcher, FetchGroup
from pyg_batchgnn.sample import SampledMinibatch
from tests.support.bare_minibatches import only_nodes

COUNT = 200
Rows: TypeAlias = dict[Group, dict[str, Tensor]]


def minibatch(node: list[int]) -> SampledMinibatch:
    return only_nodes(torch.tensor(node, dtype=torch.int64))


@pytest.mark.parametrize(
    "nodes",
    [
        [[3, 1, 2]],
        [[5, 7], [7, 5]],
        [[0], [COUNT - 1], [0, COUNT - 1]],
        [[4, 4, 4], [4]],
        [[], [1], []],
        [[]],
        [list(range(COUNT))[::-1], list(range(0, COUNT, 3))],
    ],
)
def test_each_node_once_and_every_row_found(nodes: list[list[int]]) -> None:
    table = torch.arange(COUNT * 2.0).view(COUNT, 2)
    asked: list[Tensor] = []

    def fetch(nodes: Mapping[Group, Tensor]) -> Rows:
        asked.append(nodes[NODES])
        return {NODES: {"x": table[nodes[NODES]]}}

    given = [minibatch(node) for node in nodes]
    ready = BlockFetcher(fetch, [COUNT]).fetch(FetchGroup(given)).minibatches
    assert [node.tolist() for node in asked] == [sorted({node for one in nodes for node in one})]
    for one, before in zip(ready, given, strict=True):
        assert one.node is before.node and one.block is ready[0].block
        assert torch.equal(one.attribute("x"), table[one.node])
        assert torch.equal(one.attribute("x", 1), table[one.node[:1]])


def test_an_unknown_attribute_is_named() -> None:
    fetcher = BlockFetcher(lambda nodes: {NODES: {"x": nodes[NODES]}}, [COUNT])
    (ready,) = fetcher.fetch(FetchGroup([minibatch([1])])).minibatches
    with pytest.raises(KeyError, match=r"'z'.*'x'"):
        ready.attribute("z")
