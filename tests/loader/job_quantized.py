"""The jobs of ranks in test_quantized.py: codes over ranks, compared with one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, TensorAttr

from pyg_batchgnn import MacrobatchNeighborLoader, quantize
from pyg_batchgnn.comm import AgreementError, Communicator, MessageKind
from pyg_batchgnn.data import NODES, from_pyg
from pyg_batchgnn.history import HistoricalCaches, HistoricalSettings
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.partition import (
    Part,
    load_partition,
    partition,
    partition_parts,
    quantize_partition,
    save_partition,
    verify_partition,
)
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from tests.loader.test_quantized import decoded, timed
from tests.support.rank_epochs import assert_same

COLUMNS = 32


def plain() -> Data:
    """A homogeneous graph with wide features, a split, and attributes of edges."""
    data, draws = timed(), torch.Generator().manual_seed(4)
    del data.weight, data.time
    data.x = torch.randn(data.num_nodes, COLUMNS, generator=draws)
    data.y = data.y.clamp(min=0)
    data.train_mask = torch.arange(data.num_nodes) % 2 == 0
    return data


def train(data: Data) -> Tensor:
    """The training nodes, whose positions are a batch's input ids."""
    return data.train_mask.nonzero().view(-1)


def stores_of(part: Part, comm: Communicator, **options: Any) -> tuple[DistFeatureStore, DistGraphStore]:
    return DistFeatureStore(part, comm, **options), DistGraphStore(part, comm)


def counts() -> None:
    """The bytes of a fetch are those of the row layout, with 1 byte for a float of 4."""
    with Communicator.create("loader", timeout=30) as comm:
        data, seen = plain(), {}
        for name, graph in {"wide": data, "narrow": quantize(data)}.items():
            part = partition(graph, "random", comm=comm)
            loader = MacrobatchNeighborLoader(
                stores_of(part, comm, share=False), [4, 3], train(data),
                batch_size=20, seed=3, export="native", attributes=["x"], macrobatch_size=2,
            )  # fmt: skip
            before = comm.counters.snapshot()
            list(loader)
            seen[name] = (
                loader.stats().total.rows_fetched,
                (comm.counters.snapshot() - before)[MessageKind.FEATURES],
            )
        (rows, wide), (again, codes) = seen["wide"], seen["narrow"]
        assert rows == again and wide.rounds == codes.rounds and wide.rows_sent == codes.rows_sent
        assert (rows > 0) == (comm.size > 1)
        # An id of 4 bytes travels with the features, and an id asks for a row.
        given = (codes.rows_sent - rows) * (COLUMNS + 4)
        assert codes.bytes_received == rows * (COLUMNS + 4) + (codes.rows_received - rows) * 4
        assert codes.bytes_sent == rows * 4 + given
        assert wide.bytes_received - codes.bytes_received == rows * 3 * COLUMNS


def caches() -> None:
    """A cache of a number of bytes holds four times as many rows, less ids."""
    budget = 20 * (8 + 4 + 4 * COLUMNS)
    with Communicator.create("loader", timeout=30) as comm:
        data, held = plain(), {}
        for name, graph in {"wide": data, "narrow": quantize(data)}.items():
            part = partition(graph, "random", comm=comm)
            loader = MacrobatchNeighborLoader(
                stores_of(part, comm, share=False), [4, 3], train(data),
                batch_size=20, seed=3, export="native", attributes=["x"], feature_cache=budget,
            )  # fmt: skip
            cache = loader._parts.pipeline.fetcher.cache
            held[name] = sum(len(rows.node) for rows in cache.rows.values())
            assert cache.nbytes <= budget
        assert held["wide"] == 20 and held["narrow"] == budget // (8 + 4 + COLUMNS)


