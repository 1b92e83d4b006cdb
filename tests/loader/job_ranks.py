"""The jobs of ranks in test_ranks.py: make minibatches, compare with one process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, MessageKind
from tests.support.partitioned_graphs import CASES, Case, owners, whole
from tests.support.rank_loaders import BATCH, one_process, same, stores


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
