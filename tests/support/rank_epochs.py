"""Epochs of loaders over ranks, and the minibatches of one process that theirs must be."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch
from pyg_batchgnn.comm import Communicator, Counts
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology
from tests.support.loader_cases import contents, equal
from tests.support.partitioned_graphs import Case, part_of, whole
from tests.support.rank_graphs import assert_shared

EPOCH = 2
#: Returns the positions of a batch's seeds in the input of its loader.
Positions = Callable[[Any], Tensor]


def contents_of(batch: Any) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    if isinstance(batch, Minibatch):
        found = {name: getattr(batch, name) for name in ("key", "seed", "epoch", "seed_types")}
        found["attributes"] = set(batch.attributes)
        for number, edges in enumerate(batch.edges):
            found |= {("indptr", number): edges.indptr, ("dtype", number): edges.indices.dtype}
        for number, links in enumerate(batch.links):
            found["links", number] = type(links)
            found |= {("links", number, one.name): getattr(links, one.name) for one in fields(links)}
        batch = batch.to_data()
    found["type"] = type(batch)
    held = contents(batch).items()
    return found | {("data", name): value for name, value in held if "num_nodes" not in (name, name[-1])}


def assert_same(batch: Any, right: Any) -> None:
    """Asserts that two batches have the same bits and attributes, links included."""
    assert_equal(contents_of(batch), contents_of(right))


def assert_equal(left: dict[Any, Any], right: dict[Any, Any]) -> None:
    names = left.keys() | right.keys()
    different = [name for name in names if not equal(left.get(name), right.get(name))]
    assert not different, (different, [(left.get(name), right.get(name)) for name in different])


class OneProcess:
    """The minibatches of a loader in one process. Each is made once, however often it is asked for.
    ``loader`` has macrobatches of one minibatch."""

    def __init__(self, loader: Any, positions: Positions) -> None:
        self._loader, self.positions = loader, positions
        self._made: dict[tuple[int, ...], dict[Any, Any]] = {}
        self._order: list[list[int]] = []

    def minibatch(self, positions: Tensor) -> dict[Any, Any]:
        """Returns the contents of the minibatch of the seeds at some positions."""
        key = tuple(positions.tolist())
        if key not in self._made:
            self._loader.set_epoch(EPOCH)
            self._made[key] = contents_of(self._loader(positions))
        return self._made[key]

    def order(self) -> list[list[int]]:
        """Returns the positions of the seeds of each minibatch of the epoch."""
        if not self._order:
            self._loader.set_epoch(EPOCH)
            self._order = [self.positions(batch).tolist() for batch in self._loader]
        return self._order

    def in_order(self) -> list[list[int]]:
        positions = torch.arange(len(self._loader.dataset))
        return [some.tolist() for some in positions.split(self._loader.batch_size)]


@dataclass(frozen=True, eq=False)
class RankEpoch:
    """An epoch of a loader on one rank. By batch, ``places`` has the positions of its seeds,
    ``weights`` the loader's ``loss_weight``."""

    comm: Communicator
    loader: Any
    batches: list[Any]
    places: Sequence[Tensor]
    weights: Sequence[float]
    counts: Counts

    @classmethod
    def of(cls, comm: Communicator, loader: Any, positions: Positions) -> RankEpoch:
        loader.set_epoch(EPOCH)
        before, batches, weights = comm.counters.snapshot(), [], []
        for batch in loader:
            batches.append(batch)
            weights.append(loader.loss_weight)
        counts = comm.counters.snapshot() - before
        return cls(comm, loader, batches, [positions(batch) for batch in batches], weights, counts)

    def check(
        self,
        reference: OneProcess,
        schedule: str,
        owner: Sequence[int],
        own: Tensor,
        order: list[list[int]] | None = None,
        drops: bool = False,
    ) -> None:
        """Asserts that minibatches are those of one process, and that each seed is trained once.

        ``owner``: the rank of each seed of the input. ``own``: positions of seeds whose minibatch
        is asked for beside the epoch (collective). ``order``: the minibatches of a global schedule,
        by default the reference's. ``drops``: what is not full, and the last step, are left out.
        """
        assert len(self.batches) == len(self.loader)
        for batch, place in zip(self.batches, self.places, strict=True):
            assert_equal(contents_of(batch), reference.minibatch(place))
        assert_equal(contents_of(self.loader(own)), reference.minibatch(own))
        everyones = self.comm.all_gather_json([place.tolist() for place in self.places])
        assert len({len(steps) for steps in everyones}) == 1
        by_step = [*zip(*everyones, strict=True)]
        seeds = [sum(map(len, step)) for step in by_step]
        # Every seed of a step weighs the same.
        assert self.weights == [self.comm.size / max(count, 1) for count in seeds]
        trained = [[*itertools.chain.from_iterable(own)] for own in everyones]
        if schedule == "global":
            wanted, dealt = order or reference.order(), [*itertools.chain.from_iterable(by_step)]
            if drops:
                whole = [one for one in wanted if len(one) == self.loader.batch_size]
                wanted = whole[: len(whole) // self.comm.size * self.comm.size]
            assert dealt[: len(wanted)] == wanted and not any(dealt[len(wanted) :])
        elif drops:
            assert schedule == "local" and len({*itertools.chain(*trained)}) == sum(map(len, trained))
            assert all(owner[seed] == rank for rank, seeds in enumerate(trained) for seed in seeds)
            whole = [owner.count(rank) // self.loader.batch_size for rank in range(self.comm.size)]
            assert len(self.batches) == max(whole)
        else:
            assert_shared(owner, trained, schedule)


def some_positions(loader: Any, rank: int) -> Tensor:
    """Returns four positions in the input of a loader, others on each rank."""
    return (torch.arange(4) * 5 + rank) % len(loader.dataset)


Check = Callable[[Any, Any], object]


class Resumed(NamedTuple):
    loader: Any
    state: dict[str, Any]


def resumed_at(
    loader: Any, make: Callable[[], Any], epoch: int, stops: Sequence[int] | None, check: Check
) -> Iterator[Resumed]:
    """Stops an epoch after each of some numbers of minibatches, and goes on in another loader.

    The state passes through JSON. ``stops``: by default all numbers but that of all minibatches,
    after which the next epoch begins. ``check``: called with each batch that is left and the one of
    an epoch that was not stopped. Collective over ranks.
    """
    loader.set_epoch(epoch)
    whole = list(loader)
    for stop in range(len(whole)) if stops is None else stops:
        loader.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        del batches
        other = make()
        other.load_state_dict(state)
        left = list(other)
        if stop == len(whole):
            assert other.epoch == epoch + 1
        else:
            for batch, right in zip(left, whole[stop:], strict=True):
                check(batch, right)
        yield Resumed(other, state)


BATCH = 8


def stores(
    comm: Communicator, case: Case, hybrid: bool = False, edges: bool = True, **features: Any
) -> tuple[DistFeatureStore, DistGraphStore]:
    part = part_of(case, comm.size, comm.rank, edges)
    topology = replicate_topology(part, comm) if hybrid else None
    return DistFeatureStore(part, comm, **features), DistGraphStore(part, comm, topology)


def one_process(case: Case, **arguments: Any) -> MacrobatchNeighborLoader:
    for name in ("schedule", "prefetch", "device"):
        arguments.pop(name, None)
    arguments |= {"macrobatch_size": 1, "fetch_size": 1}
    return MacrobatchNeighborLoader(arguments.pop("data", None) or whole(case), **arguments)
