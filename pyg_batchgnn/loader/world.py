"""The processes that a loader works with: one that agrees with itself, or the ranks of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.loader.prefetch import Executor, RankExecutor, ThreadExecutor

T = TypeVar("T")

#: The largest macrobatch that "auto" stands for in one process: its threads have enough to share.
MAX_AUTO = 32


class World(Protocol):
    """The processes that make a loader's macrobatches together.

    Attributes:
        rank: this process.
        size: the number of processes.
        collective: True if making a macrobatch takes all processes, which then have to do
            everything in the same order.
    """

    rank: int
    size: int
    collective: bool

    def agree(self, arguments: Callable[[], Mapping[str, Any]]) -> None:
        """Raises AgreementError unless the arguments are the same everywhere."""

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by rank."""

    def seed(self, given: int | None) -> int:
        """Returns the given seed, or one that is drawn and is the same everywhere."""

    def max_macrobatch(self, steps: int | None) -> int:
        """Returns the largest macrobatch that "auto" stands for, in an epoch of ``steps`` steps."""

    def now(self, work: Callable[[], T]) -> T:
        """Does a piece of work after all that was started before."""

    def executor(self) -> Executor:
        """Makes what prepares macrobatches ahead, for one iterator."""


class LocalWorld:
    """A process that makes its macrobatches alone."""

    rank, size, collective = 0, 1, False

    def agree(self, arguments: Callable[[], Mapping[str, Any]]) -> None:
        """Does nothing: one process agrees with itself."""

    def gather(self, value: Any) -> list[Any]:
        """Returns a list of the one value."""
        return [value]

    def seed(self, given: int | None) -> int:
        """Returns the given seed, or one from torch's default generator."""
        return drawn_seed() if given is None else given

    def max_macrobatch(self, steps: int | None) -> int:  # noqa: ARG002
        """Returns `MAX_AUTO`."""
        return MAX_AUTO

    def now(self, work: Callable[[], T]) -> T:
        """Does the work."""
        return work()

    def executor(self) -> Executor:
        """Makes a thread."""
        return ThreadExecutor()


class RankWorld:
    """The ranks of a communicator. All methods but `now` and `executor` are collective."""

    collective = True

    def __init__(self, comm: Communicator) -> None:
        self.rank, self.size, self._comm = comm.rank, comm.size, comm

    def agree(self, arguments: Callable[[], Mapping[str, Any]]) -> None:
        """Raises AgreementError unless the arguments are the same on every rank."""
        self._comm.run_job(lambda: self._comm.check_agreement(arguments()))

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all ranks."""
        return self._comm.all_gather_json(value)

    def seed(self, given: int | None) -> int:
        """Returns the given seed, or the one that rank 0 draws.

        Every rank draws one, so that the ranks' generators stay in step.
        """
        return int(self._comm.broadcast(torch.tensor([drawn_seed()]))) if given is None else given

    def max_macrobatch(self, steps: int | None) -> int:
        """Returns the steps of an epoch: a larger macrobatch saves rounds."""
        return max(1, steps or 0)

    def now(self, work: Callable[[], T]) -> T:
        """Does the work as one job of the communicator."""
        return self._comm.run_job(work)

    def executor(self) -> Executor:
        """Makes an executor on the communicator's thread."""
        return RankExecutor(self._comm)


def drawn_seed() -> int:
    """Draws a seed from torch's default generator."""
    return int(torch.empty((), dtype=torch.int64).random_())
