"""The jobs of ranks in test_ranks.py: make minibatches, compare with one process."""

from __future__ import annotations

import functools
import gc
import itertools
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, BrokenCommunicatorError, CommError, Communicator, MessageKind
from tests.support.partitioned_graphs import CASES, Case, owners, whole
from tests.support.rank_epochs import BATCH, one_process, resumed_at, same, stores

# Job ranks ########################################################################################


def settings() -> Iterator[tuple[Case, bool, dict[str, Any]]]:
    """Cases, hybrid or not, and arguments of both loaders; all of each kind somewhere."""
    sizes = itertools.cycle([(1, 1), (3, 2), (4, 4), ("auto", "auto"), (5, 1)])
    others = itertools.cycle(
        [
            {"export": "native", "prefetch": 1},
            {"export": "pyg", "replace": True},
            {"export": "native", "replace": True, "attributes": ["x", "y"]},
            {"export": "pyg", "prefetch": 2, "drop_last": True},
            {"export": "native", "shuffle": False, "drop_last": True, "prefetch": 2},
            {"export": "pyg", "device": "cpu"},
            {"export": "native", "device": "cpu", "prefetch": 2},
        ]
    )
    for case in CASES:
        for schedule in ("local", "global"):
            for hybrid in (False, True):
                macrobatch, fetch = next(sizes)
                yield (
                    case,
                    hybrid,
                    {
                        "schedule": schedule,
                        "num_neighbors": [3, 2],
                        "batch_size": BATCH,
                        "shuffle": True,
                        "seed": 11,
                        "macrobatch_size": macrobatch,
                        "fetch_size": fetch,
                        **next(others),
                    },
                )


def epochs(backend: str = "gloo") -> None:
    """Two epochs in all settings are bit for bit those of one process."""
    with Communicator.create("loader", timeout=30, backend=backend) as comm:
        for case, hybrid, arguments in settings():
            loader_equals_one_process(comm, case, hybrid, arguments)


def loader_equals_one_process(
    comm: Communicator, case: Case, hybrid: bool, arguments: dict[str, Any]
) -> None:
    data = whole(case)
    train = data.train_mask.nonzero().view(-1)
    arguments = {**arguments, "input_nodes": train}
    loader = MacrobatchNeighborLoader(stores(comm, case, hybrid), **arguments)
    reference = one_process(case, **arguments)
    for epoch in range(2):
        made = list(loader)
        assert len(made) == len(loader)
        reference.set_epoch(epoch)
        for batch in made:
            same(batch, reference(batch.input_id), data)
        _check_schedule(comm, case, arguments, made, epoch, reference)
    position = (torch.arange(5) * 3 + comm.rank) % max(len(train), 1)
    position = position[: len(train)]
    same(loader(position), reference(position), data)
    assert loader.stats().total.minibatches >= 2 * len(loader)


