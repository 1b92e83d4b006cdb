"""A fetch group asks for each distinct node once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pyg_batchgnn.data import NODES, Group
from pyg_batchgnn.data import NODES as GROUP
from pyg_batchgnn.disk import are_mapped, is_mapped
from pyg_batchgnn.fetch import BlockFetcher, FetchGroup, InPlaceFetcher, as_table
from pyg_batchgnn.sample import Placement, SampledMinibatch
from tests.support.sampling_cases import only_nodes

# Block ############################################################################################

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


# In place #########################################################################################

TABLE_NODES = 6


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(TABLE_NODES, 3),
        torch.randn(TABLE_NODES, 3).half(),
        torch.randn(TABLE_NODES + 1, 3).bfloat16(),
        torch.arange(TABLE_NODES),
        nn.Parameter(torch.randn(TABLE_NODES, 2)),
        torch.randn(TABLE_NODES, 2, requires_grad=True),
    ],
)
def test_a_tensor_is_its_own_table(value: Tensor) -> None:
    assert as_table(value, TABLE_NODES) is value


def test_an_array_is_shared() -> None:
    array = np.zeros((TABLE_NODES, 2))
    table = as_table(array, TABLE_NODES)
    assert isinstance(table, Tensor)
    array[3] = 7
    assert table[3].tolist() == [7, 7]


def _read_only() -> np.ndarray:
    array = np.zeros(TABLE_NODES)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.randn(TABLE_NODES - 1, 2), ["5 rows", "6 nodes"]),
        (torch.randn(3, TABLE_NODES).t(), ["contiguous()"]),
        (torch.randn(TABLE_NODES, 4)[:, :2], ["contiguous()"]),
        (torch.tensor(1.0), ["rows"]),
        (torch.randn(TABLE_NODES, 2).to_sparse(), ["sparse"]),
        (torch.empty(TABLE_NODES, 2, device="meta"), ["meta"]),
        (torch.complex(torch.ones(TABLE_NODES), torch.ones(TABLE_NODES)).conj(), ["contiguous()"]),
        ([1] * TABLE_NODES, ["list"]),
        (_read_only(), ["ndarray"]),
        (np.array(["a"] * TABLE_NODES), ["str_"]),
        (np.zeros(TABLE_NODES)[::-1], ["stride"]),
    ],
)
def test_why_not(value: Any, words: list[str]) -> None:
    reason = as_table(value, TABLE_NODES)
    assert isinstance(reason, str)
    assert all(word in reason for word in words), reason


def test_minibatches_share_the_tables_and_nothing_is_copied() -> None:
    table = torch.randn(TABLE_NODES, 2)
    nodes = [torch.tensor([4, 1]), torch.tensor([], dtype=torch.int64), torch.tensor([1, 1, 5])]
    given = [only_nodes(node) for node in nodes]
    ready = InPlaceFetcher({GROUP: {"x": table}}).fetch(FetchGroup(given)).minibatches
    for one, before in zip(ready, given, strict=True):
        assert (
            one.placement is Placement.IN_PLACE
            and one.row is one.node is before.node
            and one.block["x"] is table
        )
        assert torch.equal(one.attribute("x"), table[before.node])
        assert one.nbytes == before.nbytes


def test_files_are_told_from_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2000, 3)))
    for mode in ("r+", "c"):
        mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode=mode))
        assert is_mapped(mapped)
        assert is_mapped(mapped[1000:]) and not is_mapped(mapped.clone())
    assert is_mapped(torch.from_file(str(tmp_path / "x.npy"), size=100))
    assert not is_mapped(torch.randn(10))
    assert not is_mapped(torch.randn(1 << 20))
    assert not is_mapped(torch.empty(0))
    assert not is_mapped(torch.randn(5000).share_memory_())
    assert are_mapped([torch.randn(10), mapped, torch.empty(0), mapped[1000:]]) == [False, True, False, True]
