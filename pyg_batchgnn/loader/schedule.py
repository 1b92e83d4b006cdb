"""The schedules of epochs: the seed nodes of each rank's minibatches, and where a loader stands.

See design, section 2.

All ranks make the same number of steps. It is known from counts alone before the epoch begins. One
process is the only rank of the global schedule.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.ops import digest_text, keyed_permutation, minibatch_key, part_key

VERSION = 1


@dataclass
class Run:
    """One pass over the epoch, by one iterator."""

    epoch: int
    skip: int = 0  # minibatches that an earlier process handed out
    handed_out: int = 0  # minibatches handed out, ``skip`` included
    num_batches: int | None = None  # minibatches of the epoch, if it has begun and its order says so
    drawn: dict[str, Any] | None = None  # how to draw the order again, if a generator or sampler drew it
    stride: int = 1  # minibatches of the epoch that the ranks together take per step
    steps: int = 0  # minibatches that this run handed out
    #: the number of seed nodes of each step so far, on all ranks
    seeds: list[int] = field(default_factory=list)
    weight: float | None = None  # the loader's ``loss_weight``

    def hand_out(self) -> None:
        self.steps += 1
        self.handed_out += self.stride
        if self.num_batches is not None:
            self.handed_out = min(self.handed_out, self.num_batches)


class Position:
    """The epoch and the minibatch at which a loader stands."""

    def __init__(self) -> None:
        self.run = Run(epoch=0)
        #: The run that `begin` starts: the next epoch, or the rest of the one that was loaded.
        self.upcoming = Run(epoch=0)

    def begin(self) -> None:
        self.run = self.upcoming
        self.run.handed_out = self.run.skip
        self.upcoming = Run(self.run.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iterator and of ``loader(index)``; keeps a position in it."""
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise TypeError(f"epoch must be an integer, got {epoch!r}")
        if self.upcoming.epoch != epoch or self.upcoming.skip == 0:
            self.upcoming = Run(epoch)
        if self.run.epoch != epoch:
            self.run = Run(epoch)

    def state_dict(self, seed: int, settings: dict[str, Any], generators: list[str]) -> dict[str, Any]:
        """Returns the state of the latest iterator, for JSON. It counts minibatches handed out, not
        those prefetched. ``settings``: the options on which the minibatches depend."""
        return {
            "version": VERSION,
            "seed": seed,
            "epoch": self.run.epoch,
            "batches": self.run.handed_out,
            "num_batches": self.run.num_batches,
            "drawn": self.run.drawn,
            "generators": generators,
            "settings": settings,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where the checked ``state`` was saved; after a whole epoch, at the next one."""
        epoch, batches, of, drawn = state["epoch"], state["batches"], state["num_batches"], state["drawn"]
        self.run = Run(epoch, handed_out=batches, num_batches=of, drawn=drawn)
        if of is not None and batches >= of:
            self.upcoming = Run(epoch + 1)
        else:
            self.upcoming = Run(epoch, skip=batches, drawn=drawn)


def check_state(state: Any, settings: dict[str, Any]) -> None:
    """Raises ValueError, with the first difference, unless ``state`` has these settings."""
    found = state.get("version") if isinstance(state, dict) else type(state).__name__
    if not _is_count(found) or found != VERSION:
        raise ValueError(f"not a state of this loader: version {VERSION} expected, found {found!r}")
    if missing := _ENTRIES.keys() - state.keys():
        raise ValueError(f"the loader's state lacks {sorted(missing)}: it was truncated or altered")
    for name, (fits, kind) in _ENTRIES.items():
        if not fits(state[name]):
            shown = repr(state[name])[:100]
            raise ValueError(f"the loader's state was altered: {name} must be {kind}, found {shown}")
    batches, of = state["batches"], state["num_batches"]
    if of is not None and batches > of:
        raise ValueError(f"the loader's state was altered: {batches} minibatches of {of} were handed out")
    for key in {**settings, **state["settings"]}:  # either may have what the other lacks
        saved, value = state["settings"].get(key), settings.get(key)
        if saved != value:
            raise ValueError(
                f"the loader's state was saved with {key}={saved!r}, but this loader has {key}={value!r}; "
                f"make the loader with the saved value to resume"
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_drawn(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("digest"), str):
        return False
    return bool(value.get("states")) and _is_list_of_states(value["states"])


def _is_list_of_states(states: Any) -> bool:
    return isinstance(states, list) and all(
        isinstance(text, str) and len(text) % 2 == 0 and set(text) <= set("0123456789abcdef")
        for text in states
    )


#: What a state must hold, and in which words.
_ENTRIES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "seed": (lambda value: isinstance(value, int) and not isinstance(value, bool), "an integer"),
    "epoch": (_is_count, "a whole number, 0 or more"),
    "batches": (_is_count, "a whole number, 0 or more"),
    "num_batches": (lambda value: value is None or _is_count(value), "a whole number, 0 or more"),
    "generators": (_is_list_of_states, "states of generators"),
    "drawn": (lambda value: value is None or _is_drawn(value), "states of generators and a digest"),
    "settings": (lambda value: isinstance(value, dict), "a dict"),
}


#: Positions made Python integers at a time; as a list each takes 40 bytes.
CHUNK = 1 << 16

#: Returns the positions in the loader's input that are visited from one place to another.
Visit: TypeAlias = Callable[[int, int], Tensor]


class Order(enum.Enum):
    """The way in which the order of the seeds is decided."""

    SEQUENTIAL = "sequential"
    KEYED = "keyed"  # shuffled by (seed, epoch)
    DRAWN = "drawn"  # by the user's generator, sampler or batch sampler

    def visit(self, count: int, seed: int, epoch: int) -> Visit:
        """Returns a function from a range of places to the seeds there, in one epoch. The order of
        `DRAWN` is not known here."""
        if self is Order.KEYED:
            permutation = keyed_permutation(count, seed, epoch)
            return lambda begin, end: permutation[begin:end]
        return torch.arange


class KeyedShuffleSampler(Sampler[int]):
    """Visits range(n) in an order that depends on (seed, epoch) alone."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed, self.epoch = n, seed, 0

    def __iter__(self) -> Iterator[int]:
        for chunk in keyed_permutation(self.n, self.seed, self.epoch).split(CHUNK):
            yield from chunk.tolist()

    def __len__(self) -> int:
        return self.n


def with_keyed_shuffle(kwargs: dict[str, Any], num_seeds: int) -> dict[str, Any]:
    """Replaces ``shuffle=True`` by a keyed permutation, unless other arguments decide the order.
    Its seed is set later, with the loader's."""
    decided = any(kwargs.get(name) is not None for name in ("generator", "sampler", "batch_sampler"))
    if not isinstance(shuffle := kwargs.get("shuffle"), bool | int | None):
        raise TypeError(f"shuffle must be True or False, got {shuffle!r}")
    if not shuffle or decided:
        return kwargs
    return {**kwargs, "shuffle": False, "sampler": KeyedShuffleSampler(num_seeds, 0)}


def order_of(loader: DataLoader) -> Order:
    """Returns how the order of a loader, or of a `DrawnOrder`, is decided."""
    if loader.batch_size is None:  # then batch_sampler is the user's, else DataLoader's own
        return Order.DRAWN
    if isinstance(loader.sampler, KeyedShuffleSampler):
        return Order.KEYED
    return Order.SEQUENTIAL if type(loader.sampler) is SequentialSampler else Order.DRAWN


def as_positions(index: object) -> Tensor:
    """Returns a list, or a tensor of any integer type, as positions [n] int64."""
    if isinstance(index, Tensor):
        if index.dtype is torch.bool or index.is_floating_point() or index.layout is not torch.strided:
            raise TypeError(f"positions must be dense integers, got {index.dtype} {index.layout}")
        return index.view(-1).to("cpu", torch.int64)
    return torch.tensor([int(position) for position in index], dtype=torch.int64)  # type: ignore[attr-defined]


def generator_states(loader: Any) -> list[str]:
    """Returns the states of the generators that decide the order, without torch's default one."""
    return [_to_text(generator.get_state()) for generator in _generators(loader)]


def all_states(loader: Any) -> list[str]:
    return [_to_text(torch.get_rng_state()), *generator_states(loader)]


def check_states(loader: Any, states: list[str]) -> None:
    """Raises ValueError unless the generators that decide the order can take these states."""
    generators = _generators(loader)
    if len(generators) != len(states):
        raise ValueError(
            f"the loader's state is of {len(states)} generators, but this loader and its samplers have "
            f"{len(generators)}; make the loader with the same generator, sampler and batch_sampler to resume"
        )
    for state in states:
        try:
            torch.Generator().set_state(_from_text(state))
        except (RuntimeError, ValueError) as error:
            what = f"{len(state) // 2} bytes of a generator: {error}"
            raise ValueError(f"the loader's state was altered: {what}") from error


def set_generators(loader: Any, states: list[str]) -> None:
    """Sets the generators that decide the order to what `generator_states` returned. Raises
    ValueError if the number of states differs, or one is not a generator's."""
    check_states(loader, states)
    generators = _generators(loader)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(_from_text(state))


@contextlib.contextmanager
def restored(loader: Any, states: list[str]) -> Iterator[None]:
    """Sets all generators to what `all_states` returned. When the context ends, torch's default
    generator, which training uses too, gets its state back."""
    set_generators(loader, states[1:])
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(_from_text(states[0]))
        yield


def _generators(loader: Any) -> list[torch.Generator]:
    """Returns the generators of the loader and its samplers, each once."""
    if order_of(loader) is not Order.DRAWN:
        return []
    inner = getattr(loader.batch_sampler, "sampler", None)
    owners = (loader, loader.sampler, loader.batch_sampler, inner)
    held = (getattr(owner, "generator", None) for owner in owners)
    return list({id(one): one for one in held if isinstance(one, torch.Generator)}.values())


def _to_text(state: Tensor) -> str:
    """Returns a generator's state, [S] uint8, as hexadecimal digits, which JSON can hold."""
    return state.numpy().tobytes().hex()


def _from_text(text: str) -> Tensor:
    return torch.frombuffer(bytearray(bytes.fromhex(text)), dtype=torch.uint8)


class ScheduleName(str, enum.Enum):
    """How ranks share the seeds of an epoch: "local", "balanced" or "global"."""

    LOCAL = "local"  # a rank trains those that it owns
    BALANCED = "balanced"  # every rank trains equally many, most of them its own
    GLOBAL = "global"  # rank g mod R trains minibatch g of one process

    @classmethod
    def of(cls, given: str | None) -> ScheduleName | None:
        """Returns a schedule by name; None stays None. Raises ValueError for an unknown name."""
        if given is None:
            return None
        if given not in [one.value for one in cls]:
            raise ValueError(f"schedule must be 'local', 'balanced' or 'global', got {given!r}")
        return cls(given)


@dataclass(frozen=True, eq=False)
class SeedStep:
    """The seed nodes of one step."""

    #: [S] int64, the positions of this rank's seeds in the loader's input; none if none are left
    positions: Tensor
    seeds: int  # the number of seeds of the step, on all ranks together
    #: [S] int64, in a partitioned graph the seeds' internal ids, by node type in the schema's order
    internal: Tensor | None = None

    @classmethod
    def of(cls, positions: Tensor) -> SeedStep:
        return cls(positions, positions.numel())


@dataclass(frozen=True)
class StepShape:
    """How an epoch's seeds are cut into minibatches."""

    batch_size: int  # the seed nodes of a rank's minibatch
    drop_last: bool  # True leaves out the last seeds if they do not fill a minibatch
    order: Order  # the order in which seeds are visited

    @classmethod
    def of(cls, loader: NodeLoader) -> StepShape:
        assert loader.batch_size is not None
        return cls(loader.batch_size, loader.drop_last, order_of(loader))

    def batches(self, count: int) -> int:
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class SeedSchedule(ABC):
    """The steps of an epoch over ``count`` seeds of the loader's input."""

    stride = 1  # the minibatches of the epoch that a step takes

    def __init__(self, count: int) -> None:
        self.num_candidates = count  # the seeds that this rank's minibatches are made of

    @abstractmethod
    def length(self, skip: int = 0) -> int | None:
        """Returns the number of steps that are left after ``skip`` minibatches; None if unknown."""

    def end(self, skip: int) -> int | None:  # noqa: ARG002
        """Returns the number of minibatches of the epoch that all its steps have."""
        return self.length()

    @abstractmethod
    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        """Yields the steps of a run, and notes in ``run`` what is needed to repeat them."""

    def candidates(self, which: Tensor) -> Tensor:
        """Returns the positions in the loader's input of the candidates with these numbers."""
        return which

    def settings(self) -> dict[str, Any]:
        """Returns the settings on which the minibatches depend, beside the order, for JSON."""
        return {"schedule": "global"}


class GlobalSchedule(SeedSchedule):
    """Makes the same minibatches for any number of ranks: rank g mod R trains remaining minibatch
    g. ``drop_last`` leaves out a smaller last minibatch, and then a last step of fewer than R
    minibatches."""

    def __init__(self, count: int, rank: int, size: int, shape: StepShape) -> None:
        super().__init__(count)
        self._rank, self.stride, self._shape = rank, size, shape
        self._batches = shape.batches(count)

    def length(self, skip: int = 0) -> int:
        left = max(self._batches - skip, 0)
        return left // self.stride if self._shape.drop_last else -(-left // self.stride)

    def end(self, skip: int) -> int:
        return min(self._batches, skip + self.length(skip) * self.stride)

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        visit = self._shape.order.visit(self.num_candidates, seed, run.epoch)
        firsts = range(run.skip, run.skip + self.length(run.skip) * self.stride, self.stride)
        for first in firsts:
            begin, end = self._bounds(first + self._rank)
            seeds = self._bounds(first + self.stride - 1)[1] - self._bounds(first)[0]
            yield SeedStep(visit(begin, end), seeds)

    def _bounds(self, number: int) -> tuple[int, int]:
        begin = min(number * self._shape.batch_size, self.num_candidates)
        return begin, min(begin + self._shape.batch_size, self.num_candidates)


class LocalSchedule(SeedSchedule):
    """Cuts each rank's own seed nodes into minibatches (BatchGNN, DistDGL, FastSample). ``own``:
    [S_r] positions of this rank's seed nodes in the loader's input, in its order."""

    def __init__(
        self,
        own: Tensor,
        counts: Sequence[int],
        rank: int,
        shape: StepShape,
        lists: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(own.numel())
        self.own, self._counts, self._rank, self._shape = own, list(counts), rank, shape
        self._lists = dict(lists or {})
        self._steps = max(map(shape.batches, self._counts), default=0)

    def length(self, skip: int = 0) -> int:
        return max(self._steps - skip, 0)

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:
        # In a world of one rank the order is that of one process.
        key = seed if self._rank == 0 else part_key(seed, f"r{self._rank}")
        count = self.own.numel()
        order = self.own[self._shape.order.visit(count, key, run.epoch)(0, count)]
        sizes = [self._sizes(count) for count in self._counts]
        mine = sizes[self._rank]
        parts = order[: sum(mine)].split(mine) if mine else ()
        seeds = [sum(step) for step in zip(*sizes, strict=True)]
        return map(SeedStep, parts[run.skip :], seeds[run.skip :])

    def candidates(self, which: Tensor) -> Tensor:
        return self.own[which]

    def settings(self) -> dict[str, Any]:
        return {"ranks": len(self._counts), **self._lists}

    def _sizes(self, count: int) -> list[int]:
        steps, size = self._steps, self._shape.batch_size
        if self._shape.batches(count) == steps:
            return [min(size, count - step * size) for step in range(steps)]
        return [count // steps + (step < count % steps) for step in range(steps)]


@dataclass(frozen=True, eq=False)
class DrawnOrder:
    """The sampler and generator that draw a loader's order, without a reference to the loader."""

    #: sampler, batch_sampler: the loader's
    sampler: Any
    batch_sampler: Any
    batch_size: int | None  # the loader's; None if the user gave the batch sampler
    generator: torch.Generator | None  # the loader's, or None

    @classmethod
    def of(cls, loader: NodeLoader) -> DrawnOrder:
        return cls(loader.sampler, loader.batch_sampler, loader.batch_size, loader.generator)


class DrawnSchedule(SeedSchedule):
    """Makes the minibatches that a loader's own batch sampler draws, in one process. A whole epoch
    is drawn at once, so that neither training nor the macrobatch size changes it."""

    def __init__(self, order: DrawnOrder, count: int) -> None:
        super().__init__(count)
        self._order = order

    def length(self, skip: int = 0) -> int | None:
        sampler = self._order.batch_sampler
        return max(len(sampler) - skip, 0) if isinstance(sampler, Sized) else None

    def steps(self, run: Run, seed: int) -> Iterator[SeedStep]:  # noqa: ARG002
        """Draws the steps of an epoch, and skips those handed out before. Raises ValueError if an
        earlier process handed some out, but the order that is drawn differs or has no length."""
        if self.length() is None:
            if run.skip:
                raise ValueError(
                    "a batch_sampler without len() cannot be resumed inside an epoch; give it a __len__"
                )
            return map(SeedStep.of, map(as_positions, self._order.batch_sampler))
        saved, before = run.drawn, all_states(self._order)
        with contextlib.nullcontext() if saved is None else restored(self._order, saved["states"]):
            batches = [as_positions(batch) for batch in self._order.batch_sampler]
        digest = _digest(batches)
        if saved is not None and saved.get("digest") != digest:
            raise ValueError(
                f"the sampler draws other minibatches than it drew for epoch {run.epoch} before the state "
                f"was saved; bring it back to where it stood when that epoch began"
            )
        run.drawn = saved or {"states": before, "digest": digest}
        run.num_batches = len(batches)
        return map(SeedStep.of, batches[run.skip :])


def _digest(batches: Sequence[Tensor]) -> str:
    sizes = torch.tensor([batch.numel() for batch in batches], dtype=torch.int64)
    return digest_text(minibatch_key(torch.cat([*batches, sizes])))


#: The number of a macrobatch that belongs to no epoch's sequence: of a probe, or of
#: ``loader(index)``.
NO_NUMBER = -1


@dataclass(frozen=True, eq=False)
class WorkItem:
    """One macrobatch to make."""

    epoch: int  # which a worker process learns from here alone
    number: int  # the macrobatch's number in the epoch
    steps: list[SeedStep]  # the seeds of its minibatches


def work_items(steps: Iterable[SeedStep], run: Run, macrobatch_size: int) -> Iterator[WorkItem]:
    """Cuts the steps of a run into macrobatches, and notes in ``run`` the seeds of each step."""
    left = iter(steps)
    for number in itertools.count():
        chosen = list(itertools.islice(left, macrobatch_size))
        if not chosen:
            return
        run.seeds += [step.seeds for step in chosen]
        yield WorkItem(run.epoch, number, chosen)