def folders(folder: str) -> None:
    """A partition that is quantised decodes alike on every rank, in memory and from its files."""
    with Communicator.create("loader", timeout=30) as comm:
        data = plain()
        path = Path(folder)
        save_partition(partition_parts(data, "random", 3, comm=comm), path / "wide", comm)
        if comm.rank == 0:
            quantize_partition(path / "wide", path / "narrow", attributes=["x", "edge_attr"])
            verify_partition(path / "narrow")
        comm.barrier()
        wanted = quantize(data, attributes=["x", "edge_attr"])
        reference = MacrobatchNeighborLoader(
            decoded(wanted), [4, 3], train(data), batch_size=20, seed=3, export="native"
        )
        for options in ({}, {"memory_budget": 1}, {"memory_budget": 1, "share": False}):
            both = stores_of(load_partition(path / "narrow", comm), comm, **options)
            table = both[0].own.attributes[NODES]["x"]
            assert isinstance(table, QuantizedTensor) and torch.equal(table.decoding, wanted.x.decoding)
            loader = MacrobatchNeighborLoader(
                both, [4, 3], train(data), batch_size=20, seed=3, export="native"
            )
            for batch in loader:
                assert_same(batch, reference(batch.input_id))


def stores() -> None:
    """Rows of a store, and writes that it refuses."""
    with Communicator.create("loader", timeout=30) as comm:
        data = quantize(plain())
        part = partition(data, "random", comm=comm)
        store, _ = stores_of(part, comm)
        ids = torch.tensor([5, 5, 0, data.num_nodes - 1])
        rows = store.get_tensor(TensorAttr(None, attr_name="x", index=ids))
        assert type(rows) is Tensor and torch.equal(rows, data.x.dequantize()[ids])
        assert store.fields[NODES]["x"].dtype is torch.float32
        assert store.get_tensor_size(TensorAttr(None, attr_name="x")) == tuple(data.x.shape)
        with pytest.raises(ValueError, match="'x' is int8 codes, which are constant"):
            store.put_tensor(rows, TensorAttr(None, attr_name="x", index=ids))
        narrow_store, _ = stores_of(part, comm, floats=torch.bfloat16)
        found = narrow_store.get_tensor(TensorAttr(None, attr_name="x", index=ids))
        assert torch.equal(found, data.x.dequantize()[ids].to(torch.bfloat16))
        with pytest.raises(TypeError, match="codes are decoded into"):
            stores_of(part, comm, floats=torch.float16)
        if comm.size > 1:
            other = quantize(data.x.dequantize() * (comm.rank + 1))
            own = {NODES: {**part.attributes[NODES], "x": other[: part.num_nodes]}}
            wrong = Part(**{**vars(part), "attributes": {**part.attributes, **own}})
            with pytest.raises(AgreementError, match="scales and offsets"):
                stores_of(wrong, comm)
            assert from_pyg(data).nodes.tables["x"] is data.x


def historical() -> None:
    """The logits with historical embeddings are those of the decoded features."""
    with Communicator.create("loader", timeout=30) as comm, Communicator.create("pushes") as pushes:
        data, seen, stats = quantize(plain()), list[list[Tensor]](), []
        for graph in (data, decoded(data)):
            both = stores_of(partition(graph, "random", comm=comm), comm)
            caches = HistoricalCaches(both[1], pushes, HistoricalSettings(push=None, delay=1))
            loader = MacrobatchNeighborLoader(
                both, [3, 2], "train", batch_size=10, seed=4, export="native", history=caches,
                attributes=["x", "y"],
            )  # fmt: skip
            torch.manual_seed(1)
            model, logits = SAGE(COLUMNS, 8, 2, 7).train(), []
            for _ in range(2):
                for minibatch in loader:
                    assert torch.equal(minibatch.attribute("x"), decoded(data).x[minibatch.node])
                    logits.append(model(minibatch).detach())
            seen.append(logits)
            stats.append(caches.stats())
        narrow_stats, wide = stats
        fetched = wide.features_fetched
        assert narrow_stats.features_fetched == fetched
        assert wide.feature_bytes - narrow_stats.feature_bytes == 3 * COLUMNS * fetched
        for one, other in zip(*seen, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
