"""The jobs of ranks in test_rank_stops.py: epochs that end early and go on."""

from __future__ import annotations

import functools
import gc
import itertools
import threading
from typing import Any

import pytest
import torch

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import BrokenCommunicatorError, CommError, Communicator
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_loaders import BATCH, one_process, same, stores
from tests.support.resumed_epochs import resumed_at


def resumed() -> None:
    """Resumes at any point of an epoch, twice, in another loader, with and without prefetch."""
    with Communicator.create("loader", timeout=30) as comm:
        case = CASES[0]
        data = whole(case)
        for schedule, prefetch in (("local", 0), ("balanced", 1), ("global", 2)):
            arguments: dict[str, Any] = {
                "num_neighbors": [2, 2],
                "input_nodes": data.train_mask,
                "batch_size": BATCH,
                "shuffle": True,
                "schedule": schedule,
                "macrobatch_size": 2,
                "fetch_size": 1,
            }
            both = stores(comm, case, edges=False)
            loader = MacrobatchNeighborLoader(both, **arguments, seed=4, prefetch=prefetch)
            make = functools.partial(
                MacrobatchNeighborLoader, both, **arguments, seed=5, prefetch=2 - prefetch
            )
            stops = (0, 1, 2, len(loader))
            *_, (other, state) = resumed_at(loader, make, 3, stops, lambda *pair: same(*pair, data))
            if schedule != "global":
                state["settings"]["ranks"] = 17
                with pytest.raises(ValueError, match="ranks=17"):
                    other.load_state_dict(state)


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
        for prefetch in (0, 1, 3):
            loader = MacrobatchNeighborLoader(
                both,
                [3, 2],
                data.train_mask,
                batch_size=4,
                seed=1,
                shuffle=True,
                prefetch=prefetch,
                macrobatch_size=2,
                fetch_size=1,
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
                same(batch, reference(position), data)


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
