"""Graphs of tables as RelBench makes them: a seed sees nothing that is later than itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.utils import sort_edge_index

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.tiers import all_only

CUSTOMERS, PRODUCTS, REVIEWS, LAST = 2_000, 300, 30_000, 10_000


@pytest.fixture(scope="module")
def tables() -> HeteroData:
    """Returns customers, products and reviews, joined in both directions by keys."""
    draw = torch.Generator().manual_seed(3)
    graph = HeteroData()
    graph["customer"].num_nodes = CUSTOMERS
    graph["product"].time = torch.randint(40, LAST // 2, (PRODUCTS,), generator=draw)
    graph["review"].time = torch.randint(0, LAST, (REVIEWS,), generator=draw).sort().values
    review = torch.arange(REVIEWS)
    graph["product"].num_nodes, graph["review"].num_nodes = PRODUCTS, REVIEWS
    for key, count in (("customer", CUSTOMERS), ("product", PRODUCTS)):
        rows = torch.stack([review, torch.randint(count, (REVIEWS,), generator=draw)])
        graph["review", f"f2p_{key}_id", key].edge_index = sort_edge_index(rows)
        graph[key, f"rev_f2p_{key}_id", "review"].edge_index = sort_edge_index(rows.flip(0))
    return graph


def late_by_type(batch: HeteroData, seed_time: Tensor) -> dict[str, Tensor]:
    return {name: time > seed_time[batch[name].batch] for name, time in batch.time_dict.items()}


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_no_node_is_later_than_its_seed(tables: HeteroData, strategy: str) -> None:
    draw = torch.Generator().manual_seed(4)
    seeds = torch.randint(CUSTOMERS, (8_000,), generator=draw)
    times = torch.randint(0, LAST, (8_000,), generator=draw)
    loader = MacrobatchNeighborLoader(
        tables,
        num_neighbors=[30, 3, 20],
        input_nodes=("customer", seeds),
        input_time=times,
        time_attr="time",
        temporal_strategy=strategy,
        batch_size=512,
        seed=0,
    )
    sampled = 0
    for batch in loader:
        chosen = batch["customer"]
        assert torch.equal(chosen.seed_time, times[chosen.input_id])
        assert torch.equal(chosen.batch[: chosen.batch_size], torch.arange(chosen.batch_size)), "disjoint"
        assert not any(bool(late.any()) for late in late_by_type(batch, chosen.seed_time).values())
        for relation, index in batch.edge_index_dict.items():
            source, _, target = relation
            assert torch.equal(batch[source].batch[index[0]], batch[target].batch[index[1]])
        sampled += sum(batch.num_nodes_dict.values())
    assert sampled > 1_000_000


def test_links_whose_task_is_no_relation(tables: HeteroData) -> None:
    draw = torch.Generator().manual_seed(5)
    times = torch.randint(0, LAST, (3_000,), generator=draw)
    # A link's own product exists at its time, if any does.
    earlier = tables["product"].time[None, :] <= times[:, None]
    product = torch.where(earlier.any(1), torch.multinomial(earlier.double() + 1e-12, 1).view(-1), 0)
    pairs = torch.stack([torch.randint(CUSTOMERS, (3_000,), generator=draw), product])
    with pytest.warns(UserWarning, match="links are earlier than every node"):
        loader = MacrobatchLinkNeighborLoader(
            tables,
            num_neighbors=[20, 10],
            edge_label_index=(("customer", "reviews", "product"), pairs),
            edge_label_time=times,
            time_attr="time",
            neg_sampling="triplet",
            batch_size=256,
            seed=0,
        )
    alone = sampled = 0
    for batch in loader:
        seed_time = batch["product"].seed_time
        late = late_by_type(batch, seed_time)
        assert not late["review"].any()
        # A product is late only where no product is as early as the link: the link's own, and its
        # negative. Nothing is sampled from it.
        where = late["product"].nonzero().view(-1)
        assert bool((seed_time[batch["product"].batch[where]] < int(tables["product"].time.min())).all())
        assert bool((where < 2 * len(seed_time)).all())
        alone += len(where)
        sampled += sum(batch.num_nodes_dict.values())
    assert loader.stats().total.late_negatives * 2 == alone > 0 and sampled > 100_000


@all_only
def test_the_example_with_relbench() -> None:
    pytest.importorskip("relbench", reason="needs relbench")
    pytest.importorskip("torch_frame", reason="needs pytorch-frame")
    script = Path(__file__).parents[2] / "examples" / "relational.py"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "sampled nodes, 0 of them later than their seed" in ran.stdout
    assert ran.stdout.rstrip().endswith("0 nodes later than their seed")
