"""Parts whose rows stay in files give what parts in memory give."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import TensorAttr

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, CommError, Communicator, Counts
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.partition import Part, load_partition, save_partition
from pyg_batchgnn.store import EDGE_TYPE, DistFeatureStore, DistGraphStore, replicate_topology
from tests.support.partitioned_graphs import CASES, Case, part_of, whole
from tests.support.rank_epochs import BATCH, RankEpoch, assert_same
from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

# Jobs of ranks ####################################################################################

OPTIONS: tuple[dict[str, Any], ...] = (
    {"schedule": "local", "macrobatch_size": 3, "fetch_size": 2, "export": "native", "prefetch": 1},
    {"schedule": "global", "macrobatch_size": 4, "fetch_size": 4, "export": "pyg"},
    {
        "schedule": "local",
        "macrobatch_size": 2,
        "fetch_size": 1,
        "export": "native",
        "attributes": ["x", "y"],
    },
    {"schedule": "local", "macrobatch_size": 3, "fetch_size": 3, "feature_cache": 2000},
)


def parts(folder: str, comm: Communicator) -> Iterator[tuple[Case, Part]]:
    for number, case in enumerate((CASES[0], *CASES[3:6])):
        part = part_of(case, comm.size, comm.rank)
        yield case, load_partition(save_partition(part, f"{folder}/{number}", comm), comm)


def traffic(counts: Counts) -> dict[str, dict[str, float]]:
    """Returns what was sent; no times."""
    return {
        kind: {name: count for name, count in told.items() if "seconds" not in name}
        for kind, told in counts.as_dict().items()
    }


def epochs(folder: str) -> None:
    """Minibatches and messages are those of the same parts in memory."""
    with Communicator.create("disk", timeout=30) as comm:
        read = 0
        torch.manual_seed(0)
        model = SAGE(5, 8, 2, 3).eval()
        for case, part in parts(folder, comm):
            train = whole(case).train_mask.nonzero().view(-1)
            for number, options in enumerate(OPTIONS):
                topology = replicate_topology(part, comm) if number == 1 else None
                share = number % 2 == 0
                found, outputs = [], []
                for budget in (None, 1) if number else (None, 1, 4000):
                    features = DistFeatureStore(part, comm, share=share, memory_budget=budget)
                    loader = MacrobatchNeighborLoader(
                        (features, DistGraphStore(part, comm, topology)),
                        **{"num_neighbors": [3, 2], "batch_size": BATCH, "shuffle": True, "seed": 11},
                        **options,
                        input_nodes=train,
                    )
                    found.append(RankEpoch.of(comm, loader, lambda batch: batch.input_id))
                    if number == 0:
                        outputs.append(model.inference(loader, memory_budget=5000))
                    assert budget or not features.own.disk
                    read += features.disk_reads.rows
                assert all(torch.equal(outputs[0], other) for other in outputs)
                in_memory, *on_disk = found
                for other in on_disk:
                    assert len(other.batches) == len(in_memory.batches)
                    for batch, right in zip(other.batches, in_memory.batches, strict=True):
                        assert_same(batch, right)
                    assert traffic(other.counts) == traffic(in_memory.counts)
        assert read


def stores(folder: str) -> None:
    """PyG's interface; which tables are held; what is refused."""
    with Communicator.create("disk", timeout=30) as comm:
        for case, part in parts(folder, comm):
            data = whole(case)
            for share in (True, False):
                store = DistFeatureStore(part, comm, share=share, memory_budget="1B")
                index = torch.randint(case.nodes, (9 + comm.rank,))
                x, y = store.multi_get_tensor([TensorAttr(None, name, index) for name in ("x", "y")])
                assert torch.equal(x, data.x[index]) and torch.equal(y, data.y[index])
                if case.edges:
                    index = torch.randint(case.edges, (9,))
                    kind = store.get_tensor(EDGE_TYPE, "edge_kind", index=index)
                    assert torch.equal(kind, data.edge_kind[index])
            sizes = sorted(table.nbytes for tables in part.attributes.values() for table in tables.values())
            own = DistFeatureStore(part, comm, memory_budget=max(1, sum(sizes[:2]))).own
            if part.num_nodes and case.edges and all(sizes):
                assert len(own.disk) == len(sizes) - 2
                assert {rows.table.nbytes for rows in own.disk} <= set(sizes[2:])
            assert not DistFeatureStore(part, comm, memory_budget="1GiB").own.disk
        case, part = next(parts(folder + "/more", comm))
        store = DistFeatureStore(part, comm, memory_budget=1)
        with pytest.raises(ValueError, match=r"'x' lies in files .* larger memory_budget"):
            store.put_tensor(torch.zeros(1, 5), TensorAttr(None, "x", torch.tensor([0])))
        with pytest.raises(ValueError, match="converts tables in memory"):
            DistFeatureStore(part, comm, memory_budget=1, floats=torch.bfloat16)
        with pytest.raises(AgreementError, match="memory_budget"):
            DistFeatureStore(part, comm, memory_budget=None if comm.rank else 1)


def a_file_is_cut(folder: str) -> None:
    """The rank whose file is cut names it, and the others name the rank."""
    with Communicator.create("disk", timeout=20) as comm:
        _, part = next(parts(folder, comm))
        features = DistFeatureStore(part, comm, share=False, memory_budget=1)
        loader = MacrobatchNeighborLoader(
            (features, DistGraphStore(part, comm)), [3, 2], batch_size=BATCH, macrobatch_size=2, prefetch=1
        )
        if comm.rank == 1:
            rows = max(features.own.disk, key=lambda rows: rows.table.nbytes)
            os.truncate(rows.reader.table.path, rows.reader.table.offset + 100)
        comm.barrier()
        with pytest.raises(CommError if comm.rank == 0 else (OSError, CommError)) as raised:
            list(loader)
        told = str(raised.value)
        assert "rank 1" in told if comm.rank == 0 else "since it was opened" in told, told


# Tests ############################################################################################


@pytest.mark.parametrize(
    ("ranks", "hosts"), [*in_all((1, [0]), (2, [0, 1]), (4, [0, 1, 0, 1])), (3, [0, 1, 1])], ids=str
)
def test_equal_minibatches_and_messages(ranks: int, hosts: Sequence[int], tmp_path: Path) -> None:
    run_ranks(epochs, ranks, {"folder": str(tmp_path)}, hosts=hosts)


@pytest.mark.parametrize(("ranks", "hosts"), [*in_all((1, [0])), (3, [0, 1, 1])], ids=str)
def test_stores(ranks: int, hosts: Sequence[int], tmp_path: Path) -> None:
    run_ranks(stores, ranks, {"folder": str(tmp_path)}, hosts=hosts)


def test_a_file_that_is_cut_ends_every_rank(tmp_path: Path) -> None:
    run_ranks(a_file_is_cut, 2, {"folder": str(tmp_path)}, hosts=[0, 1])
