"""Jobs of the ranks in test_values.py and test_folder.py."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pyg_batchgnn import AggregationCache
from pyg_batchgnn.cache import AllNodes
from pyg_batchgnn.comm import AgreementError, Communicator, MessageKind
from pyg_batchgnn.data import NODES, DatasetError
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.partition import Part, load_partition, save_partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.support.partitioned_graphs import CASES, Case, owners, part_of, whole
from tests.support.reference_aggregates import KINDS, close, with_loops
from tests.support.reference_partition import split_graph


def part_with_loops(case: Case, comm: Communicator, seed: int = 0) -> Part:
    data = with_loops(whole(case))
    owner = owners(dataclasses.replace(case, seed=case.seed + seed), comm.size)
    splits = {"train": data.train_mask.nonzero().view(-1)}
    # An attribute with the name that a column of the builder would have is left alone.
    tables = {"x": data.x, "y": data.y, "scale": torch.zeros(case.nodes)}
    return split_graph(
        data.edge_index, owner, comm.size, comm.rank, tables=tables, edge_tables={}, splits=splits
    )


def stores(part: Part, comm: Communicator, share: bool = True) -> tuple[DistFeatureStore, DistGraphStore]:
    return DistFeatureStore(part, comm, share=share), DistGraphStore(part, comm)


def values() -> None:
    """Aggregates and fingerprint are those of one process, bit for bit, and PyG's to rounding."""
    with Communicator.create("cache", timeout=30) as comm:
        for number, case in enumerate(CASES):
            data = with_loops(whole(case))
            part = part_with_loops(case, comm)
            share = number % 2 == 0
            both = stores(part, comm, share)
            for kind in KINDS:
                alone = AggregationCache.build(data, kind)
                for budget in (None, 6000) if number < 2 else (None,):
                    cache = AggregationCache.build(both, kind, memory_budget=budget)
                    assert torch.equal(cache.rows, alone.rows[part.node])
                    assert close(cache.rows, kind, data, part.node)
                    assert cache.fingerprint == alone.fingerprint
                    assert cache.readable.keys() == both[0].readable.keys()
        if comm.size > 1:
            with pytest.raises(AgreementError, match="aggregation"):
                AggregationCache.build(both, KINDS[comm.rank > 0])


def rows_fetched() -> None:
    """Each distinct remote source is fetched once for one piece, and again for small pieces."""
    with Communicator.create("cache", timeout=30) as comm:
        part = part_with_loops(CASES[0], comm)
        both = stores(part, comm)
        own = range(part.first, part.first + part.num_nodes)
        remote = [int(node) for node in part.in_edges.indices.unique() if int(node) not in own]
        asked = comm.all_gather_json(len(remote))
        before = comm.counters.snapshot()
        AggregationCache.build(both, "sum")
        spent = (comm.counters.snapshot() - before)[MessageKind.FEATURES]
        assert spent.rounds == 2
        assert spent.rows_received == len(remote) + sum(_asked_of(comm, remote, part))
        before = comm.counters.snapshot()
        AggregationCache.build(both, "sum", memory_budget=4000)
        many = (comm.counters.snapshot() - before)[MessageKind.FEATURES]
        assert many.rounds > 4 and sum(asked) > 0


def _asked_of(comm: Communicator, remote: list[int], part: Part) -> list[int]:
    """Returns the number of rows that each rank asks this one for."""
    return [
        sum(part.first <= node < part.first + part.num_nodes for node in theirs)
        for theirs in comm.all_gather_json(remote)
    ]


def saved(folder: str) -> None:
    """Writes a cache."""
    with Communicator.create("cache", timeout=30) as comm:
        cache = AggregationCache.build(stores(part_with_loops(CASES[0], comm), comm), "sum")
        cache.save(folder)
        with pytest.raises(DatasetError, match="exists already"):
            cache.save(folder)


def loaded(folder: str) -> None:
    """Reads it with another partition. A cache of other data is refused on every rank."""
    with Communicator.create("cache", timeout=30) as comm:
        part = part_with_loops(CASES[0], comm, seed=5)
        both = stores(part, comm)
        built = AggregationCache.build(both, "sum")
        cache = AggregationCache.load(folder, both, kind="sum", memory_budget=6000)
        assert torch.equal(cache.rows, built.rows) and cache.fingerprint == built.fingerprint
        with pytest.raises(AgreementError, match="kind"):
            AggregationCache.load(folder, both, kind="sum" if comm.rank else None)
        if comm.rank == comm.size - 1:
            both[0].own.attributes[NODES]["x"][0, 0] += 1
        comm.barrier()
        with pytest.raises(DatasetError, match="made of other data: the graph has other features"):
            AggregationCache.load(folder, both)


# Job files ########################################################################################


def files(folder: str) -> None:
    """Parts whose features stay in files have the aggregates and outputs of parts in memory."""
    with Communicator.create("files", timeout=30) as comm:
        case = CASES[0]
        saved = save_partition(part_of(case, comm.size, comm.rank), folder, comm)
        part = load_partition(saved, comm)
        torch.manual_seed(0)
        model = SAGE(whole(case).x.size(1), 8, 2, 3)
        for share in (True, False):
            found = []
            for budget in (None, 1):
                features = DistFeatureStore(part, comm, share=share, memory_budget=budget)
                data = features, DistGraphStore(part, comm)
                cache = AggregationCache.build(data, "symmetric", memory_budget=5000)
                outputs = model.infer(AllNodes(data, memory_budget=5000))
                found.append((cache.rows, cache.fingerprint, outputs.logits, outputs.hidden))
                assert bool(features.disk_reads.rows) == (budget is not None)
            for one, other in zip(*found, strict=True):
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
