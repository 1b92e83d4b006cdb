"""Tables that layers may read where they lie, and the reasons why others cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pyg_batchgnn.data import NODES as GROUP
from pyg_batchgnn.fetch import FetchGroup, InPlaceFetcher, are_mapped, as_table, is_mapped
from pyg_batchgnn.sample import Placement
from tests.support.bare_minibatches import only_nodes

NODES = 6


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(NODES, 3),
        torch.randn(NODES, 3).half(),
        torch.randn(NODES + 1, 3).bfloat16(),
        torch.arange(NODES),
        nn.Parameter(torch.randn(NODES, 2)),
        torch.randn(NODES, 2, requires_grad=True),
    ],
)
def test_a_tensor_is_its_own_table(value: Tensor) -> None:
    assert as_table(value, NODES) is value


def test_an_array_is_shared() -> None:
    array = np.zeros((NODES, 2))
    table = as_table(array, NODES)
    assert isinstance(table, Tensor)
    array[3] = 7
    assert table[3].tolist() == [7, 7]


def _read_only() -> np.ndarray:
    array = np.zeros(NODES)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.randn(NODES - 1, 2), ["5 rows", "6 nodes"]),
        (torch.randn(3, NODES).t(), ["contiguous()"]),
        (torch.randn(NODES, 4)[:, :2], ["contiguous()"]),
        (torch.tensor(1.0), ["rows"]),
        (torch.randn(NODES, 2).to_sparse(), ["sparse"]),
        (torch.empty(NODES, 2, device="meta"), ["meta"]),
        (torch.complex(torch.ones(NODES), torch.ones(NODES)).conj(), ["contiguous()"]),
        ([1] * NODES, ["list"]),
        (_read_only(), ["ndarray"]),
        (np.array(["a"] * NODES), ["str_"]),
        (np.zeros(NODES)[::-1], ["stride"]),
    ],
)
def test_why_not(value: Any, words: list[str]) -> None:
    reason = as_table(value, NODES)
    assert isinstance(reason, str)
    assert all(word in reason for word in words), reason


def test_minibatches_share_the_tables_and_nothing_is_copied() -> None:
    table = torch.randn(NODES, 2)
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