def _check_schedule(
    comm: Communicator, case: Case, arguments: dict[str, Any], made: list[Any], epoch: int, reference: Any
) -> None:
    """Checks which rank trains which seeds."""
    train = whole(case).train_mask.nonzero().view(-1)
    drop = arguments.get("drop_last", False)
    mine = [batch.input_id.tolist() for batch in made]
    everyones = comm.all_gather_json(mine)
    assert len({len(steps) for steps in everyones}) == 1
    if arguments["schedule"] == "global":
        reference.set_epoch(epoch)
        wanted = [batch.input_id.tolist() for batch in reference]
        wanted = wanted[: len(wanted) // comm.size * comm.size] if drop else wanted
        dealt = [batch for step in zip(*everyones, strict=True) for batch in step]
        assert dealt[: len(wanted)] == wanted and not any(dealt[len(wanted) :])
        return
    owner = owners(case, comm.size)[train]
    for rank, steps in enumerate(everyones):
        seeds = list(itertools.chain.from_iterable(steps))
        assert len(set(seeds)) == len(seeds) and all(int(owner[seed]) == rank for seed in seeds)
        sizes = [len(step) for step in steps]
        assert max(sizes, default=0) <= BATCH
        if not drop:
            assert len(seeds) == int((owner == rank).sum())
        if not arguments["shuffle"]:
            assert seeds == sorted(seeds)
    counts = [int((owner == rank).sum()) for rank in range(comm.size)]
    steps = [count // BATCH if drop else -(-count // BATCH) for count in counts]
    assert len(made) == max(steps)


def counts() -> None:
    """Rounds, rows and bytes are those of the formulas."""
    with Communicator.create("loader", timeout=30) as comm:
        for case, (schedule, hybrid, edges) in itertools.product(
            CASES, [("local", False, True), ("global", False, False), ("local", True, False)]
        ):
            data = whole(case)
            arguments: dict[str, Any] = {
                "num_neighbors": [3, 2, 2],
                "input_nodes": data.train_mask,
                "batch_size": BATCH,
                "shuffle": True,
                "seed": 1,
                "export": "native",
            }
            both = stores(comm, case, hybrid, edges, share=case.nodes % 2 == 0)
            loader = MacrobatchNeighborLoader(
                both, **arguments, macrobatch_size=3, fetch_size=2, schedule=schedule
            )
            before = comm.counters.snapshot()
            made = list(loader)
            after = comm.counters.snapshot() - before
            macrobatches = [min(3, len(made) - first) for first in range(0, len(made), 3)]
            groups = sum(-(-size // 2) for size in macrobatches)
            relays = {("local", False): 2 * (3 - 1), ("global", False): 2 * 3, ("local", True): 0}
            wanted = relays[schedule, hybrid] * len(macrobatches) if comm.size > 1 else 0
            assert after[MessageKind.TOPOLOGY].rounds == wanted
            assert after[MessageKind.FEATURES].rounds == 2 * groups
            assert after[MessageKind.LOOKUP].rounds == (2 if schedule == "global" else 0)
            # distinct remote nodes of every fetch group
            owner, hosts = owners(case, comm.size), torch.tensor(comm.hosts)
            shared = case.nodes % 2 == 0
            fetched = 0
            for first in range(0, len(made), 3):
                for begin in range(first, min(first + 3, len(made)), 2):
                    group = made[begin : min(begin + 2, first + 3)]
                    nodes = torch.cat([one.node for one in group]).unique()
                    remote = owner[nodes] != comm.rank
                    if shared:
                        remote = hosts[owner[nodes]] != comm.host
                    fetched += int(remote.sum())
            assert loader.stats().total.rows_fetched == fetched
            if not edges:
                asked = comm.all_gather_json(fetched)
                sent = comm.all_gather_json(after[MessageKind.FEATURES].rows_sent)
                assert sum(sent) == 2 * sum(asked)  # ids there and rows back


def sums_of_losses() -> None:
    """Every seed node of a step weighs the same, and an empty minibatch adds zero."""
    with Communicator.create("loader", timeout=30) as comm:
        for case in (CASES[0], CASES[3], CASES[4]):
            data = whole(case)
            for schedule in ("local", "balanced", "global"):
                loader = MacrobatchNeighborLoader(
                    stores(comm, case),
                    [2],
                    data.train_mask,
                    batch_size=5,
                    schedule=schedule,
                    export="native",
                    seed=3,
                )
                with pytest.raises(RuntimeError, match="there is none yet"):
                    _ = loader.loss_weight
                for batch in loader:
                    loss = batch.attribute("x", batch.batch_size)[:, 0].double()
                    mine = float(loss.sum()) * loader.loss_weight / comm.size
                    every = comm.all_gather(loss).rows
                    assert abs(comm.sum(mine) - float(every.mean())) < 1e-9


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
            same(batch, reference([where[node] for node in batch.input_id.tolist()]), half)


# Job rank stops ###################################################################################


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


# Job rank refusals ################################################################################


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
