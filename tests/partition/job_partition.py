"""The jobs of ranks in test_partition.py."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.comm import CommError, Communicator
from pyg_batchgnn.data import Dataset, DatasetError, EdgeSet, NodeSet, open_folder
from pyg_batchgnn.partition import (
    Multilevel,
    Part,
    Score,
    Streaming,
    load_partition,
    move,
    partition,
    partition_parts,
    report_partition,
)
from pyg_batchgnn.partition.save import arrays_of
from tests.support.faults import stop_for_good
from tests.support.tiers import ALL


def graph(seed: int, nodes: int, edges: int, *, skew: bool = False, attributes: bool = True) -> Dataset:
    """A random multigraph with self loops, the same on every rank; skewed ones have hubs at low
    ids, every third seed gives strided edges."""
    draw = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, max(nodes, 1), (2, edges), generator=draw)
    if skew:
        edge_index = edge_index * edge_index // max(nodes, 1)
    if seed % 3 == 0:
        edge_index = edge_index.t().contiguous().t()  # as a table of edges gives it
    order = torch.randperm(nodes, generator=draw)
    train, val, test = order.split([nodes // 2, nodes // 4, nodes - nodes // 2 - nodes // 4])
    tables = {
        "x": torch.randn(nodes, 3, generator=draw).to(torch.float16),
        "y": torch.randint(0, 5, (nodes,), generator=draw),
    }
    of_nodes = {
        "targets": torch.randn(nodes, 2, 3, generator=draw, dtype=torch.float64),
        "second": torch.randn(nodes, 4, generator=draw).bfloat16(),
        "marked": torch.rand(nodes, generator=draw) < 0.5,
    }
    of_edges = {
        "edge_attr": torch.randn(edges, 2, generator=draw),
        "time": torch.randint(0, 1 << 40, (edges,), generator=draw),
        "weight": torch.rand(edges, generator=draw, dtype=torch.float64),
    }
    return Dataset.homogeneous(
        f"random {seed}",
        nodes,
        edge_index.to(torch.int32) if seed % 2 else edge_index,
        nodes={**tables, **of_nodes} if attributes else {"y": tables["y"]},
        edges=of_edges if attributes else {},
        splits={"train": train, "val": val, "test": test, "few": order[: nodes // 3]},
        num_classes=5,
    )


def with_splits(dataset: Dataset, splits: dict[str, Tensor]) -> Dataset:
    return replace(dataset, node_sets=(replace(dataset.nodes, splits=splits),))


def contiguous_owner(targets: Tensor, nodes: int, parts: int) -> Tensor:
    weight = torch.bincount(targets.long(), minlength=nodes) + 1
    middle, total = 2 * weight.cumsum(0) - weight, 2 * int(weight.sum())
    bounds = [part * total // parts for part in range(1, parts)]
    return torch.tensor([sum(bound <= at for bound in bounds) for at in middle.tolist()], dtype=torch.int64)


def assert_same(found: Part, wanted: Part) -> None:
    said = [(part.schema, part.book, part.number, part.edge_counts) for part in (found, wanted)]
    assert said[0] == said[1]
    got, want = arrays_of(found), arrays_of(wanted)
    assert got.keys() == want.keys()
    for name in want:
        _assert_equal(name, got[name], want[name])


def _assert_equal(name: str, got: Tensor, want: Tensor) -> None:
    if not name.startswith("edge_ids"):  # any integers do
        assert got.dtype == want.dtype, (name, got.dtype, want.dtype)
    assert got.shape == want.shape, (name, got.shape, want.shape)
    assert torch.equal(got.to(want.dtype), want), (name, got, want)


def owners_everywhere(parts: Sequence[Part], comm: Communicator) -> list[Tensor]:
    found = []
    schema, book = parts[0].schema, parts[0].book
    for number in range(schema.num_types):
        mine = [(part.original_ids(number), part.number) for part in parts]
        columns = [torch.stack([ids, torch.full_like(ids, part)], dim=1) for ids, part in mine]
        node, part = comm.all_gather(torch.cat(columns)).rows.unbind(1)
        owner = torch.full((book.num_nodes_of(number),), -1)
        owner[node] = part
        assert bool((owner >= 0).all()) and node.numel() == owner.numel()
        found.append(owner)
    return found


#: seed, nodes, edges, skewed
CASES = [
    *((2, 40, 200, True), (3, 0, 0, False), (5, 1, 7, False), (9, 200, 60, True)),
    *((1, 50, 300, False), (4, 1, 0, False), (6, 2, 5, False), (7, 3, 2, False)),
    *((8, 30, 0, False), (10, 5, 400, False), (12, 4, 4, False), (11, 3000, 5000, True)),
][: None if ALL else 4]


def communities(seed: int = 0) -> Dataset:
    """24 communities of 200 nodes in random order; nine edges of ten stay within one."""
    draw = torch.Generator().manual_seed(seed)
    nodes, edges = 4800, 40_000
    name = torch.randperm(nodes, generator=draw)
    source = torch.randint(0, nodes, (edges,), generator=draw)
    near = source // 200 * 200 + torch.randint(0, 200, (edges,), generator=draw)
    far = torch.randint(0, nodes, (edges,), generator=draw)
    target = torch.where(torch.rand(edges, generator=draw) < 0.9, near, far)
    both = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    whole = graph(seed, nodes, 0)
    return replace(whole, edge_sets=(EdgeSet(whole.edges.relation, name[both]),))


COMMUNITIES = 24


def typed_communities() -> Dataset:
    """Two types in 24 communities, in random order; nine edges of ten stay within a community."""
    draw = torch.Generator().manual_seed(0)
    counts, train = {"user": 2400, "item": 960}, {"user": 1200, "item": 0}
    name = {key: torch.randperm(count, generator=draw) for key, count in counts.items()}
    relations = (("user", "buys", "item"), ("item", "rev_buys", "user"), ("item", "like", "item"))
    edge_sets = []
    for relation in relations:
        source_size, target_size = (counts[key] // COMMUNITIES for key in relation[::2])
        source = torch.randint(0, counts[relation[0]], (12_000,), generator=draw)
        near = source // source_size * target_size + torch.randint(0, target_size, (12_000,), generator=draw)
        far = torch.randint(0, counts[relation[2]], (12_000,), generator=draw)
        target = torch.where(torch.rand(12_000, generator=draw) < 0.9, near, far)
        ends = [name[relation[0]][source], name[relation[2]][target]]
        edge_sets.append(EdgeSet(relation, torch.stack(ends)))
    node_sets = [
        NodeSet(key, count, splits={"train": name[key][: train[key]]}) for key, count in counts.items()
    ]
    return Dataset("communities", tuple(node_sets), tuple(edge_sets))


def several_limits(comm: Communicator) -> list[list[Any]]:
    found = []
    cases = ((communities(), 2 * comm.size), (_with_a_hub(), 3), (communities(), 1))
    for dataset, parts in cases if ALL else cases[:2]:
        val = torch.arange(dataset.num_nodes // 4)  # the first quarter of the nodes
        price = (torch.arange(dataset.num_nodes) % 5).float() / 7
        whole = with_splits(dataset, {**dataset.splits, "val": val})
        tables = {**whole.nodes.tables, "price": price}
        whole = replace(whole, node_sets=(replace(whole.nodes, tables=tables),))
        for score in Score if ALL else [Score.FENNEL if dataset.num_nodes == 4800 else Score.LDG]:
            policy = Streaming({"nodes": 1.05, "edges": 1.05, "val": 1.1, "price": 1.05}, score)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                made = partition_parts(whole, policy, parts, comm=comm)
            said = [str(one.message) for one in caught if "times the mean" in str(one.message)]
            worst = _worst(made, comm, price, val)
            loads = report_partition(made, comm, policy=policy).loads
            told = {load.name: load.balance for load in loads if load.slack is not None}
            assert all(math.isclose(told[name], worst[name], rel_tol=1e-5) for name in worst), told
            reasons = sorted(load.reason for load in loads if not load.is_met)
            assert comm.rank or sorted(one.partition(": ")[2] for one in said) == reasons, reasons
            found.append([dataset.num_nodes, worst, said])
    return found


def _with_a_hub() -> Dataset:
    ends = torch.arange(3000)
    other = torch.where(ends % 2 == 0, 7, (ends * 37) % 600)
    whole = graph(1, 600, 0)
    return replace(whole, edge_sets=(EdgeSet(whole.edges.relation, torch.stack([ends % 600, other])),))


def _worst(parts: list[Part], comm: Communicator, price: Tensor, val: Tensor) -> dict[str, float]:
    """The largest load of a part over the mean, counted in the obvious way."""
    own = [
        [
            part.num_nodes,
            part.in_edges.num_edges,
            float(torch.isin(part.node, val).sum()),
            float(price[part.node].sum()),
        ]
        for part in parts
    ]
    load = torch.tensor([row for rows in comm.all_gather_json(own) for row in rows], dtype=torch.float64)
    worst = (load.amax(0) / load.mean(0)).tolist()
    return dict(zip(("nodes", "edges", "val", "price"), worst, strict=True))


class Peak(threading.Thread):
    """The most memory of its own that the process has had, pages of mapped files apart."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = self.first = self._now()

    def run(self) -> None:
        while True:
            self.bytes = max(self.bytes, self._now())
            time.sleep(0.002)

    @staticmethod
    def _now() -> int:
        text = Path("/proc/self/status").read_text()
        found = [int(text.split(f"{name}:")[1].split()[0]) for name in ("RssAnon", "RssShmem")]
        return 1024 * sum(found)


