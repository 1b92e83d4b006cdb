"""The ranks of a run: the processes that train together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn import comm, machine
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.train.config.table import RanksConfig
from pyg_batchgnn.train.errors import FirstRankError, TrainError, as_train_error

T = TypeVar("T")


def check_backend(backend: str) -> None:
    try:
        comm.check_backend(backend)
    except ValueError as error:
        raise TrainError(f"ranks.{error}") from error


class Ranks(contextlib.ExitStack):
    """The processes that a launcher started for a run; without a launcher, this process alone. Use
    it as a context: an error in the block is reported to the other ranks."""

    def __init__(self, sampling: Communicator, training: Communicator) -> None:
        super().__init__()
        self.sampling, self.training = sampling, training
        self.rank, self.size = training.rank, training.size
        self.enter_context(sampling)
        self.enter_context(training)

    @classmethod
    def join(cls, config: RanksConfig) -> Ranks:
        """Joins the other ranks. Must be called on the main thread."""
        check_backend(config.backend)
        with as_train_error(ValueError):
            sampling = Communicator.create("sampling", backend=config.backend, timeout=config.timeout)
        training = Communicator.create("training", backend=config.backend, timeout=config.timeout)
        return cls(sampling, training)

    def another(self, name: str) -> Communicator:
        """Makes one more communicator of all ranks, which closes with the others; collective."""
        return self.enter_context(Communicator.create(name, timeout=self.training.timeout))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def threads(self) -> int:
        """Returns the threads per rank that use all cores of this host; alone, torch's threads."""
        if not self.is_alone:
            return max(1, machine.processors() // len(self.training.ranks_of_host))
        chosen = "OMP_NUM_THREADS" in os.environ
        return torch.get_num_threads() if chosen else min(torch.get_num_threads(), machine.processors())

    def agree(self, arguments: Mapping[str, Any]) -> None:
        self.training.check_agreement(arguments)

    def table(self, row: Sequence[float]) -> Tensor:
        """Returns [R, n] float64: the row of each rank; collective."""
        mine = torch.tensor([row], dtype=torch.float64)
        return mine if self.is_alone else self.training.all_gather(mine).rows

    def values(self, value: Any) -> list[Any]:
        return [value] if self.is_alone else self.training.all_gather_json(value)

    def any(self, flag: bool) -> bool:
        return bool(self.table([flag]).any())

    @contextlib.contextmanager
    def one_error(self) -> Iterator[None]:
        """Makes the first rank alone report a `TrainError` that the block raises on every rank."""
        try:
            yield
        except TrainError:
            if self.is_first:
                raise
            raise FirstRankError from None

    @contextlib.contextmanager
    def any_error(self) -> Iterator[None]:
        """Makes the first rank report a `TrainError` of the block on any rank; collective."""
        error = None
        try:
            yield
        except TrainError as caught:
            error = caught
        messages = self.values(None if error is None else str(error))
        failed = [rank for rank, message in enumerate(messages) if message is not None]
        if failed and not self.is_first:
            raise FirstRankError
        if error is not None:
            raise error
        if failed:
            raise TrainError(f"rank {failed[0]}: {messages[failed[0]]}")

    def from_first(self, make: Callable[[], T]) -> T:
        """Calls `make` on the first rank, and returns its JSON value on every rank; collective. An
        error is raised on the first rank, and ends the others."""
        value, error = None, None
        if self.is_first:
            try:
                value = make()
            except (ValueError, OSError) as caught:
                error = caught
        value, has_failed = self.values([value, error is not None])[0]
        if error is not None:
            raise error
        if has_failed:
            raise FirstRankError
        return value

    def bytes_to_first(self, data: bytes) -> list[bytes]:
        """Returns each rank's ``data`` on the first rank, and [] on the others; collective."""
        if self.is_alone:
            return [data]
        mine = torch.frombuffer(bytearray(data or b"0"), dtype=torch.uint8)[: len(data)]
        counts = [len(mine), *[0] * (self.size - 1)]
        received = self.training.exchange(mine, counts, comm.MessageKind.CONTROL)
        return [part.numpy().tobytes() for part in received.split()] if self.is_first else []

    def bytes_from_first(self, data: bytes) -> bytes:
        """Returns the first rank's ``data`` on every rank; collective."""
        length = self.from_first(lambda: len(data))
        if self.is_alone or length == 0:
            return data
        buffer = torch.zeros(length, dtype=torch.uint8)
        if self.is_first:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return self.training.broadcast(buffer).numpy().tobytes()
