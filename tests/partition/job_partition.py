"""What ranks do in test_partition.py."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition import Part, bounded, partition
from pyg_batchgnn.partition.hashing import random_owner
from tests.partition.split import split_graph


def graph(seed: int, nodes: int, edges: int, *, skew: bool = False, attributes: bool = True) -> Dataset:
    """A random multigraph with self loops, the same on every rank; skewed ones have hubs at low ids."""
    draw = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, max(nodes, 1), (2, edges), generator=draw)
    if skew:
        edge_index = edge_index * edge_index // max(nodes, 1)
    order = torch.randperm(nodes, generator=draw)
    train, val, test = order.split([nodes // 2, nodes // 4, nodes - nodes // 2 - nodes // 4])
    return Dataset(
        name=f"random {seed}",
        num_nodes=nodes,
        num_classes=5,
        edge_index=edge_index.to(torch.int32) if seed % 2 else edge_index,
        x=torch.randn(nodes, 3, generator=draw).to(torch.float16) if attributes else None,
        y=torch.randint(0, 5, (nodes,), generator=draw),
        train_idx=train,
        val_idx=val,
        test_idx=test,
        source="",
        edge_attr=torch.randn(edges, 2, generator=draw) if attributes else None,
    )


def contiguous_owner(dataset: Dataset, parts: int) -> Tensor:
    """The obvious form of the policy."""
    weight = torch.bincount(dataset.edge_index[1].long(), minlength=dataset.num_nodes) + 1
    middle, total = 2 * weight.cumsum(0) - weight, 2 * int(weight.sum())
    bounds = [part * total // parts for part in range(1, parts)]
    return torch.tensor([sum(bound <= at for bound in bounds) for at in middle.tolist()], dtype=torch.int64)


def owner_of(dataset: Dataset, policy: str, parts: int, seed: int) -> Tensor:
    if policy == "random":
        return random_owner(torch.arange(dataset.num_nodes), parts, seed).long()
    return contiguous_owner(dataset, parts)


def expected(dataset: Dataset, owner: Tensor, parts: int, number: int) -> Part:
    tables = {"x": dataset.x, "y": dataset.y}
    return split_graph(
        dataset.edge_index.long(),
        owner,
        parts,
        number,
        {name: table for name, table in tables.items() if table is not None},
        {} if dataset.edge_attr is None else {"edge_attr": dataset.edge_attr},
        {"train": dataset.train_idx, "val": dataset.val_idx, "test": dataset.test_idx},
    )


def assert_same(found: Part, wanted: Part) -> None:
    for field in fields(Part):
        got, want = getattr(found, field.name), getattr(wanted, field.name)
        if isinstance(want, dict):
            assert got.keys() == want.keys()
            for name in want:
                _assert_equal(f"{field.name}.{name}", got[name], want[name])
        elif isinstance(want, Tensor):
            _assert_equal(field.name, got, want)
        else:
            assert got == want, field.name


def _assert_equal(name: str, got: Tensor, want: Tensor) -> None:
    if name != "edge_ids":  # any integers do
        assert got.dtype == want.dtype, (name, got.dtype, want.dtype)
    assert got.shape == want.shape, (name, got.shape, want.shape)
    assert torch.equal(got.to(want.dtype), want), (name, got, want)


#: seed, nodes, edges, skewed
CASES = [
    *((1, 50, 300, False), (2, 40, 200, True), (3, 0, 0, False), (4, 1, 0, False), (5, 1, 7, False)),
    *((6, 2, 5, False), (7, 3, 2, False), (8, 30, 0, False), (9, 200, 60, True), (10, 5, 400, False)),
    *((11, 3000, 5000, True), (12, 4, 4, False)),
]


def equals_the_obvious(rounds: list[int]) -> dict[str, Any]:
    """Every case and policy, with rounds of several sizes."""
    with Communicator.create("partition", timeout=20) as comm:
        for round_bytes in rounds:
            bounded.ROUND_BYTES = round_bytes
            for seed, nodes, edges, skew in CASES:
                if edges > 1000 and round_bytes < 10_000:
                    continue
                dataset = graph(seed, nodes, edges, skew=skew, attributes=seed % 4 != 0)
                for policy in ("random", "contiguous"):
                    part = partition(dataset, policy, comm=comm, seed=seed)
                    owner = owner_of(dataset, policy, comm.size, seed)
                    assert_same(part, expected(dataset, owner, comm.size, comm.rank))
        return comm.counters.snapshot().as_dict()
