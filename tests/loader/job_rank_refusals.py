"""The job of ranks in test_ranks.py: arguments that are refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, Communicator
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_loaders import stores


def refusals() -> None:
    """Checks that impossible and differing arguments are refused on every rank."""
    with Communicator.create("loader", timeout=30) as comm:
        both, data = stores(comm, CASES[0]), whole(CASES[0])
        for text, arguments in (
            ("keyed permutation", {"shuffle": True, "generator": torch.Generator()}),
            ("'in_place' is for one process", {"export": "native", "features": "in_place"}),
            ("'local', 'balanced' or 'global', got 'other'", {"schedule": "other"}),
            ("no split 'nothing'", {"input_nodes": "nothing"}),
            ("no node attribute 'z'", {"export": "native", "attributes": ["z"]}),
            ("use transform", {"transform_sampler_output": lambda out: out}),
        ):
            with pytest.raises(ValueError, match=text):
                MacrobatchNeighborLoader(both, [2], **{"input_nodes": data.train_mask, **arguments})
        with pytest.raises(ValueError, match="spread over ranks"):
            MacrobatchNeighborLoader(data, [2], schedule="local")
        with pytest.raises(TypeError, match="DistFeatureStore, DistGraphStore"):
            MacrobatchNeighborLoader((data, both[1]), [2])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = MacrobatchNeighborLoader(both, [2], data.train_mask, num_workers=2, prefetch=1)
        assert any("num_workers=2" in str(warning.message) for warning in caught)
        assert sum(1 for _ in loader) == len(loader)
        same_split = MacrobatchNeighborLoader(both, [2], "train", batch_size=4, seed=1)
        assert torch.equal(same_split.input_data.node, data.train_mask.nonzero().view(-1))
        every = MacrobatchNeighborLoader(both, [2], None, batch_size=50, seed=1)
        assert comm.sum(sum(batch.batch_size for batch in every)) == CASES[0].nodes
        torch.manual_seed(comm.rank)
        drawn = MacrobatchNeighborLoader(both, [2], data.train_mask)
        assert len(set(comm.all_gather_json(drawn.seed))) == 1
        if comm.size == 1:
            return
        mine: dict[str, list[Any]] = {
            "seed": [3, 4],
            "fanouts": [[2], [3]],
            "macrobatch_size": [2, "auto"],
            "schedule": ["local", "global"],
            "seeds_digest": [data.train_mask, ~data.train_mask],
            "batch_size": [4, 5],
        }
        for name, (one, other) in mine.items():
            value = one if comm.rank == 0 else other
            key = {"fanouts": "num_neighbors", "seeds_digest": "input_nodes"}.get(name, name)
            arguments = {"num_neighbors": [2], "input_nodes": data.train_mask, "seed": 1, key: value}
            with pytest.raises(AgreementError, match=name):
                MacrobatchNeighborLoader(both, **arguments)
        loader.load_state_dict(loader.state_dict())
        loader.set_epoch(comm.rank)
        with pytest.raises(AgreementError, match="epoch"):
            iter(loader)