def memory(comm: Communicator, folder: str, round_bytes: int) -> list[int]:
    """Bytes of this rank's share, and the most that partitioning took on top of what there was."""
    move.ROUND_BYTES = round_bytes
    peak = Peak()
    peak.start()
    part = partition(open_folder(folder), "ldg", comm=comm)
    most = peak.bytes - peak.first
    return [sum(array.numel() * array.element_size() for array in arrays_of(part).values()), most]


def mistakes(comm: Communicator) -> list[str]:
    dataset = graph(1, 20, 50)
    outside = dataset.edge_index.clone()
    outside[0, 17] = 20
    said = []
    attempts: list[tuple[Dataset, Any]] = [
        (replace(dataset, edge_sets=(replace(dataset.edges, topology=outside),)), "random"),
        (with_splits(dataset, {**dataset.splits, "val": torch.tensor([3, -1])}), "ldg"),
        (replace(dataset, name=f"rank {comm.rank}"), "random"),
        (dataset, "best"),
        (dataset, 3),
        (dataset, lambda node, _neighbours, state: node * 0 + state.parts),
        (dataset, lambda node, _neighbours, _state: node.double()),
        (dataset, Multilevel({"colour": 1.05})),
        (dataset, Multilevel({"targets": 1.05})),
        (dataset, "owners.npy"),
    ]
    for given, policy in attempts:
        try:
            partition(given, policy, comm=comm)
        except (ValueError, TypeError, CommError) as error:
            said.append(f"{type(error).__name__}: {error}")
        comm.barrier()
    return said


def fault(how: str, stage: str, victim: int, timeout: float) -> dict[str, Any]:
    comm = Communicator.create("partition", timeout=timeout)

    def misbehave(doing: str) -> None:
        if comm.rank == victim and doing == stage:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            stop_for_good()

    try:
        partition(graph(1, 2000, 20_000), "ldg", comm=comm, progress=misbehave)
    except CommError as error:
        return {"error": type(error).__name__, "ranks": list(error.ranks), "text": str(error)}
    return {"error": None}


def load_damaged(folder: str) -> list[Any]:
    with Communicator.create("load", timeout=20) as comm:
        try:
            load_partition(folder, comm)
        except DatasetError as error:
            comm.barrier()
            return [str(error)]
    raise AssertionError
