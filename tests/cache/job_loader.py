"""Jobs of the ranks in test_loader.py."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from pyg_batchgnn import AggregationCache, MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, Communicator, MessageKind
from tests.support.loader_cases import contents, equal
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import BATCH, one_process, stores
from tests.support.reference_aggregates import KINDS


def epochs() -> None:
    """Minibatches are bit for bit those of one process with the same cache, in all settings."""
    settings = itertools.cycle(
        [
            {"schedule": "global", "prefetch": 1, "macrobatch_size": 3, "fetch_size": 2},
            {"schedule": "local", "shuffle": True, "replace": True, "attributes": ["x"]},
            {"schedule": "global", "shuffle": True, "macrobatch_size": 1, "fetch_size": 1},
        ]
    )
    with Communicator.create("loader", timeout=30) as comm:
        for number, case in enumerate(CASES):
            data, kind = whole(case), KINDS[number % 3]
            both = stores(comm, case, hybrid=number % 2 == 1)
            train = data.train_mask.nonzero().view(-1)
            for options in itertools.islice(settings, 2):
                common = {
                    "num_neighbors": [3, 2, 4],
                    "input_nodes": train,
                    "batch_size": BATCH,
                    "seed": 3,
                    "export": "native",
                    **options,
                }
                cache = AggregationCache.build(both, kind)
                kept = {"feature_cache": 1500} if number % 2 else {}
                loader = MacrobatchNeighborLoader(both, aggregation_cache=cache, **common, **kept)
                alone = one_process(case, aggregation_cache=AggregationCache.build(data, kind), **common)
                for batch in loader:
                    same(batch, alone(batch.input_id.tolist()) if len(batch.input_id) else None)
                of_links(both, data, kind, {**common, **kept})


def of_links(both: Any, data: Any, kind: str, arguments: dict[str, Any]) -> None:
    """Minibatches of links are those of one process with the same cache."""
    links = {"edge_label_index": data.edge_index[:, ::9], "neg_sampling": "binary"}
    arguments = {name: value for name, value in arguments.items() if name != "input_nodes"} | links
    cache = AggregationCache.build(both, kind)
    loader = MacrobatchLinkNeighborLoader(both, aggregation_cache=cache, **arguments)
    for name in ("schedule", "feature_cache"):
        arguments.pop(name, None)
    cache = AggregationCache.build(data, kind)
    alone = MacrobatchLinkNeighborLoader(data, aggregation_cache=cache, **arguments)
    for batch in loader:
        same(batch, alone(batch.input_id.tolist()) if len(batch.input_id) else None)


def same(made: Any, wanted: Any) -> None:
    assert len(made.edges_per_hop) == 2
    if wanted is None:
        assert made.num_nodes == 0
        return
    left, right = contents(made), contents(wanted)
    names = (left.keys() | right.keys()) - {"e_id"}
    different = [name for name in names if not equal(left.get(name), right.get(name))]
    assert not different, different


def counts() -> None:
    """A cache saves the last hop's rounds, and fetches the rows of the remaining nodes alone."""
    with Communicator.create("loader", timeout=30) as comm:
        case = CASES[0]
        both = stores(comm, case)
        cache = AggregationCache.build(both, "mean")
        train = whole(case).train_mask.nonzero().view(-1)
        common: dict[str, Any] = {"input_nodes": train, "batch_size": BATCH, "seed": 3, "export": "native"}
        common |= {"macrobatch_size": 2, "fetch_size": 1, "attributes": ["x"]}
        spent = []
        for fanouts, given in (([3, 2, 4], cache), ([3, 2], None)):
            loader = MacrobatchNeighborLoader(both, fanouts, aggregation_cache=given, **common)
            before = comm.counters.snapshot()
            for _ in loader:
                pass
            spent.append((comm.counters.snapshot() - before, loader.stats().total.rows_fetched))
        (ours, rows), (plain, plain_rows) = spent
        assert rows == plain_rows
        assert ours[MessageKind.TOPOLOGY].bytes_sent == plain[MessageKind.TOPOLOGY].bytes_sent
        assert ours[MessageKind.TOPOLOGY].rounds == plain[MessageKind.TOPOLOGY].rounds > 0
        more = ours[MessageKind.FEATURES].bytes_received - plain[MessageKind.FEATURES].bytes_received
        assert more == rows * 5 * 4  # five columns of float32 per row more than the five of x
        with pytest.raises(ValueError, match="not made of the feature store"):
            MacrobatchNeighborLoader(stores(comm, case), [3, 2, 4], aggregation_cache=cache, **common)
        other = AggregationCache.build(both, "sum")
        with pytest.raises(AgreementError, match="cache"):
            MacrobatchNeighborLoader(both, [3, 2], aggregation_cache=cache if comm.rank else other, **common)
        comm.check_agreement({"end": torch.__version__})
