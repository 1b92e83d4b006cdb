"""The jobs of ranks in test_ranks.py: make minibatches, compare with one process."""

from __future__ import annotations

import gc
import itertools
import threading
import warnings
from typing import Any

import pytest
import torch

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, BrokenCommunicatorError, CommError, Communicator
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import BATCH, assert_same, one_process, stores

# Job ranks ########################################################################################


def automatic_sizes() -> None:
    """Ranks without seed nodes do not decide how large a macrobatch is."""
    with Communicator.create("loader", timeout=30) as comm:
        for case in CASES[2:4]:
            loader = MacrobatchNeighborLoader(
                stores(comm, case), [3, 2], whole(case).train_mask, batch_size=4, seed=1
            )
            assert loader.sizes.macrobatch == loader.sizes.fetch == len(loader) > 1


def bfloat16() -> None:
    """Features on request in sixteen bits, on the wire and in the block; edge features too."""
    with Communicator.create("loader", timeout=30) as comm:
        data = whole(CASES[0])
        half = data.clone()
        half.x, half.edge_attr = half.x.bfloat16(), half.edge_attr.bfloat16()
        both = stores(comm, CASES[0], floats=torch.bfloat16)
        arguments: dict[str, Any] = {"num_neighbors": [3, 2], "input_nodes": data.train_mask, "seed": 2}
        loader = MacrobatchNeighborLoader(both, **arguments, batch_size=BATCH)
        reference = one_process(CASES[0], data=half, **arguments)
        where = {node: at for at, node in enumerate(data.train_mask.nonzero().view(-1).tolist())}
        for batch in loader:
            assert batch.x.dtype == torch.bfloat16
            assert_same(batch, reference([where[node] for node in batch.input_id.tolist()]))


# Job rank stops ###################################################################################


def first_steps(steps: int, state: Any = None, drop_last: bool = False) -> dict[str, Any]:
    """The seeds of a few steps of a global schedule, and the state after them."""
    with Communicator.create("loader", timeout=30) as comm:
        case = CASES[0]
        loader = MacrobatchNeighborLoader(
            stores(comm, case, edges=False),
            [2],
            whole(case).train_mask,
            batch_size=BATCH,
            shuffle=True,
            seed=9,
            schedule="global",
            drop_last=drop_last,
        )
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        seeds = [batch.input_id.tolist() for batch in itertools.islice(batches, steps)]
        return {"seeds": seeds, "state": loader.state_dict()}


def stopping() -> None:
    """Breaks or raises on all ranks at one minibatch; checks that the next epoch works."""
    with Communicator.create("loader", timeout=30) as comm:
        data = whole(CASES[0])
        both = stores(comm, CASES[0])
        ways: list[dict[str, Any]] = [{}, {"prefetch": 1}, {"prefetch": 3}, {"device": "cpu"}]
        for way in ways:
            loader = MacrobatchNeighborLoader(
                both,
                [3, 2],
                data.train_mask,
                batch_size=4,
                seed=1,
                shuffle=True,
                macrobatch_size=2,
                fetch_size=1,
                **way,
            )
            other = MacrobatchNeighborLoader(both, [2], data.train_mask, batch_size=4, seed=2, prefetch=1)
            for stop in (0, 1, 2, 3):
                for number, _ in enumerate(loader):
                    if number == stop:
                        break
                kept = iter(loader)  # not closed, and another one begun
                next(kept)
                assert sum(1 for _ in other) == len(other)
                with pytest.raises(ZeroDivisionError):
                    for number, _ in enumerate(loader):
                        assert number < stop or number / 0
            both[0].get_tensor(None, "x", index=torch.arange(3))
            loader.set_epoch(7)
            reference = one_process(
                CASES[0], num_neighbors=[3, 2], input_nodes=data.train_mask, batch_size=4, seed=1
            )
            reference.set_epoch(7)
            where = {node: at for at, node in enumerate(data.train_mask.nonzero().view(-1).tolist())}
            for batch in loader:
                position = [where[node] for node in batch.input_id.tolist()]
                assert_same(batch, reference(position))


def dropped() -> None:
    """An iterator that the garbage collector finds on the thread that does its job, or that
    outlives the communicator, does not wait for ever.
    """
    with Communicator.create("loader", timeout=30) as comm:
        both, data = stores(comm, CASES[0]), whole(CASES[0])
        loader = MacrobatchNeighborLoader(
            both, [3, 2], data.train_mask, batch_size=2, seed=1, prefetch=2, macrobatch_size=2
        )
        begun, let_go = threading.Event(), threading.Event()
        sample = loader._parts.pipeline.sample

        def collects(item: Any) -> Any:
            if item.number == 1:
                begun.set()
                assert let_go.wait(20)
                gc.collect()
            return sample(item)

        loader._parts.pipeline.sample = collects
        batches: list[Any] = [iter(loader)]
        next(batches[0])
        assert begun.wait(20)
        batches.append(batches)  # a cycle
        del batches
        let_go.set()
        loader._parts.pipeline.sample = sample
        assert sum(1 for _ in loader) == len(loader)
        kept = iter(loader)
        next(kept)
        comm.run_job(lambda: None)
    next(kept)
    with pytest.raises(BrokenCommunicatorError):
        list(kept)


def raising_ahead() -> str:
    """A rank that raises in what it prepares ahead is named, with its error, on the others."""
    try:
        with Communicator.create("loader", timeout=30) as comm:
            loader = MacrobatchNeighborLoader(
                stores(comm, CASES[0]),
                [3, 2],
                whole(CASES[0]).train_mask,
                batch_size=4,
                seed=1,
                prefetch=1,
                macrobatch_size=1,
            )
            fetch = loader._parts.pipeline.fetcher.fetch

            def fails(group: Any) -> Any:
                if comm.rank == 1 and group.macrobatch == 2:
                    raise ArithmeticError("the third macrobatch")
                return fetch(group)

            loader._parts.pipeline.fetcher.fetch = fails
            list(loader)
    except (CommError, ArithmeticError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


# Job rank refusals ################################################################################


def refusals() -> None:
    """Checks that impossible arguments are refused on every rank."""
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
        with pytest.raises(RuntimeError, match="there is none yet"):
            _ = loader.loss_weight
        assert sum(1 for _ in loader) == len(loader)
        same_split = MacrobatchNeighborLoader(both, [2], "train", batch_size=4, seed=1)
        assert torch.equal(same_split.input_data.node, data.train_mask.nonzero().view(-1))
        every = MacrobatchNeighborLoader(both, [2], None, batch_size=50, seed=1)
        assert comm.sum(sum(batch.batch_size for batch in every)) == CASES[0].nodes
        torch.manual_seed(comm.rank)
        drawn = MacrobatchNeighborLoader(both, [2], data.train_mask)
        assert len(set(comm.all_gather_json(drawn.seed))) == 1
        loader.load_state_dict(loader.state_dict())
        loader.set_epoch(comm.rank)
        with pytest.raises(AgreementError, match="epoch"):
            iter(loader)
